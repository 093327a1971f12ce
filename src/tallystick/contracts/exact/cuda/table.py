"""The kernels of the dot class by sums of integers on a GPU (NUMERICS 17.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.kernel import Kernel
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.types import Attrs

# Over B, then what every kernel gets.
exact_kernel: Attachments[Callable[[int, Attrs, Tensors, Outputs], None]] = Attachments(
    "exact CUDA kernel", "tallystick.contracts.exact.cuda.*"
)


def by_integers(ordinary: Mapping[str, Kernel], width: int) -> Mapping[str, Kernel]:
    """`ordinary` kernels, with those of the dot class by integers of B = `width`."""
    ours = exact_kernel.keys() & ordinary.keys()
    made = {op: replace(ordinary[op], run=partial(exact_kernel[op], width)) for op in ours}
    return {**ordinary, **made}
