"""Opens its seal twice, the second time with another commitment.

Gain: another claim than the sealed one. How: two signed openings. Caught: the second is a false
statement, and a second message for one slot, so the key is excluded (PROTOCOL 10.3.1, P8).
"""

from __future__ import annotations

from ._provider import Provider, Sent, SessionAttack


class TwoOpenings(Provider):
    def open(self) -> list[Sent]:
        nonces = (b"m" * 32, b"n" * 32) if self.variant == "false-first" else (b"n" * 32, b"m" * 32)
        return [Sent(self.signed_opening(self.sealed(nonce))) for nonce in nonces]


ATTACK = SessionAttack(
    "two-openings", "opens twice", TwoOpenings, ("excluded", "convicted"), ("", "false-first")
)
