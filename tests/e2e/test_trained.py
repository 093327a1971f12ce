"""The examples of training: paths, threads, SIGKILL, an audit, cheats (docs/proofs/trained.md)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tallystick import _core, api
from tallystick.devices.context import ExecutionContext
from tallystick.run.execute.trainer import Options, train_job
from tallystick_bench.trained.cheats import cheats
from tallystick_bench.trained.measure import measure
from tallystick_bench.trained.page import page
from tallystick_bench.trained.subjects import SUBJECTS, Subject
from tallystick_bench.trained.ways import Way, killed

STEPS = 30  # one pass of validation in each


def test_a_gan_by_turns_in_short(tmp_path: Path) -> None:
    (subject,) = [s for s in SUBJECTS if s.name == "gan"]
    job = api.load_job(subject.make(tmp_path, STEPS))
    honest, runs = tmp_path / "honest", []
    for number, isa in enumerate(_core.supported_isas()):
        _core.set_isa(isa)
        out = tmp_path / f"run-{isa}" if number else honest
        runs.append(train_job(job, out, Options(ExecutionContext(1 + number % 3))))
    roots = {run.run_root.hex() for run in runs}
    length = (honest / "journal").stat().st_size
    way = Way(_core.supported_isas()[-1], 2)
    again = killed(job.directory, tmp_path / "killed", way, length, random.Random(1))
    assert roots == {again["root"]} and again["sessions"] == 2
    assert 0 <= again["killed_at"] < again["steps"]
    assert len(runs[0].validation) == 1
    found = cheats(job.directory, honest, tmp_path / "cheats", ("no-augmentation",))
    convicted = {row["attack"]: (row["case"], row["clause"]) for row in found["convicted"]}
    assert convicted == {"no-augmentation": ("3", "6.5")}
    assert not found["misses"]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)
def test_in_every_way(subject: Subject, tmp_path: Path, is_exhaustive: bool) -> None:
    if not is_exhaustive:
        pytest.skip("minutes for each example: --exhaustive")
    if subject.trainer:
        pytest.importorskip("peft", reason="extra `hf`")
        pytest.importorskip("accelerate", reason="extra `hf`")
    ways = [Way(isa, 1 + n % 3) for n, isa in enumerate(_core.supported_isas())]
    row: dict[str, Any] = measure(subject, tmp_path / "work", ways, 2 * STEPS, 0)
    assert not row["misses"]
    assert len({run["root"] for run in row["runs"]}) == 1
    assert {"false-validation", "data-poisoning"} <= {c["attack"] for c in row["convicted"]}
    machine = {"compiler": "", "python": "", "platform": "", "cores": 2}
    about = {"machine": machine, "versions": {}, "paths": [], "threads": [1], "command": "",
             "commit": "", "date": ""}  # fmt: skip
    assert f"`{row['root']}`" in page({**about, "rows": [row]})
