"""mm, bmm and addmm of `exact/1` on a GPU (NUMERICS 17.3; 2.4, 2.5)."""

from __future__ import annotations

from tallystick.contracts.exact.cuda.layout import Blocks, Operand
from tallystick.contracts.exact.cuda.products import Target, dots
from tallystick.contracts.exact.cuda.table import exact_kernel
from tallystick.devices.cuda.operands import Outputs, Tensors, operand
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.operators.common import number
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.dots import Last, lines_of, steps_of_added


def _operand(x: DeviceTensor, line_axis: int, blocks: Blocks) -> Operand:
    """A matrix, or a batch of them, by lines along the axis `line_axis` from the end."""
    lines = lines_of(x, line_axis)
    return Operand(
        "lines", lines.slots(), lines, x.shape[line_axis], blocks.terms, blocks.length,
        lines_first=lines.line == 1 and lines.term != 1,
    )  # fmt: skip


def _multiply(
    width: int,
    a: DeviceTensor,
    b: DeviceTensor,
    out: DeviceTensor,
    last: Last = Last(),  # noqa: B008
) -> None:
    """out = a·b of matrices or of batches of them, of any strides."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    batches = out.size // max(m * n, 1)
    blocks = Blocks(width, k)
    target = Target(out.address, batches, m, n, n, last)
    dots(out.device, blocks, _operand(a, -2, blocks), _operand(b, -1, blocks), target)


@exact_kernel("aten.mm", "aten.bmm")
def _mm(width: int, _attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    _multiply(width, operand(inputs, 0), operand(inputs, 1), outputs[0])


@exact_kernel("aten.addmm")
def _addmm(width: int, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    c, out = operand(inputs, 0), outputs[0]
    row, column = steps_of_added(c)
    alpha, beta = number(attrs, "alpha"), number(attrs, "beta")
    last = Last(c.address, 0, row, column, alpha=alpha, beta=beta)
    _multiply(width, operand(inputs, 1), operand(inputs, 2), out, last)
