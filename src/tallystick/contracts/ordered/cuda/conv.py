"""Calls of native/cuda/conv.cu: convolutions and their gradients (NUMERICS 2.6, 2.7)."""

from __future__ import annotations

from tallystick.contracts.ordered.cuda.gemm import Finish, divide, in_parts, results
from tallystick.contracts.ordered.cuda.reduction import fold
from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.launch import THREADS, over, pointer, whole
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.tiles import FORCED, PROCESSORS, choose, chunks
from tallystick.products.operators import CONVOLUTION_OPERATORS, Convolution, convolutions

_MOST_BLOCKS = 65535  # along an axis of a grid
_MOST_FAST = 1 << 31  # columns and terms that a tile takes
_FEWEST_ROWS = 4  # of a tile that is not almost empty


@cuda_kernel(*CONVOLUTION_OPERATORS, named=True)
def _convolutions(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    for conv in convolutions(op, attrs, inputs, outputs):
        if not conv.out.size:
            continue
        if conv.makes == "bias":
            fold("reduce_sum", conv.y, (0, 2, 3), conv.out)
        else:
            _compute(conv)


def _operands(conv: Convolution[DeviceTensor]) -> tuple[str, DeviceTensor, DeviceTensor]:
    """The name of a product of native/cuda/conv.cu, and its operands."""
    if conv.makes == "y":
        return "forward", conv.weight, conv.x
    if conv.makes == "weight":
        return "weight", conv.y, conv.x
    return "input" if conv.form[0] == (1, 1) else "strided", conv.weight, conv.y


def _shape(conv: Convolution[DeviceTensor]) -> bytes:
    """The slots Shape: sizes per group."""
    stride, padding, dilation, groups = conv.form
    outs, channels, *kernel = conv.weight.shape
    sides = (*conv.x.shape[2:], *conv.y.shape[2:], *kernel)
    return whole(outs // groups, channels, groups, *sides, *stride, *padding, *dilation)


def _compute(conv: Convolution[DeviceTensor]) -> None:
    window, rows, out = conv.window, conv.rows, conv.out
    groups, device = window.groups, out.device
    name, a, b = _operands(conv)
    # Sizes, and those of the planes and rows, of the columns and the terms.
    cols, col = window.places, (window.plane, window.columns.places)
    terms, term = window.taps, (window.kernel, window.columns.taps)
    plane = step = col[0]
    if conv.makes == "weight":
        (cols, col), (terms, term) = (terms, term), (cols, col)
        plane, step = 0, cols
    finish = Finish()
    if conv.makes == "y" and conv.bias is not None:
        bias = conv.bias
        finish = Finish(device.view(bias, 0, "f32", (*bias.shape, 1, 1), (4, 4, 4)), row=1)
    divides = b"".join(divide(n) for n in (*col, *term, *conv.form[0]))

    def params(to: int, first_group: int, first: int, split: int) -> bytes:
        return (
            pointer(a, b)
            + _shape(conv)
            + divides
            + whole(first_group, rows * step, terms, split, first)
            + results(to, rows, cols, finish, step, plane, groups * rows * plane)
        )

    fast = cols < _MOST_FAST and terms < _MOST_FAST
    if not fast or (rows < _FEWEST_ROWS and FORCED.tile is None):
        grid = over(out.size)

        def start(to: int, first: int, parts: int, step: int) -> None:
            slots = params(to, 0, first, step)
            device.launch(f"conv_{name}_each", (grid[0], parts, 1), THREADS, slots)

        split = out.size < PROCESSORS * THREADS * 4
    else:
        choice = choose(rows, cols, terms, groups, gathered=True)
        tile, split = choice.tile, choice.split
        blocks = tile.count(rows, cols)

        def start(to: int, first: int, parts: int, step: int) -> None:
            for group in range(0, groups, _MOST_BLOCKS):
                grid = (blocks, parts, min(groups - group, _MOST_BLOCKS))
                slots = params(to, group, first, step)
                device.launch(f"conv_{name}_{tile.name}", grid, tile.threads, slots, tile.shared)

    if FORCED.split is not None:
        split = FORCED.split
    count = chunks(terms)
    if split and count > (0 if FORCED.split else 1):
        in_parts(out, count, start, finish)
    else:
        start(out.address, 0, 1, 0)
