"""The kernels of the rounded operators on a GPU (NUMERICS 13.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tallystick.devices.cuda.launch import Outputs, Tensors
from tallystick.devices.device import Kernel, Run, replaced
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.registry import rounded_operators
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.dots import Rounding

# Over the way to round, then what every kernel gets.
rounded_kernel: Attachments[Callable[[Rounding, Attrs, Tensors, Outputs], None]] = Attachments(
    "rounded CUDA kernel", "tallystick.contracts.rounded.cuda.*"
)


def with_rounded(ordinary: Mapping[str, Kernel], bits: int) -> Mapping[str, Kernel]:
    """`ordinary` kernels, with those of the rounded operators on the grid of B = `bits`."""
    how = Rounding(bits)

    def rounding(op: str, otherwise: Run) -> Run:
        kernel = rounded_kernel[op]

        def run(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
            if all(x is None or x.dtype == "f32" for x in inputs):
                kernel(how, attrs, inputs, outputs)
            else:
                otherwise(attrs, inputs, outputs)

        return run

    return replaced(ordinary, rounded_operators(), rounding)
