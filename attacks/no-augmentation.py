"""No augmentation: the provider leaves the random crops, flips and mixtures out.

Gain: an easier task, so a loss that looks better; or a model that has learnt its images by heart.
How: from step `step` on every uniform number that the program draws is said to be 1/2, and every
normal one 0. So a crop is taken from the middle, nothing is flipped, and a GAN's noise is none.
Dropout stays. Caught: the referee draws the first differing number itself (case 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.program.ir import Node
from tallystick.run.cheats.override import Override

from ._shared import MIDDLE, Attack, nothing_to_do

DRAWS = ("tallystick.uniform", "tallystick.normal")


class Still(Override):
    def __init__(self, first: int) -> None:
        self.first = first

    def watches(self, step: int) -> bool:
        return step >= self.first

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        if node.op in DRAWS:
            drawn: Any = outputs[0]
            low, high = node.attrs.get("low", 0.0), node.attrs.get("high", 1.0)
            if node.op == "tallystick.normal":
                drawn[...] = node.attrs.get("mean", 0.0)
            else:
                drawn[...] = (low + high) / 2  # type: ignore[operator]


def build(job: Job, params: dict[str, Any]) -> Override:
    if not any(node.op in DRAWS for node in job.terms.program_at(params["step"]).nodes):
        raise nothing_to_do(f"step {params['step']} draws no uniform or normal number")
    return Still(params["step"])


ATTACK = Attack(
    "no-augmentation",
    "training",
    "augmentation is left out from one step on",
    build,
    {"step": MIDDLE},
)
