"""Seals twice: two commitments under one key, to open whichever suits better later.

Gain: a choice after the others have opened. How: two seals with different nonces. Caught: two
signed messages for one slot exclude the key (PROTOCOL 10.2.3).
"""

from __future__ import annotations

from ._provider import Provider, Sent, SessionAttack


class TwoSeals(Provider):
    def seal(self) -> list[Sent]:
        return [Sent(self.signed_seal(self.sealed(nonce))) for nonce in (b"n" * 32, b"m" * 32)]


ATTACK = SessionAttack("two-seals", "seals twice", TwoSeals, ("excluded",))
