"""Kept answers defended before a referee (ANSWERS 7.7.4): bounded, and not for strangers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from service.parties import OTHER_REFEREE, REFEREE, Script
from unit.answers.toy import KEY, Toy, receipt_of
from unit.serving_kept.samples import DAY, NOW, given, keeper, true

from tallystick.api.answering import GivenAnswer
from tallystick.commit.signing import PrivateKey
from tallystick.delegation.turns import AskSeal, Message, Refusal, Working
from tallystick.errors import DigestMismatchError
from tallystick.job.job import Job
from tallystick.protocol.judge import judge
from tallystick.protocol.queries import Slot, encode_query
from tallystick.prover.local import play
from tallystick.prover.prover import Prover
from tallystick.serving.kept import prover as kept_prover
from tallystick.serving.kept.executions import Executions
from tallystick.serving.kept.parties import KeptParties
from tallystick.serving.kept.reader import KeptReader

OTHER = PrivateKey(bytes([9]) * 32)


@pytest.fixture(autouse=True)
def toy_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy has no directory that could be opened."""
    monkeypatch.setattr(kept_prover, "stated_model", lambda place, *_: place)
    monkeypatch.setattr(kept_prover, "weights", lambda _: Toy.make().held)


@contextmanager
def kept(directory: Path, *answers: GivenAnswer) -> Iterator[KeptReader]:
    with keeper(directory) as keeping:
        for answer in answers:
            keeping.keep(answer, "anna")
    with KeptReader(directory) as reader:
        yield reader


def test_a_kept_answer_plays_a_game_without_a_run(tmp_path: Path) -> None:
    """Both seats: the honest answer beats a false receipt of the same job."""
    honest = true()
    lie = np.array(honest.job.spoken.logprobs)
    lie[1] -= np.float32(0.5)
    spoken = replace(honest.job.spoken, logprobs=lie)
    job = replace(honest.job, spoken=spoken)
    false = replace(honest, job=job, receipt=receipt_of(job, key=OTHER))
    for seat in (0, 1):
        place = tmp_path / str(seat)
        with kept(place, honest, false) as reader:
            rows = reader.of_job(honest.job.digest)
            assert len(rows) == 2
            disputed = [reader.disputed(row) for row in rows]
            keys = [KEY, OTHER]
            if seat:
                disputed.reverse()
                keys.reverse()
            context = KeptParties(reader, [KEY], [REFEREE.public]).context
            pairs = zip(disputed, keys, strict=True)
            parties = [one.prover(key, context, lambda _: None) for one, key in pairs]
            played = play(disputed[0].job().terms, parties)
            for party in parties:
                party.close()
        assert [c.party for c in played.verdict.convicted] == [1 - seat]
        terms = disputed[0].job().terms
        assert judge(terms, played.evidence.to_bytes()).verdict == played.verdict
        assert list(place.glob("**/scratch*")) == []


def test_strangers_start_nothing(tmp_path: Path) -> None:
    answer = true()
    with kept(tmp_path / "kept", answer) as reader:
        parties = KeptParties(reader, [KEY], [REFEREE.public])
        job = answer.job.digest
        card = parties.card(job)
        assert card is not None and (card.key, card.job_digest) == (KEY.public, job)
        assert parties.card(bytes(32)) is None
        assert isinstance(parties.reply(job, b"anything"), Refusal)
        said = parties.reply(job, Script(job_of(reader, job), OTHER_REFEREE).begin())
        assert isinstance(said, Refusal) and said.kind == "unbelieved"
        script = Script(job_of(reader, job))
        unknown = parties.reply(bytes(32), script.begin(job_digest=bytes(32)))
        assert isinstance(unknown, Refusal) and unknown.kind == "not registered"
        assert parties._open == {} and len(parties.executions) == 0


def job_of(reader: KeptReader, job: bytes) -> Job:
    return reader.disputed(reader.of_job(job)[0]).job()


def test_sealing_and_opening_execute_nothing(tmp_path: Path) -> None:
    """The commitment is in the receipt. A game is what executes, and only once both have opened."""
    answer = true()
    with kept(tmp_path / "kept", answer) as reader:
        parties = KeptParties(reader, [KEY], [REFEREE.public])
        digest, script = answer.job.digest, Script(job_of(reader, answer.job.digest))
        sealed = parties.reply(digest, script.begin())
        assert isinstance(sealed, Message)
        again = KeptParties(reader, [KEY], [REFEREE.public])  # after a kill
        assert again.reply(digest, script.turn(AskSeal(script.log[0]))) == sealed
        opened = again.reply(digest, script.opening(sealed.data))
        assert isinstance(opened, Message)
        assert reader.disputed(reader.of_job(digest)[0]).signed.commitment() in opened.data
        assert len(again.executions) == len(parties.executions) == 0
        assert parties.close() and again.close()


