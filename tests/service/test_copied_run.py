"""A run fetched over a network, and followed from there (PROTOCOL 6.15.2, OVT's auditor)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from reference.orders import Nudged, Shuffled
from service.parties import REFEREE, Script
from service.transports import serving
from unit.run.replay_tools import replay_job, trained

from tallystick.cli.main import run as main
from tallystick.commit.log import log_digest
from tallystick.commit.signing import PrivateKey, sign_run
from tallystick.commit.state import CHAIN_START, extend_log_chain
from tallystick.delegation.turns import Message
from tallystick.errors import CounterpartyError
from tallystick.job.job import Job
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import LossBody
from tallystick.protocol.messages import make_answer
from tallystick.prover.answers import Keeping
from tallystick.prover.handover import copy_run
from tallystick.prover.prover import Prover
from tallystick.prover.registered import Registered
from tallystick.run.execute.trainer import Options, RunSummary
from tallystick.run.store.journal import read_journal

KEY = PrivateKey(bytes([21]) * 32)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, RunSummary]:
    path = tmp_path_factory.mktemp("copied")
    job = replay_job(path / "job", interval=5)
    return job, trained(job, path / "run", Nudged(1), Options(key=KEY))


@contextlib.contextmanager
def served(job: Job, party: Keeping, directory: Path) -> Iterator[str]:
    """The address of a party that has sealed."""
    registered = Registered(party, KEY, job.terms, [REFEREE.public], directory)
    assert isinstance(registered.reply(Script(job).begin()), Message)
    with serving(registered) as url:
        yield url


def test_a_fetched_run_is_followed(
    run: tuple[Job, RunSummary], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, original = run
    copy, words = tmp_path / "copy", ["--job", str(job.directory), "--as-run"]
    with Prover(original.directory, KEY) as prover, served(job, prover, tmp_path / "s") as url:
        command = ["fetch-logs", url, *words, "--out", str(copy)]
        assert main(command) == 0
        assert main(command) == 0  # a finished copy is left as it is
        assert main([*command, "--from-step", "3"]) == 3
    capsys.readouterr()
    own = trained(job, tmp_path / "own", Shuffled(2))
    assert own.run_root != original.run_root, "there is nothing to follow"
    followed = trained(job, tmp_path / "followed", Shuffled(2), Options(replay=copy))
    assert followed.run_root == original.run_root
    losses = (original.directory / "journal", copy / "journal")
    one, two = (read_journal(path) for path in losses)
    assert (one.losses, one.checkpoints, one.logs) == (two.losses, two.checkpoints, two.logs)


class Liar:
    """Answers with another loss in one step."""

    def __init__(self, prover: Prover) -> None:
        self.prover, self.commitment = prover, prover.commitment

    def answer(self, query: bytes, stranger: bool = False) -> bytes:
        asked = q.decode_query(query)
        if asked == q.Loss(7):
            body = self.prover._true(asked)
            assert isinstance(body, LossBody)
            run = self.prover.run
            lie = replace(body, bits=body.bits ^ 1)
            return make_answer(KEY, run.job_digest, run.run_root, asked, lie)
        return self.prover.answer(query, stranger)

    def kept(self, query: bytes) -> bytes | None:
        return None if q.decode_query(query) == q.Loss(7) else self.prover.kept(query)


def test_a_false_loss_makes_no_run(
    run: tuple[Job, RunSummary], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, original = run
    copy = tmp_path / "copy"
    words = ["--job", str(job.directory), "--as-run", "--out", str(copy)]
    with Prover(original.directory, KEY) as prover:
        with served(job, Liar(prover), tmp_path / "s") as url:
            assert main(["fetch-logs", url, *words]) == 2
        assert "was not handed over" in capsys.readouterr().err
        assert not (copy / "commitment.json").exists() and main(["audit", str(copy)]) == 2
        capsys.readouterr()
        with served(job, prover, tmp_path / "t") as url:  # the same command goes on
            assert main(["fetch-logs", url, *words]) == 0
    followed = trained(job, tmp_path / "followed", Shuffled(2), Options(replay=copy))
    assert followed.run_root == original.run_root


class Endless:
    """States `steps` steps, and answers each question about a log with a true log of another step
    that follows from the one before: nothing is wrong until the last one."""

    def __init__(self, prover: Prover, steps: int) -> None:
        self.prover, self.asked = prover, 0
        self.run = replace(prover.run, final_step=steps)
        self.commitment = sign_run(KEY, self.run).to_bytes()
        self.chain = CHAIN_START

    def answer(self, query: bytes) -> bytes:
        self.asked += 1
        assert self.asked < 1000, "it is asked without an end"
        body = self.prover._true(q.Log(1))
        made = replace(body, chain=self.chain)
        step = self.asked - 1
        self.chain = extend_log_chain(self.chain, step, log_digest(step, body.sections))
        run, asked = self.run, q.decode_query(query)
        return make_answer(KEY, run.job_digest, run.run_root, asked, made)


@pytest.mark.parametrize("steps", [0, 21, 1 << 40])
def test_a_run_of_steps_that_the_job_has_not(
    run: tuple[Job, RunSummary], tmp_path: Path, steps: int
) -> None:
    """A party that states 2^40 steps was asked for each of them."""
    job, original = run
    with Prover(original.directory, KEY) as prover:
        liar = Endless(prover, steps)
        with pytest.raises(CounterpartyError, match=f"states {steps} steps, and the job has 20"):
            copy_run(liar, job, tmp_path / "copy")
    assert liar.asked == 0
    assert not (tmp_path / "copy" / "commitment.json").exists()
