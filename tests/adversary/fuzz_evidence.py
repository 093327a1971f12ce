"""Evidence changed by whoever holds a liar's key; counts go to docs/proofs/fuzz.md.

    PYTHONPATH=tests python tests/adversary/fuzz_evidence.py [--files 100000] [--seed 1] [--json]

Games against liars end in evidence; each file is then changed where its structure lets it be: a
message is dropped, doubled, moved, answered otherwise and signed anew by the liar, a commitment
made anew, a forfeit added by somebody, bytes flipped, lengths set to anything. Digests are made
anew. Whatever the judge is shown, it refuses it with a typed error whose exit code is 2, or gives
a verdict that does not convict the honest party, within 10 seconds and 256 MiB.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from adversary.games import MOVES, Answers, Table, liars, make_job
from adversary.limits import bound_memory, bounded_time
from unit.protocol.simulator import Party

from tallystick.commit.encoding import HASH_BYTES, sha256
from tallystick.commit.signing import (
    Envelope,
    PrivateKey,
    PublicKey,
    RunCommitment,
    sign_run,
    verify_run,
)
from tallystick.errors import TallystickError
from tallystick.installed import tallystick_version
from tallystick.job.job import Job
from tallystick.protocol.evidence import Evidence, evidence_of
from tallystick.protocol.forfeit import Forfeit, sign_forfeit
from tallystick.protocol.judge import judge
from tallystick.protocol.messages import Answer, open_answer, sign_answer

CONTRACTS = ("ordered/1", "rounded/1")
STRANGER = PrivateKey(bytes(31) + b"\7")


@dataclass(frozen=True)
class Case:
    """Evidence of a game, who has lied in it, and with which key."""

    job: Job
    evidence: Evidence
    seat: int
    liar: Party


def make_cases(directory: Path, rng: random.Random, count: int) -> list[Case]:
    """Games of every kind of liar, some of which change their answers too."""
    found = []
    for number, contract in enumerate(CONTRACTS):
        job = make_job(directory / f"job{number}", contract)
        honest = Party(job)
        facts, cheats = Answers(honest), liars(job, honest, rng, min(40, count))
        for _ in range(count // len(CONTRACTS)):
            cheat, seat, arity = rng.choice(cheats), rng.randrange(2), rng.choice([2, 5, 20])
            table, odds = Table(job, facts, cheat, seat, arity), rng.choice([0.0, 0.0, 0.05])
            table.finish(
                lambda odds=odds: rng.choice(MOVES) if rng.random() < odds else "facts", rng
            )
            seats = [facts.commitment, facts.commitment]
            seats[seat] = cheat.commitment
            ended = evidence_of(table.referee, job.digest, arity, (seats[0], seats[1]))
            found.append(Case(job, ended, seat, cheat.party))
    return found


# --- changes --------------------------------------------------------------------------------------
Change = Callable[[Case, random.Random], bytes]


def _bytes(evidence: Evidence) -> bytes:
    return evidence.to_bytes()


def _with_messages(case: Case, messages: list[tuple[int, bytes]]) -> bytes:
    return _bytes(replace(case.evidence, messages=tuple(messages)))


def dropped(case: Case, rng: random.Random) -> bytes:
    messages = list(case.evidence.messages)
    del messages[rng.randrange(len(messages)) :][: rng.randint(1, 3)]
    return _with_messages(case, messages)


def moved(case: Case, rng: random.Random) -> bytes:
    messages = list(case.evidence.messages)
    one = messages.pop(rng.randrange(len(messages)))
    messages.insert(rng.randrange(len(messages) + 1), one)
    return _with_messages(case, messages)


def doubled(case: Case, rng: random.Random) -> bytes:
    messages = list(case.evidence.messages)
    messages.insert(rng.randrange(len(messages) + 1), rng.choice(messages))
    return _with_messages(case, messages)


def other_seat(case: Case, rng: random.Random) -> bytes:
    messages = list(case.evidence.messages)
    at = rng.randrange(len(messages))
    messages[at] = (1 - messages[at][0], messages[at][1])
    return _with_messages(case, messages)


def _changed(body: bytes, rng: random.Random) -> bytes:
    data = bytearray(body)
    how = rng.randrange(6)
    if how == 0 and data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == 1:
        del data[rng.randrange(len(data) + 1) :]
    elif how == 2:
        data += rng.randbytes(rng.randint(1, 80))
    elif how == 3 and len(data) >= 8:  # where a count may stand
        at = rng.randrange(len(data) - 7)
        data[at : at + 8] = struct.pack("<Q", rng.choice([0, 1, 2, 2**20, 2**31, 2**63, 2**64 - 1]))
    elif how == 4 and len(data) >= 32:  # a digest for another one
        a, b = (rng.randrange(len(data) - 31) for _ in range(2))
        data[a : a + 32] = data[b : b + 32]
    else:
        data = bytearray(rng.randbytes(len(data)))
    return bytes(data)


def answered_otherwise(case: Case, rng: random.Random) -> bytes:
    """One of the liar's answers, changed and signed anew; with it the rest may not fit."""
    messages = list(case.evidence.messages)
    places = [k for k, (party, _) in enumerate(messages) if party == case.seat]
    if not places:
        return flipped(case, rng)
    at = rng.choice(places)
    said = open_answer(messages[at][1], case.liar.key.public)
    how = rng.randrange(5)
    if how == 0:
        said = replace(said, status=rng.randrange(256))
    elif how == 1:
        said = replace(said, query=_changed(said.query, rng))
    elif how == 2:
        said = replace(said, run_root=rng.randbytes(32))
    else:
        said = replace(said, body=_changed(said.body, rng))
    again = (case.seat, sign_answer(case.liar.key, said))
    if rng.random() < 0.3:
        messages.insert(at + 1, again)  # beside the first one
    else:
        messages[at] = again
    if rng.random() < 0.5:
        del messages[at + 1 + (messages[at] != again) :]
    return _with_messages(case, messages)


