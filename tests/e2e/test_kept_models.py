"""The models of kept answers: until when each is needed, and that each is there (ANSWERS 7.7.2)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from commands import Run, as_json
from stated_models import save_stated

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

import tallystick
from tallystick.api.answering import Answering
from tallystick.commit.signing import PrivateKey
from tallystick.errors import DigestMismatchError
from tallystick.serving.kept import same_files
from tallystick.serving.kept.answers import KeptAnswers
from tallystick.serving.kept.reader import KeptReader
from tallystick.serving.kept.same_files import require_models
from tallystick.serving.kept.space import LEAST_BUDGET

DAY = 24 * 60 * 60 * 1000


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Answers of two models: the old one for 3 days, the new one for 30."""
    old, new = (
        save_stated(tmp_path / "old", "12:4"),
        save_stated(tmp_path / "new", "12:4", initializer_range=0.3),
    )
    place, key = tmp_path / "kept", PrivateKey.generate()
    for model, days in ((old, 3), (new, 30)):  # one server after the other
        answering = Answering(model)
        with KeptAnswers(place, LEAST_BUDGET) as keeper:
            keeper.uses(answering.statement, model)
            (one,) = tallystick.generate(answering, prompt="abc", max_tokens=2, key=key, days=days)
            assert keeper.keep(one, "anna")
    return place


def needed(place: Path, now: int | None = None) -> list[Path]:
    """The models that were compared anew. Raises as `require_models`."""
    with KeptReader(place) as reader:
        found = require_models(reader.models(), reader.statement, now)
    return [model.directory for model in found]


def test_models_that_stay_need_no_hashing(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_files, "weights", lambda _: pytest.fail("hashed again"))
    assert needed(kept) == []


def test_a_touched_model_is_compared(kept: Path, tmp_path: Path) -> None:
    os.utime(tmp_path / "old" / "model.safetensors")
    assert needed(kept) == [tmp_path / "old"]
    with KeptAnswers(kept, LEAST_BUDGET) as keeper:
        keeper.require_models()
    assert needed(kept) == []  # once


def test_a_model_that_is_gone(kept: Path, tmp_path: Path) -> None:
    shutil.move(tmp_path / "old", tmp_path / "away")
    with pytest.raises(DigestMismatchError, match=r"/old is not there, and 1 receipts promise"):
        needed(kept)
    with KeptReader(kept) as reader:
        new, old = reader.models()
    assert (old.directory.name, new.directory.name) == ("old", "new")
    assert needed(kept, old.until + 1) == []  # nobody needs it any more


def test_a_model_with_other_weights(kept: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "old")
    save_stated(tmp_path / "old2", "12:4", initializer_range=0.7).rename(tmp_path / "old")
    with pytest.raises(DigestMismatchError, match=r"is not what it was.*differs"):
        needed(kept)


def test_the_command(kept: Path, tmp_path: Path, ts: Run) -> None:
    listed = as_json(ts("kept", kept, "--json"))
    assert [Path(one["directory"]).name for one in listed["models"]] == ["new", "old"]
    assert all(one["answers"] == 1 for one in listed["models"])
    code, out, _ = ts("kept", kept)
    assert code == 0 and out.count("1 answers, until 20") == 2
    shutil.move(tmp_path / "old", tmp_path / "away")
    code, out, _ = ts("kept", kept, "--check")
    assert code == 1 and "DAMAGED" in out and "is not there" in out
    assert ts("kept", kept, "--model", tmp_path / "away")[0] == 0
    assert ts("kept", kept, "--check")[0] == 0
    with KeptReader(kept) as reader:  # the text follows from the files, where they lie now
        assert {Path(m.directory).name for m in reader.models()} == {"new", "away"}
        texts = [reader.find(row.id, row.owner) for row in reader.rows()]
        assert all(files is not None and files.spoken.text for files in texts)
    other = save_stated(tmp_path / "other", "12:4", initializer_range=0.7)
    code, _, errors = ts("kept", kept, "--model", other)
    assert code == 1 and "No kept answer is from the model" in errors
    assert as_json(ts("kept", kept, "--expire", "--json"))["deleted"] == 0
    assert ts("kept", tmp_path / "nothing")[0] == 3
    assert not (tmp_path / "nothing").exists()


def test_a_server_does_not_start_without_a_model_that_it_has_promised(
    kept: Path, tmp_path: Path, ts: Run
) -> None:
    pytest.importorskip("uvicorn")
    assert ts("keys", "new", tmp_path / "key.pem")[0] == 0
    shutil.move(tmp_path / "old", tmp_path / "away")
    words = ("serve-model", tmp_path / "new", "--listen", "127.0.0.1:0", "--keep", kept)
    code, out, errors = ts(*words, "--key", tmp_path / "key.pem")
    assert code == 1 and out == "" and "/old is not there" in errors and "until 20" in errors
