"""Two workers who have signed different things about one share of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.errors import MismatchError
from tallystick.program.share import Tree, parts_of


class FalseShareError(MismatchError):
    """Worker `owner` sent share `number` of `step`, and worker `checker` computed something else.

    One of the two is wrong; which one, a dispute says. No state has changed.
    """

    def __init__(self, step: int, number: int, tree: Tree, owner: int, checker: int) -> None:
        parts = parts_of(tree)
        super().__init__(
            f"In step {step} worker {owner} and worker {checker} have signed different values for "
            f"micro-batches {parts.start} to {parts.stop - 1}.",
            "Nothing was updated. Let a referee decide between the two.",
        )
        self.step, self.number, self.tree = step, number, tree
        self.owner, self.checker = owner, checker


@dataclass(frozen=True)
class ConvictedWorker:
    """Worker number `worker` of `workers`, convicted by the claim that it signed in `step` with
    `key` (its key id). `evidence` and the share job at `job` are what `judge` takes."""

    worker: int
    workers: int
    key: str
    step: int
    phase: int
    case: str
    evidence: Path
    job: Path


class WorkerConvictedError(MismatchError):
    """Workers were convicted by their own signed claims; the run stopped before the update."""

    def __init__(
        self, message: str, next_action: str, convicted: Sequence[ConvictedWorker]
    ) -> None:
        super().__init__(message, next_action)
        self.convicted = tuple(convicted)
