"""Sides and pairs: equal claims stand together, arrival decides nothing (PROTOCOL 10.4, 10.5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tallystick.commit.signing import PublicKey, RunCommitment

Claim = tuple[bytes, int, int, bytes]


@dataclass(frozen=True)
class Member:
    """A party that has opened: its key, its commitment's envelope, and the run in it."""

    key: PublicKey
    commitment: bytes
    run: RunCommitment

    @property
    def claim(self) -> Claim:
        """All that the commitment says about the run (10.4); claims are compared in this order."""
        run = self.run
        return run.run_root, run.final_step, run.checkpoints, run.final_state_root


def sides_of(members: Iterable[Member]) -> list[list[Member]]:
    """The sides in order, each with its signers in order (10.4)."""
    sides: dict[Claim, list[Member]] = {}
    for member in sorted(members, key=lambda m: (m.claim, m.key.raw)):
        sides.setdefault(member.claim, []).append(member)
    return list(sides.values())


def pairs_of(sides: Sequence[Sequence[Member]]) -> list[tuple[Member, Member]]:
    """The games of a round: first signers of neighbouring sides. A last odd side waits (10.5)."""
    return [(a[0], b[0]) for a, b in zip(sides[::2], sides[1::2], strict=False)]
