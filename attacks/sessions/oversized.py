"""Sends messages over the limits of the protocol.

Gain: memory and time of the referee. How: a seal, an opening or an answer longer than COMMITMENTS
11.1 allows, correctly signed. Caught: sizes come first; such bytes are none of the expected
message.
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.commit.signed import sign_compact
from tallystick.delegation.seals import SEAL_TYPE
from tallystick.limits import LIMITS
from tallystick.protocol.messages import ANSWERED

from ._provider import Provider, Sent, SessionAttack


class Oversized(Provider):
    def seal(self) -> list[Sent]:
        if self.variant != "seal":
            return super().seal()
        return [Sent(sign_compact(self.run.key, SEAL_TYPE, bytes(LIMITS.seal_bytes + 1)))]

    def open(self) -> list[Sent]:
        if self.variant != "opening":
            return super().open()
        long = replace(self.sealed(), commitment=bytes(LIMITS.sealed_bytes + 1))
        return [Sent(self.signed_opening(long))]

    def answer(self, query: bytes) -> list[Sent]:
        if self.variant != "answer":
            return super().answer(query)
        return [Sent(self.run.signed(query, ANSWERED, bytes(LIMITS.answer_bytes + 1)))]


ATTACK = SessionAttack(
    "oversized", "messages over the limits", Oversized, ("absent", "excluded", "forfeits"),
    ("seal", "opening", "answer"),
)  # fmt: skip
