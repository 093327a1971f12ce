"""`exact/1` on a GPU (NUMERICS 17): its kernels in the emulation, against golden vectors and the
processor."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import kernel_format as fmt
import make_exact_vectors as maker
import numpy as np
import pytest
from device_calls import KINDS, call, check_cases, same_as_processor
from dot_shapes import convolution, product
from emulated_gpu import CUDA, FAULTS, EmulatedDriver, emulated_gpu, planted
from kernel_format import same_bits

from tallystick.contracts.exact import BLOCK_LENGTHS
from tallystick.contracts.exact.cuda import exact_kernel
from tallystick.contracts.exact.cuda.ways import (
    FORCED,
    TILES,
    ForcedWay,
    ProductShape,
    choose,
    ways,
)
from tallystick.devices.cpu import CPU
from tallystick.devices.cuda.device import Cuda
from tallystick.numerics.contracts import find_contract

WIDTHS = tuple(BLOCK_LENGTHS)
WAYS = [(width, way.name) for width in WIDTHS for way in ways(width)]


@pytest.fixture(autouse=True)
def unforced() -> Iterator[None]:
    yield
    vars(FORCED).update(vars(ForcedWay()))


def checked(
    device: Cuda, width: int, op: str, attrs: dict[str, Any], arrays: Any, **how: Any
) -> None:
    same_as_processor(device, op, attrs, arrays, f"exact/1;b={width}", **how)


def test_every_operator_of_the_dot_class_has_a_kernel() -> None:  # NUMERICS 17.1
    assert set(exact_kernel) == find_contract("exact/1").own_operators


@pytest.mark.sample(3)
@pytest.mark.parametrize(("width", "way"), WAYS)
def test_golden_vectors(width: int, way: str) -> None:  # NUMERICS 17.2 to 17.8
    FORCED.way = way
    group = f"b-{width}"
    device, contract = emulated_gpu(width), maker.CONTRACTS[group]
    cases = fmt.load(group, KINDS, maker.ROOT, contract)
    found = check_cases(device, group, cases, contract=contract)
    assert found.wrong == []
    assert found.operators == set(maker.OPERATORS) and not found.missing
    assert found.calls >= len(cases) >= 50
    assert isinstance(device.driver, EmulatedDriver)
    device.driver.check()


def test_vectors_of_another_width_are_seen_as_wrong() -> None:
    cases = fmt.load("b-15", KINDS, maker.ROOT, maker.CONTRACTS["b-15"])
    assert check_cases(emulated_gpu(), "b-15", cases, contract="exact/1;b=22").wrong


def small(way: str | None = None) -> None:
    """Limits of a few elements, so that small operands are cut in every way."""
    FORCED.way, FORCED.laid, FORCED.results, FORCED.kept = way, 9000, 700, 2


@pytest.mark.parametrize("width", WIDTHS)
def test_random_products(width: int) -> None:  # NUMERICS 17.3 to 17.7
    rng = np.random.default_rng(width)
    device = emulated_gpu(width)
    names = [None, *(way.name for way in ways(width))]
    for i in range(3 * len(names)):
        op, attrs, arrays = product(rng)
        if i % 3 == 2:
            small(names[i % len(names)])
        else:
            FORCED.way, FORCED.laid, FORCED.results, FORCED.kept = (
                names[i % len(names)], ForcedWay.laid, ForcedWay.results, ForcedWay.kept,
            )  # fmt: skip
        checked(device, width, op, attrs, arrays, turned=i % 2 == 1)


@pytest.mark.parametrize("width", WIDTHS)
def test_random_convolutions(width: int) -> None:  # NUMERICS 17.2, 17.3
    rng = np.random.default_rng(width + 1)
    device = emulated_gpu(width)
    names = [None, *(way.name for way in ways(width))]
    for i, name in enumerate(names):
        FORCED.way = name
        if i % 2:
            small(name)
        for one in convolution(rng):
            checked(device, width, *one)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_last_lines_of_a_product_take_no_more_room_than_the_first(width: int) -> None:
    """Blocks of terms by themselves, some at a time, where the last rows are fewer: their sums must
    not reach the totals, which lie behind them. NUMERICS 17.6."""
    rng = np.random.default_rng(width + 2)
    device, [way] = emulated_gpu(width), [w for w in ways(width) if w.splits]
    assert way.tile is not None
    a, b = (
        (rng.standard_normal(s) * np.exp2(rng.integers(-9, 9, s))).astype(np.float32)
        for s in ((19, 4 * BLOCK_LENGTHS[width]), (4 * BLOCK_LENGTHS[width], 10))
    )
    # 10 rows with two blocks together, then 9 rows, of which three would fit.
    laid = 10 * 4 * BLOCK_LENGTHS[width] * way.tile.digits
    FORCED.way, FORCED.laid, FORCED.results = way.name, laid, 290
    checked(device, width, "aten.mm", {}, [a, b])


def test_long_lines_take_no_more_memory_than_others() -> None:
    """Where not even a tile's lines fit the memory for operands, parts have fewer lines."""
    device, rng = emulated_gpu(10), np.random.default_rng(10)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((70, 4096), (4096, 5)))
    FORCED.way, FORCED.laid, FORCED.kept = "3x64x128", 20 * 4096 * 3, 1
    checked(device, 22, "aten.mm", {}, [a, b])
    assert device.scratch_memory is not None
    totals, rest = 8 * 64 * 128, 10_000
    assert device.scratch_memory.nbytes < 2 * FORCED.laid + totals + rest


