"""Answers everything, each time after a good part of the time that it has.

Gain: to wear out the others, or their deadlines. How: a tenth of the budget for each answer, and
the whole extension once the budget is used up. Caught: each clock is the party's own (PROTOCOL
11.3), the game ends within the time of 11.6, and its claim is judged as any.
"""

from __future__ import annotations

from ._provider import Provider, Sent, SessionAttack

LEEWAY = 10  # milliseconds on the way, for each answer


class SlowDrip(Provider):
    used = 0

    def answer(self, query: bytes) -> list[Sent]:
        assert self.rules is not None
        budget, extension = self.rules.game_budget, self.rules.extension
        share = budget // 10
        if self.used + share > budget:
            share = extension * 9 // 10
        self.used += share + LEEWAY
        return [Sent(sent.data, share) for sent in super().answer(query)]


ATTACK = SessionAttack("slow-drip", "answers slowly, always in time", SlowDrip, ("convicted",))
