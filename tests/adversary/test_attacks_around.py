"""Attacks around the game: forged files, not false answers (attacks/around, attacks/README.md)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from unit.protocol.log_simulator import Upwards, make_log_job
from unit.run.replay_tools import forging, some_more

from tallystick.cli import main
from tallystick.commit.signing import Envelope, verify_run
from tallystick.errors import CounterpartyError
from tallystick.job.job import Job
from tallystick.job.job_file import load_terms
from tallystick.job.recipes import new_job
from tallystick.products.engines import using
from tallystick.protocol.judge import judge
from tallystick.run.cheats.attacks import attacks_directory
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import fsck
from tallystick.run.store.unsigned import Declaration

AROUND = attacks_directory() / "around"


def attack(name: str, *arguments: object) -> None:
    """Run a script of attacks/around."""
    command = [sys.executable, str(AROUND / f"{name}.py"), *map(str, arguments)]
    subprocess.run(command, check=True)


@dataclass(frozen=True)
class World:
    """A small job, an honest run of it and a poisoned one."""

    job: Path
    honest: Path
    cheat: Path


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    path = tmp_path_factory.mktemp("around")
    pairs = {"features": "8", "records": "16", "batch_size": "2"}
    job = new_job("logreg", path / "job", pairs, steps=3, evaluate_every=0)
    train_job(job, path / "honest", Options())
    train_job(
        job, path / "cheat", Options(maker=declared_cheat(job, Declaration("data-poisoning")))
    )
    return World(job.directory, path / "honest", path / "cheat")


def test_a_party_that_makes_itself_the_referee(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PROTOCOL 2.10.1: `judge --trust` and `report --trust` convicted the honest party."""
    out, page, job = tmp_path / "evidence", tmp_path / "page.html", ["--job", str(world.job)]
    attack("forfeit-of-ones-own", world.cheat, world.honest, *job, "--out", out)
    key = str(RunStore(world.cheat).signer_path)
    for trust in (["--trust", key], [], ["--trust", key, "--trust-referee", key]):
        assert main.run(["judge", str(out), *job, *trust]) == 2
        said = capsys.readouterr()
        assert "CONVICTED" not in said.out and "a party's key" in said.err
        assert main.run(["report", str(out), "-o", str(page), *job, *trust]) == 2
        text = page.read_text("utf-8")
        assert "Nothing is shown" in text and "Party B" not in text


