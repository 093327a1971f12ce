"""The dot class of `exact/1` against integers and fractions in plain Python, by both engines, on
every instruction set (NUMERICS 17)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from reference import exact_blocks as reference
from unit.numerics.test_rounded_operators import GEOMETRIES, _geometry, nasty, seeded

from tallystick import _core
from tallystick.contracts.exact import BLOCK_LENGTHS
from tallystick.contracts.exact.cpu import exact_kernel
from tallystick.contracts.exact.cpu import integers as engines
from tallystick.contracts.exact.cpu import operators as conv_module
from tallystick.contracts.exact.cpu.integers import ENGINES
from tallystick.errors import EnvironmentRefusedError, UsageError
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.contracts import find_contract
from tallystick.products import engines as blas
from tallystick.products.patches import image_tiles
from tallystick.products.tiles import BUDGET

pytestmark = pytest.mark.usefixtures("probed_once")

WIDTHS = tuple(BLOCK_LENGTHS)
KINDS = ("plain", "scales", "cancel", "ties", "tiny", "huge", "special")
PATHS = list(itertools.product(ENGINES, _core.supported_isas()))


@pytest.fixture(params=["whole", "tiled"])
def tiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Whether patches fit a tile, or are cut."""
    if request.param == "tiled":
        monkeypatch.setattr(conv_module, "BUDGET", 500)
    yield request.param


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype == np.float32 and got.shape == want.shape
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


def on_every_path(op: str, arrays: tuple[Any, ...], width: int, attrs: Any) -> list[list[Any]]:
    """The outputs by every engine and instruction set, on one to three threads."""
    made = []
    for number, (engine, isa) in enumerate(PATHS):
        _core.set_isa(isa)
        _core.set_threads(1 + number % 3)
        with engines.using(engine):
            found = evaluate(op, *arrays, contract=f"exact/1;b={width}", **attrs)
        made.append(list(found) if isinstance(found, tuple) else [found])
    return made


# What the reference gave, by the call: it takes long, and calls are made again with other tiles.
KNOWN: dict[tuple[Any, ...], list[np.ndarray]] = {}


def check(op: str, width: int, *arrays: Any, **attrs: Any) -> None:
    full = {"alpha": 1.0, "beta": 1.0, "output_mask": (True, True, True), **attrs}
    call = (op, width, repr(full), *((a.shape, a.tobytes()) for a in arrays))
    if call not in KNOWN:
        KNOWN[call] = reference.outputs(op, full, arrays, width)
    want = KNOWN[call]
    for found in on_every_path(op, arrays, width, attrs):
        for got, expected in zip(found, want, strict=True):
            same(np.asarray(got), expected)


@pytest.mark.sample(3)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_products(kind: str, width: int) -> None:
    """NUMERICS 17.3 to 17.7: odd shapes, a block and its neighbours, strides."""
    rng = seeded("exact", kind, width)
    length = BLOCK_LENGTHS[width]
    for m, k, n in ((5, 33, 7), (1, 1, 3), (2, length, 1), (1, length + 1, 2), (3, 300, 5)):
        a, b = nasty(rng, (m, k), kind), nasty(rng, (k, n), kind)
        check("aten.mm", width, a, b)
    check("aten.mm", width, np.asfortranarray(a), np.ascontiguousarray(b.T).T)
    a, b = nasty(rng, (3, 4, 20), kind), nasty(rng, (3, 20, 5), kind)
    check("aten.bmm", width, a, b)
    check("aten.bmm", width, a.copy("F"), b[:, :, ::-1])
    for shape, beta, alpha in (
        ((5,), 1.0, 1.0),
        ((4, 5), 0.1, 1.0),
        ((), 0.0, 3.0),
        ((4, 1), 2, -1),
        ((5,), 1.0, 2.0),
    ):
        c = nasty(rng, shape, kind)
        check("aten.addmm", width, c, a[0], b[0], beta=float(beta), alpha=float(alpha))


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", KINDS)
def test_convolutions(kind: str, tiled: str) -> None:
    """NUMERICS 17.2, 17.3: groups of images and channels."""
    rng = seeded("exact conv", kind)
    for width, case in zip(itertools.cycle(WIDTHS), GEOMETRIES):
        form, sides = _geometry(case)
        x, w = nasty(rng, case[0], kind), nasty(rng, case[1], kind)
        grad = nasty(rng, (case[0][0], case[1][0], *sides), kind)
        check("aten.convolution", width, x, w, **form)
        check("aten.convolution", width, x, w, nasty(rng, (case[1][0],), kind), **form)
        check("aten.convolution_backward", width, grad, x, w, **form)
    check(
        "aten.convolution_backward", 22, grad, x, w, output_mask=(False, True, False), **form
    )  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("kind", ["special", "scales"])
