"""The native rounding family against fractions, on every instruction set (NUMERICS 13, 14.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from reference.data import SPECIAL, Gen
from reference.floats import F32, F64
from reference.rounded import (
    ACC_BYTES,
    abs_sums,
    grid,
    grid_pattern,
    patterns,
    products,
    record,
    rounded_record,
    rounded_sum,
    square_sums,
)

from tallystick import _core

ISAS = tuple(_core.supported_isas())
BITS = (32, 31, 28, 24, 20)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = _core.isa(), _core.threads()
    yield
    _core.set_isa(before[0])
    _core.set_threads(before[1])


def everywhere(call: Callable[..., Any], *arguments: Any) -> Any:
    """What every path returns, having compared them."""
    results = []
    for isa in ISAS:
        for threads in (1, 3):
            _core.set_isa(isa)
            _core.set_threads(threads)
            results.append(call(*arguments))
    for r in results[1:]:
        assert r.dtype == results[0].dtype and r.shape == results[0].shape
        assert r.tobytes() == results[0].tobytes()
    return results[0]


def same(got: np.ndarray, want: np.ndarray) -> None:
    assert got.shape == want.shape
    wrong = np.flatnonzero(got.view(np.uint32) != want.view(np.uint32))
    assert wrong.size == 0, [(i, got[i], want[i]) for i in wrong[:5]]


def near_boundaries(b: int) -> np.ndarray:
    """Grid points and their middles over the whole range, and their binary64 neighbours."""
    g = Gen(f"boundaries/{b}")
    points = (g.words(60) & np.uint64(0x7FFFFFFF)).astype(np.uint32)
    small = (g.words(40) % np.uint64(0x01000000)).astype(np.uint32)
    most = np.array([0x7F7FFFFF, 0x7F800000 - (1 << (32 - b)), 0, 1, 0x00800000, 0x007FFFFF])
    low = np.concatenate([points, small, most.astype(np.uint32)])
    low = low & np.uint32(0xFFFFFFFF << (32 - b) & 0xFFFFFFFF)
    low = low[low < 0x7F800000]
    a = low.view(F32).astype(F64)
    high = (low + np.uint32(1 << (32 - b))).view(F32).astype(F64)
    high = np.where(np.isinf(high), 2.0**128, high)
    middle = a / 2 + high / 2
    x = np.concatenate([a, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)])
    return np.concatenate([x, -x])


ENDS = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 5e-324, -5e-324, 1e308, -1e308, 2.0**128,
     2.0**-149, 2.0**-150, -(2.0**-150), 2.0**-126, np.nextafter(2.0**-126, 0), 3e38, 1.0]
)  # fmt: skip


@pytest.mark.parametrize("b", range(20, 33))
def test_grid(b: int) -> None:
    g = Gen(f"grid/{b}")
    random = g.words(100).view(F64)
    middling = g.floats(100).astype(F64) * (1 + 2.0**-30)
    w = np.concatenate([near_boundaries(b), ENDS, random, middling])

    def call() -> np.ndarray:
        out = np.full(len(w), 7, F32)
        _core.round_grid(w, out, b)
        return out

    same(everywhere(call), patterns([grid(float(x), b) for x in w]))


def test_grid_keeps_what_is_on_it_and_loses_the_sign_of_zero() -> None:
    for b in (32, 27, 20):
        x = np.arange(0, 1 << 32, 65521 * 64 + 1, dtype=np.uint64).astype(np.uint32)
        x = (x >> np.uint32(32 - b)) << np.uint32(32 - b)
        v = x.view(F32)
        out = np.empty(v.shape, F32)
        with np.errstate(all="ignore"):
            _core.round_grid(v.astype(F64), out, b)
        want = np.where(v == 0, 0, np.where(np.isnan(v), 0x7FC00000, x)).astype(np.uint32)
        assert np.array_equal(out.view(np.uint32), want)


def in_doubt(w: np.ndarray, e: np.ndarray, t: float, b: int, slack: Fraction) -> np.ndarray:
    """Positions where R differs within t·E·(1 + slack), each end moved |end|·slack outwards."""
    found = []
    for k, (x, y) in enumerate(zip(w.ravel().tolist(), e.ravel().tolist(), strict=True)):
        if not (np.isfinite(x) and np.isfinite(y)):
            found.append(k)
            continue
        d = Fraction(t) * Fraction(y) * (1 + slack)
        low, high = Fraction(x) - d, Fraction(x) + d
        ends = (low - abs(low) * slack, high + abs(high) * slack)
        if grid_pattern(ends[0], b) != grid_pattern(ends[1], b):
            found.append(k)
    return np.array(found, np.int64)


@pytest.mark.parametrize(("m", "n"), [(1, 301), (7, 33), (64, 5), (0, 4), (3, 0)])
@pytest.mark.parametrize("b", [32, 29, 20])
@pytest.mark.parametrize("last", [False, True])
def test_doubt(m: int, n: int, b: int, last: bool) -> None:
    g = Gen(f"doubt/{m}/{n}/{b}/{last}")
    pool = np.concatenate([near_boundaries(b), ENDS, g.floats(300).astype(F64)])
    w = pool[g.ints(0, len(pool), m * n)].reshape(m, n)
    sizes = np.array([0.0, 2.0**-60, 2.0**-26, 1e-3, 2.0**-200, np.inf, np.nan, 1e30])
    ea = sizes[g.ints(0, 5 if m > 1 else 4, m)]
    eb = np.abs(g.floats(n)).astype(F64) * sizes[g.ints(1, 8, n)]
    ec = np.abs(g.floats(n)).astype(F64) * 2.0**-40 if last else None
    out = np.empty((m, n), F32)
    with np.errstate(all="ignore"):
        e = ea[:, None] * eb[None, :] + (0.0 if ec is None else ec)
    values = patterns([grid(float(x), b) for x in w.ravel()])

    def call(t: float) -> Any:
        out.fill(7)
        found = _core.round_doubt(w, ea, eb, ec, t, b, out)
        same(out.ravel(), values)
        return found

    for t in (1.0, 2.0, 1.7):
        got = everywhere(call, t)
        assert got.dtype == np.int64
        assert np.all(np.diff(got) > 0)
        # NUMERICS 14.6 needs every element in doubt; a few more at the very edge do no harm.
        need, may = (in_doubt(w, e, t, b, s) for s in (Fraction(0), Fraction(1, 2**50)))
        assert set(need) <= set(got) <= set(may)


def nasty(g: Gen, n: int, kind: str) -> np.ndarray:
    """n operands of a kind."""
    if kind == "special":
        return SPECIAL[g.ints(0, len(SPECIAL), n)]
    x = g.bits(n) if kind == "bits" else g.floats(n)
    if kind == "tiny":
        x = x * F32(2.0**-70)
    if kind == "subnormal":
        x = x * F32(2.0**-130)
    if kind == "huge":
        x = x * F32(2.0**64)
    if kind == "few bits":
        x = np.round(x * 8) / F32(8)
    if kind == "finite bits":
        x = np.where(np.isfinite(g.bits(n)), g.bits(n), 0)
        x = np.where(np.isfinite(x), x, 1)
    return np.asarray(x, F32)


KINDS = ("floats", "tiny", "subnormal", "huge", "few bits", "bits", "finite bits", "special")


def operands(
    label: str, rows: int, terms: int, cols: int, kind: str
) -> tuple[np.ndarray, np.ndarray]:
    """a[rows, terms] and b[terms, cols]; in every second row the second half nearly cancels."""
    g = Gen(label)
    a = nasty(g, rows * terms, kind).reshape(rows, terms).copy()
    b = nasty(g, terms * cols, kind).reshape(terms, cols).copy()
    half = terms // 2
    if half > 1:
        a[::2, half : 2 * half] = -a[::2, :half]
        b[half : 2 * half] = b[:half]
        a[::2, terms - 1] = a[::2, 0] * F32(2.0**-23)
    return a, b


def views(x: np.ndarray) -> dict[str, np.ndarray]:
    """x's values in other layouts."""
    wide = np.zeros((x.shape[0] * 2 + 1, x.shape[1] * 3 + 1), F32)
    wide[1::2, 1::3] = x
    return {
        "c": np.ascontiguousarray(x),
        "f": np.asfortranarray(x),
        "steps": wide[1::2, 1::3],
        "reversed": np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("terms", [0, 1, 2, 31, 200])
def test_dots(kind: str, terms: int) -> None:
    rows, cols = 5, 37
    a, b = operands(f"dots/{kind}/{terms}", rows, terms, cols, kind)
    g = Gen(f"places/{kind}/{terms}")
    n = 48
    i, j = g.ints(0, rows, n), g.ints(0, cols, n)
    c = nasty(g, n, kind)
    for last in (None, c):
        sums = [
            products(a[i[e]], b[:, j[e]]) + ([] if last is None else [float(last[e])])
            for e in range(n)
        ]
        accs = [record(s) for s in sums]
        want_accs = np.frombuffer(b"".join(accs), np.uint8).reshape(n, ACC_BYTES)
        layouts = list(zip(views(a).values(), reversed(views(b).values()), strict=True))
        for va, vb in layouts:
            got = everywhere(_core.exact_accs, va, vb, i, j, last)
            assert np.array_equal(got, want_accs)
        for bits in BITS:
            want = patterns([rounded_record(acc, bits) for acc in accs])
            same(_core.acc_round(want_accs, bits), want)
            for va, vb in layouts:
                same(_core.exact_dots(va, vb, i, j, last, bits), want)
        same(everywhere(_core.exact_dots, a, b, i, j, last, 32),
             patterns([rounded_record(acc, 32) for acc in accs]))  # fmt: skip


@pytest.mark.parametrize("terms", [5, 1024, 3001])
def test_ties_and_what_lies_beside_them(terms: int) -> None:
    """Sums exactly on a boundary, and the least amount off it, by terms that cancel besides."""
    g = Gen(f"ties/{terms}")
    n = 24
    a = np.zeros((n, terms), F32)
    for e in range(n):
        place = np.argsort(g.words(terms))
        noise = g.floats((terms - 3) // 2)
        # 1 + a half step at b bits, + nothing or a tiny term of either sign; the rest cancels.
        b = BITS[e % len(BITS)]
        tiny = (0.0, 2.0**-149, -(2.0**-149))[e % 3]
        odd = (1.0, 1.0 + 2.0 ** -(b - 9))[e // 3 % 2]
        values = [odd, 2.0 ** -(b - 8), tiny, *noise, *-noise]
        a[e, place[: len(values)]] = np.array(values, F32)
    ones = np.ones((terms, 1), F32)
    rows = np.arange(n)
    for bits in BITS:
        want = patterns([rounded_sum([float(v) for v in a[e]], bits) for e in range(n)])
        same(everywhere(_core.exact_sums, a, rows, bits), want)
        zeros = np.zeros(n, np.int64)
        same(everywhere(_core.exact_dots, a, ones, rows, zeros, None, bits), want)


@pytest.mark.parametrize(
    ("rows", "cols", "n"), [(3, 90, 400), (90, 3, 400), (40, 41, 2), (70, 70, 1)]
)
def test_strided_operands_by_panels(rows: int, cols: int, n: int) -> None:
    """More elements than a batch, terms than a chunk and lines than a panel; and very few."""
    g = Gen(f"panels/{rows}/{cols}")
    a, b = g.floats(rows, 1500), g.floats(1500, cols)
    i, j, c = g.ints(0, rows, n), g.ints(0, cols, n), g.floats(n)
    accs = _core.exact_accs(a, np.asfortranarray(b), i, j, c)
    for bits in (32, 20):
        want = _core.acc_round(accs, bits)
        for va in (a, np.asfortranarray(a)):
            for vb in (b, np.asfortranarray(b)):
                same(everywhere(_core.exact_dots, va, vb, i, j, c, bits), want)
    same(_core.exact_sums(b.T, j, 32), _core.acc_round(_core.exact_sum_accs(b.T, j), 32))


def test_overflow_boundary() -> None:
    """Sums around the middle between the largest of the grid and 2^128 (13.2)."""
    for b in BITS:
        largest = float(np.uint32(0x7F800000 - (1 << (32 - b))).view(F32))
        half = 2.0 ** (127 - (b - 8))
        cases = [[largest, half], [largest, half, -(2.0**-149)], [largest, half, 2.0**-149],
                 [largest, largest, -largest, half], [-largest, -half], [-largest, -half, 1e-30],
                 [3e38] * 6, [3e38, 3e38, -3e38], [-3e38, -3e38]]  # fmt: skip
        x = np.zeros((len(cases), 6), F32)
        for e, terms in enumerate(cases):
            x[e, : len(terms)] = terms
        want = patterns([rounded_sum([float(v) for v in row], b) for row in x])
        rows = np.arange(len(cases))
        same(everywhere(_core.exact_sums, x, rows, b), want)
    assert rounded_sum([largest, half], 20) == 0x7F800000


@pytest.mark.parametrize("kind", KINDS)
def test_sums(kind: str) -> None:
    for n in (0, 1, 63, 700):
        x, _ = operands(f"sums/{kind}/{n}", 9, n, 1, kind)
        rows = np.array([8, 0, 3, 3, 1, 2])
        sums = [[float(v) for v in x[r]] for r in rows]
        accs = np.frombuffer(b"".join(map(record, sums)), np.uint8).reshape(-1, ACC_BYTES)
        for view in views(x).values():
            got = everywhere(_core.exact_sum_accs, view, rows)
            assert np.array_equal(got, accs)
            for b in (32, 25):
                want = patterns([rounded_sum(s, b) for s in sums])
                same(everywhere(_core.exact_sums, view, rows, b), want)


def test_accumulators_continue() -> None:
    """A sum in pieces, in any order of pieces, gives one record (13.5)."""
    g = Gen("continue")
    for kind in KINDS:
        a, b = nasty(g, 300, kind), nasty(g, 300, kind)
        x = nasty(g, 50, kind)
        whole = record(products(a, b) + [float(v) for v in x])

        def call(a: Any = a, b: Any = b, x: Any = x) -> np.ndarray:
            acc = np.zeros(ACC_BYTES, np.uint8)
            for p in (slice(200, 300), slice(0, 0), slice(0, 129), slice(129, 200)):
                acc = _core.acc_add_products(acc, a[p], b[p])
            return np.asarray(_core.acc_add_terms(acc, x))

        assert everywhere(call).tobytes() == whole
    # Negative and positive sums beyond what any float can state.
    for total in (-1, 1, -(2**631), 2**631 - 1, 2**600, -(2**400) + 1):
        start = total.to_bytes(79, "little", signed=True) + b"\0"
        want = np.frombuffer(record([], start), np.uint8)
        got = _core.acc_add_terms(np.frombuffer(start, np.uint8), np.zeros(3, F32))
        assert np.array_equal(got, want)
        for bits in BITS:
            same(_core.acc_round(got[None], bits), patterns([rounded_record(start, bits)]))


@pytest.mark.parametrize("flags", range(8))
def test_flags(flags: int) -> None:
    start = (12345).to_bytes(79, "little") + bytes([flags])
    acc = np.frombuffer(start, np.uint8)
    same(_core.acc_round(acc[None], 32), patterns([rounded_record(start, 32)]))
    assert _core.acc_add_terms(acc, np.array([np.inf], F32)).tobytes()[79] == flags | 2


@pytest.mark.parametrize("n", [0, 1, 31, 32, 33, 256, 257, 1000])
def test_sums_of_bounds(n: int) -> None:
    g = Gen(f"bounds/{n}")
    for kind in ("floats", "finite bits", "subnormal"):
        x = nasty(g, n * 77, kind).reshape(n, 77)
        for view in views(x).values():
            with np.errstate(all="ignore"):
                squares, sizes = square_sums(x), abs_sums(x)
            for call, given, want in (
                (_core.square_sums_columns, view, squares),
                (_core.square_sums_rows, view.T, squares),
                (_core.abs_sums_rows, view.T, sizes),
            ):
                got = everywhere(call, given)
                assert got.dtype == F64 and got.tobytes() == want.tobytes()


def test_long_sums_of_bounds() -> None:
    """More than one level of blocks."""
    x = Gen("long").floats(70000, 3)
    want = square_sums(x).tobytes()
    for view in (x, np.asfortranarray(x)):
        assert everywhere(_core.square_sums_columns, view).tobytes() == want


def test_bounds_of_what_is_not_finite() -> None:
    x = np.ones((3, 40), F32)
    x[1, 5], x[2, 6] = np.inf, np.nan
    for call in (_core.square_sums_rows, _core.abs_sums_rows):
        got = everywhere(call, x)
        assert got[0] == 40 and got[1] == np.inf
        assert got.view(np.uint64)[2] == 0x7FF8000000000000


@pytest.mark.parametrize(
    "call",
    [
        lambda: _core.round_grid(np.zeros(3), np.zeros(3, F32), 19),
        lambda: _core.round_grid(np.zeros(3), np.zeros(3, F32), 33),
        lambda: _core.round_grid(np.zeros(3), np.zeros(4, F32), 32),
        lambda: _core.exact_dots(
            np.zeros((2, 3), F32), np.zeros((3, 2), F32), np.array([2]), np.array([0]), None, 32
        ),
        lambda: _core.exact_dots(
            np.zeros((2, 3), F32), np.zeros((3, 2), F32), np.array([0]), np.array([-1]), None, 32
        ),
        lambda: _core.exact_dots(
            np.zeros((2, 3), F32), np.zeros((4, 2), F32), np.array([0]), np.array([0]), None, 32
        ),
        lambda: _core.acc_round(np.zeros((2, 79), np.uint8), 32),
        lambda: _core.exact_sums(np.zeros((2, 3), F32), np.array([5]), 32),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError):
        call()
