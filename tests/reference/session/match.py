"""One game of a session: the judge's referee, with clocks (PROTOCOL 1.2, 2.9, 2.10, 11)."""

from __future__ import annotations

from typing import Any

from reference.judge.encoding import MalformedError, digest_of, envelope
from reference.judge.evidence import FORFEIT, Messages
from reference.judge.game import Referee
from reference.judge.rounds import Party, UndecidedError, VerdictError
from reference.judge.terms import Terms
from reference.session.layout import FORFEIT_BYTES, Rules

CONVICTIONS, UNDECIDED = 0, 1


class Match:
    """A game that has begun (12.2, kind 10)."""

    def __init__(
        self, terms: Terms, rules: Rules, number: int, keys: tuple[bytes, bytes], runs: list[Party]
    ) -> None:
        self.terms, self.rules, self.number, self.keys, self.runs = terms, rules, number, keys, runs
        self.read = Messages(terms.digest, runs).read
        self.left = [rules.budget + rules.step * rules.steps] * 2
        self.said: dict[tuple[int, bytes], tuple[int, bytes]] = {}
        self.silent: set[int] = set()
        self.queries: dict[int, bytes] = {}  # of this round
        self.deadlines: dict[int, int] = {}  # of the parties that owe an answer
        self.unasked: list[int] = []
        self.answers: dict[int, tuple[int, bytes]] = {}
        self.verdict: tuple[int, list[tuple[int, str]]] | None = None
        self.game = Referee(terms, runs, rules.arity).run()
        self.go_on(None)

    def go_on(self, answers: Any) -> None:
        """Judges a round; the next round's queries, or the verdict."""
        try:
            self.queries = dict(self.game.send(answers))
        except VerdictError as verdict:
            # Claims that differ do not agree (3.6), so there is a conviction.
            assert verdict.convicted
            self.verdict = (CONVICTIONS, verdict.convicted)
        except UndecidedError:
            self.verdict = (UNDECIDED, [])
        else:
            self.unasked, self.answers = sorted(self.queries), {}

    def ask(self, party: int, time: int) -> None:
        """11.3, 11.4."""
        self.unasked.remove(party)
        self.left[party] = max(self.left[party], self.rules.extension)
        self.deadlines[party] = time + self.left[party]

    def answer(self, party: int, message: bytes, time: int) -> None:
        """Takes a logged answer; MalformedError where it is none of this game."""
        query, status, body = self.read(party, message)
        if party in self.deadlines and query == self.queries[party]:
            self.left[party] = self.deadlines.pop(party) - time
            if self.left[party] < 0:
                raise MalformedError("after its deadline")
            self.said[party, query] = self.answers[party] = (status, body)
            self.round_over()
        elif self.silent or self.said.get((party, query), (status, body)) == (status, body):
            raise MalformedError("without effect")
        else:
            self.verdict = (CONVICTIONS, [(party, "2.9")])

    def forfeit(self, party: int, word: bytes, time: int) -> None:
        """2.10, 11.5; MalformedError where the referee may not sign it."""
        if party not in self.deadlines or time <= self.deadlines[party]:
            raise MalformedError("no party that let its time pass")
        if len(word) > FORFEIT_BYTES:
            raise MalformedError("over its limit")
        f = envelope(word, FORFEIT, "referee")
        if set(f) != set("kind job_digest run_roots party query referee".split()):
            raise MalformedError("no forfeit")
        same = (
            f["kind"] == "tallystick/forfeit/1"
            and digest_of(f["job_digest"]) == self.terms.digest
            and f["run_roots"] == [r.run_root.hex() for r in self.runs]
            and type(f["party"]) is int
            and f["party"] == party
            and f["query"] == self.queries[party].hex()
            and digest_of(f["referee"]) == self.rules.referee
        )
        if not same:
            raise MalformedError("a forfeit of another query")
        del self.deadlines[party]
        self.silent.add(party)
        self.round_over()

    def round_over(self) -> None:
        if self.deadlines:
            return
        if self.silent:
            self.verdict = (CONVICTIONS, [(p, "2.10") for p in sorted(self.silent)])
        else:
            self.go_on(self.answers)

    @property
    def convicted(self) -> set[int]:
        assert self.verdict is not None
        return {p for p, _ in self.verdict[1]}

    @property
    def bits(self) -> int:
        return sum(1 << p for p in self.convicted)