def test_convolutions_of_several_segments(kind: str) -> None:
    """17.2: channels, output channels, images and places beyond one block (b = 8: 256)."""
    rng = seeded("segments", kind)
    form: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    x, w = nasty(rng, (1, 60, 3, 3), kind), nasty(rng, (58, 60, 3, 3), kind)[:58:29]
    w2 = nasty(rng, (58, 2, 3, 3), kind)
    check("aten.convolution", 8, x, w, **form)  # 28 channels a segment
    grad = nasty(rng, (1, 58, 3, 3), kind)
    check("aten.convolution_backward", 8, grad, x[:, :2], w2, **form)
    few = (nasty(rng, (30, 2, 3, 3), kind), nasty(rng, (30, 1, 3, 3), kind))
    one = nasty(rng, (2, 1, 3, 3), kind)
    check("aten.convolution_backward", 8, few[0], few[1], one, **form)  # 28 images a segment
    wide = (nasty(rng, (2, 1, 20, 20), kind), nasty(rng, (2, 1, 20, 20), kind))
    check(
        "aten.convolution_backward", 8, *wide, one[:1], output_mask=(False, True, False), **form
    )  # 400 places: two blocks of one segment
    big = {**form, "padding": (0, 0)}
    many = (nasty(rng, (1, 300, 1, 2), kind), nasty(rng, (2, 300, 1, 1), kind))
    check("aten.convolution", 8, *many, **big)  # one tap: 256 channels a segment
    check("aten.convolution_backward", 8, nasty(rng, (1, 2, 1, 2), kind), *many, **big)
    check("aten.convolution", 8, wide[0], nasty(rng, (1, 1, 18, 18), kind), **big)  # 324 taps


def test_every_operator_of_the_contract_has_a_kernel() -> None:
    assert set(exact_kernel) == find_contract("exact/1").own_operators


def test_a_result_that_is_no_number_is_the_canonical_one() -> None:
    """1.5: infinity minus infinity, in the steps after a DOT."""
    form: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    x, w = np.full((1, 1, 1, 2), np.inf, np.float32), np.ones((1, 1, 1, 1), np.float32)
    check("aten.convolution", 8, x, w, np.float32([-np.inf]), **form)
    check("aten.addmm", 22, np.float32([-np.inf]), x[0, 0], np.ones((2, 1), np.float32))
    big = np.float32([[3e38, 3e38]])  # overflows
    check("aten.addmm", 22, np.float32([-np.inf]), big, np.ones((2, 1), np.float32))


def test_what_the_core_says_of_zeros() -> None:
    """17.4, 17.5: the magnitude of zeros is 0, and a block of the sum -0 is +0."""
    mu, m = np.full((2, 1), 7, np.uint32), np.full((2, 5), 7, np.float32)
    _core.exact_integers(np.float32([[0.0] * 5, [-0.0] * 5]), 5, 22, mu, m)
    assert not mu.any() and not m.any()
    total = np.full((1, 1, 2), 7.0)
    ones = np.full((1, 1), 0x3F800000, np.uint32)
    for first in (True, False):
        _core.exact_add(
            np.full((1, 1, 2), -0.0), ones, np.repeat(ones, 2, axis=1), 22, first, total
        )
        assert total.tobytes() == bytes(16)


def test_images_of_one_place() -> None:
    """17.2: 256 images a segment (b = 8), their magnitudes far apart."""
    rng = seeded("one place")
    form: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    x = nasty(rng, (300, 1, 1, 1), "scales")
    grad, w = nasty(rng, (300, 2, 1, 1), "scales"), nasty(rng, (2, 1, 1, 1), "plain")
    check("aten.convolution_backward", 8, grad, x, w, **form)
    check("aten.convolution_backward", 8, grad * np.float32(2.0**-60), x, w, **form)


