"""Every byte of an evidence file changed, and files cut, doubled or shuffled (PROTOCOL 8.3, P2)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from adversary.games import Answers, make_job, random_lie
from unit.protocol.log_scenarios import BOUNDED, lie
from unit.protocol.log_simulator import LogParty, make_log_job
from unit.protocol.simulator import Party

from tallystick.commit.encoding import HASH_BYTES, sha256
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.errors import TallystickError
from tallystick.job.job import Job
from tallystick.protocol.evidence import EVIDENCE_TAG, Evidence
from tallystick.protocol.judge import judge
from tallystick.prover.local import SilenceError, play

LIAR = 0
# The arity alone is nobody's signed word; another one asks other questions, mostly.
ARITY = set(range(len(EVIDENCE_TAG) + HASH_BYTES, len(EVIDENCE_TAG) + HASH_BYTES + 8))


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_job(tmp_path_factory.mktemp("flips") / "job")


@pytest.fixture(scope="module")
def evidence(job: Job) -> Evidence:
    honest, seed = Party(job), 3
    while True:
        cheat = random_lie(job, random.Random(seed))
        if cheat.run != honest.run:
            played = play(job.terms, [Answers(cheat), Answers(honest)])
            if played.verdict.phase == 3:
                return played.evidence
        seed += 1


def survives(job: Job, data: bytes, believed: Sequence[PublicKey] = ()) -> bool:
    """False if the evidence is refused; the honest party is never convicted by it."""
    try:
        found = judge(job.terms, data, trust_referees=believed)
    except TallystickError as error:
        assert error.exit_code == 2  # 1 would say that somebody is convicted
        return False
    assert [c.party for c in found.verdict.convicted] == [LIAR]
    assert found.verdict.accepted == 1 - LIAR
    return True


def test_the_evidence_itself_convicts(job: Job, evidence: Evidence) -> None:
    assert survives(job, evidence.to_bytes())


def test_every_flipped_byte_is_noticed(job: Job, evidence: Evidence) -> None:
    data = evidence.to_bytes()
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1 << (at % 8)
        assert not survives(job, bytes(bad)), at


# Of the bytes after the commitments one in so many; all of them held on 2026-11-22 (a minute).
SAMPLED = 9


def test_every_flipped_byte_under_a_digest_made_anew(
    job: Job, evidence: Evidence, is_exhaustive: bool
) -> None:
    """Whoever carries the evidence can hash it again: signatures and the game must hold. By default
    every third byte of the head, every twenty-seventh after it, and the arity."""
    body = evidence.to_bytes()[:-HASH_BYTES]
    kept = []
    head = sum(len(c) for c in evidence.commitments) + 200
    places = [*range(head), *range(head, len(body), SAMPLED)]
    for at in places if is_exhaustive else sorted({*places[::3], *ARITY}):
        bad = bytearray(body)
        bad[at] ^= 1 << (at % 8)
        if survives(job, bytes(bad) + sha256(bytes(bad))):
            kept.append(at)
    assert set(kept) <= ARITY


def test_cut_longer_doubled_and_shuffled(job: Job, evidence: Evidence) -> None:
    data, rng = evidence.to_bytes(), random.Random(7)
    for _ in range(200):
        assert not survives(job, data[: rng.randrange(len(data))])
    assert not survives(job, data + b"\0")
    for k in range(len(evidence.messages)):
        left = evidence.messages[:k] + evidence.messages[k + 1 :]
        assert not survives(job, replace(evidence, messages=left).to_bytes())
        twice = evidence.messages[: k + 1] + evidence.messages[k:]
        assert not survives(job, replace(evidence, messages=twice).to_bytes())
    for _ in range(100):
        mixed = list(evidence.messages)
        a, b = rng.sample(range(len(mixed)), 2)
        mixed[a], mixed[b] = mixed[b], mixed[a]
        # Within one round the order of the two answers is free.
        survives(job, replace(evidence, messages=tuple(mixed)).to_bytes())
    swapped = replace(evidence, commitments=evidence.commitments[::-1])
    assert not survives(job, swapped.to_bytes())
    strangers = tuple((1 - party, message) for party, message in evidence.messages)
    assert not survives(job, replace(evidence, messages=strangers).to_bytes())


def test_every_flipped_byte_where_silence_ended_the_game(job: Job, is_exhaustive: bool) -> None:
    """PROTOCOL 2.10: a referee that is trusted has still signed exactly one forfeit. By default
    every third byte."""

    class Mute(Answers):
        def answer(self, query: bytes) -> bytes:
            raise SilenceError("It says nothing.")

    honest, key = Party(job), PrivateKey(bytes([3]) * 32)
    played = play(job.terms, [Mute(random_lie(job, random.Random(3))), Answers(honest)], key=key)
    believed = [key.public]
    assert survives(job, played.evidence.to_bytes(), believed)
    assert not survives(job, played.evidence.to_bytes())
    body = played.evidence.to_bytes()[:-HASH_BYTES]
    kept = set()
    for at in range(0, len(body), 1 if is_exhaustive else 3):
        bad = bytearray(body)
        bad[at] ^= 1 << (at % 8)
        if survives(job, bytes(bad) + sha256(bytes(bad)), believed):
            kept.add(at)
    assert kept <= ARITY


@pytest.mark.parametrize("name", ["a forged entry, followed", "a forged entry, not followed"])
def test_flipped_bytes_of_a_dispute_about_logs(name: str, tmp_path: Path) -> None:
    """PROTOCOL 6.10 to 6.13, the digest made anew: also under contracts with logs."""
    logs = make_log_job(tmp_path / "job")
    cheat = LogParty(logs, lie(BOUNDED[name]))
    played = play(logs.terms, [cheat, LogParty(logs, follows=cheat)])
    assert survives(logs, played.evidence.to_bytes())
    body = played.evidence.to_bytes()[:-HASH_BYTES]
    kept = set()
    for at in range(0, len(body), 41):
        bad = bytearray(body)
        bad[at] ^= 1 << (at % 8)
        if survives(logs, bytes(bad) + sha256(bytes(bad))):
            kept.add(at)
    assert kept <= ARITY


def test_evidence_is_about_one_job(evidence: Evidence, tmp_path: Path) -> None:
    from tallystick.job.recipes import new_job

    pairs = {"features": "24", "classes": "2", "records": "16", "batch_size": "2"}
    other = new_job("logreg", tmp_path / "job", pairs, steps=13, checkpoint_interval=4)
    assert not survives(other, evidence.to_bytes())
