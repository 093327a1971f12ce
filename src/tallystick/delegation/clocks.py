"""A party's clock in one game (PROTOCOL 11.3 to 11.5)."""

from __future__ import annotations

from tallystick.delegation.rules import Rules


class Clock:
    """The time that a party has left, in milliseconds. It runs while the party owes an answer."""

    def __init__(self, rules: Rules) -> None:
        self.left = rules.game_budget
        self.used = 0
        self._extension = rules.extension
        self._since: int | None = None

    @property
    def deadline(self) -> int | None:
        """The last moment at which the open answer is in time; None while no answer is owed."""
        return None if self._since is None else self._since + self.left

    def ask(self, now: int) -> None:
        """The party owes an answer from `now` on, with at least the extension left (11.4)."""
        self.left = max(self.left, self._extension)
        self._since = now

    def stop(self, now: int) -> None:
        """The answer is there, or the game has ended."""
        if self._since is not None:
            self.left -= now - self._since
            self.used += now - self._since
            self._since = None

    def pause(self, away: int) -> None:
        """The referee was away for `away` milliseconds, which count for no party (11.5.2)."""
        if self._since is not None:
            self._since += away
