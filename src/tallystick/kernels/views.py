"""View operators, whose output is their operand's memory: the strides of the output.

No kernel computes them, on any device: the planner asks for the layout once (program/layout.py).
The functions take numpy arrays because numpy computes strides. They never read the elements.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tallystick.numerics.attachments import Attachments
from tallystick.numerics.operators.common import integers
from tallystick.numerics.operators.movement import slice_of
from tallystick.numerics.types import Attrs, type_of

# Over attributes and the one operand: a view of it or, where numpy cannot give one, a copy.
View = Callable[[Attrs, np.ndarray], np.ndarray]

view: Attachments[View] = Attachments("view", "tallystick.kernels.views")


@view("aten.view")
def _view(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    return x.reshape(integers(attrs, "size"))


@view("aten.permute")
def _permute(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    return np.transpose(x, integers(attrs, "dims"))


@view("aten.expand")
def _expand(attrs: Attrs, x: np.ndarray) -> np.ndarray:
    seen: np.ndarray = np.broadcast_to(x, integers(attrs, "size"))
    return seen


@view("aten.slice", named=True)
def sliced(op: str, attrs: Attrs, x: np.ndarray) -> np.ndarray:
    """The part of x that `op` names, which is a slice or an operator that scatters into one."""
    axis, taken, _ = slice_of(op, attrs, type_of(x))
    return x[(slice(None),) * axis + (taken,)]