def test_tiles_cover_everything_once_within_the_budget() -> None:
    for images, rows, per_row in ((5, 7, 300), (3, 40, 9), (2, 3, 1), (4, 5, 10**9), (1, 1, 0)):
        seen = []
        for n0, n1, y0, y1 in image_tiles(images, rows, per_row, BUDGET):
            seen += [(n, y) for n in range(n0, n1) for y in range(y0, y1)]
            held = (n1 - n0) * (y1 - y0)
            assert held * per_row <= BUDGET or held == 1
        assert seen == [(n, y) for n in range(images) for y in range(rows)]
    parts = image_tiles(6, 10, BUDGET // 20, BUDGET)
    assert parts == [(0, 2, 0, 10), (2, 4, 0, 10), (4, 6, 0, 10)]  # not smaller than need be
    parts = image_tiles(1, 10, BUDGET // 4, BUDGET)
    assert parts == [(0, 1, 0, 4), (0, 1, 4, 8), (0, 1, 8, 10)]


def test_nothing_to_add_and_nothing_to_make() -> None:
    empty = np.zeros((3, 0), np.float32)
    for width in WIDTHS:
        check("aten.mm", width, empty, empty.T.copy())
        check("aten.mm", width, empty.T.copy(), np.ones((3, 2), np.float32))
        check("aten.addmm", width, np.float32([-0.0, 1.5]), empty, np.zeros((0, 2), np.float32))
        check("aten.bmm", width, np.zeros((0, 2, 3), np.float32), np.zeros((0, 3, 2), np.float32))
        check("aten.bmm", width, np.zeros((2, 2, 0), np.float32), np.zeros((2, 0, 3), np.float32))
    none = np.zeros((0, 2, 4, 4), np.float32)
    form: dict[str, Any] = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    w = np.ones((3, 2, 3, 3), np.float32)
    check("aten.convolution", 8, none, w, **form)
    check("aten.convolution_backward", 8, np.zeros((0, 3, 2, 2), np.float32), none, w, **form)
    for width, inf in itertools.product(WIDTHS, (False, True)):  # planes of no places: taps outside
        padded = {**form, "padding": (1, 1)}
        x, small = np.zeros((2, 300, 0, 1), np.float32), np.ones((2, 300, 1, 1), np.float32)
        small[1, 299] = np.inf if inf else 2
        check("aten.convolution", width, x, small, np.float32([1.5, -2]), **padded)
        grad = np.ones((2, 2, 2, 3), np.float32)
        grad[1, 0] = np.inf if inf else 3
        check("aten.convolution_backward", width, grad, x, small, **padded)


def test_ties_and_the_largest_integer() -> None:
    """17.4: ties to even, +2^(B-1) by rounding, 128 becomes 127 and -128 stays."""
    for width in WIDTHS:
        below = np.nextafter(np.float32(1), np.float32(0))
        ties = np.float32([below, -below, *(np.arange(-5, 6) + 0.5) * 2.0 ** (1 - width)])
        for x in (ties, ties * np.float32(2.0**-140), ties * np.float32(2.0**100)):
            check("aten.mm", width, np.diag(x), np.eye(len(x), dtype=np.float32))
            check("aten.mm", width, x[None], x[:, None])
    first = np.asarray(
        evaluate("aten.mm", np.float32([[-0.999, 0.999]]), np.eye(2, dtype=np.float32),
                 contract="exact/1;b=8")
    )  # fmt: skip
    assert first.tolist() == [[-1.0, 127 / 128]]


def test_the_largest_sums_stay_exact() -> None:
    """17.8: a whole block of the largest integers, of either sign."""
    for width, length in BLOCK_LENGTHS.items():
        below = np.nextafter(np.float32(1), np.float32(0))
        a = np.full((2, length), below)
        a[1] = -a[1]
        b = np.full((length, 2), -below)
        b[-1, 1] = np.float32(2.0 ** (1 - width))
        check("aten.mm", width, a, b)


def test_one_element_that_is_not_finite_sends_its_row_and_column() -> None:
    """17.7: a NaN in a row gives ordered/1's bits there and there only."""
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((4, 600), (600, 5)))
    a[1, 599], b[0, 2] = np.inf, np.nan
    plain = np.asarray(evaluate("aten.mm", a, b))
    clean = np.where(np.isfinite(a), a, 0), np.where(np.isfinite(b), b, 0)
    rest = np.asarray(evaluate("aten.mm", *clean, contract="exact/1;b=15"))
    got = np.asarray(evaluate("aten.mm", a, b, contract="exact/1;b=15"))
    same(got[1], plain[1])
    same(got[:, 2], plain[:, 2])
    keep = np.ix_([0, 2, 3], [0, 1, 3, 4])
    same(got[keep], rest[keep])
    assert not np.array_equal(rest[keep], plain[keep])


def test_other_operators_stay_as_they_are() -> None:
    """17.1: sums are ordered/1's."""
    x = np.random.default_rng(0).standard_normal(3000).astype(np.float32)
    for op in ("aten.sum", "aten.exp", "tallystick.sum_squares"):
        same(np.asarray(evaluate(op, x, contract="exact/1;b=8")), np.asarray(evaluate(op, x)))


@pytest.mark.parametrize("width", WIDTHS)
def test_both_engines_on_large_operands(width: int) -> None:
    """The same bits where the plain reference is too slow: threads, engines, instruction sets."""
    rng = seeded("large", width)
    a, b = nasty(rng, (130, 2500), "scales"), nasty(rng, (2500, 101), "plain")
    made = on_every_path("aten.mm", (a, b), width, {})
    for found in made[1:]:
        same(np.asarray(found[0]), np.asarray(made[0][0]))


def test_the_binary64_engine_is_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that loses bits is refused before it computes; the digits need no BLAS."""

    class Narrow(blas.NumpyEngine):
        name = "binary32 inside an exact product"

        def mm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
            out[...] = np.matmul(a.astype(np.float32), b.astype(np.float32))

    x = np.ones((2, 2), np.float32)
    with blas.using(Narrow()):
        with engines.using("binary64"), pytest.raises(EnvironmentRefusedError, match="binary32"):
            evaluate("aten.mm", x, x, contract="exact/1")
        with pytest.raises(EnvironmentRefusedError, match="binary32"):
            engines.prepare(22)  # before a step begins
        engines.prepare(8)  # the digits are faster there
        with engines.using("digits"):
            evaluate("aten.mm", x, x, contract="exact/1")
            engines.prepare(22)


def test_an_engine_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="binary64"), engines.using("bf16"):
        pass
