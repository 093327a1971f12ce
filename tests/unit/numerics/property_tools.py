"""What the property tests share: drawn operands of any layout, and the comparison of bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from reference.data import SPECIAL, Gen
from reference.floats import F32
from reference.ops import REFERENCE

from tallystick import _core
from tallystick.kernels.evaluate import evaluate

ISAS = tuple(_core.supported_isas())
KINDS = ("floats", "mixed", "tiny", "wide", "bits")
LAYOUTS = ("c", "f", "step", "reversed", "offset")

few = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
fewer = settings(few, max_examples=12)

paths = st.tuples(st.sampled_from(ISAS), st.integers(1, 3))
seeds = st.integers(0, 2**32)
kinds = st.sampled_from(KINDS)
layouts = st.sampled_from(LAYOUTS)
# Register widths and block sizes, one less and one more, besides 0 and 1.
lengths = st.sampled_from(
    (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 256, 257)
)
small = st.sampled_from((0, 1, 2, 3, 5, 8, 9, 17, 33))


def laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    """x's values in another memory layout."""
    if x.ndim == 0 or layout == "c":
        return x
    if layout == "f":
        return np.asfortranarray(x)
    if layout == "reversed":
        return np.ascontiguousarray(x[::-1])[::-1]
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 3), x.dtype)
    view = (
        wide[..., 1 : 1 + 2 * x.shape[-1] : 2]
        if layout == "step"
        else wide[..., 2 : 2 + x.shape[-1]]
    )
    view[...] = x
    return view


def drawn(seed: int, kind: str, shape: tuple[int, ...], layout: str = "c") -> np.ndarray:
    """f32 of this kind of values."""
    make: Any = getattr(Gen(f"{seed}/{kind}/{shape}"), kind)
    return laid_out(make(*shape), layout)


def pooled(seed: int, shape: tuple[int, ...], size: int = 200) -> np.ndarray:
    """f32 picked from a small pool, so that the reference's cached functions stay quick."""
    g = Gen(f"pool/{seed}/{shape}")
    pool = np.concatenate([g.floats(size, scale=3.0), SPECIAL[:20]])
    return pool[g.ints(0, len(pool), *shape)].astype(F32)


def check(
    op: str, attrs: dict[str, Any], inputs: list[Any], path: tuple[str, int] | None = None
) -> None:
    """The operator on this path (or every one) gives the reference's bits."""
    plain = [None if x is None else np.array(x, order="C", copy=True) for x in inputs]
    want = REFERENCE[op](attrs, plain)
    isa_before, threads_before = _core.isa(), _core.threads()
    try:
        for isa, threads in [path] if path else [(i, t) for i in ISAS for t in (1, 2, 3)]:
            _core.set_isa(isa)
            _core.set_threads(threads)
            result = evaluate(op, *inputs, **attrs)
            got = result if isinstance(result, tuple) else (result,)
            assert len(got) == len(want)
            for a, b in zip(got, want, strict=True):
                assert a.shape == b.shape and a.dtype == b.dtype
                assert a.flags.c_contiguous
                assert a.tobytes() == b.tobytes(), (op, attrs, isa, threads, a, b)
    finally:
        _core.set_isa(isa_before)
        _core.set_threads(threads_before)
    for x, y in zip(inputs, plain, strict=True):
        assert x is None or x.tobytes() == y.tobytes(), "an operand was written to"
