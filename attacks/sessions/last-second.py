"""Moves in the last millisecond that it has, in every phase.

Gain: elsewhere a party that waited until the end, then moved, left its opponent no time. How:
seal, opening and every answer arrive exactly at their deadline. Caught: the opponent's clock does
not run meanwhile (PROTOCOL 11.3), it has at least the extension for each answer (11.4), and the
game ends within the time of 11.6.
"""

from __future__ import annotations

from ._provider import Provider, Sent, SessionAttack

LAST = -1  # as a delay: at the deadline itself, which the simulator knows


class LastSecond(Provider):
    def seal(self) -> list[Sent]:
        return [Sent(sent.data, LAST) for sent in super().seal()]

    def open(self) -> list[Sent]:
        return [Sent(sent.data, LAST) for sent in super().open()]

    def answer(self, query: bytes) -> list[Sent]:
        return [Sent(sent.data, LAST) for sent in super().answer(query)]


ATTACK = SessionAttack("last-second", "always moves at its deadline", LastSecond, ("convicted",))
