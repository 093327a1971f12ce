"""Calls of native/cuda/conv.cu: convolutions and their gradients (NUMERICS 2.6, 2.7)."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.contracts.ordered.cuda.gemm import Finish, divide, in_parts, results
from tallystick.contracts.ordered.cuda.reduction import fold
from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.devices.cuda.launch import THREADS, over, pointer, whole
from tallystick.devices.cuda.operands import Outputs, Tensors, operand, optional, wanted
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.operators.dot import geometry, output_mask
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.tiles import FORCED, PROCESSORS, choose, chunks

_MOST_BLOCKS = 65535  # along an axis of a grid
_MOST_FAST = 1 << 31  # columns and terms that a tile takes
_FEWEST_ROWS = 4  # of a tile that is not almost empty


@dataclass(frozen=True)
class _Pass:
    """A product of native/cuda/conv.cu: its name, operands and results by group. Of its columns
    and terms: how many there are, and the sizes of their planes and rows."""

    name: str
    a: DeviceTensor
    b: DeviceTensor
    out: DeviceTensor
    rows: int
    columns: tuple[int, int, int]
    terms: tuple[int, int, int]
    images: bool = True  # the columns are places in images


@dataclass(frozen=True)
class _Shape:
    """Sizes of a convolution, per group."""

    groups: int
    og: int
    cg: int
    image: tuple[int, ...]
    output: tuple[int, ...]
    kernel: tuple[int, ...]
    form: tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]

    @classmethod
    def of(cls, op: str, attrs: Attrs, x: DeviceTensor, w: DeviceTensor, y: DeviceTensor) -> _Shape:
        form = geometry(op, attrs)
        og, cg = w.shape[0] // form[3], w.shape[1]
        return cls(form[3], og, cg, x.shape[2:], y.shape[2:], w.shape[2:], form)

    def slots(self) -> bytes:
        stride, padding, dilation, _ = self.form
        sides = (*self.image, *self.output, *self.kernel)
        return whole(self.og, self.cg, self.groups, *sides, *stride, *padding, *dilation)


def _split(outer: int, sides: tuple[int, ...]) -> tuple[int, int, int]:
    """`outer` planes of these sides: all their places, those of a plane, and those of a row."""
    return outer * sides[0] * sides[1], sides[0] * sides[1], sides[1]


def _run(shape: _Shape, work: _Pass, finish: Finish) -> None:
    out, device = work.out, work.out.device
    if out.size == 0:
        return
    (cols, *col), (terms, *term), stride = work.columns, work.terms, shape.form[0]
    divides = b"".join(divide(n) for n in (*col, *term, *stride))
    plane = col[0] if work.images else 0
    image = shape.groups * work.rows * plane
    step = plane if work.images else cols
    each = work.rows * step

    def params(to: int, first_group: int, first: int, split: int) -> bytes:
        return (
            pointer(work.a, work.b)
            + shape.slots()
            + divides
            + whole(first_group, each, terms, split, first)
            + results(to, work.rows, cols, finish, step, plane, image)
        )

    fast = cols < _MOST_FAST and terms < _MOST_FAST
    if not fast or (work.rows < _FEWEST_ROWS and FORCED.tile is None):
        grid = over(out.size)

        def start(to: int, first: int, parts: int, step: int) -> None:
            slots = params(to, 0, first, step)
            name = f"conv_{work.name}_each"
            device.launch(name, (grid[0], parts, 1), THREADS, slots)

        split = out.size < PROCESSORS * THREADS * 4
    else:
        choice = choose(work.rows, cols, terms, shape.groups, gathered=True)
        tile, split = choice.tile, choice.split
        blocks = tile.count(work.rows, cols)

        def start(to: int, first: int, parts: int, step: int) -> None:
            for group in range(0, shape.groups, _MOST_BLOCKS):
                grid = (blocks, parts, min(shape.groups - group, _MOST_BLOCKS))
                slots = params(to, group, first, step)
                name = f"conv_{work.name}_{tile.name}"
                device.launch(name, grid, tile.threads, slots, tile.shared)

    if FORCED.split is not None:
        split = FORCED.split
    count = chunks(terms)
    if split and count > (0 if FORCED.split else 1):
        in_parts(out, count, start, finish)
    else:
        start(out.address, 0, 1, 0)


@cuda_kernel("aten.convolution")
def _convolution(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    x, w, bias, out = operand(inputs, 0), operand(inputs, 1), optional(inputs, 2), outputs[0]
    shape = _Shape.of("aten.convolution", attrs, x, w, out)
    if bias is not None:
        spread = out.device.view(bias, 0, "f32", (*bias.shape, 1, 1), (4, 4, 4))
        finish = Finish(spread, row=1)
    else:
        finish = Finish()
    columns, terms = _split(x.shape[0], shape.output), _split(shape.cg, shape.kernel)
    _run(shape, _Pass("forward", w, x, out, shape.og, columns, terms), finish)


@cuda_kernel("aten.convolution_backward")
def _convolution_backward(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    grad, x, w = operand(inputs, 0), operand(inputs, 1), operand(inputs, 2)
    shape = _Shape.of("aten.convolution_backward", attrs, x, w, grad)
    dx, dw, db = wanted(outputs, output_mask(attrs))
    if dx is not None:
        name = "strided" if shape.form[0] != (1, 1) else "input"
        columns, terms = _split(x.shape[0], shape.image), _split(shape.og, shape.kernel)
        _run(shape, _Pass(name, w, grad, dx, shape.cg, columns, terms), Finish())
    if dw is not None:
        columns, terms = _split(shape.cg, shape.kernel), _split(x.shape[0], shape.output)
        work = _Pass("weight", grad, x, dw, shape.og, columns, terms, images=False)
        _run(shape, work, Finish())
    if db is not None and db.size:
        fold("reduce_sum", grad, (0, 2, 3), db)