@pytest.mark.parametrize("width", WIDTHS)
def test_blocks_and_their_neighbours(width: int) -> None:  # NUMERICS 17.1, 17.6
    """Rows of very different sizes, so that the order of blocks counts."""
    rng = np.random.default_rng(3)
    device, length = emulated_gpu(3), BLOCK_LENGTHS[width]
    for k in (length - 1, length, length + 1, 3 * length + 70):
        a, b = (
            (rng.standard_normal(s) * np.exp2(rng.integers(-30, 30, s))).astype(np.float32)
            for s in ((5, k), (k, 3))
        )
        for way in ways(width):
            FORCED.way = way.name
            checked(device, width, "aten.mm", {}, [a, b])


def test_the_largest_sums(width: int = 22) -> None:  # NUMERICS 17.8
    """A whole block of the largest integers, and of digits that are all -128."""
    device, length = emulated_gpu(4), BLOCK_LENGTHS[width]
    below = np.nextafter(np.float32(1), np.float32(0))
    full = np.full((2, 2 * length), below)
    full[1] = -full[1]
    digits = np.full((2, 2 * length), -(128 + 256 * 128 + 65536 * 31) / 2**21, np.float32)
    for way in ways(width):
        FORCED.way = way.name
        for x in (full, digits):
            checked(device, width, "aten.mm", {}, [x, np.ascontiguousarray(-x.T)])


def test_convolutions_of_several_segments() -> None:  # NUMERICS 17.2, 17.3
    rng = np.random.default_rng(6)
    device = emulated_gpu(6)
    form = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}

    def x(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * np.exp2(rng.integers(-9, 9, shape))).astype(np.float32)

    both = {**form, "output_mask": (True, True, False)}
    only = {**form, "padding": (0, 0), "output_mask": (False, True, False)}
    for way in ways(8):
        FORCED.way = way.name
        checked(device, 8, "aten.convolution", form, [x(1, 60, 3, 3), x(2, 60, 3, 3), None])
        grad = [x(1, 58, 3, 3), x(1, 2, 3, 3), x(58, 2, 3, 3)]
        checked(device, 8, "aten.convolution_backward", both, grad)
        grad = [x(30, 2, 3, 3), x(30, 1, 3, 3), x(2, 1, 3, 3)]
        checked(device, 8, "aten.convolution_backward", both, grad)
        # 400 places: two blocks of one segment; 324 taps.
        grad = [x(2, 1, 20, 20), x(2, 1, 20, 20), x(1, 1, 1, 1)]
        checked(device, 8, "aten.convolution_backward", only, grad)
        big = {**form, "padding": (0, 0)}
        checked(device, 8, "aten.convolution", big, [x(2, 1, 20, 20), x(1, 1, 18, 18), None])


