"""Groups of vectors/language/quantities.json about DOT (NUMERICS 2.1 to 2.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from language_quantities import INF, NEG_ZERO, OTHER_NAN, Parts, added, call, f32, mixed, vector
from reference.language import result

CHUNK = 128


def dotted(a: Sequence[int], b: Sequence[int]) -> int:
    """DOT of bits of f32: chains of fma from +0 over chunks, added from left to right."""
    total: int | None = None
    for first in range(0, len(a), CHUNK):
        part = 0
        for x, y in zip(a[first : first + CHUNK], b[first : first + CHUNK], strict=True):
            part = result("fma", "f32", ("f32",) * 3, (x, y, part))
        total = part if total is None else added("f32", total, part)
    return 0 if total is None else total


def dots() -> Iterator[dict[str, Any]]:
    """Both factors are read: term i is element i of x, modulo their number, times one of y."""
    parts = Parts()
    g = parts.graph
    outer, inner = g.index("attribute", name="outer"), g.index("attribute", name="inner")
    at = g.index("rest", g.index("term"), g.index("numel", name="x"))
    x, y = (g.node("read", "f32", at, name=name) for name in ("x", "y"))
    factors = [{"value": v, "member": v, "each": inner} for v in (x, y)]
    count = g.index("mul", outer, inner)
    parts.part("dot", "dot", "f32", count=count, inner=inner, factors=factors)
    calls = []
    for number, sizes in enumerate(
        ((1, 1), (0, 4), (127, 1), (2, 64), (129, 1), (3, 128), (30, 20))
    ):
        a, b = mixed(f"dot {number}", 37), mixed(f"dot by {number}", 37)
        calls.append((a, b, sizes))
    calls += [
        # fma(-2^-100, 2^-100, +0) underflows to -0; a chunk is not added to +0.
        ([0x8D800000], [0x0D800000], (1, 1)),
        ([NEG_ZERO], f32(1), (1, 1)),
        ([INF], [0], (1, 1)),
        ([OTHER_NAN], f32(1), (1, 2)),
        (f32(1, 2.0**-24), f32(1, 1), (2, 1)),
        # One rounding: of a product and an addend together.
        ([0x3F800001, 0x3F800001], [0x3F800001, 0xBF800001], (2, 1)),
        ([0x7F7FFFFF], f32(2), (1, 1)),
        ([1, 0x80000001], f32(0.5, 0.5), (1, 200)),
    ]
    made = [
        call(
            [vector("f32", a), vector("f32", b)], "f32", (),
            [dotted(*([v[i % len(v)] for i in range(outer * inner)] for v in (a, b)))],
            outer=outer, inner=inner,
        )
        for a, b, (outer, inner) in calls
    ]  # fmt: skip
    attributes = {"outer": "int", "inner": "int"}
    yield parts.group("a DOT (2.1)", ["x", "y"], attributes, made)
