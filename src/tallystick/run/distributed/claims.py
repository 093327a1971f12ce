"""What a worker signs about a share of a step (docs/adr/0024)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.signing import RUN_COMMITMENT_TYPE, Envelope, PublicKey, Signature
from tallystick.errors import UsageError
from tallystick.job.share import ShareTask
from tallystick.program.share import Share, Tree
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
