"""What one model server gives at most, to one key and in all. No digest covers these numbers."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.limits import LIMITS
from tallystick.service.doors import Bounds


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
