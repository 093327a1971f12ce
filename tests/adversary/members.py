"""Signed runs for sessions: one run's facts under any key, answers made once (PROTOCOL 1.3).

Thousands of games ask the same queries. The facts of a run are computed once, and each party of a
session signs them with its own key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from unit.protocol.simulator import Party

from tallystick.commit.signing import Envelope, PrivateKey, RunCommitment, sign_run, verify_run
from tallystick.protocol import queries as q
from tallystick.protocol.messages import ANSWERED, UNABLE, Answer, open_answer, sign_answer
from tallystick.prover.prover import Prover

Said = tuple[int, bytes]  # status and encoded body


class Facts:
    """A run, and what it answers to each query, whoever signs it."""

    def __init__(self, run: RunCommitment, say: Callable[[bytes], Said]) -> None:
        self.run = run
        self._say, self._said = say, dict[bytes, Said]()

    def said(self, query: bytes) -> Said:
        """Status and body. Raises SilenceError where the run's party keeps silent."""
        if query not in self._said:
            self._said[query] = self._say(query)
        return self._said[query]


def facts_of_party(party: Party) -> Facts:
    """The facts of a party of the unit tests' simulator."""

    def say(query: bytes) -> Said:
        asked = q.decode_query(query)
        body = party.body(asked)
        return (UNABLE, b"") if body is None else (ANSWERED, asked.layout.encode(body))

    return Facts(party.run, say)


def facts_of_prover(prover: Prover) -> Facts:
    """The facts of a prover over a run directory; a declared cheat's lies are among them."""

    def say(query: bytes) -> Said:
        answer = open_answer(prover.answer(query), prover.run.signer)
        return answer.status, answer.body

    return Facts(verify_run(Envelope.from_bytes(prover.commitment))[0], say)


class Member:
    """A party: `facts` under `key`."""

    def __init__(self, facts: Facts, key: PrivateKey) -> None:
        self.facts, self.key = facts, key
        self.run = replace(facts.run, signer=key.public)
        self.job_digest = self.run.job_digest
        self.commitment = sign_run(key, self.run).to_bytes()

    def answer(self, query: bytes, stranger: bool = False) -> bytes:
        """The signed answer. Raises SilenceError."""
        return self.signed(query, *self.facts.said(query))

    def kept(self, query: bytes) -> bytes | None:
        """The facts are kept, and a signature is made again in no time."""
        return self.answer(query) if query in self.facts._said else None

    def body(self, query: bytes) -> bytes:
        """The encoded body of the facts, empty where there are none."""
        return self.facts.said(query)[1]

    def signed(self, query: bytes, status: int, body: bytes) -> bytes:
        """Any status and body, signed as the answer to `query`."""
        run = self.run
        answer = Answer(run.job_digest, run.run_root, query, status, body)
        return sign_answer(self.key, answer)
