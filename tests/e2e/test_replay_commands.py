"""`rounded/1` and `replay/1` on the command line: every recipe, logs followed, golden roots."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from commands import Run, as_json
from reference.orders import Nudged, Shuffled
from replay_golden import NAMES, REPLAY_ROOTS, golden_run, replay_entry, replay_golden_job
from unit.run.replay_tools import SETTINGS, replay_job, trained

from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.products.engines import using
from tallystick.run.execute.trainer import Options, RunSummary

TINY = {
    "logreg": ["features=4", "classes=3", "records=32", "batch_size=8"],
    "mlp": ["features=6", "classes=3", "records=64", "hidden=8", "batch_size=8", "dropout=0.25"],
    "gpt2": ["n_layer=1", "n_head=2", "n_embd=16", "block_size=8", "batch_size=2"],
    "resnet50": ["size=tiny", "batch_size=4"],
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("recipe", "contract"),
    [
        ("mlp", "rounded/1;b=28"),
        *((recipe, "replay/1") for recipe in TINY),
    ],
)
def test_each_recipe_under_each_contract(
    recipe: str, contract: str, tmp_path: Path, ts: Run
) -> None:
    job, out, other = tmp_path / "job", tmp_path / "run", tmp_path / "other"
    settings = [part for pair in TINY[recipe] for part in ("--set", pair)]
    new = ["job", "new", recipe, "--out", job, "--steps", "3", "--contract", contract, *settings]
    if recipe == "gpt2":
        text = tmp_path / "text.txt"
        text.write_bytes(b"the tally stick was split in two so neither side could change it " * 40)
        new += ["--text", text]
    made = ts(*new)
    assert made[0] == 0, made
    assert ts("job", "verify", job)[0] == 0
    result = as_json(ts("train", job, "--out", out, "--quiet", "--json"))
    assert result["contract"].startswith(contract[:8]) and result["finished"]
    keeps = contract.startswith("replay")
    assert (result["log_bytes"] > 0) == keeps
    report = as_json(ts("audit", out, "--job", job, "--quiet", "--json"))
    assert report["accepted"] and report["findings"] == []
    assert set(report["choices"] or {}) == ({"left", "taken"} if keeps else set())
    follow = ("--replay", out) if keeps else ()
    with using(Shuffled(1)):
        again = as_json(ts("train", job, "--out", other, *follow, "--quiet", "--json"))
    assert again["run_root"] == result["run_root"]
    assert (again["followed"] is not None) == keeps
    assert ts("fsck", out)[0] == 0
    inspected = as_json(ts("inspect", out, "--json"))
    assert inspected["log_bytes"] == result["log_bytes"]
    model = tmp_path / "model.safetensors"
    assert ts("export", out, "-o", model)[0] == 0
    assert ts("verify-model", model, out)[0] == 0


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, RunSummary]:
    """A job with choices, and a run of it. Never change them: copy."""
    path = tmp_path_factory.mktemp("wide")
    job = replay_job(path / "job", interval=5)
    return job, trained(job, path / "run", Nudged(1))


def test_100_steps_at_zero_distance(tmp_path: Path) -> None:
    job = new_job(
        "mlp", tmp_path / "job", SETTINGS, steps=100, contract="replay/1", evaluate_every=50
    )  # fmt: skip
    run = trained(job, tmp_path / "run", Nudged(1))
    own = trained(job, tmp_path / "own", Shuffled(2))
    assert own.final_state_root != run.final_state_root, "nothing to follow"
    for number, engine in enumerate((Shuffled(2), Nudged(3))):
        options = Options(replay=run.directory)
        followed = trained(job, tmp_path / f"run-{number}", engine, options)
        assert followed.run_root == run.run_root
        assert followed.validation == run.validation


def test_what_train_and_audit_say(wide: tuple[Job, RunSummary], tmp_path: Path, ts: Run) -> None:
    job, run = wide
    out = tmp_path / "run"
    code, said, _ = ts("train", job.directory, "--out", out, "--replay", run.directory, "--quiet")
    assert code == 0
    assert "MATCH" in said and "its logs leave" in said
    page = tmp_path / "page.html"
    assert ts("report", out, "-o", page)[0] == 0
    assert "Rounding logs" in page.read_text() and run.run_root.hex() in page.read_text()
    code, said, _ = ts("audit", run.directory, "--quiet")
    assert code == 0 and "the logs leave" in said
    found = as_json(ts("audit", run.directory, "--steps", "6:9", "--quiet", "--json"))
    assert found["accepted"] and found["choices"]["left"] > 0


def test_a_missing_log_exits_1_and_is_named(
    wide: tuple[Job, RunSummary], tmp_path: Path, ts: Run
) -> None:
    job, run = wide
    broken = tmp_path / "broken"
    shutil.copytree(run.directory, broken)
    (broken / "logs" / "0000000011.log").unlink()
    found = as_json(ts("audit", broken, "--quiet", "--json"), 1)
    assert (found["difference"]["kind"], found["difference"]["step"]) == ("log", 11)
    assert as_json(ts("audit", broken, "--steps", "16:19", "--quiet", "--json"))["accepted"]
    checked = as_json(ts("fsck", broken, "--json"), 1)
    assert [p["path"] for p in checked["problems"]] == ["logs/0000000011.log"]
    code, said, _ = ts(
        "train", job.directory, "--out", tmp_path / "run", "--replay", broken, "--quiet"
    )
    assert code == 1
    assert "FINDING     missing log: step 11" in said
    assert "tallystick dispute" in said


def test_wrong_usage(wide: tuple[Job, RunSummary], mlp_job: Job, tmp_path: Path, ts: Run) -> None:
    _, run = wide
    out = ("--out", tmp_path / "run", "--quiet")
    assert ts("train", mlp_job.directory, *out, "--replay", run.directory)[0] == 3
    assert ts("train", mlp_job.directory, *out, "--zstd")[0] == 3
    assert ts("job", "new", "mlp", "--out", tmp_path / "j", "--contract", "replay/1;b=9")[0] != 0


def test_a_non_finite_loss_under_replay_is_a_committed_end(tmp_path: Path, ts: Run) -> None:
    job, out = tmp_path / "job", tmp_path / "run"
    made = ts(
        *("job", "new", "mlp", "--out", job, "--steps", "20", "--contract", "replay/1"),
        *("--set", "lr=1e38", "--set", "weight_decay=1e30", "--set", "hidden=16"),
    )
    assert made[0] == 0, made
    result = as_json(ts("train", job, "--out", out, "--quiet", "--json"))
    assert result["reason"] == "non-finite loss"
    assert as_json(ts("audit", out, "--quiet", "--json"))["accepted"]
    with using(Shuffled(1)):
        other = as_json(ts("train", job, "--out", tmp_path / "b", "--replay", out, "--json"))
    assert other["run_root"] == result["run_root"]


@pytest.mark.parametrize("name", NAMES)
def test_golden_roots_of_a_run_by_the_plainest_engine(name: str, tmp_path: Path) -> None:
    golden = json.loads(REPLAY_ROOTS.read_text())[name]
    job = replay_golden_job(name, tmp_path)
    assert job.steps >= 100
    assert replay_entry(job, golden_run(job, tmp_path / "run")) == golden
