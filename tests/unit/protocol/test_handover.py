"""Rounding logs handed over by a game's queries (PROTOCOL 6.15)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from unit.protocol.log_scenarios import PRODUCT, TIE, WIDE, entry
from unit.protocol.log_simulator import LogParty, make_log_job
from unit.protocol.scenarios import WRONG, Lie, answering

from tallystick.errors import CounterpartyError, UsageError
from tallystick.job.job import Job
from tallystick.protocol import queries as q
from tallystick.protocol.messages import make_answer
from tallystick.prover.handover import hand_over
from tallystick.run.logs.reader import LogReader, LogShape, open_log
from tallystick.run.logs.writer import log_path

FIRST, STEPS = 2, 5


def entries(*given: Any) -> None:
    """In a section of one block, and in the third block of another."""
    for node, element in ((PRODUCT, TIE), (WIDE, 9000)):
        entry(node, element, 0, step=3)(*given)


@pytest.fixture(scope="module", params=["bounded", "published"])
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    path = tmp_path_factory.mktemp(request.param) / "job"
    return make_log_job(path, form=request.param, wide=12000)


def test_what_is_handed_over_is_what_was_committed(job: Job, tmp_path: Path) -> None:
    party = LogParty(job, Lie(entries=entries))
    told: list[int] = []
    steps = hand_over(party, job.terms, FIRST, tmp_path, told.append)
    assert list(steps) == told == list(range(FIRST, STEPS))
    shape = LogShape(job)
    assert {path.name for path in tmp_path.iterdir()} == {
        log_path(tmp_path, step).name for step in steps
    }
    for step in steps:
        reader = open_there(shape, tmp_path, step)
        assert [stored.digest for stored in reader.index] == party.digests[step]


def open_there(shape: LogShape, directory: Path, step: int) -> LogReader:
    with open_log(directory, step, shape.expected) as reader:
        reader.verify()
    return reader


def first_wrong(_: Any, body: Any) -> Any:
    return replace(body, hashes=(WRONG, *body.hashes[1:]))


LIES: dict[str, Callable[..., Any]] = {
    "a chain of another run": answering(
        q.Log, lambda query, body: replace(body, chain=WRONG) if query.step == 3 else body
    ),
    "a chain that the final state has not": answering(
        q.Log, lambda _, body: replace(body, after=(WRONG, *body.after[1:]))
    ),
    "sections of another log": answering(
        q.Log, lambda _, body: replace(body, sections=(WRONG, *body.sections[1:]))
    ),
    "sections missing": answering(q.Log, lambda _, body: replace(body, sections=body.sections[1:])),
    "hashes of other blocks": answering(q.LogHashes, first_wrong),
    "hashes of other ranges": answering(
        q.LogHashes, lambda _, body: replace(body, hashes=body.hashes[1:])
    ),
    "another block": answering(q.LogBlock, lambda _, body: replace(body, data=body.data + b"\0\0")),
    "no block": answering(q.LogBlock, lambda _, body: replace(body, data=b"")),
}


@pytest.mark.parametrize("name", LIES)
def test_what_does_not_fit_is_not_handed_over(job: Job, tmp_path: Path, name: str) -> None:
    party = LogParty(job, Lie(answer=LIES[name], entries=entries))
    with pytest.raises(CounterpartyError, match="not handed over"):
        hand_over(party, job.terms, FIRST, tmp_path)
    # What was written before it is whole, and nothing else is left.
    for path in tmp_path.iterdir():
        open_there(LogShape(job), tmp_path, int(path.stem))


def test_an_answer_to_something_else(job: Job, tmp_path: Path) -> None:
    """Another query's answer, a signed refusal, another signer's: no log, and no file."""
    party, other = LogParty(job), LogParty(job, Lie())
    asked = q.Log(FIRST)
    answers = {
        "is to another query": party.answer(q.encode_query(q.Log(0))),
        "says that it cannot": make_answer(party.key, job.digest, party.run.run_root, asked, None),
        "signature": other.answer(q.encode_query(asked)),
    }

    class Other:
        commitment = party.commitment

        def __init__(self, message: bytes) -> None:
            self.message = message

        def answer(self, _: bytes) -> bytes:
            return self.message

    for why, message in answers.items():
        with pytest.raises(CounterpartyError, match=why):
            hand_over(Other(message), job.terms, FIRST, tmp_path)
    assert not list(tmp_path.iterdir())


def test_only_damaged_logs_are_replaced(job: Job, tmp_path: Path) -> None:
    """A directory that holds another run's logs was named by mistake."""
    party, other = LogParty(job, Lie(entries=entries)), LogParty(job)
    hand_over(party, job.terms, FIRST, tmp_path)
    damaged, kept = log_path(tmp_path, 4), log_path(tmp_path, 2)
    whole, inode = damaged.read_bytes(), kept.stat().st_ino
    damaged.write_bytes(whole[:-1])
    hand_over(party, job.terms, FIRST, tmp_path)
    assert damaged.read_bytes() == whole and kept.stat().st_ino == inode
    with pytest.raises(UsageError, match="another run"):
        hand_over(other, job.terms, FIRST, tmp_path)
    assert log_path(tmp_path, 3).read_bytes() != b""


def moved_byte(step: int, number: int, blocks: list[bytes]) -> list[bytes]:
    """A published section whose first block is one byte longer, and the second one shorter."""
    if len(blocks) < 2 or not blocks[0]:
        return blocks
    return [blocks[0] + blocks[1][:1], blocks[1][1:], *blocks[2:]]


def test_a_log_that_is_cut_otherwise_leaves_no_file(tmp_path: Path) -> None:
    """COMMITMENTS 10.3: every hash fits what was committed, and it is no log."""
    job = make_log_job(tmp_path / "job", form="published", wide=12000)
    party = LogParty(job, Lie(blocks=moved_byte))
    for _ in range(2):
        with pytest.raises(CounterpartyError, match="not handed over"):
            hand_over(party, job.terms, FIRST, tmp_path / "logs")
        assert list((tmp_path / "logs").iterdir()) == []


def test_no_link_is_followed_and_no_other_job_taken(job: Job, tmp_path: Path) -> None:
    party = LogParty(job)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "logs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CounterpartyError):
        hand_over(party, job.terms, FIRST, tmp_path / "logs")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    other = make_log_job(tmp_path / "other", wide=2000)
    with pytest.raises(CounterpartyError, match="another job"):
        hand_over(party, other.terms, FIRST, tmp_path / "new")


def test_steps_and_jobs_without_logs(job: Job, tmp_path: Path, mlp_job: Job) -> None:
    party = LogParty(job)
    for step in (-1, STEPS):
        with pytest.raises(UsageError, match="no step"):
            hand_over(party, job.terms, step, tmp_path)
    with pytest.raises(UsageError, match="no rounding logs"):
        hand_over(party, mlp_job.terms, 0, tmp_path)


def test_empty_blocks_are_not_asked_for(tmp_path: Path) -> None:
    """A bounded section of many blocks costs what its entries need, not what it might hold."""
    job = make_log_job(tmp_path / "job", wide=400_000)
    party = LogParty(job)
    asked: list[q.Query] = []
    honest = party.answer

    def answer(query: bytes) -> bytes:
        asked.append(q.decode_query(query))
        return honest(query)

    party.answer = answer  # type: ignore[method-assign]
    hand_over(party, job.terms, STEPS - 1, tmp_path / "logs")
    shape = LogShape(job)
    assert max(section.blocks for section in shape.sections) > 100
    assert len(asked) < 20
