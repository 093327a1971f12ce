"""Calls of native/cuda/gemm.cu and conv.cu: matrix products, convolutions and their gradients
(NUMERICS 2.4 to 2.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tallystick.contracts.ordered.cuda import cuda_kernel
from tallystick.contracts.ordered.cuda.reduction import fold
from tallystick.devices.cuda.launch import (
    THREADS,
    Outputs,
    Tensors,
    f32,
    launch_over,
    over,
    pointer,
    space,
    whole,
)
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.dots import Lines, lines_of, steps_of_added
from tallystick.products.cuda.tiles import FORCED, PROCESSORS, choose, chunks
from tallystick.products.operators import (
    CONVOLUTION_OPERATORS,
    MATRIX_OPERATORS,
    Convolution,
    convolutions,
    matrices,
)

_MOST_BLOCKS = 65535  # along an axis of a grid


@dataclass(frozen=True)
class Finish:
    """The end of NUMERICS 2.5: alpha, beta, and the tensor that is added. `added` broadcasts to
    the output; `row` and `col` are its strides along the rows and columns of the product."""

    added: DeviceTensor | None = None
    row: int = 0
    col: int = 0
    alpha: float = 1.0
    beta: float = 1.0

    def slots(self) -> bytes:
        """The last slots of Results."""
        scale = (self.alpha != 1, self.beta != 1)
        numbers = pointer(self.added) + whole(self.row, self.col)
        return numbers + f32(self.alpha, self.beta) + whole(*scale)


def divide(by: int) -> bytes:
    """The slots Divide, for the quotient of a number below 2**31; zeros for 0."""
    if by == 0:
        return whole(0, 0, 0)
    shift = 31 + (by - 1).bit_length()
    return whole(by, -(-(1 << shift) // by), shift)


def results(
    address: int,
    rows: int,
    cols: int,
    finish: Finish,
    step: int = 0,
    plane: int = 0,
    image: int = 0,
) -> bytes:
    """The slots Results. `step`: the stride of rows (cols if it is 0); `plane`: the columns of an
    image, `image`: the stride of images (plane 0: the columns are adjacent)."""
    step = step or cols
    fours = all(n % 4 == 0 for n in (address // 4, step, plane, image))
    places = whole(address, rows, cols, step) + divide(plane) + whole(image, fours)
    return places + finish.slots()


# --- matrix products (2.4, 2.5) -------------------------------------------------------------------
def _in_fours(x: Lines) -> bool:
    """True if four neighbours are adjacent and aligned to 16 bytes everywhere."""
    steps = (x.term, x.batch)
    return x.line == 1 and x.address % 16 == 0 and all(step % 4 == 0 for step in steps)


def _strided(x: Lines, batch: int) -> bytes:
    """The slots Strided, from a batch on."""
    return whole(x.address + 4 * batch * x.batch, x.line, x.term, x.term < x.line)


@cuda_kernel(*MATRIX_OPERATORS, named=True, strided=True)
def _products(op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    product = matrices(op, attrs, inputs, outputs)
    out, c, (batch, rows, cols, terms) = product.out, product.c, product.sizes
    if out.size == 0:
        return
    a, b = lines_of(product.a, -2), lines_of(product.b, -1)
    if c is None or product.beta == 0:
        finish = Finish(alpha=product.alpha)
    else:
        finish = Finish(c, *steps_of_added(c), product.alpha, product.beta)
    choice = choose(rows, cols, terms, batch)
    tile, device = choice.tile, out.device
    name = f"gemm_{tile.name}_{4 if _in_fours(a) else 1}{4 if _in_fours(b) else 1}"
    each = rows * cols
    blocks = tile.count(rows, cols)

    def start(to: int, first: int, parts: int, step: int) -> None:
        for z in range(0, batch, _MOST_BLOCKS):
            params = (
                _strided(a, z)
                + _strided(b, z)
                + whole(a.batch, b.batch, each, terms, step, first)
                + results(to + 4 * z * each, rows, cols, finish)
            )
            grid = (blocks, parts, min(batch - z, _MOST_BLOCKS))
            device.launch(name, grid, tile.threads, params, tile.shared)

    if choice.split:
        in_parts(out, chunks(terms), start, finish)
    else:
        start(out.address, 0, 1, 0)


def in_parts(
    out: DeviceTensor, count: int, start: Callable[[int, int, int, int], None], finish: Finish
) -> None:
    """Compute the chunks of `out` each by itself, then their totals from left to right.

    start(to, first, parts, step) computes chunks first, first + 1, ... of every result; those of
    the chunk first + q go to the address `to`, q * step elements on, laid out as `out` is.
    """
    device = out.device
    at_once = max(1, min(count, FORCED.most_parts // out.nbytes, _MOST_BLOCKS))
    parts = device.scratch(at_once * out.nbytes)
    spread = space(out.shape, finish.added or out)
    for first in range(0, count, at_once):
        here = min(at_once, count - first)
        start(parts, first, here, out.size)
        params = (
            spread
            + whole(parts, here, first == 0, first + here == count)
            + pointer(out)
            + results(0, 0, 0, finish)
        )
        launch_over(out, "gemm_totals", out.size, params)


# --- convolutions (2.6, 2.7) ----------------------------------------------------------------------
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
