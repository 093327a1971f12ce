"""Sends bytes that follow no layout.

Gain: an error of the referee that ends the session. How: a seal, an opening or an answer of other
bytes, or an answer with a body that does not fit its query, correctly signed. Caught: bytes that
are no message count as nothing (PROTOCOL 2.6, 10.2.1); a signed malformed body convicts (2.7).
"""

from __future__ import annotations

from tallystick.protocol.messages import ANSWERED

from ._provider import Provider, Sent, SessionAttack


class Malformed(Provider):
    def seal(self) -> list[Sent]:
        true = super().seal()
        return [Sent(true[0].data[:-1])] if self.variant == "seal" else true

    def open(self) -> list[Sent]:
        true = super().open()
        return [Sent(b"\0" * 8 + true[0].data)] if self.variant == "opening" else true

    def answer(self, query: bytes) -> list[Sent]:
        if self.variant == "answer":
            return [Sent(b"\xff" * 200), Sent(b"")]
        if self.variant == "body":
            return [Sent(self.run.signed(query, ANSWERED, b"\xff" * 33))]
        return super().answer(query)


ATTACK = SessionAttack(
    "malformed", "bytes of no layout", Malformed, ("absent", "forfeits", "convicted"),
    ("seal", "opening", "answer", "body"),
)  # fmt: skip