def test_after_its_date_no_session_begins(tmp_path: Path) -> None:
    answer = given(until=NOW - DAY)
    with kept(tmp_path / "kept", answer) as reader:
        parties = KeptParties(reader, [KEY], [REFEREE.public])
        said = parties.reply(answer.job.digest, Script(job_of(reader, answer.job.digest)).begin())
        assert isinstance(said, Refusal) and "promise has ended" in said.why


def test_receipts_of_another_key_are_not_defended(tmp_path: Path) -> None:
    answer = given(key=OTHER)
    with kept(tmp_path / "kept", answer) as reader:
        assert KeptParties(reader, [KEY], [REFEREE.public]).card(answer.job.digest) is None
        assert KeptParties(reader, [KEY, OTHER], [REFEREE.public]).card(answer.job.digest)


def test_a_model_with_other_weights_signs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = true()
    monkeypatch.setattr(kept_prover, "weights", lambda _: Toy.make(1).held)
    with kept(tmp_path / "kept", answer) as reader:
        disputed = reader.disputed(reader.of_job(answer.job.digest)[0])
        prover = disputed.prover(KEY, KeptParties(reader, [KEY], [REFEREE.public]).context, str)
        with pytest.raises(DigestMismatchError, match="not those of the disputed answer"):
            prover.answer(encode_query(Slot(1, "param.embed")))


# -- bounds ----------------------------------------------------------------------------------------
class Slow:
    """Stands for a prover: it is held up until it is let go."""

    def __init__(self) -> None:
        self.going, self.closed = threading.Event(), False

    def kept(self, query: bytes) -> bytes | None:
        return None

    def close(self) -> None:
        self.closed = True


def test_so_many_are_executed_at_once(tmp_path: Path) -> None:
    executions, made = Executions(2, idle_seconds=0.0), [Slow() for _ in range(6)]
    entered = [threading.Event() for _ in made]

    def work(number: int) -> None:
        with executions.prover(bytes([number]), lambda: made[number]):  # type: ignore[arg-type,return-value]
            entered[number].set()
            assert made[number].going.wait(30)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads[:2]:
        thread.start()
    assert all(event.wait(10) for event in entered[:2])
    for thread in threads[2:]:
        thread.start()
    assert not any(event.wait(0.05) for event in entered[2:])  # they wait
    assert executions.working(bytes([0])) and len(executions) == 2
    assert [executions.waiting(bytes([n])) for n in range(6)] == 2 * [False] + 4 * [True]
    executions.let_go(bytes([0]))
    executions.sweep()
    assert not made[0].closed  # it is making an answer
    for slow in made:
        slow.going.set()
    for thread in threads:
        thread.join(30)
    assert executions.highest == 2 and len(executions) == 2
    assert not any(executions.waiting(bytes([n])) for n in range(6))
    assert sum(slow.closed for slow in made) == 4  # each made room
    executions.sweep()
    assert len(executions) == 0 and all(slow.closed for slow in made)


def test_a_prover_that_cannot_be_made_leaves_its_place(tmp_path: Path) -> None:
    executions = Executions(1)

    def fails() -> Prover:
        raise MemoryError

    for _ in range(3):
        with pytest.raises(MemoryError), executions.prover(b"a", fails):
            pass
    assert len(executions) == 0


def test_so_many_jobs_are_open(tmp_path: Path) -> None:
    answers = [given(seed) for seed in range(4)]
    with kept(tmp_path / "kept", *answers) as reader:
        parties = KeptParties(reader, [KEY], [REFEREE.public], most=2)
        for answer in answers:
            said = parties.reply(
                answer.job.digest, Script(job_of(reader, answer.job.digest)).begin()
            )
            assert isinstance(said, Message)
        assert len(parties._open) == 2
        for one in parties._open.values():
            one.users += 1
        first = answers[0].job.digest
        assert isinstance(parties.reply(first, Script(job_of(reader, first)).begin()), Working)