def invented(case: Case, rng: random.Random) -> bytes:
    """An answer of the liar to a query that somebody made up."""
    run, job = case.liar.run, case.job
    answer = Answer(
        job.digest, run.run_root, rng.randbytes(rng.randrange(60)), 0, rng.randbytes(40)
    )
    messages = list(case.evidence.messages)
    at = rng.randrange(len(messages) + 1)
    messages.insert(at, (case.seat, sign_answer(case.liar.key, answer)))
    return _with_messages(case, messages)


def committed_otherwise(case: Case, rng: random.Random) -> bytes:
    """The liar's run commitment says something else, under its own signature."""
    run = case.liar.run
    fields = {
        "run_root": rng.randbytes(32),
        "final_state_root": rng.randbytes(32),
        "final_step": rng.choice([0, 1, run.final_step - 1, run.final_step + 1, 2**39]),
        "checkpoints": rng.choice([1, 2, run.checkpoints + 1, 4_000_000]),
    }
    name = rng.choice(sorted(fields))
    made: RunCommitment = replace(run, **{name: fields[name]})
    envelope = sign_run(case.liar.key, made).to_bytes()
    seats = list(case.evidence.commitments)
    seats[case.seat] = envelope
    return _bytes(replace(case.evidence, commitments=(seats[0], seats[1])))


def forfeited(case: Case, rng: random.Random) -> bytes:
    """Somebody's word that the honest party was silent, in the middle of the game."""
    messages = list(case.evidence.messages)
    at = rng.randrange(len(messages))
    query = open_answer(
        messages[at][1],
        _signer(case, messages[at][0]),
    ).query
    signer = rng.choice([STRANGER, case.liar.key])
    word = Forfeit(
        case.job.digest, _roots(case), 1 - case.seat if rng.random() < 0.8 else case.seat, query,
        signer.public,
    )  # fmt: skip
    word_bytes = sign_forfeit(signer, word)
    made = replace(case.evidence, messages=tuple(messages[:at]), forfeits=(word_bytes,))
    return _bytes(made)


