"""`bench gemm --device`: products on a GPU against torch's of the same GPU, TF32 off."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tallystick.devices.cuda.device import Cuda
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.registry import all_ops, complete_attrs
from tallystick.numerics.types import TensorType
from tallystick.program.layout import contiguous_strides, new_tensor
from tallystick_bench.device_time import CONTRACT, facts, row, seconds, torch_on_gpu, torch_seconds
from tallystick_bench.gemm import Shape

TARGET = 1.15  # of cuBLAS's time; the aim is 1.05
SQUARES = tuple(Shape(side, side, side) for side in (1024, 2048, 4096, 8192))
# The products of a GPT-2 124M training step on 4,096 tokens.
GPT2 = (
    Shape(4096, 768, 2304, "nt"),
    Shape(4096, 768, 768, "nt"),
    Shape(4096, 3072, 768, "nt"),
    Shape(768, 4096, 2304, "tn"),
    Shape(4096, 768, 50304, "nt"),
    Shape(1024, 64, 1024, "nt", count=48),
    Shape(1024, 1024, 64, "nn", count=48),
)


def operand(device: Cuda, rows: int, cols: int, batch: int, turned: bool) -> Any:
    """f32[batch, rows, cols] of random numbers on the device; `turned`: its columns are
    contiguous."""
    shape = (batch, cols, rows) if turned else (batch, rows, cols)
    there = new_tensor(device, TensorType("f32", shape))
    numbers = np.random.default_rng(0).standard_normal(shape[1:], dtype=np.float32)
    device.write(np.broadcast_to(numbers, shape), there)
    if not turned:
        return there
    steps = contiguous_strides(shape, 4)
    return device.view(there, 0, "f32", (batch, rows, cols), (steps[0], steps[2], steps[1]))


def _ours(device: Cuda, shape: Shape, contract: str, filled: float) -> float:
    batch = max(1, shape.count)
    op = "aten.bmm" if shape.count else "aten.mm"
    inputs = [
        operand(device, shape.m, shape.k, batch, shape.layout[0] == "t"),
        operand(device, shape.k, shape.n, batch, shape.layout[1] == "t"),
    ]
    sides: tuple[int, ...] = (batch, shape.m, shape.n)
    if not shape.count:
        inputs = [device.view(x, 0, "f32", x.shape[1:], x.strides[1:]) for x in inputs]
        sides = sides[1:]
    out = new_tensor(device, TensorType("f32", sides))
    found = find_contract(contract)
    device.prepare(found)
    kernel = device.kernels(found)[op]
    attrs = complete_attrs(all_ops()[op], {}, tuple(TensorType("f32", x.shape) for x in inputs))
    return seconds(device, partial(kernel.run, attrs, inputs, [out]), filled=filled)


def their_call(torch: Any, shape: Shape) -> float:
    def drawn(rows: int, cols: int, letter: str) -> Any:
        sides = (rows, cols) if letter == "n" else (cols, rows)
        made = torch.randn(*((shape.count,) if shape.count else ()), *sides, device="cuda")
        return made if letter == "n" else made.mT

    a = drawn(shape.m, shape.k, shape.layout[0])
    b = drawn(shape.k, shape.n, shape.layout[1])
    product = torch.bmm if shape.count else torch.mm
    return torch_seconds(torch, partial(product, a, b, out=product(a, b)))


def rows(
    device: Cuda,
    shapes: Sequence[Shape] = SQUARES + GPT2,
    contract: str = CONTRACT,
    filled: float = 0.03,
) -> list[dict[str, Any]]:
    """A row for each shape: seconds of ours and of torch's product, medians by CUDA's events.

    `value` is their ratio; where torch has no GPU, our seconds. A sample of ours is as many
    products as take `filled` seconds. Raises MemoryError, MachineFaultError.
    """
    torch, found = torch_on_gpu(), []
    for shape in shapes:
        ours = _ours(device, shape, contract, filled)
        theirs = None if torch is None else their_call(torch, shape)
        flops = 2e-12 * shape.m * shape.k * shape.n * max(shape.count, 1)
        common = {
            "target": TARGET if shape in SQUARES and contract == CONTRACT else None,
            "anchor": f"torch.{'bmm' if shape.count else 'mm'}, TF32 off",
            "contract": contract,
            "seconds": ours,
            "tflops": flops / ours,
        }
        if theirs is not None:
            common |= {"anchor_seconds": theirs, "anchor_tflops": flops / theirs}
        measured = row(f"gemm/{shape.name}", "time", ours, "s", theirs)
        found.append({**common, **facts(device), **measured})
    return found
