"""bf16 and f16: every value as float32, and products that widen while they read (NUMERICS 1.14)."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tallystick import _core, evaluate
from tallystick.commit.tensor import DTYPES, first_non_canonical, tensor_digest, widened
from tallystick.devices.context import ExecutionContext
from tallystick.errors import UsageError
from tallystick.numerics.types import STORED, TensorType
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.ir import Program
from tallystick.program.runner import Showing, StepInputs

Array = np.ndarray
F = np.float32
# Bits of the exponent and of the fraction.
_SIZES = {"bf16": (8, 7), "f16": (5, 10)}
EVERY = np.arange(1 << 16, dtype="<u2")


def bits_of(x: Array) -> Array:
    return np.ascontiguousarray(x).view(np.uint32)


def number(bits: int, dtype: str) -> float:
    """The number of IEEE-754's interchange format, by its definition."""
    exponents, fractions = _SIZES[dtype]
    sign = -1 if bits >> 15 else 1
    exponent, fraction = bits >> fractions & ((1 << exponents) - 1), bits & ((1 << fractions) - 1)
    bias = (1 << exponents - 1) - 1
    if exponent == (1 << exponents) - 1:
        return sign * float("inf") if not fraction else float("nan")
    whole = fraction | (bool(exponent) << fractions)
    size = Fraction(whole) * Fraction(2) ** (max(exponent, 1) - bias - fractions)
    return sign * float(size)


@pytest.mark.parametrize("dtype", STORED)
def test_every_value_becomes_float32_exactly(dtype: str) -> None:
    found = evaluate("aten._to_copy", EVERY.view(DTYPES[dtype]), dtype="f32")
    assert isinstance(found, np.ndarray)
    due = np.array([number(int(bits), dtype) for bits in EVERY], F)
    due[np.isnan(due)] = F(np.nan)
    assert np.array_equal(bits_of(found), bits_of(due))


@pytest.mark.parametrize("dtype", STORED)
def test_one_nan_is_canonical(dtype: str) -> None:
    infinity, nan = (0x7F80, 0x7FC0) if dtype == "bf16" else (0x7C00, 0x7E00)
    for bits in (0, 0x8000, 1, infinity, infinity | 0x8000, nan):
        assert first_non_canonical(np.array([0, bits], "<u2").view(DTYPES[dtype])) is None
    for bits in (infinity + 1, nan + 1, nan | 0x8000, 0x7FFF, 0xFFFF):
        assert first_non_canonical(np.array([0, bits], "<u2").view(DTYPES[dtype])) == 1


def test_the_types_are_kept_apart() -> None:
    digests = {tensor_digest(np.zeros(3, DTYPES[dtype])) for dtype in ("f32", *STORED)}
    assert len(digests) == 3
    odd = np.zeros(2, [("a", "u1"), ("b", "u1")])
    with pytest.raises(UsageError, match="cannot be committed"):
        tensor_digest(odd)


def weights(dtype: str, *shape: int, finite: bool = True) -> Array:
    """Drawn bits; among all of them are subnormals, infinities and NaN."""
    random = np.random.Generator(np.random.Philox(shape[0]))
    if not finite:
        return random.integers(0, 1 << 16, shape).astype("<u2").view(DTYPES[dtype])
    x = random.standard_normal(shape).astype(F)
    bits = (bits_of(x) >> 16).astype("<u2") if dtype == "bf16" else x.astype("<f2").view("<u2")
    return bits.view(DTYPES[dtype])


PATHS = [(isa, threads) for isa in _core.supported_isas() for threads in (1, 2, 3)]
# Rows, columns and terms: of one row, of panels and their edges, of several strips, of none.
PRODUCTS = ((1, 1, 1), (1, 5, 7), (1, 700, 129), (2, 33, 300), (5, 200, 1025), (70, 130, 200),
            (300, 64, 128), (3, 40, 0), (90, 1, 300), (0, 3, 4))  # fmt: skip


@pytest.mark.parametrize(("isa", "threads"), PATHS)
@pytest.mark.parametrize("dtype", STORED)
def test_products_of_stored_weights(isa: str, threads: int, dtype: str) -> None:
    random = np.random.default_rng(4)
    with ExecutionContext(threads, isa).entered():
        for finite in (True, False):
            for m, n, k in PRODUCTS:
                w = weights(dtype, n, k, finite=finite)
                a, c = random.standard_normal((m, k)).astype(F), random.standard_normal(n).astype(F)
                apart = np.zeros((2 * n, 3 * k + 1), w.dtype)[::2, : 3 * k : 3]
                apart[...] = w
                for b in (w.T, np.ascontiguousarray(w.T), apart.T):
                    bits, wide, is_f16 = b.view(np.uint16), widened(b), dtype == "f16"
                    found, due = np.empty((m, n), F), np.empty((m, n), F)
                    _core.mm_stored(a, bits, found, is_f16)
                    _core.mm(a, wide, due)
                    assert np.array_equal(bits_of(found), bits_of(due)), (m, n, k, b.strides)
                    _core.addmm_stored(c, a, bits, found, 0.7, 1.3, is_f16)
                    _core.addmm(c, a, wide, due, 0.7, 1.3)
                    assert np.array_equal(bits_of(found), bits_of(due)), (m, n, k, b.strides)


