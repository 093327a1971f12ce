"""A Sybil that signs the honest claim and loses its game on purpose.

Gain: to take the honest claim with it. How: the honest run's own commitment, copied work or real,
and a false answer in the first game. Caught: a conviction removes the signer and never the claim
(PROTOCOL 10.5.1), so the next signer of that claim plays in the next round.
"""

from __future__ import annotations

from tallystick.protocol.messages import ANSWERED, UNABLE

from ._provider import Provider, Sent, SessionAttack


class ThrowsTheGame(Provider):
    def answer(self, query: bytes) -> list[Sent]:
        if self.variant == "silent":
            return []
        if self.variant == "unable":
            return [Sent(self.run.signed(query, UNABLE, b""))]
        return [Sent(self.run.signed(query, ANSWERED, b"thrown"))]


ATTACK = SessionAttack(
    "throws-the-game", "loses for the honest claim", ThrowsTheGame, ("convicted", "forfeits"),
    ("", "silent", "unable"), claim="true",
)  # fmt: skip
