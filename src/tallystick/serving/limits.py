"""What one model server gives at most, to one key and in all, and how many tokens a key may still
use. No digest covers these numbers."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.limits import LIMITS
from tallystick.service.doors import Bounds
from tallystick.serving.refusals import busy


@dataclass(frozen=True)
class ServingLimits:
    """Upper bounds, all inclusive. An answer is one choice of one prompt. It is *under way* from
    the first pass to its receipt, and *waits* before that."""

    at_once: int = 32  # answers under way, of one model
    key_at_once: int = 16  # of one key
    waiting: int = 512
    key_waiting: int = 256
    answer_tokens: int = 4096  # of one answer
    choices: int = 16
    prompts: int = 64  # of one request for completions
    texts: int = 8192  # that wait for an encoder
    key_texts: int = 2048
    # Tokens of prompts and answers that a key gets in a minute, and at most at once; 0 for any.
    key_tokens_minute: int = 0
    seconds: float = 600.0  # from a request to the end of its answers
    # Tokens that a client has not taken yet, and how long its connection may take nothing.
    unread_tokens: int = 512
    unread_seconds: float = 30.0


def bounds_of(limits: ServingLimits) -> Bounds:
    """The bounds of the HTTP server. Many clients may come from one address, as from a proxy."""
    return Bounds(
        connections=768,
        peer_connections=640,
        requests=768,
        peer_requests=640,
        bad_cost=5.0,  # clients of this interface try what a server refuses
        body_bytes=LIMITS.request_bytes,
        whole_seconds=limits.seconds + 2 * limits.unread_seconds,
    )


class Accounts:
    """Each key gains tokens evenly, up to those of one minute. It may begin a request as long as it
    owes nothing, and pays for what the request has used. 0 tokens a minute mean: any number."""

    def __init__(self, tokens_minute: int) -> None:
        self._minute = tokens_minute
        self._left: dict[str, tuple[float, float]] = {}

    def check(self, owner: str, now: float) -> None:
        """Raise ApiError where a key has used up its tokens. `now` is in seconds of any clock."""
        left = self._of(owner, now)
        if self._minute and left < 0:
            after = max(1, int(-left * 60 / self._minute) + 1)
            why = f"This key has {self._minute} tokens a minute, and has used them."
            raise busy(why, "tokens_exceeded", after)

    def pay(self, owner: str, tokens: int, now: float) -> None:
        if self._minute:
            self._left[owner] = self._of(owner, now) - tokens, now

    def _of(self, owner: str, now: float) -> float:
        left, then = self._left.get(owner, (float(self._minute), now))
        return min(float(self._minute), left + (now - then) * self._minute / 60)