def test_bytes_beside_the_weights(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tensors are the committed ones: it was a MATCH."""
    model, out = tmp_path / "model.safetensors", tmp_path / "hidden.safetensors"
    assert main.run(["export", str(world.honest), "-o", str(model)]) == 0
    assert main.run(["verify-model", str(model), str(world.honest)]) == 0
    attack("bytes-beside-the-weights", model, "--out", out)
    assert b"carried along unseen" in out.read_bytes()
    capsys.readouterr()
    assert main.run(["verify-model", str(out), str(world.honest)]) == 1
    said = capsys.readouterr()
    assert "MATCH" not in said.out and "tallystick export" in said.err


def test_a_key_without_a_secret(
    world: World, tmp_path: Path, copied: Callable[[Path], Path]
) -> None:
    """COMMITMENTS 9.1.1: `audit` accepted the signature."""
    run, out = copied(world.honest), tmp_path / "commitment.json"
    attack("key-without-a-secret", RunStore(run).commitment_path, "--out", out)
    with pytest.raises(CounterpartyError, match="small order"):
        verify_run(Envelope.from_bytes(out.read_bytes()))
    RunStore(run).commitment_path.write_bytes(out.read_bytes())
    assert main.run(["audit", str(run), "--quiet"]) == 2
    assert not fsck(run).clean


def test_a_commitment_of_brackets(
    world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PROTOCOL 8.5: what it costs is test_judge_cost's."""
    out, job = tmp_path / "evidence", ["--job", str(world.job)]
    attack("commitment-of-brackets", *job, "--out", out)
    assert main.run(["judge", str(out), *job]) == 2
    assert "more than the limit of 65536" in capsys.readouterr().err


def _convicted(evidence: Path, *words: object) -> tuple[int, list[str]]:
    """Exit code of a dispute, and who the judge of its evidence convicts."""
    code = main.run(["dispute", *map(str, words), "--out", str(evidence)])
    data, job = evidence.read_bytes(), load_terms(Path(str(words[words.index("--job") + 1])))
    return code, ["AB"[c.party] for c in judge(job, data).verdict.convicted]


def test_planted_files(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PROTOCOL 2.8.2: it was the honest party that lost the game."""
    run, out, job = tmp_path / "run", tmp_path / "evidence", ["--job", world.job]
    attack("planted-files", world.honest, "--out", run)
    assert _convicted(out, run, world.cheat, *job, "--as-attack", "B") == (1, ["B"])
    assert "override.json is not honoured" in capsys.readouterr().err
    assert _convicted(out, run, world.honest, *job) == (0, [])
    assert {p.path for p in fsck(run).problems} >= {"override.json"}
    assert main.run(["audit", str(run), "--quiet", "--json"]) in (0, 1)
    assert "override.json" in capsys.readouterr().out


def test_a_withheld_log(tmp_path: Path) -> None:
    """PROTOCOL 6.13, 6.14: both seats ended undecided, though the liar opens the log."""
    pairs = {"records": "40", "batch_size": "4", "hidden": "16"}
    job = new_job(
        "mlp", tmp_path / "job", pairs, steps=6, checkpoint_interval=2, evaluate_every=0,
        contract="replay/1",
    )  # fmt: skip
    cheat, handed, auditor = tmp_path / "cheat", tmp_path / "handed", tmp_path / "auditor"
    # Entries that nobody follows in the step whose log is withheld, and a lie in a later one.
    declared = Declaration("lie-output", {"step": 4})
    with forging(some_more(2, _product(job), range(5, 9))):
        train_job(job, cheat, Options(maker=declared_cheat(job, declared)))
    attack("withheld-log", cheat, "--step", 2, "--out", handed)
    train_job(job, auditor, Options(replay=handed))
    words = ["--job", job.directory]
    first = _convicted(tmp_path / "a", cheat, auditor, *words, "--as-attack", "A")
    second = _convicted(tmp_path / "b", auditor, cheat, *words, "--as-attack", "B")
    assert (first, second) == ((1, ["A"]), (1, ["B"]))


def test_a_withheld_log_of_a_choice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """PROTOCOL 6.15: the trainer takes a choice where its log is withheld and lies later on. The
    game ends undecided, the log is handed over by the trainer's own answers, and followed."""
    job = make_log_job(tmp_path / "job", wide=3000)
    cheat, handed = tmp_path / "cheat", tmp_path / "handed"
    with using(Upwards()):
        train_job(
            job, cheat, Options(maker=declared_cheat(job, Declaration("lie-output", {"step": 3})))
        )
    attack("withheld-log", cheat, "--step", 0, "--out", handed)
    train_job(job, tmp_path / "first", Options(replay=handed))
    words = ["--job", job.directory]
    for seat, name in enumerate("AB"):
        runs = [cheat, tmp_path / "first"] if seat == 0 else [tmp_path / "first", cheat]
        where = handed / "logs" if seat == 0 else tmp_path / "again"
        taken = ["--as-attack", name, f"--logs-{name.lower()}", where, "--json"]
        taken += ["--out", tmp_path / name]
        capsys.readouterr()
        assert main.run(["dispute", *map(str, [*runs, *words, *taken])]) == 2
        found = json.loads(capsys.readouterr().out)
        assert found["undecided"] and found["step"] == 0
        assert found["logs"][seat] == str(where) and found["logs"][1 - seat] is None
    assert {path.name for path in (tmp_path / "again").iterdir()} == {
        path.name for path in (cheat / "logs").iterdir()
    }
    train_job(job, tmp_path / "second", Options(replay=handed))
    first = _convicted(tmp_path / "a", cheat, tmp_path / "second", *words, "--as-attack", "A")
    second = _convicted(tmp_path / "b", tmp_path / "second", cheat, *words, "--as-attack", "B")
    assert (first, second) == ((1, ["A"]), (1, ["B"]))


def _product(job: Job) -> int:
    """The first node whose output has a section."""
    return next(k for k, n in enumerate(job.program.nodes) if n.op in ("aten.addmm", "aten.mm"))


def test_the_readme_lists_them_all() -> None:
    text = (attacks_directory() / "README.md").read_text().split("## Attacks around the game")[1]
    listed = set(re.findall(r"\(around/([a-z0-9-]+\.py)\)", text))
    assert listed == {path.name for path in AROUND.glob("*.py")}