def flipped(case: Case, rng: random.Random) -> bytes:
    body = bytearray(_bytes(case.evidence)[:-HASH_BYTES])
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    return bytes(body) + sha256(bytes(body))


def lengths(case: Case, rng: random.Random) -> bytes:
    body = bytearray(_bytes(case.evidence)[:-HASH_BYTES])
    at = rng.randrange(len(body) - 7)
    number = rng.choice([0, 1, 2, 255, 2**16, 2**24, 2**32 - 1, 2**63, 2**64 - 1])
    body[at : at + 8] = struct.pack("<Q", number)
    return bytes(body) + sha256(bytes(body))


def cut(case: Case, rng: random.Random) -> bytes:
    body = _bytes(case.evidence)[:-HASH_BYTES]
    body = body[: rng.randrange(len(body))] + rng.randbytes(rng.choice([0, 0, 5, 500]))
    return body + sha256(body)


def other_arity(case: Case, rng: random.Random) -> bytes:
    return _bytes(replace(case.evidence, arity=rng.choice([0, 1, 2, 3, 20, 256, 257, 2**64 - 1])))


def unchanged(case: Case, _: random.Random) -> bytes:
    return _bytes(case.evidence)


CHANGES: list[Change] = [
    dropped, moved, doubled, other_seat, answered_otherwise, answered_otherwise, answered_otherwise,
    invented, committed_otherwise, forfeited, flipped, lengths, cut, other_arity, unchanged,
]  # fmt: skip


def _roots(case: Case) -> tuple[bytes, bytes]:
    first, second = (
        verify_run(Envelope.from_bytes(c))[0].run_root for c in case.evidence.commitments
    )
    return first, second


def _signer(case: Case, party: int) -> PublicKey:
    return verify_run(Envelope.from_bytes(case.evidence.commitments[party]))[0].signer


# --- the judge ------------------------------------------------------------------------------------
def examine(case: Case, data: bytes) -> str:
    """How the judge ends, in a word; AssertionError for what must not happen."""
    honest = 1 - case.seat
    keys = [_signer(case, party) for party in (0, 1)]
    with bounded_time():
        try:
            # Both signers are known, and the liar is believed as a referee, as far as that goes.
            found = judge(case.job.terms, data, keys, [keys[case.seat]])
        except TallystickError as error:
            assert error.exit_code == 2, error  # 1 would say that somebody is convicted
            return type(error).__name__
    convicted = [c.party for c in found.verdict.convicted]
    # Whoever has no party's key may make up commitments of strangers: only a run that the honest
    # key has signed is the honest party's.
    if found.signers[honest] == keys[honest].key_id:
        assert honest not in convicted, (found.verdict, case.seat)
    return "convicted" if convicted else "agreement" if found.verdict.agreement else "undecided"


def fuzz(files: int, seed: int, cases: int = 60) -> dict[str, object]:
    """The counts of `files` changed files."""
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        made = make_cases(Path(name), rng, cases)
        for case in made:
            assert examine(case, _bytes(case.evidence)) in ("convicted", "CannotCheckError")
        bound_memory()
        for number in range(files):
            case = rng.choice(made)
            change = rng.choice(CHANGES) if case.evidence.messages else flipped
            try:
                outcome = examine(case, change(case, rng))
            except BaseException:
                print(f"seed {seed}, file {number}, {change.__name__}", file=sys.stderr)
                raise
            outcomes[outcome] += 1
            changes[change.__name__] += 1
    return {
        "files": files, "seed": seed, "honest_convicted": 0,
        "outcomes": dict(sorted(outcomes.items())), "changes": dict(sorted(changes.items())),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=60, help="games to make evidence of")
    given = parser.parse_args()
    began = time.monotonic()
    found = fuzz(given.files, given.seed, given.cases)
    found["seconds"] = round(time.monotonic() - began, 1)
    found["tallystick"], found["date"] = tallystick_version(), time.strftime("%Y-%m-%d")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
