"""Writes vectors/protocol/sessions: messages of sessions, whole logs, and what they say.

    PYTHONPATH=tests:tests/vectors python tests/vectors/make_session_vectors.py [--check]

--check makes the vectors anew and compares. What is stored is additions only.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from adversary.alterations import Said, Words, put_together, taken_apart
from adversary.games import make_job
from evidence_format import ROOT
from reference.judge.encoding import Reader, blob, sha, u8, u64
from reference.session import log as by_the_text
from reference.session.layout import ENTRY, OPENING, SEAL, TURN, cut, read_opening
from session_format import NAME, TERMS, Log, Message, Vectors, encode
from unit.delegation.players import REFEREE, Player, Time, rules
from unit.protocol.scenarios import SCENARIOS, liar
from unit.protocol.simulator import Party

from tallystick.commit.signing import PrivateKey
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.seals import SealOpening, sign_opening, sign_seal
from tallystick.delegation.session import ENDED
from tallystick.delegation.turns import (
    AskOpening,
    AskSeal,
    Ended,
    Play,
    Request,
    Turn,
    sign_turn,
)
from tallystick.errors import CounterpartyError
from tallystick.job.job import Job
from tallystick.protocol.messages import ANSWERED, Answer, sign_answer

REFEREE_SEED = (bytes([3]) * 32).hex()
LIES = ("another learning rate", "another batch", "another loss in the chain")


class Table:
    """A session that a script plays. Each message takes a millisecond."""

    def __init__(self, job: Job, players: Sequence[Player], **changed: object) -> None:
        self.job, self.players, self.time, self.log = job, players, Time(), list[bytes]()
        chosen = rules(job, players, **changed)
        self.arbiter = Arbiter(job.terms, REFEREE, self.log, self.time, chosen)

    def opening(self, player: Player, **changed: object) -> SealOpening:
        opening = player.opening(self.arbiter.session.session)
        return replace(opening, **changed)  # type: ignore[arg-type]

    def take(self, message: bytes) -> None:
        self.time.now += 1
        self.arbiter.take(message)

    def seal(self, *players: Player, **changed: object) -> None:
        for p in players:
            self.take(sign_seal(p.key, self.job.digest, self.opening(p, **changed)))

    def open(self, *players: Player, **changed: object) -> None:
        for p in players:
            self.take(sign_opening(p.key, self.opening(p, **changed)))

    def wait(self) -> None:
        """To the first moment after the next deadline."""
        deadline = self.arbiter.tick()
        if deadline is not None:
            self.time.now = max(self.time.now, deadline + 1)
            self.arbiter.tick()

    def restart(self, away: int) -> None:
        self.time.now += away
        self.arbiter = Arbiter(self.job.terms, REFEREE, self.log, self.time)

    def answers(self, *players: Player, most: int = 1000) -> None:
        """Answers of these parties, in their order, until none of them owes one."""
        for _ in range(most):
            owed = [(p, q) for p in players for q in [self.owed(p)] if q is not None]
            if not owed:
                return
            player, query = owed[0]
            self.take(player.party.answer(query))

    def owed(self, player: Player) -> bytes | None:
        for match in self.arbiter.session.matches:
            for party, query in match.owed.items():
                if match.members[party].key == player.key.public:
                    return query
        return None

    def end(self) -> list[bytes]:
        while self.arbiter.session.state != ENDED:
            self.wait()
        return self.log

    def whole(self) -> list[bytes]:
        """All of it, by parties that do what they are asked."""
        self.seal(*self.players)
        self.open(*self.players)
        self.answers(*self.players)
        return self.end()


def lied(table: Table, player: Player, query: bytes) -> bytes:
    """A second, other answer."""
    run = player.party.run
    answer = Answer(table.job.digest, run.run_root, query, ANSWERED, b"another answer")
    return sign_answer(player.key, answer)


Scripts = dict[str, Callable[[], list[bytes]]]


def scripts(job: Job, honest: Party, lies: Sequence[Party]) -> Scripts:
    a, b = Player(honest, 11), Player(honest, 12)
    x, y, z = (Player(lie, 21 + i) for i, lie in enumerate(lies))

    def agreement() -> list[bytes]:
        return Table(job, [a, b]).whole()

    def a_liar_of_three() -> list[bytes]:
        return Table(job, [a, b, x]).whole()

    def three_lies() -> list[bytes]:
        return Table(job, [a, x, y, z]).whole()

    def a_sybil_throws_the_honest_claims_game() -> list[bytes]:
        table = Table(job, [a, b, x])
        table.seal(a, b, x)
        table.open(a, b, x)
        first = min(a, b, key=lambda p: p.key.public.raw)
        other = b if first is a else a
        table.answers(first, x, most=3)
        table.answers(x)
        table.wait()
        table.answers(other, x)
        return table.end()

    def both_silent() -> list[bytes]:
        table = Table(job, [a, x])
        table.seal(a, x)
        table.open(a, x)
        return table.end()

    def excluded_by_two_seals() -> list[bytes]:
        table = Table(job, [a, x])
        table.seal(x)
        table.seal(x, nonce=b"2" * 32)
        table.seal(a)
        table.open(a)
        return table.end()

    def excluded_by_a_false_opening() -> list[bytes]:
        table = Table(job, [a, b, x])
        table.seal(a, b, x)
        table.open(x, nonce=b"2" * 32)
        table.open(b, a)
        return table.end()

    def excluded_by_two_openings() -> list[bytes]:
        table = Table(job, [a, x])
        table.seal(a, x)
        table.open(x)
        table.open(x, nonce=b"2" * 32)
        table.open(a)
        return table.end()

    def a_restart_in_every_state() -> list[bytes]:
        table = Table(job, [a, x])
        table.restart(400)
        table.seal(a)
        table.restart(5000)
        table.seal(x)
        table.open(x)
        table.restart(2000)
        table.open(a)
        table.answers(a, x, most=3)
        table.restart(70000)
        table.answers(x, a)
        return table.end()

    def never_opened() -> list[bytes]:
        table = Table(job, [a, x])
        table.seal(a, x)
        table.open(a)
        return table.end()

    def no_party() -> list[bytes]:
        return Table(job, [], most=2).end()

    def an_open_session() -> list[bytes]:
        table = Table(job, [], most=2)
        table.seal(b, x)
        with contextlib.suppress(CounterpartyError):
            table.seal(a)  # one too many
        table.wait()
        table.open(b, x)
        table.answers(x, b)
        return table.end()

    def two_answers_to_one_query() -> list[bytes]:
        table = Table(job, [a, x])
        table.seal(a, x)
        table.open(a, x)
        query = table.owed(x)
        assert query is not None
        table.take(x.party.answer(query))
        table.take(lied(table, x, query))
        return table.end()

    def late_in_a_game() -> list[bytes]:
        table = Table(job, [a, x], extension=0)
        table.seal(a, x)
        table.open(a, x)
        table.answers(a, x, most=5)
        table.answers(a)
        return table.end()

    makers = [
        agreement, a_liar_of_three, three_lies, a_sybil_throws_the_honest_claims_game, both_silent,
        excluded_by_two_seals, excluded_by_a_false_opening, excluded_by_two_openings,
        a_restart_in_every_state, never_opened, no_party, an_open_session,
        two_answers_to_one_query, late_in_a_game,
    ]  # fmt: skip
    return {maker.__name__.replace("_", " "): maker for maker in makers}


def deviations(logs: dict[str, list[bytes]]) -> dict[str, list[bytes]]:
    """Logs that convict their referee, and logs that say nothing about any one."""
    log, silent = logs["a liar of three"], logs["both silent"]
    words, quiet = taken_apart(log), taken_apart(silent)

    def at(given: Words, kind: int, which: int = 0) -> int:
        return [i for i, w in enumerate(given) if w.kind == kind][which]

    def changed(given: Words, i: int, **members: object) -> Words:
        return [*given[:i], replace(given[i], **members), *given[i + 1 :]]  # type: ignore[arg-type]

    forfeit, verdict, asked = at(quiet, 8), at(words, 11), at(words, 6)
    answered, seals, closing = at(words, 7), at(words, 2), at(words, 3)
    r = Reader(words[asked].fields)
    other_query = u64(r.u64()) + u8(r.u8()) + blob(r.blob(65536)[:-1] + b"\1")
    verdicts = words[verdict].fields[:-1] + bytes([words[verdict].fields[-1] ^ 3])
    made = {
        "a forfeit at its deadline": changed(quiet, forfeit, time=quiet[forfeit].time - 1),
        "another verdict": changed(words, verdict, fields=verdicts),
        "another query": changed(words, asked, fields=other_query),
        "a question left out": words[:asked] + words[asked + 1 :],
        "a seal after the closing": [
            *words[:seals], *words[seals + 1 : closing], Said(1001, 3, b""),
            replace(words[seals], time=1001),
        ],
        "an answer twice": [*words[: answered + 1], *words[answered:]],
        "a time before the one before": changed(words, answered, time=0),
        "a result before its time": [*words[: asked + 1], words[-1]],
        "an entry after the result": [*words, Said(words[-1].time, 9, b"")],
        "no such kind": changed(words, closing, kind=13),
    }  # fmt: skip
    found = {name: put_together(given) for name, given in made.items()}
    found["taken out of the chain"] = log[:5] + log[6:]
    found["mixed with another log"] = [*log[:5], silent[5], *log[6:]]
    found["a bit of a signature"] = [*log[:7], log[7][:-1] + bytes([log[7][-1] ^ 1]), *log[8:]]
    found["an entry cut off at the end"] = [*log[:9], log[9][:-1]]
    rule = bytearray(words[0].fields)
    rule[96] = 1  # the arity
    found["an arity of 1"] = put_together([replace(words[0], fields=bytes(rule)), *words[1:]])
    return found


def message(name: str, seed: str, payload_type: str, signed: bytes) -> Message:
    return Message(name, seed, payload_type, cut(signed, len(signed))[0], signed)


def turns(log: list[bytes]) -> dict[str, bytes]:
    """A turn of each kind, from the log of a session."""
    words = taken_apart(log)
    session = sha(cut(log[0], len(log[0]))[0])
    closing = [w.kind for w in words].index(3)
    answers, queries, commitments = [], [], []
    for said in words:
        r = Reader(said.fields)
        if said.kind in (6, 7) and r.u64() == 0:
            (queries if said.kind == 6 else answers).append((r.u8(), r.blob(len(said.fields))))
        elif said.kind == 4:
            commitments.append(read_opening(r.blob(len(said.fields))).commitment)
    assert len(answers) > 6
    play = Play(0, 1, (commitments[0], commitments[2]), 2, tuple(answers[2:6]), queries[6][1])
    requests: dict[str, Request] = {
        "seal": AskSeal(log[0]),
        "open": AskOpening(tuple(log[: closing + 1])),
        "play": play,
        "play, from the first message, without a query": replace(
            play, first=0, messages=tuple(answers[:6]), query=b""
        ),
        "end": Ended(log[-1]),
    }
    return {name: sign_turn(REFEREE, Turn(session, r)) for name, r in requests.items()}


def messages(logs: dict[str, list[bytes]]) -> list[Message]:
    """One of each kind: seal, opening, entries, turns."""
    found: dict[str, Message] = {}
    seeds = {PrivateKey(n.to_bytes(32, "big")).public.raw: n.to_bytes(32, "big").hex()
             for n in (11, 12, 21, 22, 23)}  # fmt: skip
    names = {2: ("seal", SEAL), 4: ("opening", OPENING)}
    for log in logs.values():
        for entry, said in zip(log, taken_apart(log), strict=True):
            if said.kind in names:
                name, payload_type = names[said.kind]
                inner = Reader(said.fields).blob(len(said.fields))
                r = Reader(cut(inner, len(inner))[0])
                r.tag(f"{name}/1")
                r.hash()
                found.setdefault(name, message(name, seeds[r.hash()], payload_type, inner))
            kind = f"entry {said.kind}"
            found.setdefault(kind, message(kind, REFEREE_SEED, ENTRY, entry))
    for name, turn in turns(logs["a liar of three"]).items():
        found[f"turn {name}"] = message(f"turn {name}", REFEREE_SEED, TURN, turn)
    return sorted(found.values(), key=lambda m: m.name)


def made() -> Vectors:
    with tempfile.TemporaryDirectory() as scratch:
        job = make_job(Path(scratch) / "job")
        terms = {name: (job.directory / name).read_bytes() for name in TERMS}
        honest, lies = Party(job), [liar(job, SCENARIOS[name]) for name in LIES]
        logs = {name: maker() for name, maker in scripts(job, honest, lies).items()}
    vectors = Vectors(terms, messages(logs))
    for name, entries in {**logs, **deviations(logs)}.items():
        found = asdict(by_the_text.read(terms["job.json"], terms["program.txt"], entries))
        del found["why"]
        vectors.logs.append(Log(name, list(entries), found))
    return vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--again", action="store_true", help="write what is there")
    given = parser.parse_args()
    text, data = encode(made())
    index, binary = ROOT / f"{NAME}.json", ROOT / f"{NAME}.bin"
    if given.check:
        same = index.read_text() == text and binary.read_bytes() == data
        print("the same bytes" if same else "OTHER BYTES", file=sys.stderr)
        sys.exit(not same)
    if index.exists() and not given.again:
        sys.exit("The vectors are there.")
    index.write_text(text)
    binary.write_bytes(data)
    print(f"{len(data):,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
