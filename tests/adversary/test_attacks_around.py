"""Attacks around the game: forged files, not false answers (attacks/around, attacks/README.md)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tallystick.cli import main
from tallystick.disk.keys import load_public_key
from tallystick.run.attacks import Declaration, attacks_directory
from tallystick.run.recipes import new_job
from tallystick.run.store import RunStore
from tallystick.run.trainer import Options, train_job

AROUND = attacks_directory() / "around"


def test_a_party_that_makes_itself_the_referee(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """PROTOCOL 2.10: found as a conviction of the honest party by `judge --trust` and `report`."""
    pairs = {"features": "8", "records": "16", "batch_size": "2"}
    job = new_job("logreg", tmp_path / "job", pairs, steps=3, evaluate_every=0)
    honest, cheat, out = tmp_path / "honest", tmp_path / "cheat", tmp_path / "evidence"
    train_job(job, honest, Options())
    train_job(job, cheat, Options(declared=Declaration("data-poisoning")))
    names = ["--job", str(job.directory), "--out", str(out)]
    command = [sys.executable, str(AROUND / "forfeit-of-ones-own.py"), str(cheat), str(honest)]
    subprocess.run([*command, *names], check=True)
    key, page = RunStore(cheat).signer_path, tmp_path / "page.html"
    for trust in (["--trust", str(key)], [], ["--trust", str(key), "--trust-referee", str(key)]):
        judge = ["judge", str(out), "--job", str(job.directory), *trust]
        assert main.run(judge) == 2
        said = capsys.readouterr()
        assert "CONVICTED" not in said.out and "a party's key" in said.err
        report = ["report", str(out), "-o", str(page), "--job", str(job.directory), *trust]
        assert main.run(report) == 2
        text = page.read_text("utf-8")
        assert "Nothing is shown" in text and "Party B" not in text
    assert load_public_key(key).key_id != load_public_key(RunStore(honest).signer_path).key_id


def test_the_readme_lists_them_all() -> None:
    text = (attacks_directory() / "README.md").read_text().split("## Attacks around the game")[1]
    listed = set(re.findall(r"\(around/([a-z0-9-]+\.py)\)", text))
    assert listed == {path.name for path in AROUND.glob("*.py")}
