"""Quantised weights: the package gguf's numbers, and products that read blocks (NUMERICS 19)."""

from __future__ import annotations

import numpy as np
import pytest
from reference.ops import REFERENCE
from vectors.kernel_cases_quantised import HALVES, SCALES, with_scale

from tallystick import _core, evaluate
from tallystick.devices.context import ExecutionContext
from tallystick.errors import UsageError
from tallystick.numerics.contracts import ORDERED_1, parse_contract
from tallystick.numerics.operators.quantised import BLOCK_DTYPES, BLOCKS, block_format
from tallystick.numerics.registry import lookup
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.fused import narrow
from tallystick.program.ir import Program
from tallystick.program.plan import make_plan
from tallystick.program.runner import StepInputs

OP = "tallystick.dequantize"


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint32)


def blocks(name: str, rows: int, columns: int, seed: int = 0) -> np.ndarray:
    """Random blocks with finite scales."""
    shape = BLOCKS[name]
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (rows * columns, shape.size), dtype=np.uint8)
    for block in raw:
        for which in range(len(HALVES[name])):
            with_scale(block, name, int(rng.integers(0x2000, 0x2C00)), which)
    return raw.reshape(rows, columns * shape.size)


def dequantized(name: str, raw: np.ndarray) -> np.ndarray:
    found = evaluate(OP, raw, format=name)
    assert isinstance(found, np.ndarray)
    return found


@pytest.mark.parametrize("name", BLOCKS)
def test_the_numbers_are_those_of_the_package_gguf(name: str) -> None:
    gguf = pytest.importorskip("gguf", reason="the oracle is the package gguf")
    rng = np.random.default_rng(1)
    shape = BLOCKS[name]
    raw = rng.integers(0, 256, (1024, shape.size), dtype=np.uint8)
    for row, scale in zip(raw, SCALES, strict=False):  # and every kind of scale
        with_scale(row, name, scale, 0)
    kind = gguf.GGMLQuantizationType[name.upper()]
    with np.errstate(all="ignore"):
        want = gguf.dequantize(raw, kind).astype(np.float32)
    want[np.isnan(want)] = np.float32(np.nan)
    assert np.array_equal(bits(dequantized(name, raw)), bits(want))


@pytest.mark.parametrize("isa", _core.supported_isas())
@pytest.mark.parametrize("name", BLOCKS)
def test_every_instruction_set_has_the_bits_of_the_reference(name: str, isa: str) -> None:
    raw = np.random.default_rng(2).integers(0, 256, (9, 3 * BLOCKS[name].size), dtype=np.uint8)
    (want,) = REFERENCE[OP]({"format": name}, [raw])
    with ExecutionContext(2, isa).entered():
        assert np.array_equal(bits(dequantized(name, raw)), bits(want))


def program(name: str, m: int, n: int, columns: int, bias: bool) -> Program:
    """x times the transpose of a quantised weight, as a linear layer has it."""
    b = Builder(ORDERED_1)
    shape = BLOCKS[name]
    x = b.batch("x", TensorType("f32", (m, columns * shape.elements)))
    raw = b.state("w", TensorType("u8", (n, columns * shape.size)))
    w = b.one("aten.permute", [b.one(OP, [raw], format=name)], dims=(1, 0))
    if not bias:
        return b.finish({"y": b.one("aten.mm", [x, w])})
    c = b.state("c", TensorType("f32", (n,)))
    return b.finish({"y": b.one("aten.addmm", [c, x, w], beta=1.0, alpha=1.0)})


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("isa", _core.supported_isas())
@pytest.mark.parametrize("name", BLOCKS)
def test_products_that_read_blocks_have_the_bits_of_binary32(
    name: str, isa: str, bias: bool
) -> None:
    """Over one row, some and many; over strips and a last one that is narrower; on threads."""
    rng = np.random.default_rng(3)
    columns = 256 // BLOCKS[name].elements * 2
    for m, n in ((1, 211), (1, 5), (7, 97), (70, 300)):
        x = rng.standard_normal((m, 512)).astype(np.float32)
        state = {"w": blocks(name, n, columns, m), "c": rng.standard_normal(n).astype(np.float32)}
        made = program(name, m, n, columns, bias)
        state = {slot: state[slot] for slot in made.state_types}
        wide = np.ascontiguousarray(dequantized(name, state["w"]).T)
        want = evaluate("aten.addmm", state["c"], x, wide) if bias else evaluate("aten.mm", x, wide)
        for threads in (1, 2):
            executor = Executor(made, ExecutionContext(threads, isa))
            found = executor.execute(state, StepInputs({"x": x})).outputs["y"]
            assert np.array_equal(bits(found), bits(want)), (m, n, threads)


def test_no_memory_is_planned_for_the_numbers_of_a_weight() -> None:
    made = program("q4_k", 1, 512, 2, bias=False)
    assert make_plan(made).arena_bytes < 512 * 512 * 4 // 8


def test_numbers_that_something_else_reads_are_made_whole() -> None:
    """A sum, a slice, another turn, a product whose operand is not transposed: no block is read in
    its place, and the bits are the same."""
    raw = blocks("q8_0", 64, 2)
    x = np.random.default_rng(4).standard_normal((3, 64)).astype(np.float32)
    wide = dequantized("q8_0", raw)
    for kind in ("sum", "slice", "straight", "twice"):
        b = Builder(ORDERED_1)
        given = b.batch("x", TensorType("f32", x.shape))
        w = b.one(OP, [b.state("w", TensorType("u8", raw.shape))], format="q8_0")
        if kind == "sum":
            y, want = b.one("aten.sum", [w]), evaluate("aten.sum", wide)
        elif kind == "slice":
            part = b.one("aten.slice", [w], dim=1, start=0, end=32, step=1)
            turned = b.one("aten.permute", [part], dims=(1, 0))
            half = b.one("aten.slice", [given], dim=1, start=0, end=32, step=1)
            y = b.one("aten.mm", [half, turned])
            want = evaluate("aten.mm", x[:, :32].copy(), wide[:, :32].T.copy())
        elif kind == "straight":
            y, want = b.one("aten.mm", [given, w]), evaluate("aten.mm", x, wide)
        else:
            again = b.one("aten.permute", [b.one("aten.permute", [w], dims=(1, 0))], dims=(1, 0))
            y, want = b.one("aten.mm", [given, again]), evaluate("aten.mm", x, wide)
        made = b.finish({"y": y})
        context = ExecutionContext(1)
        assert not narrow(made, context.device.kernels(parse_contract(ORDERED_1)))
        found = Executor(made, context).execute({"w": raw}, StepInputs({"x": x})).outputs["y"]
        assert np.array_equal(bits(found), bits(want)), kind


def test_other_formats_and_parts_of_blocks_are_refused() -> None:
    spec = lookup(OP)
    for attrs, type_ in (
        ({"format": "q2_k"}, TensorType("u8", (4, 84))),
        ({"format": "q8_0"}, TensorType("u8", (4, 33))),
        ({"format": "q8_0"}, TensorType("u8", ())),
        ({"format": "q8_0"}, TensorType("i64", (4, 34))),
    ):
        with pytest.raises(UsageError):
            spec.infer(dict(attrs), (type_,))


def test_a_block_dtype_names_its_format() -> None:
    assert [block_format(BLOCK_DTYPES[name]) for name in BLOCKS] == list(BLOCKS)
    assert block_format(np.dtype(np.float32)) is None
    assert block_format(np.dtype([("bf16", "<u2")])) is None
