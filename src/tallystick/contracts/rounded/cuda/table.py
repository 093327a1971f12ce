"""The kernels of the rounded operators on a GPU (NUMERICS 13.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.kernel import Kernel, Run
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.marks import Rounding

# Over the way to round, then what every kernel gets.
rounded_kernel: Attachments[Callable[[Rounding, Attrs, Tensors, Outputs], None]] = Attachments(
    "rounded CUDA kernel", "tallystick.contracts.rounded.cuda.*"
)


def with_rounded(ordinary: Mapping[str, Kernel], bits: int) -> Mapping[str, Kernel]:
    """`ordinary` kernels, with those of the rounded operators on the grid of B = `bits`."""
    how = Rounding(bits)

    def rounding(op: str, otherwise: Run) -> Run:
        def run(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
            if all(x is None or x.dtype == "f32" for x in inputs):
                rounded_kernel[op](how, attrs, inputs, outputs)
            else:
                otherwise(attrs, inputs, outputs)

        return run

    ours = rounded_kernel.keys() & ordinary.keys()
    made = {op: replace(ordinary[op], run=rounding(op, ordinary[op].run)) for op in ours}
    return {**ordinary, **made}
