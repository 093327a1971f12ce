"""Seals and opens a commitment of thousands of brackets, one in the other.

Gain: a crash of the parser. How: the sealed envelope is such JSON, or JSON that repeats a key.
Caught: the opening is false, so the key is excluded (PROTOCOL 10.3.1), with bounded depth
(COMMITMENTS 1.11).
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.delegation.seals import SealOpening

from ._provider import Provider, SessionAttack

_DEPTH = 30_000


class Nested(Provider):
    def sealed(self, nonce: bytes = b"n" * 32) -> SealOpening:
        return replace(super().sealed(nonce), commitment=self.other())

    def other(self) -> bytes:
        """What the party seals instead of its commitment."""
        return b"[" * _DEPTH + b"]" * _DEPTH


ATTACK = SessionAttack("deeply-nested", "a commitment of brackets", Nested, ("excluded",))
