"""Calls of native/cuda/gemm.cu: matrix products (NUMERICS 2.4, 2.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.launch import f32, launch_over, pointer, space, whole
from tallystick.devices.cuda.operands import Outputs, Tensors, operand
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.tiles import FORCED, choose, chunks

_MOST_BLOCKS = 65535  # along an axis of a grid


@dataclass(frozen=True)
class Side:
    """An operand: its address, and the strides in elements of a result's axis, of the terms, and
    of the batch."""

    address: int
    of_element: int
    of_term: int
    of_batch: int = 0

    @property
    def in_fours(self) -> bool:
        """True if four neighbours are adjacent and aligned to 16 bytes everywhere."""
        return (
            self.of_element == 1
            and self.address % 16 == 0
            and self.of_term % 4 == 0
            and self.of_batch % 4 == 0
        )

    def slots(self) -> bytes:
        """The slots Strided."""
        along_terms = self.of_term < self.of_element
        return whole(self.address, self.of_element, self.of_term, along_terms)


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


_PLAIN = Finish()


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


def _product(a: Side, b: Side, out: DeviceTensor, terms: int, finish: Finish = _PLAIN) -> None:
    """out[z,i,j] = DOT over k of a[z,i,k] and b[z,k,j]; out is contiguous."""
    *leading, rows, cols = out.shape
    batch = leading[0] if leading else 1
    if out.size == 0:
        return
    choice = choose(rows, cols, terms, batch)
    tile, device = choice.tile, out.device
    name = f"gemm_{tile.name}_{4 if a.in_fours else 1}{4 if b.in_fours else 1}"
    each = rows * cols
    blocks = tile.count(rows, cols)

    def start(to: int, first: int, parts: int, step: int) -> None:
        for z in range(0, batch, _MOST_BLOCKS):
            own = (
                Side(x.address + 4 * z * x.of_batch, x.of_element, x.of_term, x.of_batch)
                for x in (a, b)
            )
            params = (
                b"".join(x.slots() for x in own)
                + whole(a.of_batch, b.of_batch, each, terms, step, first)
                + results(to + 4 * z * each, rows, cols, finish)
            )
            grid = (blocks, parts, min(batch - z, _MOST_BLOCKS))
            device.launch(name, grid, tile.threads, params, tile.shared)

    if not choice.split:
        start(out.address, 0, 1, 0)
        return
    in_parts(out, chunks(terms), start, finish)


def in_parts(
    out: DeviceTensor,
    count: int,
    start: Callable[[int, int, int, int], None],
    finish: Finish,
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


# --- operators ------------------------------------------------------------------------------------
def _sides(a: DeviceTensor, b: DeviceTensor) -> tuple[Side, Side]:
    """The operands of a product, which have two axes or a batch before them."""
    first, second = ((x.steps[0] if x.ndim == 3 else 0, *x.steps[-2:]) for x in (a, b))
    return Side(a.address, first[1], first[2], first[0]), Side(
        b.address, second[2], second[1], second[0]
    )


@cuda_kernel("aten.mm", "aten.bmm", strided=True)
def _mm(_attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    a, b = operand(inputs, 0), operand(inputs, 1)
    _product(*_sides(a, b), outputs[0], a.shape[-1])


@cuda_kernel("aten.addmm", strided=True)
def _addmm(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    c, a, b = (operand(inputs, i) for i in range(3))
    alpha, beta = cast(float, attrs["alpha"]), cast(float, attrs["beta"])
    if beta == 0:
        finish = Finish(alpha=alpha)
    else:
        steps = [0 if n == 1 else s for n, s in zip(c.shape, c.steps, strict=True)]
        row, col = ([0, 0, *steps])[-2:]
        finish = Finish(c, row, col, alpha, beta)
    _product(*_sides(a, b), outputs[0], a.shape[-1], finish)
