"""Disputes about a tiny job, played between parties in memory, as evidence files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.protocol.scenarios import Lie
from unit.protocol.simulator import Party

from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.program.ir import Node
from tallystick.prover.local import SilenceError, play

STEP = 3
OPERATOR = "tallystick.cross_entropy_backward"  # node of logreg that the liar gets wrong
ELEMENT = 2


def wrong_node(step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
    """One bit of one element; high enough that rounding does not swallow it."""
    if step == STEP and node.op == OPERATOR:
        outputs[0].reshape(-1).view(np.uint32)[ELEMENT] ^= np.uint32(1 << 20)


class Mute:
    """Commits, and never answers."""

    def __init__(self, party: Party) -> None:
        self.commitment = party.commitment

    def answer(self, query: bytes) -> bytes:
        raise SilenceError("It says nothing.", "")


@pytest.fixture(scope="session")
def upright(logreg_job: Job) -> Party:
    return Party(logreg_job)


@pytest.fixture
def evidence(logreg_job: Job, upright: Party, tmp_path: Path) -> Callable[..., Path]:
    """Evidence of a game: honest party 0, and party 1 with these hooks."""

    def made(silent: bool = False, key: PrivateKey | None = None, **hooks: Any) -> Path:
        other: Any = Party(logreg_job, Lie(**hooks)) if hooks else Party(logreg_job)
        played = play(logreg_job.terms, (upright, Mute(other) if silent else other), key=key)
        path = tmp_path / "case.evidence"
        path.write_bytes(played.evidence.to_bytes())
        return path

    return made
