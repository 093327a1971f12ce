"""Sends true, signed words that belong somewhere else.

Gain: to make a referee take an answer of another run, game or position as this one's. How: from
its second query on, an answer to another query, to one of an earlier game, or under another run
root. Caught: these bytes are no answer (PROTOCOL 2.6), so the party is silent (11.5).
"""

from __future__ import annotations

from dataclasses import replace

from tallystick.protocol import queries as q
from tallystick.protocol.messages import ANSWERED, open_answer, sign_answer

from ._provider import Provider, Sent, SessionAttack


class MisplacedAnswers(Provider):
    said: bytes = b""

    def answer(self, query: bytes) -> list[Sent]:
        true = super().answer(query)
        before, self.said = self.said, true[0].data
        if not before:
            return true
        if self.variant == "position":
            return [Sent(before)]
        if self.variant == "game":
            other = q.encode_query(q.States((0,)))
            return [Sent(self.run.signed(other, ANSWERED, bytes(32)))]
        answer = open_answer(true[0].data, self.run.key.public)
        return [Sent(sign_answer(self.run.key, replace(answer, run_root=bytes(32))))]


ATTACK = SessionAttack(
    "misplaced-answers", "answers of another run, game or position", MisplacedAnswers,
    ("forfeits", "convicted"), ("run", "game", "position"),
)  # fmt: skip
