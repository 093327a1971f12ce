"""Seals and opens a commitment whose envelope repeats a key.

Gain: two readers that see two claims in one signed commitment. How: `payload` twice, the second
one true. Caught: only canonical JSON is read (COMMITMENTS 1.11), so the opening is false (PROTOCOL
10.3.1).
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.delegation.seals import SealOpening

from ._provider import Provider, SessionAttack


class DuplicateKeys(Provider):
    def sealed(self, nonce: bytes = b"n" * 32) -> SealOpening:
        twice = b'{"payload":"",' + self.run.commitment[1:]
        return replace(super().sealed(nonce), commitment=twice)


ATTACK = SessionAttack(
    "duplicate-keys", "a commitment that repeats a key", DuplicateKeys, ("excluded",)
)
