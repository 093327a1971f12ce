"""mm, bmm and addmm of `exact/1` on a GPU (NUMERICS 17.3; 2.4, 2.5)."""

from __future__ import annotations

from tallystick.contracts.exact.cuda.layout import ProductSide, SegmentBlocks
from tallystick.contracts.exact.cuda.products import ExactTarget, dots
from tallystick.contracts.exact.cuda.table import exact_kernel
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.dots import last_of, lines_of
from tallystick.products.operators import MATRIX_OPERATORS, matrices


def _operand(x: DeviceTensor, line_axis: int, blocks: SegmentBlocks) -> ProductSide:
    """A matrix, or a batch of them, by lines along the axis `line_axis` from the end."""
    lines = lines_of(x, line_axis)
    return ProductSide(
        "lines", lines.slots(), lines, x.shape[line_axis], blocks.terms, blocks.length,
        lines_first=lines.line == 1 and lines.term != 1,
    )  # fmt: skip


@exact_kernel(*MATRIX_OPERATORS, named=True)
def _products(op: str, width: int, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    product = matrices(op, attrs, inputs, outputs)
    batches, m, n, k = product.sizes
    blocks = SegmentBlocks(width, k)
    target = ExactTarget(product.out.address, batches, m, n, n, last_of(product))
    a, b = _operand(product.a, -2, blocks), _operand(product.b, -1, blocks)
    dots(product.out.device, blocks, a, b, target)
