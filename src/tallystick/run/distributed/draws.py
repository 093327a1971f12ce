"""Which shares of a step are computed again, and by whom: drawn from a secret of worker 0."""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass, field

_WORD = 1 << 64


@dataclass(frozen=True)
class ShareDraws:
    """Draws each share with probability `fraction`, independently of all others.

    A draw is HMAC-SHA-256 of step and share under `secret`, which only worker 0 has: what is drawn
    in a step says nothing about another step, and a step that is repeated has the same draws. The
    checker is any of the other `workers`, each with the same probability (to 2^-48). Of the steps
    up to `whole` every share is drawn.
    """

    fraction: float
    workers: int
    secret: bytes = field(default_factory=lambda: os.urandom(32), repr=False)
    whole: int = -1

    def checker(self, step: int, number: int, owner: int) -> int | None:
        """The worker who computes share `number` of `step` again, which is worker `owner`'s; None
        where nobody does."""
        text = step.to_bytes(8, "little") + number.to_bytes(8, "little")
        word = hmac.new(self.secret, text, hashlib.sha256).digest()
        drawn = int.from_bytes(word[:8], "little") < round(self.fraction * _WORD)
        if not drawn and step > self.whole:
            return None
        found = int.from_bytes(word[8:16], "little") % (self.workers - 1)
        return found + (found >= owner)
