"""The commands about jobs of formats 2 and 3: inspect, fsck, audit, attack, dispute, judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from format_three import CYCLE, make_stream_job
from format_two import make_micro_job
from unit.protocol.validated import make_validated_job

from tallystick.cli.main import run
from tallystick.job.job import Job

Capture = pytest.CaptureFixture[str]
CHEATS = {
    "validated": ("false-validation", "6.5"),
    "micro": ("false-fold", "6.5"),
    "long": ("data-poisoning", "5.6.3"),
    "streams": ("other-held-out", "5.6.3"),
}


def _job(kind: str, path: Path) -> Job:
    if kind == "validated":
        return make_validated_job(path, rate=0.1, min_delta=1)
    if kind == "long":
        return make_micro_job(path, 1, rows=2, steps=4, width=(1 << 18) + 5, records=3)
    if kind == "streams":
        return make_stream_job(path, steps=12, interval=CYCLE, validates=True, patience=3)
    return make_micro_job(path, 4, steps=8)


def _json(capsys: Capture, code: int, *words: object) -> Any:
    capsys.readouterr()
    assert run([str(word) for word in words]) == code, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("kind", sorted(CHEATS))
def test_from_the_job_to_the_verdict(kind: str, tmp_path: Path, capsys: Capture) -> None:
    job = _job(kind, tmp_path / "job").directory
    honest, cheat, evidence = tmp_path / "honest", tmp_path / "cheat", tmp_path / "evidence"
    name, clause = CHEATS[kind]
    assert _json(capsys, 0, "train", job, "--out", honest, "--quiet", "--json")["finished"]
    shown = _json(capsys, 0, "inspect", job, "--json")
    beyond = {"stream", "order", "end", "epoch_records"}
    assert all((beyond <= set(p)) == (kind == "streams") for p in shown["programs"])
    about = _json(capsys, 0, "inspect", honest, "--json")
    assert about["signature"] == "valid"
    assert run(["fsck", str(job)]) == 0
    assert run(["fsck", str(honest)]) == 0
    assert _json(capsys, 0, "audit", honest, "--json")["accepted"]
    _json(capsys, 0, "attack", name, job, "--out", cheat, "--json")
    assert run(["report", str(honest), "--out", str(tmp_path / "report.html")]) == 0
    if kind == "streams":
        best = tmp_path / "best.safetensors"
        assert run(["export", str(honest), "--best", "--output", str(best)]) == 0
    # The cheat is not hidden from a repetition.
    assert run(["audit", str(cheat), "--quiet"]) == 1
    found = _json(
        capsys, 1, "dispute", honest, cheat, "--as-attack", "B", "--job", job, "--out", evidence,
        "--json",
    )  # fmt: skip
    assert [(c["party"], c["clause"]) for c in found["convicted"]] == [("B", clause)]
    judged = _json(capsys, 1, "judge", evidence, "--job", job, "--json")
    assert [(c["party"], c["clause"]) for c in judged["convicted"]] == [("B", clause)]


def test_an_altered_file_is_found(tmp_path: Path, capsys: Capture) -> None:
    """Each file of a job of format 2 is under its digest."""
    job = _job("validated", tmp_path / "job")
    for name in job.files():
        path = job.directory / name
        kept = path.read_bytes()
        path.write_bytes(kept[:-2] + bytes([kept[-2] ^ 1]) + kept[-1:])
        assert run(["fsck", str(job.directory)]) == 1, name
        path.write_bytes(kept)
    assert run(["fsck", str(job.directory)]) == 0
