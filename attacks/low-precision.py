"""Low precision passed off as full: matrix products are rounded to bfloat16.

Gain: hardware with fast bfloat16 does the work at a half to a quarter of the cost. How: every
output of the dot class loses its lower 16 bits, from step `step` on. Caught: the first such product
differs, and the referee executes one chunk of it (case 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.program.ir import Node, op_spec
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack


class Bfloat16(Override):
    def __init__(self, first: int) -> None:
        self.first = first

    def watches(self, step: int) -> bool:
        return step >= self.first

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        if op_spec(node.op).op_class == "dot":
            for output in outputs:
                bits = np.ascontiguousarray(output).view(np.uint32)
                rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
                output[...] = np.where(np.isfinite(output), rounded.view(np.float32), output)


def build(job: Job, params: dict[str, Any]) -> Override:
    return Bfloat16(params["step"])


ATTACK = Attack(
    "low-precision", "training", "products rounded to bfloat16", build, {"step": MIDDLE}
)
