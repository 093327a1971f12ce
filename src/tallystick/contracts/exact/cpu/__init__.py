"""The DOTs of `exact/1`: sums of integers, which no kernel rounds (NUMERICS 17).

This module has the table of the kernels. `integers` turns groups of elements into integers.
`engines` has the ways to multiply them: numpy's BLAS in binary64, or the core's 8-bit digits.
`products` and `convolution` are the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from tallystick.devices.kernel import Arrays, Kernel, Outputs, replaced
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.registry import dot_operators
from tallystick.numerics.types import Attrs

# Over B of 17.1, attributes, inputs, and preallocated C-contiguous outputs.
Exactly = Callable[[int, Attrs, Arrays, Outputs], None]

exact_kernel: Attachments[Exactly] = Attachments("exact kernel", "tallystick.contracts.exact.cpu.*")


def by_integers(ordinary: Mapping[str, Kernel], width: int) -> Mapping[str, Kernel]:
    """`ordinary` kernels, with those of the dot class by integers of B = `width`."""
    return replaced(ordinary, dot_operators(), lambda op, _: partial(exact_kernel[op], width))
