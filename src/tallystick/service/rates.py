"""What each peer has spent: a token bucket, charged more for what it should not have sent."""

from __future__ import annotations

from collections import OrderedDict

from tallystick.service.bounds import Bounds


class Rates:
    """An account for each peer. Peers that were quiet longest are forgotten first."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, peer: str, now: float) -> bool:
        """Whether `peer` may make one request more at `now`, in seconds of any clock."""
        tokens, then = self._left.pop(peer, (self._bounds.burst, now))
        tokens = min(self._bounds.burst, tokens + (now - then) * self._bounds.rate)
        allowed = tokens >= 1
        self._left[peer] = (tokens - 1 if allowed else tokens, now)
        if len(self._left) > self._bounds.peers:
            self._left.popitem(last=False)
        return allowed

    def bad(self, peer: str, size: int = 0) -> None:
        """Charge `peer` for a bad request with a body of `size` bytes. It may owe one burst."""
        if peer in self._left:
            tokens, then = self._left[peer]
            cost = self._bounds.bad_cost + size / self._bounds.bad_bytes
            self._left[peer] = max(tokens - cost, -self._bounds.burst), then