def test_operands_that_are_not_finite() -> None:  # NUMERICS 17.7
    rng = np.random.default_rng(7)
    device = emulated_gpu(7)
    inf, nan = np.float32(np.inf), np.uint32(0xFFC12345).view(np.float32)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((9, 300), (300, 7)))
    a[1, 3], a[2, 4], a[2, 5], a[3, 6] = inf, inf, -inf, nan
    b[3, 2], b[299, 1], b[8, 5] = 0, -inf, nan
    a[7], b[:, 3], a[6] = 3.4e38, 3.4e38, 0
    c = rng.standard_normal((9, 7)).astype(np.float32)
    c[0, 0], c[1, 1] = -inf, nan
    x, w = a[:, :33].reshape(1, 9, 3, 11).copy(), b.reshape(-1)[:54].reshape(6, 3, 3, 1).copy()
    form = {"stride": (2, 1), "padding": (1, 2), "dilation": (1, 1), "groups": 3}
    grad = rng.standard_normal((1, 6, 2, 15)).astype(np.float32)
    grad[0, 2, 1, 1], grad[0, 4, 0, 0] = inf, nan
    for width in WIDTHS:
        for way in ways(width):
            FORCED.way = way.name
            checked(device, width, "aten.mm", {}, [a, b])
            checked(device, width, "aten.addmm", {"alpha": 0.5, "beta": 2.0}, [c, a, b])
            checked(device, width, "aten.convolution", form, [x, w, c[:6, 0].copy()])
            mask = {**form, "output_mask": (True, True, True)}
            checked(device, width, "aten.convolution_backward", mask, [grad, x, w])


def test_a_second_run_has_other_threads_first_and_the_same_bits() -> None:  # NUMERICS 1.8
    rng = np.random.default_rng(8)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((70, 300), (300, 130)))
    for width in WIDTHS:
        for way in ways(width):
            FORCED.way = way.name
            contract = f"exact/1;b={width}"
            found = {
                call(emulated_gpu(seed), "aten.mm", {}, [a, b], contract)[0].tobytes()
                for seed in range(2)
            }
            assert len(found) == 1


@pytest.mark.sample(3)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("width", "way"), WAYS)
def test_a_planted_fault_is_seen(width: int, way: str, fault: str) -> None:
    if way == "binary64" and fault == "missing wait":
        pytest.skip("that kernel copies nothing asynchronously")
    rng = np.random.default_rng(9)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((70, 1300), (1300, 60)))
    FORCED.way = way
    (expected,) = call(CPU, "aten.mm", {}, [a, b], f"exact/1;b={width}")
    with planted(fault):
        for seed in range(2):
            (got,) = call(emulated_gpu(seed), "aten.mm", {}, [a, b], f"exact/1;b={width}")
            assert not same_bits(got, expected)


def test_the_table_of_tiles_is_that_of_the_kernels() -> None:
    text = (CUDA / "digits.cu").read_text()
    found = re.findall(r"^TS_DIGITS\((\w+), (.*)\)$", text, re.M)
    assert dict(found) == {
        t.name: ", ".join(
            map(str, (t.at_once, t.digits, t.rows, t.cols, *t.warp, t.stages,
                      "true" if t.own_totals else "false"))
        )
        for t in TILES
    }  # fmt: skip
    # A multiprocessor of an H100 holds so many blocks, and one of the smallest GPU one.
    assert all(t.shared * t.at_once <= 227 * 1024 and t.shared <= 99 * 1024 for t in TILES)
    splits = set(re.findall(r"^TS_DIGITS_SUMS\((\w+),", text, re.M))
    assert splits == {w.tile.name for b in WIDTHS for w in ways(b) if w.splits and w.tile}


def test_every_way_of_digits_is_chosen_by_some_shape() -> None:
    for width in WIDTHS:
        chosen = {
            choose(
                width, ProductShape(m, m, k, -(-k // BLOCK_LENGTHS[width]), 1), "sm_90", library
            ).name
            for m in (32, 64, 768, 8192)
            for k in (64, 8192, 65536)
            for library in (False, True)
        }
        assert chosen == {way.name for way in ways(width) if way.tile is not None}
    large = ProductShape(64, 64, 1 << 24, 1 << 13, 1)
    assert choose(22, large, "sm_90", True).name == "binary64"
