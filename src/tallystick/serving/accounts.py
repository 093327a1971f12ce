"""How many tokens a key may still use."""

from __future__ import annotations

from tallystick.serving.refusals import busy


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
