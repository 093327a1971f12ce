"""The honest side of a party to a session, in memory, and what an attack file says of itself.

A session attack is a class that overrides one method of `Provider`: it sends something else than
the honest party would, or at another time (PROTOCOL 10, 11, 13). The simulator of
`tests/adversary/sessions.py` plays it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tallystick.commit.signed import sign_compact, split_compact
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.delegation.entries import SessionBegun, open_entry
from tallystick.delegation.rules import Rules
from tallystick.delegation.seals import OPENING_TYPE, SEAL_TYPE, Seal, SealOpening
from tallystick.delegation.turns import AskOpening, AskSeal, Play, turn_of
from tallystick.limits import LIMITS
from tallystick.prover.local import SilenceError


class Run(Protocol):
    """A signed run, and its answers under the same key."""

    key: PrivateKey
    commitment: bytes
    job_digest: bytes

    def answer(self, query: bytes) -> bytes:
        """The signed answer to an encoded query. Raises SilenceError."""

    def signed(self, query: bytes, status: int, body: bytes) -> bytes:
        """Any status and body, signed as the answer to `query`."""


@dataclass(frozen=True)
class Sent:
    """A message to the referee, `after` so many milliseconds."""

    data: bytes
    after: int = 0


class Provider:
    """The honest party. `log` are the referee's signed entries, which anyone may read.

    It looks at a turn `late` milliseconds after it has come.
    """

    late = 0

    def __init__(self, run: Run, log: Sequence[bytes], variant: str = "") -> None:
        self.run, self.log, self.variant = run, log, variant
        self.session = b""
        self.rules: Rules | None = None

    def take(self, message: bytes) -> list[Sent]:
        """The messages that the party sends for a signed turn."""
        turn = turn_of(split_compact(message, LIMITS.turn_bytes, "turn").data)
        request, self.session = turn.request, turn.session
        if isinstance(request, AskSeal):
            event = open_entry(request.entry).event
            assert isinstance(event, SessionBegun)
            self.rules = event.rules
            return self.seal()
        if isinstance(request, AskOpening):
            return self.open()
        if isinstance(request, Play) and request.query:
            try:
                return self.answer(request.query)
            except SilenceError:
                return []
        return []

    @property
    def referee(self) -> PublicKey:
        """The key of the session's referee."""
        assert self.rules is not None
        return self.rules.referee

    # -- what attacks override -----------------------------------------------------------------

    def seal(self) -> list[Sent]:
        """Sealing (10.2)."""
        return [Sent(self.signed_seal(self.sealed()))]

    def open(self) -> list[Sent]:
        """Opening (10.3)."""
        return [Sent(self.signed_opening(self.sealed()))]

    def answer(self, query: bytes) -> list[Sent]:
        """A query of a game (13.2)."""
        return [Sent(self.run.answer(query))]

    # -- the honest messages -------------------------------------------------------------------

    def sealed(self, nonce: bytes = b"n" * 32) -> SealOpening:
        """The party's own commitment under a nonce."""
        return SealOpening(self.session, self.run.key.public, nonce, self.run.commitment)

    def signed_seal(self, opening: SealOpening) -> bytes:
        """The signed seal of `opening`, whatever key it names."""
        seal = Seal(opening.session, opening.key, opening.sealed(self.run.job_digest))
        return sign_compact(self.run.key, SEAL_TYPE, seal.to_bytes())

    def signed_opening(self, opening: SealOpening) -> bytes:
        """`opening` signed by this party's key."""
        return sign_compact(self.run.key, OPENING_TYPE, opening.to_bytes())


@dataclass(frozen=True)
class SessionAttack:
    """An attack on a session: the class that plays it, and what becomes of the party.

    `claim` is the run that it signs: `false`, or `true` (the honest party's). `ends` are the ends
    that are right, of: `convicted`, `forfeits`, `excluded`, `absent` (no party), `removed` (any of
    the first two), `tried` (treated as an honest one: its claim decides).
    """

    name: str
    summary: str
    provider: type[Provider]
    ends: tuple[str, ...]
    variants: tuple[str, ...] = ("",)
    claim: str = "false"
