"""Signs two different answers to one query.

Gain: to find out which one the referee takes, or to show each to another reader. How: the answer
of its run, and another body under its signature. Caught: equivocation convicts, whatever the
answers say (PROTOCOL 2.9, P8), if the second comes while the game goes on; else the first decides.
"""

from __future__ import annotations

from tallystick.protocol.messages import ANSWERED

from ._provider import Provider, Sent, SessionAttack


class TwoAnswers(Provider):
    def answer(self, query: bytes) -> list[Sent]:
        return [*super().answer(query), Sent(self.run.signed(query, ANSWERED, b"another"))]


ATTACK = SessionAttack("two-answers", "answers one query twice", TwoAnswers, ("convicted",))
