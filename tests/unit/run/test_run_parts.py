"""Small parts of the run layer: storage policy, schedules, settings, text, sampling, saving."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystick.errors import UnsupportedVersionError, UsageError
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.job.recipes import RECIPES, find_recipe, settings_for
from tallystick.job.recipes.base import normal
from tallystick.job.recipes.settings import (
    as_strings,
    build,
    describe,
    learning_rate,
    parse_pairs,
    warmup_cosine,
)
from tallystick.job.recipes.text_records import cut, stdlib_docstrings
from tallystick.job.save import save_job
from tallystick.numerics.contracts import resolve_contract
from tallystick.run.show.estimate import human_bytes, human_seconds
from tallystick.run.store.stored_states import to_drop


@given(st.integers(1, 8), st.integers(1, 40))
def test_kept_checkpoints_are_few_spread_and_end_with_the_newest(keep: int, count: int) -> None:
    stored: list[int] = []
    for step in range(20, 20 * count + 1, 20):
        stored.append(step)
        while (drop := to_drop(stored, keep, set())) is not None:
            stored.remove(drop)
        assert len(stored) <= keep
        assert stored[-1] == step
    if count >= 2 * keep:
        points = [0, *stored]
        gaps = [b - a for a, b in itertools.pairwise(points)]
        assert max(gaps) <= 20 * count * 3 / keep


def test_pauses_are_given_up_first() -> None:
    assert to_drop([20, 33, 40], 2, {33}) == 33
    assert to_drop([20, 40], 2, set()) is None
    assert to_drop([20], 0, set()) is None


def test_contract_names() -> None:
    assert resolve_contract("ordered/1") == "ordered/1-draft.1"
    assert resolve_contract("ordered/1-draft.1") == "ordered/1-draft.1"
    with pytest.raises(UnsupportedVersionError):
        resolve_contract("rounded/2")


def test_warmup_and_cosine() -> None:
    table = warmup_cosine(100, 1.0, 10, 0.1)
    assert len(table) == 100
    assert table[:10] == [(i + 1) / 10 for i in range(10)]
    assert table[10] == 1.0
    assert table[10:] == sorted(table[10:], reverse=True)
    assert 0.1 <= table[-1] < 0.11
    assert learning_rate(5, 0.5, 0, "constant") == 0.5
    assert learning_rate(4, 1.0, 2, "constant") == [0.5, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_settings_survive_the_manifest(name: str) -> None:
    recipe = find_recipe(name)
    settings = settings_for(recipe, {"lr": "0.1", "batch_size": "3"})
    assert build(recipe.settings, as_strings(settings), name) == settings
    assert all(help_text for _, _, _, help_text in describe(recipe.settings))


def test_gpt2_124m_is_gpt2s_own() -> None:
    s = settings_for(find_recipe("gpt2"), {"size": "124m", "batch_size": "8"})
    numbers = (s.n_layer, s.n_head, s.n_embd, s.block_size, s.vocab_size)
    assert numbers == (12, 12, 768, 1024, 50257)


def test_pairs() -> None:
    assert parse_pairs(["a=1", "b = x=y", "a=2"]) == {"a": "2", "b": "x=y"}
    for bad in ("a", "=1", ""):
        with pytest.raises(UsageError):
            parse_pairs([bad])


def test_windows_predict_every_byte_once() -> None:
    data = np.arange(100)
    found = cut(data, 8, 7)
    assert found.shape == (14, 8)
    assert found.dtype == np.int64
    assert [t for row in found for t in row[1:]] == data[1:99].tolist()
    assert (found[1:, 0] == found[:-1, -1]).all()
    with pytest.raises(UsageError):
        cut(np.arange(5), 8, 7)


def test_the_standard_library_has_text() -> None:
    text = stdlib_docstrings(50_000)
    assert len(text) >= 50_000
    assert text == stdlib_docstrings(50_000)


def test_own_normal_numbers() -> None:
    x = normal(3, 0, (64, 64), 0.02)
    assert abs(float(x.mean())) < 2e-3
    assert 0.018 < float(x.std()) < 0.022
    assert normal(3, 0, (64, 64), 0.02).tobytes() == x.tobytes()
    assert normal(4, 0, (64, 64), 0.02).tobytes() != x.tobytes()
    assert normal(3, 1, (64, 64), 0.02).tobytes() != x.tobytes()


def test_words_for_people() -> None:
    assert human_bytes(512) == "512 B"
    assert human_bytes(1536) == "1.5 KiB"
    assert human_seconds(0.02) == "20 ms"
    assert human_seconds(75) == "1 min 15 s"
    assert human_seconds(7300) == "2 h 01 min"


# ---- save_job -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def captured() -> object:
    import torch
    from torch import nn
    from torch.nn import functional as F

    from tallystick.program.capture.api import capture
    from tallystick.program.optimizers import SGD

    torch.manual_seed(0)
    return capture(
        nn.Linear(3, 2),
        lambda m, b: F.cross_entropy(m(b["x"]), b["y"]),
        {"x": ((4, 3), "f32"), "y": ((4,), "i64")},
        SGD(lr="rate"),
    )


X, Y = np.ones((8, 3), "f4"), np.zeros(8, "i8")
RATES = {"rate": [0.1, 0.2]}


def test_a_users_own_module_becomes_a_job(captured: object, tmp_path: Path) -> None:
    import torch

    from tallystick.api import audit, train

    job = save_job(
        captured,  # type: ignore[arg-type]
        tmp_path / "job",
        {"x": torch.tensor(X), "y": Y},
        steps=2,
        schedules=RATES,
    )
    assert isinstance(job, Job)
    assert load_job(tmp_path / "job").digest == job.digest
    assert job.scalars == {"lr": [0.1, 0.2]}
    train(job, tmp_path / "run")
    assert audit(tmp_path / "run", job).accepted


@pytest.mark.parametrize(
    ("data", "more", "word"),
    [
        ({"x": X}, {}, "fields"),
        ({"x": X, "y": Y, "z": Y}, {}, "fields"),
        ({"x": X.astype("f8"), "y": Y}, {}, "f64"),
        ({"x": X[:, :2], "y": Y}, {}, "[2]"),
        ({"x": X[:7], "y": Y}, {}, "number of records"),
        ({"x": X[:0], "y": Y[:0]}, {}, "at least one"),
        ({"x": X.astype("f2"), "y": Y}, {}, "float16"),
        ({"x": X, "y": Y}, {"schedules": {}}, "rate"),
        ({"x": X, "y": Y}, {"schedules": {"rate": [0.1]}}, "2 steps"),
        ({"x": X, "y": Y}, {"schedules": {"rate": [0.1, float("nan")]}}, "finite"),
        ({"x": X, "y": Y}, {"checkpoint_interval": 0}, "checkpoint_interval"),
        ({"x": X, "y": Y}, {"seed": -1}, "seed"),
        ({"x": X, "y": Y}, {"steps": 0}, "at least one step"),
        ({"x": X, "y": Y}, {"initial_state": {"param.weight": X}}, "slots"),
    ],
)
def test_data_that_does_not_fit(
    data: dict[str, np.ndarray],
    more: dict[str, object],
    word: str,
    captured: object,
    tmp_path: Path,
) -> None:
    arguments = {"steps": 2, "schedules": RATES, **more}
    with pytest.raises(UsageError) as caught:
        save_job(captured, tmp_path / "job", data, **arguments)  # type: ignore[arg-type]
    assert word in str(caught.value)
    assert caught.value.next_action
    assert not (tmp_path / "job" / "job.json").exists()


def test_a_job_is_never_overwritten(captured: object, mlp_job: Job) -> None:
    with pytest.raises(UsageError, match="already contains a job"):
        save_job(
            captured,  # type: ignore[arg-type]
            mlp_job.directory,
            {"x": X, "y": Y},
            steps=2,
            schedules=RATES,
        )


def test_non_canonical_nan_makes_no_job(captured: object, tmp_path: Path) -> None:
    bad = X.copy()
    bad.view("u4")[0, 0] = 0x7FC00001
    with pytest.raises(UsageError, match="NaN"):
        save_job(
            captured,  # type: ignore[arg-type]
            tmp_path / "job",
            {"x": bad, "y": Y},
            steps=2,
            schedules=RATES,
        )
