"""Composite operators in plain numpy, one formula per clause (NUMERICS 3.1, 4, 6, 7, 11).

The elementary functions are the core's own scalar path: their rounding is proved elsewhere
(docs/proofs/elementary.md); here only what is built from them is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from dot_reference import quiet
from reference.floats import canonical, fma
from reference.sums import sum_rows

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel, run_of
from tallystick.numerics.registry import check_attrs, lookup
from tallystick.numerics.types import DTYPES, AttrValue, type_of

F = np.float32
C1, C2, C3, C4, C5 = (
    np.uint32(b).view(F) for b in (0x3F3504F3, 0x3ECC422A, 0x3F4C422A, 0x3D372713, 0x3E095D4F)
)


# --- running the real operators -------------------------------------------------------------------
def evaluate(op: str, *inputs: np.ndarray | None, **attrs: AttrValue) -> list[np.ndarray]:
    """The operator as the executor runs it: attributes checked, outputs allocated."""
    spec = lookup(op)
    check_attrs(spec, attrs)
    dense = [None if x is None else np.ascontiguousarray(x).reshape(x.shape) for x in inputs]
    types = spec.infer(attrs, tuple(None if x is None else type_of(x) for x in dense))
    # Outputs begin with garbage, so that an element left unwritten shows.
    outputs = [
        np.frombuffer(b"\x5a" * max(t.nbytes, 1), np.uint8)[: t.nbytes]
        .view(DTYPES[t.dtype])
        .reshape(t.shape)
        .copy()
        for t in types
    ]
    run_of(op)(attrs, dense, outputs)
    return outputs


@contextmanager
def settings(isa: str, threads: int) -> Iterator[None]:
    before = _core.isa(), _core.threads()
    _core.set_isa(isa)
    _core.set_threads(threads)
    try:
        yield
    finally:
        _core.set_isa(before[0])
        _core.set_threads(before[1])


def assert_bits(got: np.ndarray, want: np.ndarray, what: str) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, what
    unsigned = np.dtype(f"u{got.dtype.itemsize}")
    g = np.ascontiguousarray(got).reshape(-1).view(unsigned)
    w = np.ascontiguousarray(want).reshape(-1).view(unsigned)
    bad = np.flatnonzero(g != w)
    assert bad.size == 0, (
        f"{what}: {bad.size} of {g.size} differ, first at {bad[0]}: {g[bad[0]]:#x}, {w[bad[0]]:#x}"
    )


def check(
    op: str, want: Sequence[np.ndarray], *inputs: np.ndarray | None, **attrs: AttrValue
) -> None:
    """Every instruction set and 1 to 3 threads give exactly `want`."""
    for isa in _core.supported_isas():
        for threads in (1, 2, 3):
            with settings(isa, threads):
                got = evaluate(op, *inputs, **attrs)
            assert len(got) == len(want)
            for i, (g, w) in enumerate(zip(got, want, strict=True)):
                assert_bits(g, canonical(w), f"{op} output {i} on {isa}, {threads} threads")


def check_inplace(op: str, *inputs: np.ndarray | None, **attrs: AttrValue) -> None:
    """Every pair of Kernel.inplace, alone and together with others, changes no bit."""
    inplace = kernel[op].inplace
    want = evaluate(op, *inputs, **attrs)
    groups: list[tuple[tuple[int, int], ...]] = [(pair,) for pair in inplace]
    if len({o for _, o in inplace}) == len(inplace):
        groups.append(inplace)
    for isa in _core.supported_isas():
        for pairs in groups:
            own = [None if x is None else x.copy() for x in inputs]
            outputs = [np.empty_like(w) for w in want]
            for slot, out in pairs:
                shared = own[slot]
                if shared is None or out >= len(outputs) or shared.shape != outputs[out].shape:
                    continue
                outputs[out] = shared
            with settings(isa, 2):
                run_of(op)(attrs, own, outputs)
            for got, w in zip(outputs, want, strict=True):
                assert_bits(got, w, f"{op} in place {pairs} on {isa}")


# --- values ---------------------------------------------------------------------------------------
SPECIALS = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1.17549421e-38, 3.4e38, -3.4e38], F
)


def values(seed: int, shape: tuple[int, ...], kind: str = "normal") -> np.ndarray:
    """normal, tiny (subnormal), huge, or normal with special values sprinkled in."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(F)
    with quiet():
        if kind == "tiny":
            x = (x * F(1e-39)).astype(F)
        elif kind == "huge":
            x = (x * F(1e38)).astype(F)
        elif kind == "special" and x.size:
            flat = x.reshape(-1)
            at = rng.integers(0, x.size, max(1, x.size // 40))
            flat[at] = rng.choice(SPECIALS, at.size)
            flat[-1] = -0.0
    return np.asarray(x, F)


KINDS = ("normal", "tiny", "huge", "special")


# --- primitives -----------------------------------------------------------------------------------
def elementary(name: str) -> Callable[[np.ndarray], np.ndarray]:
    def function(x: np.ndarray) -> np.ndarray:
        x = np.ascontiguousarray(x, F)
        out = np.empty_like(x)
        with settings("scalar", 1):
            _core.elementary(name, x, out)
        return out

    return function


exp, log, erf, tanh, rsqrt = (elementary(n) for n in ("exp", "log", "erf", "tanh", "rsqrt"))


def total(x: np.ndarray) -> np.ndarray:
    """SUM over the last axis (3.1), keeping it as an axis of one."""
    with quiet():
        return sum_rows(x)[..., None]


def top(x: np.ndarray) -> np.ndarray:
    """Maximum over the last axis (1.11), keeping it; used where the sign of zero is immaterial."""
    return np.max(x, axis=-1, keepdims=True)


# --- section 6 ------------------------------------------------------------------------------------
def softmax(x: np.ndarray) -> np.ndarray:
    e = exp(x - top(x))
    return e / total(e)


def log_softmax(x: np.ndarray) -> np.ndarray:
    z = x - top(x)
    return z - log(total(exp(z)))


def softmax_backward(g: np.ndarray, y: np.ndarray) -> np.ndarray:
    return y * (g - total(g * y))


def log_softmax_backward(g: np.ndarray, y: np.ndarray) -> np.ndarray:
    return g - exp(y) * total(g)


def layer_norm(
    x: np.ndarray, w: np.ndarray | None, b: np.ndarray | None, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = F(x.shape[-1])
    mean = total(x) / n
    d = x - mean
    rstd = rsqrt(total(d * d) / n + F(eps))
    h = d * rstd
    if w is not None and b is not None:
        shape = h.shape
        y = fma(h, np.broadcast_to(w, shape), np.broadcast_to(b, shape))
    elif w is not None:
        y = h * w
    else:
        y = h if b is None else h + b
    return y, mean, rstd


def layer_norm_backward(
    g: np.ndarray, x: np.ndarray, mean: np.ndarray, rstd: np.ndarray, w: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    n = F(x.shape[-1])
    h = (x - mean) * rstd
    k = g if w is None else g * w
    s1, s2 = total(k) / n, total(k * h) / n
    dx = ((k - s1) - h * s2) * rstd
    return dx, total((g * h).T)[:, 0], total(g.T)[:, 0]


def gelu_erf(x: np.ndarray) -> np.ndarray:
    return (x * F(0.5)) * (F(1) + erf(x * C1))


def gelu_erf_backward(g: np.ndarray, x: np.ndarray) -> np.ndarray:
    c = F(0.5) * (F(1) + erf(x * C1))
    return g * fma(x, exp((x * x) * F(-0.5)) * C2, c)


def _u(x: np.ndarray) -> np.ndarray:
    return C3 * fma((x * x) * x, np.full_like(x, C4), x)


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return (F(0.5) * x) * (F(1) + tanh(_u(x)))


def gelu_tanh_backward(g: np.ndarray, x: np.ndarray) -> np.ndarray:
    t = tanh(_u(x))
    v = C3 * fma(x * x, np.full_like(x, C5), np.ones_like(x))
    right = ((F(0.5) * x) * fma(-t, t, np.ones_like(t))) * v
    return g * (F(0.5) * (F(1) + t) + right)


# --- section 7 ------------------------------------------------------------------------------------
def reduce_loss(rows: np.ndarray, count: int, reduction: str) -> np.ndarray:
    if reduction == "none":
        return rows
    s = total(rows).reshape(())
    return np.asarray(s / F(count) if reduction == "mean" else s, F)


def cross_entropy(
    x: np.ndarray, t: np.ndarray, ignore: int, reduction: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    m = top(x)
    s = total(exp(x - m))
    lse = log(s)
    rows = np.zeros(len(t), F)
    for r, target in enumerate(t):
        if target != ignore:
            rows[r] = lse[r, 0] - (x[r, target] - m[r, 0])
    count = int(np.sum(t != ignore))
    return reduce_loss(rows, count, reduction), m[:, 0], s[:, 0]


def coefficient(g: np.ndarray, rows: int, divisor: np.ndarray, reduction: str) -> np.ndarray:
    c = g / divisor if reduction == "mean" else g
    return np.broadcast_to(np.asarray(c, F), (rows,))


def cross_entropy_backward(
    g: np.ndarray,
    x: np.ndarray,
    t: np.ndarray,
    m: np.ndarray,
    s: np.ndarray,
    ignore: int,
    reduction: str,
) -> np.ndarray:
    c = coefficient(g, len(t), F(np.sum(t != ignore)), reduction)
    p = exp(x - m[:, None]) / s[:, None]
    out = p * c[:, None]
    for r, target in enumerate(t):
        if target == ignore:
            out[r] = 0
        else:
            out[r, target] = fma(p[r, target], c[r], -c[r])
    return out


# --- section 4 ------------------------------------------------------------------------------------
def scatter(start: np.ndarray, index: np.ndarray, source: np.ndarray, skip: int = -1) -> np.ndarray:
    """Rows of source added to rows of start, ascending (4.1)."""
    out = start.copy()
    for i, at in enumerate(index):
        if skip < 0 or at != skip:
            out[at] = out[at] + source[i]
    return out


# --- section 11 -----------------------------------------------------------------------------------
def _full(x: np.ndarray, value: float | np.floating) -> np.ndarray:
    return np.full(x.shape, F(value), F)


def adam(
    decoupled: bool,
    p: np.ndarray,
    g: np.ndarray,
    m: np.ndarray,
    v: np.ndarray,
    lr: np.ndarray,
    b1p: np.ndarray,
    b2p: np.ndarray,
    c: np.ndarray | None,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    step_size = F(lr / (np.float64(1) - b1p))
    root = F(np.sqrt(np.float64(1) - b2p))
    decay = F(1 - lr * weight_decay)
    if c is not None:
        g = g * c
    if not decoupled and weight_decay != 0:
        g = fma(_full(p, weight_decay), p, g)
    m = fma(_full(p, F(1 - beta1)), g - m, m)
    v = fma(_full(p, beta2), v, (F(1 - beta2) * g) * g)
    q = np.sqrt(v) / root + F(eps)
    return fma(_full(p, -step_size), m / q, p * decay if decoupled else p), m, v


def sgd(
    p: np.ndarray,
    g: np.ndarray,
    buf: np.ndarray | None,
    lr: np.ndarray,
    c: np.ndarray | None,
    momentum: float,
    dampening: float,
    weight_decay: float,
    nesterov: bool,
) -> tuple[np.ndarray, ...]:
    if c is not None:
        g = g * c
    if weight_decay != 0:
        g = fma(_full(p, weight_decay), p, g)
    if buf is None:
        return (fma(_full(p, -F(lr)), g, p),)
    buf = fma(_full(p, momentum), buf, F(1 - dampening) * g)
    u = fma(_full(p, momentum), buf, g) if nesterov else buf
    return fma(_full(p, -F(lr)), u, p), buf
