"""Two jobs compared in words."""

from __future__ import annotations

from pathlib import Path

import pytest

import tallystick
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.show.summary import RunSummary

BASE = {"features": "4", "classes": "3", "records": "32", "batch_size": "8", "dropout": "0.25"}


def job(place: Path, seed: int = 3, steps: int = 6, **changed: str) -> Job:
    return new_job("mlp", place, BASE | changed, steps=steps, seed=seed, checkpoint_interval=3)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return job(tmp_path_factory.mktemp("jobs") / "base")


def test_one_job_is_equal(base: Job) -> None:
    found = tallystick.diff(base, base.directory)
    assert found.equal and not found.causes and not found.fields
    assert repr(found).startswith("<Two jobs: equal")


@pytest.mark.parametrize(
    ("changed", "cause", "words"),
    [
        ({"seed": 4}, "seed", "is 3 in A and 4 in B"),
        ({"lr": "0.5"}, "rate", "0.5 in B"),
        ({"dropout": "0.5"}, "dropout", "mask"),
        ({"dropout": "0.0"}, "dropout", "none in B"),
        ({"hidden": "24"}, "program", "The models differ, first in 0.bias: it is "),
        ({"clip_norm": "1"}, "setting", "gradients' norm is none in A and 1 in B"),
        ({"optimizer": "sgd"}, "setting", " and SGD in B."),
        ({"activation": "gelu"}, "program", "only B has aten.gelu (operator "),
        ({"ema": "0.5"}, "program", "A moving average is kept of no tensor in A and of "),
        ({"layers": "3"}, "program", "The models differ, first in "),
        (
            {"micro_batches": "2"},
            "micro-batches",
            "A batch of 8 records is taken at once in A and in 2 micro-batches in B.",
        ),
        (
            {"batch_size": "4", "micro_batches": "2"},
            "batch size",
            "has 8 records in A and 4 records in 2 micro-batches in B.",
        ),
        ({"batch_size": "4"}, "batch size", "has 8 records in A and 4 records in B"),
        ({"weight_decay": "0.25"}, "setting", "weight_decay of "),
        ({"steps": 7}, "steps", "6 steps in A and 7 steps in B."),
    ],
)
def test_a_changed_field_is_named(
    tmp_path: Path, base: Job, changed: dict[str, str | int], cause: str, words: str
) -> None:
    found = tallystick.diff(base, job(tmp_path / "other", **changed))  # type: ignore[arg-type]
    assert not found.equal and found.cause is not None
    assert (found.cause.kind, words in found.cause.sentence) == (cause, True), found.causes
    assert found.fields


def test_what_no_digest_covers_stands_apart(base: Job) -> None:
    from dataclasses import replace

    found = tallystick.diff(base, replace(base, about={**base.about, "source": "somebody's word"}))
    assert found.equal
    assert [apart.label for apart in found.uncommitted] == ["source"]


def test_a_run_stands_for_its_job(mlp_run: RunSummary, mlp_job: Job) -> None:
    assert tallystick.diff(mlp_run.directory, mlp_job).equal


def test_another_directory_is_refused(tmp_path: Path, base: Job) -> None:
    with pytest.raises(UsageError, match="is not a job, a run or a trace"):
        tallystick.diff(base, tmp_path)


def captured(
    place: Path,
    *,
    eps: float = 1e-5,
    bit: int | None = None,
    frozen: bool = False,
    scaled: bool = False,
    changed: int | None = None,
    swapped: bool = False,
    count: int = 20,
) -> Job:
    """A job of a small net, with one planted difference."""
    np = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch", reason="torch is not installed")
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 6), torch.nn.LayerNorm(6, eps=eps), torch.nn.Linear(6, 3)
    )
    if bit is not None:
        weight = net[2].weight.detach().numpy().reshape(-1).view(np.int32)
        weight[7] ^= 1 << bit
    if scaled:
        net[2].weight.data *= 2
    if frozen:
        net[0].requires_grad_(False)
    made = np.random.default_rng(0)
    data = {
        "x": made.standard_normal((count, 4), dtype=np.float32),
        "y": made.integers(0, 3, count),
    }
    if changed is not None:
        data["x"][changed, 2] += 1
    if swapped:
        for field in data.values():
            field[[3, 11]] = field[[11, 3]]
    example = {"x": torch.zeros(4, 4), "y": torch.zeros(4, dtype=torch.int64)}
    capture = tallystick.capture(
        net,
        lambda m, b: torch.nn.functional.cross_entropy(m(b["x"]), b["y"]),
        example,
        tallystick.AdamW(lr=0.01),
    )
    return capture.save_job(
        place, data, steps=4, seed=3, checkpoint_interval=2, compare_first_step=False
    )


@pytest.mark.parametrize(
    ("changed", "cause", "words"),
    [
        ({"eps": 1e-6}, "program", "aten.native_layer_norm (operator 2) has eps 1e-05 in A and "),
        ({"bit": 20}, "flipped bit", "Only element [1, 1] of param.2.weight differs, in bit 20 "),
        (
            {"scaled": True},
            "weights",
            "18 of 18 elements of param.2.weight differ, the first of them [0, 0]: ",
        ),
        ({"frozen": True}, "program", "Only B freezes 0.bias and 0.weight."),
        ({"changed": 13}, "data", "1 of the 20 records of train differs: record 13, in x."),
        ({"swapped": True}, "data order", "2 of them in other places; the first is record 3."),
        ({"count": 24}, "data", "train has 20 records in A and 24 in B."),
    ],
)
def test_the_files_of_two_jobs_name_what_differs(
    tmp_path: Path, changed: dict[str, float], cause: str, words: str
) -> None:
    ours, theirs = captured(tmp_path / "a"), captured(tmp_path / "b", **changed)  # type: ignore[arg-type]
    found = tallystick.diff(ours, theirs)
    assert [one.kind for one in found.causes] == [cause], found.causes
    assert words in found.causes[0].sentence
    # A job without its files, or with damaged ones, is compared by its digests.
    for file in ("state0.safetensors", "data/train.safetensors"):
        place = theirs.directory / file
        data = bytearray(place.read_bytes())
        data[-1] ^= 1
        place.write_bytes(bytes(data))
    less = tallystick.diff(ours.directory, theirs.directory)
    assert not less.equal and less.fields == found.fields
