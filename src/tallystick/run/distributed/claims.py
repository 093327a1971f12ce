"""What a worker signs about a share of a step, and two workers who have signed different things
(docs/adr/0024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.signing import RUN_COMMITMENT_TYPE, Envelope, PublicKey, Signature
from tallystick.errors import MismatchError, UsageError
from tallystick.job.share import ShareTask
from tallystick.program.share import Share, Tree, parts_of
from tallystick.run.distributed.transport import Bytes

_SIGNATURE = 64


def check_two(workers: int) -> None:
    """Raises UsageError where one worker alone is to be checked."""
    if workers < 2:
        raise UsageError(
            "With one worker, there is no other worker to check its shares.",
            "Use --workers 2 or more, or leave --check-workers out.",
        )


@dataclass(frozen=True)
class ShareClaim:
    """What a worker has signed about a share: the digests of the slots that it makes."""

    digest: bytes  # of the share job
    made: Mapping[str, bytes]
    signature: bytes

    def to_bytes(self) -> Bytes:
        data = self.digest + self.signature + b"".join(self.made.values())
        return np.frombuffer(data, np.uint8)

    @staticmethod
    def from_bytes(data: bytes, share: Share) -> ShareClaim:
        """A claim of exactly `size_of(share)` bytes."""
        at = HASH_BYTES + _SIGNATURE
        names = {n: at + HASH_BYTES * k for k, n in enumerate(share.made)}
        made = {name: data[start : start + HASH_BYTES] for name, start in names.items()}
        return ShareClaim(data[:HASH_BYTES], made, data[HASH_BYTES:at])

    @staticmethod
    def size_of(share: Share) -> int:
        return HASH_BYTES + _SIGNATURE + HASH_BYTES * len(share.made)

    def envelope(self, task: ShareTask, signer: PublicKey) -> Envelope:
        """The signed run commitment of the share job of `task`, not yet verified."""
        payload = task.statement(self.made, signer).payload()
        return Envelope(RUN_COMMITMENT_TYPE, payload, (Signature(signer.key_id, self.signature),))


@dataclass(frozen=True)
class Drawn:
    """Share number `number` of a step, which is worker `owner`'s."""

    number: int
    owner: int
    tree: Tree


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
