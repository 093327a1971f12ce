"""Games between an honest run and a liar who says anything, for the state machine and the script.

The liar has a run of its own with one lie in it (a scenario of tests/unit/protocol), or the honest
program executed with a wrong output, input or root at a random place; on top of that it may change
any answer. The honest party answers facts, kept once made.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from unit.protocol.scenarios import SCENARIOS, Lie, liar
from unit.protocol.simulator import Party

from tallystick.commit.tensor import Array
from tallystick.errors import CorruptFileError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.program.ir import Node
from tallystick.program.runner import NodeError
from tallystick.protocol import queries as q
from tallystick.protocol.messages import ANSWERED, UNABLE, Answer, sign_answer
from tallystick.protocol.referee import Referee

STEPS, INTERVAL = 13, 4
MOVES = ("facts", "flip", "cut", "longer", "garbage", "unable", "other", "stranger", "status")
# 10 + 2·log(c) + log(i) + log(n) + log(l) + 4·d of PROTOCOL P4, at arity 2 for this job.
MOST_ROUNDS = 10 + 2 * 2 + 2 + 1 + 1 + 4 * 3


def make_job(path: Path, contract: str = "ordered/1") -> Job:
    """A logistic regression of a few hundred bytes: 13 steps, a checkpoint every 4."""
    pairs = {"features": "24", "classes": "2", "records": "16", "batch_size": "2", "lr": "0.0001"}
    return new_job(
        "logreg", path, pairs, steps=STEPS, checkpoint_interval=INTERVAL, evaluate_every=0,
        contract=contract,
    )  # fmt: skip


class Answers:
    """A party whose facts are kept: games ask the same again and again."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self.commitment = party.commitment
        self._said: dict[bytes, bytes] = {}

    def answer(self, query: bytes) -> bytes:
        """The signed answer of the party's own run."""
        if query not in self._said:
            self._said[query] = self.party.answer(query)
        return self._said[query]

    def signed(self, query: bytes, status: int, body: bytes) -> bytes:
        """Any body under the party's signature."""
        party = self.party
        answer = Answer(party.job.digest, party.run.run_root, query, status, body)
        return sign_answer(party.key, answer)

    def body(self, query: bytes) -> bytes:
        """The encoded body of the facts, empty where there are none."""
        asked = q.decode_query(query)
        body = self.party.body(asked)
        return b"" if body is None else asked.layout.encode(body)


def random_lie(job: Job, rng: random.Random) -> Party:
    """The program executed with one wrong element of one node's output, in one step."""
    step, last = rng.randrange(job.commitment.steps), len(job.program.nodes) - 1
    index, place = rng.randrange(last), rng.random()

    def node(at: int, number: int, _: Node, outputs: Sequence[Array]) -> None:
        if (at, number) == (step, index):
            array = outputs[int(place * len(outputs))]
            where = np.unravel_index(int(place * array.size), array.shape) if array.ndim else ()
            array[where] = array[where] + 1 if array.dtype != bool else not array[where]

    return Party(job, Lie(node=node))


def liars(job: Job, honest: Party, rng: random.Random, count: int) -> list[Answers]:
    """Liars whose runs differ from the honest one: every scenario, and `count` random lies."""
    found = [liar(job, scenario) for scenario in SCENARIOS.values() if _fits(scenario)]
    found += [random_lie(job, rng) for _ in range(count)]
    return [Answers(p) for p in found if p.run.run_root != honest.run.run_root]


def lying_answers(job: Job, honest: Party, rng: random.Random, count: int) -> list[Answers]:
    """Liars about a job of one answer: of `count` random lies those that the nodes after them take,
    as a false index need not be. (The scenarios are about training.)"""
    found = []
    for _ in range(count):
        with suppress(NodeError):
            found.append(random_lie(job, rng))
    return [Answers(p) for p in found if p.run.run_root != honest.run.run_root]


def _fits(scenario: object) -> bool:
    """Scenarios that say nothing about tensors of several leaves, which this job has not."""
    hooks = getattr(scenario, "hooks", {})
    statement = getattr(scenario, "statement", {})
    return "answer" not in hooks and "node" not in hooks and not statement


def message(
    player: Answers, query: bytes, move: str, rng: random.Random, asked: Sequence[bytes]
) -> bytes:
    """What the liar sends for `query` by `move`, one of MOVES."""
    if move == "facts":
        return player.answer(query)
    if move == "unable":
        return player.signed(query, UNABLE, b"")
    if move == "status":
        return player.signed(query, rng.randrange(256), player.body(query))
    if move == "other" and asked:  # true words about something else
        return player.answer(rng.choice(asked))
    if move == "stranger":  # not signed by the party at all
        return bytes(len(player.answer(query)))
    data = bytearray(player.body(query))
    if move == "flip" and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif move == "cut":
        data = data[: rng.randrange(len(data) + 1)]
    elif move == "longer":
        data += rng.randbytes(rng.randint(1, 64))
    else:
        data = bytearray(rng.randbytes(len(data)))
    return player.signed(query, ANSWERED, bytes(data))


@dataclass
class Table:
    """A game under way, with what it must never become."""

    job: Job
    honest: Answers
    liar: Answers
    seat: int  # the liar's
    arity: int
    most_rounds: int = MOST_ROUNDS
    referee: Referee = field(init=False)
    asked: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        players = [self.honest, self.honest]
        players[self.seat] = self.liar
        commitments = (players[0].commitment, players[1].commitment)
        self.referee = Referee(self.job.terms, commitments, self.arity)

    def honest_answers(self) -> None:
        """The honest party answers whatever it owes."""
        query = self.referee.pending.get(1 - self.seat)
        if query is not None:
            self.referee.receive(1 - self.seat, self.honest.answer(query))

    def liar_sends(self, move: str, rng: random.Random) -> None:
        """The liar sends something for what it owes; what is no answer is refused."""
        query = self.referee.pending.get(self.seat)
        if query is None:
            return
        try:
            self.referee.receive(self.seat, message(self.liar, query, move, rng, self.asked))
        except CorruptFileError:
            return
        self.asked.append(query)

    def liar_repeats(self, rng: random.Random) -> None:
        """The liar answers an old query again, with other words (PROTOCOL 2.9)."""
        if self.asked and self.referee.verdict is None:
            query = rng.choice(self.asked)
            self.referee.receive(self.seat, self.liar.signed(query, ANSWERED, rng.randbytes(8)))

    def check(self) -> None:
        """P2 and P4, at any moment; P1 once the game has ended."""
        referee = self.referee
        assert referee.rounds <= self.most_rounds
        verdict = referee.verdict
        if verdict is None:
            assert referee.pending  # somebody owes an answer, so it goes on
            return
        assert [c.party for c in verdict.convicted] == [self.seat], verdict
        assert verdict.accepted == 1 - self.seat

    def finish(self, choose: Callable[[], str], rng: random.Random) -> None:
        """To the end; a liar that sends nothing valid three times over is silent."""
        tries = 0
        while self.referee.verdict is None:
            self.honest_answers()
            if self.seat in self.referee.pending:
                before = self.referee.received
                self.liar_sends(choose(), rng)
                tries = 0 if self.referee.received != before else tries + 1
                if tries == 3 and self.referee.verdict is None:
                    self.referee.silent(self.seat)
            self.check()
        self.check()
