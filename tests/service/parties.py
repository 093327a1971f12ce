"""Parties in memory, and a referee's turns made by hand, for the tests of registered parties."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from unit.protocol.scenarios import Lie, node_lie
from unit.protocol.simulator import Party

from tallystick.commit.signing import PrivateKey, sign_run
from tallystick.delegation import entries as e
from tallystick.delegation.entries import FIRST, Entry, sign_entry
from tallystick.delegation.rules import Rules
from tallystick.delegation.turns import AskOpening, AskSeal, Play, Request, Turn, sign_turn
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.protocol.referee import Referee
from tallystick.prover.registered import Registered

REFEREE, OTHER_REFEREE = PrivateKey(bytes([101]) * 32), PrivateKey(bytes([102]) * 32)
A, B, C = (PrivateKey(bytes([n]) * 32) for n in (1, 2, 3))


def make_job(path: Path) -> Job:
    """A logistic regression of a few hundred bytes: 13 steps, a checkpoint every 4."""
    pairs = {"features": "700", "classes": "2", "records": "16", "batch_size": "2", "lr": "0.01"}
    return new_job("logreg", path, pairs, steps=9, checkpoint_interval=4, evaluate_every=0)


class Player:
    """A run in memory, signed with any key. It counts what it is asked, and can be held up."""

    def __init__(self, party: Party, key: PrivateKey) -> None:
        self.party, self.key = copy.copy(party), key
        self.party.key = key
        self.party.run = replace(party.run, signer=key.public)
        self.commitment = sign_run(key, self.party.run).to_bytes()
        self.asked: list[bytes] = []
        self.made: dict[bytes, bytes] = {}
        self.going = threading.Event()
        self.going.set()
        self.faults = 0

    def answer(self, query: bytes, stranger: bool = False) -> bytes:
        self.asked.append(query)
        self.going.wait(60)
        if self.faults:
            self.faults -= 1
            raise MemoryError
        self.made[query] = self.party.answer(query)
        return self.made[query]

    def kept(self, query: bytes) -> bytes | None:
        return self.made.get(query)


def honest(job: Job) -> Party:
    return Party(job)


def cheat(job: Job) -> Party:
    return Party(job, Lie(node=node_lie))


def registered(
    player: Player, directory: Path, referees: Sequence[PrivateKey] = (REFEREE,)
) -> Registered:
    """The party that answers for `player`, its sessions in `directory`."""
    keys = [key.public for key in referees]
    return Registered(player, player.key, player.party.job.terms, keys, directory)


@dataclass
class Script:
    """A referee's log and turns, written by hand."""

    job: Job
    key: PrivateKey = REFEREE
    log: list[bytes] = field(default_factory=list)
    last: bytes = FIRST
    session: bytes = FIRST

    def begin(self, **changed: object) -> bytes:
        """The turn that asks for a seal."""
        rules = Rules(
            self.job.digest, b"n" * 32, self.key.public, 4, 2, 10**12, 10**6, 10**6, 0, 0, 10**4
        )
        self.write(e.SessionBegun(replace(rules, **changed)))  # type: ignore[arg-type]
        self.session = self.last
        return self.turn(AskSeal(self.log[0]))

    def write(self, event: e.Event) -> bytes:
        """The next entry of the log, signed."""
        entry = Entry(len(self.log), self.last, 1000 + len(self.log), event)
        self.last = entry.digest()
        self.log.append(sign_entry(self.key, entry))
        return self.log[-1]

    def opening(self, *seals: bytes) -> bytes:
        """The turn that asks for the openings of these seals."""
        for seal in seals:
            self.write(e.Sealed(seal))
        self.write(e.SealingClosed())
        return self.turn(AskOpening(tuple(self.log)))

    def turn(self, request: Request) -> bytes:
        """A signed turn of the session."""
        return sign_turn(self.key, Turn(self.session, request))

    def play(
        self, game: Referee, seat: int, pair: tuple[bytes, bytes], first: int = 0,
        query: bytes | None = None, number: int = 0,
    ) -> bytes:  # fmt: skip
        """The turn that asks for what the game asks the party in `seat`, or for `query`."""
        asked = game.pending.get(seat, b"") if query is None else query
        messages = tuple(game.transcript[first:])
        return self.turn(Play(number, seat, pair, first, messages, asked))
