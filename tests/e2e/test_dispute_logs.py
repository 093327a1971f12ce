"""Two honest runs of other choices, and what a prover says of its logs (PROTOCOL 1.5.1, 2.1)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from unit.protocol.log_scenarios import TIE, WIDE
from unit.protocol.log_simulator import Upwards, make_log_job
from unit.report.pages import Page

from tallystick.cli.main import run
from tallystick.errors import CounterpartyError, UsageError
from tallystick.job.job import Job
from tallystick.products.engines import using
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import BlockBody, BlocksBody, LogBody
from tallystick.protocol.messages import open_answer
from tallystick.prover.prover import Prover
from tallystick.run.execute.trainer import Options, train_job

SECTION_OF_WIDE = 1


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path, Path]:
    """A job, and two honest runs of it whose kernels differ."""
    directory = tmp_path_factory.mktemp("choices")
    job = make_log_job(directory / "job", wide=3000)
    train_job(job, directory / "a", Options())
    with using(Upwards()):
        train_job(job, directory / "b", Options())
    return job, directory / "a", directory / "b"


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    capsys.readouterr()
    code = run([str(word) for word in words])
    return code, capsys.readouterr().out


def test_what_cannot_be_decided(
    world: tuple[Job, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, a, b = world
    out = tmp_path / "case"
    words = ("--job", job.directory)
    code, text = call(capsys, "dispute", a, b, *words, "--out", out, "--json")
    found = json.loads(text)
    assert code == 2 and found["undecided"] and not found["agreement"]
    assert found["convicted"] == [] and found["accepted"] is None and found["clause"] is None
    assert found["choices"] == {"left": 1, "taken": 1}
    assert found["claimed"][0] != found["claimed"][1] and found["quantity"] == "R(exact sum)"
    code, text = call(capsys, "judge", out, *words)
    assert code == 2 and "could not be decided" in text and "CONVICTED" not in text
    page = tmp_path / "page.html"
    code, _ = call(capsys, "report", out, *words, "-o", page)
    assert code == 0
    read = Page(page.read_text()).text
    assert "It could not be decided" in read and "1.5.1" in read and "✗ false" not in read


def test_a_hand_over_that_fails_keeps_the_verdict(
    world: tuple[Job, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """6.15: a party that will not, or another run's logs in the place: it is told, and no more."""
    job, a, b = world
    words = ("--job", job.directory, "--out", tmp_path / "case", "--json")
    code, text = call(capsys, "dispute", a, b, *words, "--logs-a", b / "logs")
    found = json.loads(text)
    assert code == 2 and found["undecided"] and found["logs"] == [None, None]
    assert (tmp_path / "case").exists()
    for targets in (
        ("--logs-a", a / "journal"),
        ("--logs-a", tmp_path / "x", "--logs-b", tmp_path / "x"),
    ):
        code, _ = call(capsys, "dispute", a, b, *words, *targets)
        assert code == 3


def test_a_follower_agrees(
    world: tuple[Job, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job, _, b = world
    code, _ = call(capsys, "train", job.directory, "--out", tmp_path / "c", "--replay", b)
    assert code == 0
    words = ("--job", job.directory, "--out", tmp_path / "case", "--json")
    code, text = call(capsys, "dispute", b, tmp_path / "c", *words)
    assert code == 0 and json.loads(text)["choices"] == {"left": 0, "taken": 0}


def test_what_a_run_says_of_its_logs(world: tuple[Job, Path, Path]) -> None:
    job, a, _ = world
    with Prover(a) as prover:
        for query, kind in (
            (q.Log(0), LogBody),
            (q.LogHashes(0, SECTION_OF_WIDE, 0, 2), BlocksBody),
            (q.LogBlock(0, SECTION_OF_WIDE, 1), BlockBody),
            (q.LogBlock(3, 0, 0), BlockBody),
        ):
            answer = open_answer(prover.answer(q.encode_query(query)), prover.run.signer)
            body = query.layout.decode(answer.body)
            assert isinstance(body, kind)
        assert isinstance(body, BlockBody)
        entries = np.frombuffer(body.data, "<u2")
        assert (entries // 2).tolist() == [TIE, TIE + 1]
        assert job.program.nodes[WIDE].out_types[0].numel == 6000
        for query in (
            q.Log(5),
            q.LogBlock(0, 99, 0),
            q.LogBlock(0, SECTION_OF_WIDE, 2),
            q.LogHashes(0, SECTION_OF_WIDE, 1, 2),
            q.LogHashes(0, 99, 0, 1),
        ):
            with pytest.raises(UsageError):
                prover.answer(q.encode_query(query))


def test_a_damaged_log_is_never_signed(world: tuple[Job, Path, Path], tmp_path: Path) -> None:
    """2.8 is for who cannot open a commitment; a fault of the disk convicts nobody."""
    _, a, _ = world
    for number, damage in enumerate(("missing", "another step's", "a bit")):
        own = tmp_path / str(number)
        shutil.copytree(a, own)
        path = own / "logs" / f"{3:010d}.log"
        if damage == "missing":
            path.unlink()
        elif damage == "a bit":
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(bytes(data))
        else:
            shutil.copy(own / "logs" / f"{2:010d}.log", path)
        with Prover(own) as prover, pytest.raises(CounterpartyError):
            prover.answer(q.encode_query(q.Log(3)))


def test_a_run_without_logs_has_none_to_open(mlp_run: object, mlp_job: Job) -> None:
    directory = mlp_run.directory  # type: ignore[attr-defined]
    with Prover(directory) as prover, pytest.raises(UsageError, match="no logs"):
        prover.answer(q.encode_query(q.Log(0)))