# -- plans -----------------------------------------------------------------------------------------
ROWS, WIDE, OUT = 3, 256, 400


def program(dtype: str, contract: str = "ordered/1-draft.1", read_twice: bool = False) -> Program:
    """A linear layer, as capture writes it, over a weight of `dtype`."""
    b = Builder(contract)
    w = b.state("param.w", TensorType(dtype, (OUT, WIDE)))
    bias = b.state("param.b", TensorType("f32", (OUT,)))
    x = b.batch("x", TensorType("f32", (ROWS, WIDE)))
    if dtype in STORED:
        w = b.one("aten._to_copy", [w], dtype="f32")
    turned = b.one("aten.permute", [w], dims=(1, 0))
    y = b.one("aten.addmm", [bias, x, turned], alpha=1.0, beta=1.0)
    outputs = {"y": b.one("aten.mm", [b.one("aten.neg", [x]), turned]), "z": y}
    if read_twice:
        outputs["w"] = b.one("aten.neg", [w])
    return b.finish(outputs)


@pytest.mark.parametrize("dtype", STORED)
@pytest.mark.parametrize("contract", ["ordered/1-draft.1", "rounded/1-draft.1;b=28"])
def test_no_float32_copy_and_the_same_bits(dtype: str, contract: str) -> None:
    w = weights(dtype, OUT, WIDE)
    state = {"param.w": w, "param.b": np.arange(OUT, dtype=F)}
    batch = {"x": np.random.default_rng(1).standard_normal((ROWS, WIDE)).astype(F)}
    narrow, wide = Executor(program(dtype, contract)), Executor(program("f32", contract))
    found = narrow.execute(state, StepInputs(batch)).outputs
    due = wide.execute({**state, "param.w": widened(w)}, StepInputs(batch)).outputs
    for name, value in due.items():
        assert np.array_equal(bits_of(found[name]), bits_of(value)), name
    copy = 4 * OUT * WIDE
    if contract.startswith("ordered"):
        assert narrow.arena_bytes == wide.arena_bytes < copy
    else:  # the kernels of rounded/1 read float32
        assert copy <= narrow.arena_bytes < 2 * copy


def test_a_value_that_others_read_is_made_once() -> None:
    w = weights("bf16", OUT, WIDE)
    executor = Executor(program("bf16", read_twice=True))
    batch = {"x": np.ones((ROWS, WIDE), F)}
    found = executor.execute({"param.w": w, "param.b": np.zeros(OUT, F)}, StepInputs(batch)).outputs
    assert np.array_equal(bits_of(found["w"]), bits_of(-widened(w)))
    assert executor.arena_bytes >= 4 * OUT * WIDE


def test_a_dispute_is_shown_both_nodes() -> None:
    w = weights("f16", OUT, WIDE)
    executor = Executor(program("f16"))
    seen: dict[str, list[Array]] = {}

    def tap(_index: int, node: object, _inputs: object, outputs: list[Array]) -> None:
        seen.setdefault(node.op, []).extend(np.array(o) for o in outputs)  # type: ignore[attr-defined]

    state, batch = {"param.w": w, "param.b": np.zeros(OUT, F)}, {"x": np.ones((ROWS, WIDE), F)}
    plain = executor.execute(state, StepInputs(batch)).outputs
    shown = executor.execute(state, StepInputs(batch), Showing(tap, False)).outputs
    (conversion,) = seen["aten._to_copy"]
    assert conversion.dtype == F and np.array_equal(bits_of(conversion), bits_of(widened(w)))
    assert all(np.array_equal(bits_of(plain[n]), bits_of(shown[n])) for n in plain)


REFUSED = ("aten.neg", "aten.cat", "aten.relu", "aten.abs", "aten.sum", "aten.tril", "aten.exp")


@pytest.mark.parametrize("op", REFUSED)
def test_other_operators_refuse_them(op: str) -> None:
    x = weights("bf16", 4, 4)
    with pytest.raises(UsageError, match="defined on"):
        evaluate(op, x)


@pytest.mark.parametrize("dtype", STORED)
def test_a_view_that_must_copy(dtype: str) -> None:
    b = Builder()
    w = b.state("param.w", TensorType(dtype, (6, 8)))
    turned = b.one("aten.permute", [w], dims=(1, 0))
    flat = b.one("aten.view", [turned], size=(3, 16))
    y = b.one("aten._to_copy", [flat], dtype="f32")
    x = weights(dtype, 6, 8, finite=False)
    found = Executor(b.finish({"y": y})).execute({"param.w": x}, StepInputs({})).outputs["y"]
    assert np.array_equal(bits_of(found), bits_of(widened(x).T.reshape(3, 16)))
