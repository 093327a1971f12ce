"""`tallystick attack`: lists cheats, makes a signed cheating run, refuses what it cannot do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tallystick.cli.main import run
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.cheats.attacks import KINDS, answer_attack_names, attack_names


def _json(capsys: pytest.CaptureFixture[str], code: int, *arguments: object) -> Any:
    capsys.readouterr()
    assert run([str(a) for a in arguments]) == code
    return json.loads(capsys.readouterr().out)


def test_the_list_has_every_attack(capsys: pytest.CaptureFixture[str]) -> None:
    found = _json(capsys, 0, "attack", "--list", "--json")["attacks"]
    assert [one["name"] for one in found] == [*attack_names(), *answer_attack_names()]
    assert all(one["summary"] for one in found)
    lie = next(one for one in found if one["name"] == "lie-output")
    assert lie["parameters"] == {"step": -1, "node": -1, "output": 0, "element": -1, "bit": -1}
    assert run(["attack", "--list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in attack_names())


def test_the_list_has_kinds_and_tells_about_one(
    mlp_job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["attack", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines if line.partition(":")[0] in KINDS] == [*KINDS]
    for name in attack_names():  # a column of its own, whatever the name's length
        assert any(line.split()[:1] == [name] for line in lines)
    assert run(["attack", "--list", "lie-output"]) == 0
    shown = capsys.readouterr().out
    assert "Caught:" in shown
    assert "step=-1 (the middle)" in shown
    fitting = _json(capsys, 0, "attack", "--list", mlp_job.directory, "--json")["attacks"]
    obstacles = {one["name"]: one["obstacle"] for one in fitting}
    assert obstacles["lie-output"] is None
    assert obstacles["false-fold"].endswith("folds no micro-batches")
    assert run(["attack", "--list", str(mlp_job.directory)]) == 0
    fits, _, others = capsys.readouterr().out.partition("nothing to do in this job")
    assert "lie-output" in fits
    assert "false-fold" in others
    assert run(["attack", "--list", "no-such"]) == 3
    assert run(["attack", "--list", "lie-output", "job", "--out", "x"]) == 3


def test_a_cheating_run_says_so(
    mlp_job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, job = tmp_path / "run", mlp_job.directory
    chosen = ["--set", "step=2", "--set", "bit=22", "--threads", "1"]
    made = _json(capsys, 0, "attack", "lie-output", job, "--out", out, *chosen, "--json")
    assert made["attack"] == "lie-output"
    assert made["parameters"] == {"step": "2", "bit": "22"}
    assert made["steps"] == mlp_job.steps
    about = _json(capsys, 0, "inspect", out, "--json")
    assert about["declared_override"] == "lie-output"
    assert about["run_root"] == made["run_root"]
    assert about["signature"] == "valid"
    key = tmp_path / "key.pem"
    assert run(["keys", "new", str(key)]) == 0
    mine = _json(capsys, 0, "keys", "show", f"{key}.pub", "--json")["key_id"]
    signed = ["--out", str(tmp_path / "b"), "--quiet", "--key", str(key)]
    assert run(["attack", "refuses", str(job), *signed]) == 0
    assert "is not an honest run: it was made by the attack refuses" in capsys.readouterr().out
    assert _json(capsys, 0, "inspect", tmp_path / "b", "--json")["signer"] == mine


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no-such-cheat"], "There is no attack"),
        (["../lie-output"], "There is no attack"),
        (["_shared"], "There is no attack"),
        (["lie-output", "--set", "steps=3"], "no parameter 'steps'"),
        (["lie-output", "--set", "step=x"], "must be an integer"),
        (["lie-output", "--set", "step=999"], "no step 999"),
        (["lie-output", "--set", "node=9999"], "no node 9999"),
        (["lie-output", "--set", "output=1"], "no output 1"),
        (["lie-output", "--set", "element=99999999"], "elements"),
        (["lie-output", "--set", "element=-2"], "elements"),
        (["lie-output", "--set", "bit=32"], "32 bits"),
        (["lie-output", "--set", "step"], "not KEY=VALUE"),
        (["patched-commitments", "--set", "checkpoint=0"], "no state 0"),
        (["skipped-steps", "--set", "every=0"], "at least 1"),
    ],
)
def test_what_it_refuses_leaves_nothing_behind(
    arguments: list[str],
    says: str,
    mlp_job: Job,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    name, *rest = arguments
    out = tmp_path / "run"
    assert run(["attack", name, str(mlp_job.directory), "--out", str(out), *rest]) == 3
    assert says in capsys.readouterr().err
    assert not out.exists()
    assert run(["attack", name]) == 3


@pytest.mark.parametrize("name", ["data-poisoning", "refuses", "silent"])
def test_a_batch_of_one_record_cannot_be_poisoned_by_another(name: str, tmp_path: Path) -> None:
    """A cheat without effect would be an honest run that calls itself a cheat."""
    pairs = {"features": "4", "records": "20", "batch_size": "1"}
    job = new_job("logreg", tmp_path / "job", pairs, steps=4, checkpoint_interval=2)
    out = tmp_path / "run"
    assert run(["attack", name, str(job.directory), "--out", str(out)]) == 3
    assert not out.exists()


@pytest.mark.parametrize(
    "name", ["false-fold", "false-stop", "false-validation", "ignored-stop", "other-held-out"]
)
def test_attacks_on_format_2_refuse_a_job_that_lacks_what_they_need(
    name: str, mlp_job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert run(["attack", name, str(mlp_job.directory), "--out", str(out)]) == 3
    said = capsys.readouterr().err
    assert "nothing to do here" in said
    assert any(word in said for word in ("committed validation", "slot stops", "micro-batches"))
    assert not out.exists()
