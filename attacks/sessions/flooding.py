"""Sends dozens of messages for each turn.

Gain: a log or a memory that grows without bound, a referee without time. How: junk, its own old
messages and its answer many times over. Caught: what is no message has no effect, and an equal
message again has none (PROTOCOL 2.9, 10.2.1): the log has one entry for it.
"""

from __future__ import annotations

from ._provider import Provider, Sent, SessionAttack

TIMES = 12


class Flooding(Provider):
    def seal(self) -> list[Sent]:
        return self.flood(super().seal())

    def open(self) -> list[Sent]:
        return self.flood(super().open())

    def answer(self, query: bytes) -> list[Sent]:
        return self.flood(super().answer(query))

    def flood(self, true: list[Sent]) -> list[Sent]:
        """Junk around the true message, and that one again and again."""
        junk = [Sent(bytes([n]) * (100 * n)) for n in range(TIMES)]
        return [*junk, *true * TIMES, *junk]


ATTACK = SessionAttack("flooding", "many messages for each turn", Flooding, ("convicted",))
