"""What a settlement needs of a session that has ended (PROTOCOL 14.6).

A session makes it from its log. Nothing here is signed: a settlement names the session's log, and
anyone who has that log makes the same outcome again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from tallystick.commit.encoding import MAX_SAFE_INTEGER, Writer, check_hash, tag
from tallystick.commit.signing import PublicKey, RunCommitment
from tallystick.delegation.entries import (
    ALONE,
    CONTESTED,
    NO_RESULT,
    NONE_ACCEPTED,
    UNCONTESTED,
)
from tallystick.errors import UsageError
from tallystick.limits import LIMITS

CLAIM_TAG = tag("claim/1")
# The outcomes of a result that name an accepted claim (PROTOCOL 12.2).
ACCEPTING = (CONTESTED, UNCONTESTED, ALONE)
_RESULTS = (NONE_ACCEPTED, *ACCEPTING, NO_RESULT)


class Fate(Enum):
    """What became of a key that sealed in the session. A key that did not seal has none."""

    REMAINING = "remaining"  # not removed
    CONVICTED = "convicted"  # of a false statement, in a game (10.5.1)
    EXCLUDED = "excluded"  # by two messages for one slot, or a false opening (10.2.3, 10.3.1)
    SILENT = "silent"  # forfeited a game (11.5)
    UNOPENED = "unopened"  # sealed, and did not open in time (10.3.1)


def claim_digest(run: RunCommitment) -> bytes:
    """The digest of a run commitment's claim: all that it says about the run (PROTOCOL 10.4)."""
    out = Writer(CLAIM_TAG).hash(run.run_root).u64(run.final_step).u64(run.checkpoints)
    return out.hash(run.final_state_root, "final state root").digest()


@dataclass(frozen=True)
class SealedMember:
    """One sealed key, its fate, and the digest of its claim (None where it opened none)."""

    key: PublicKey
    fate: Fate
    claim: bytes | None = None

    def __post_init__(self) -> None:
        if self.claim is not None:
            check_hash(self.claim, "claim's digest")
        elif self.fate in (Fate.REMAINING, Fate.CONVICTED, Fate.SILENT):
            _refuse(f"a {self.fate.value} key has opened no claim")


@dataclass(frozen=True)
class PlayedGame:
    """Game `number`: its parties' keys, whether each was removed by it, and the steps that each
    one executed again for it (0 where that is not known)."""

    number: int
    keys: tuple[PublicKey, PublicKey]
    removed: tuple[bool, bool]
    executed: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        if self.keys[0] == self.keys[1]:
            _refuse("a game has one key twice")
        if not all(0 <= n <= LIMITS.steps for n in (self.number, *self.executed)):
            _refuse("a game's numbers are out of range")


@dataclass(frozen=True)
class Outcome:
    """The end of one session.

    `offer` is the digest that the session's rules name (10.1.1): the offer's, or the first alarm's
    for a challenge session (14.7.1). `session` is the session digest,
    `head` the digest of the log's entry with the result, `ended` that entry's time in milliseconds
    (11.1), `result` its outcome (12.2: 0 to 4). `accepted` is the digest of the accepted claim, and
    None exactly where the result accepts none. Members ascend by raw key, games by number. Raises
    UsageError for an outcome that no session has.
    """

    offer: bytes
    session: bytes
    head: bytes
    ended: int
    result: int
    accepted: bytes | None
    members: tuple[SealedMember, ...]
    games: tuple[PlayedGame, ...] = field(default=())

    def __post_init__(self) -> None:
        for what in ("offer", "session", "head"):
            check_hash(getattr(self, what), f"{what} digest")
        if not 0 <= self.ended <= MAX_SAFE_INTEGER or self.result not in _RESULTS:
            _refuse("its time or its result is out of range")
        if (self.result in ACCEPTING) != (self.accepted is not None):
            _refuse("its result does not fit its accepted claim")
        keys, numbers = [m.key.raw for m in self.members], [g.number for g in self.games]
        if keys != sorted(set(keys)) or numbers != sorted(set(numbers)):
            _refuse("its members or games are not in ascending order")
        if max(len(keys), len(numbers)) > LIMITS.parties:
            _refuse("it has too many members or games")
        self._check_members()
        self._check_games()

    @property
    def contested(self) -> bool:
        """Whether there was more than one side."""
        return len({m.claim for m in self.members if m.claim is not None}) > 1

    def fate_of(self, key: PublicKey) -> Fate | None:
        """The fate of `key`; None where it did not seal."""
        return next((m.fate for m in self.members if m.key == key), None)

    def _check_members(self) -> None:
        left = {m.claim for m in self.members if m.fate is Fate.REMAINING}
        if self.accepted is not None and left != {self.accepted}:
            _refuse("those that remain have not signed the accepted claim")
        if self.result == NONE_ACCEPTED and left:
            _refuse("it accepts no claim, and a signer remains")

    def _check_games(self) -> None:
        fates = {m.key: m.fate for m in self.members}
        removed = Counter(
            k for g in self.games for k, out in zip(g.keys, g.removed, strict=True) if out
        )
        by_game = {k: 1 for k, f in fates.items() if f in (Fate.CONVICTED, Fate.SILENT)}
        if removed != by_game:
            _refuse("the keys that games removed are not those convicted or silent")
        if not {k for g in self.games for k in g.keys} <= set(fates):
            _refuse("a game has a key that did not seal")


def _refuse(why: str) -> None:
    raise UsageError(f"No session ends so: {why}.", "Make the outcome from the session's log.")
