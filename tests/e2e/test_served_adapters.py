"""`serve-model --adapter`: a model and an adapter of it beside each other, and what is kept."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("tokenizers", reason="tokenizers is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")
pytest.importorskip("peft", reason="peft is not installed (extra `hf`)")
pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

import httpx2
from adapters import save_adapter
from answer_models import save_model
from answer_words import save_words
from commands import Run, as_json
from service.processes import Served

import tallystick
from tallystick.answers.files import read_statement
from tallystick.cli.main import run
from tallystick.serving.kept.reader import KeptReader

ASK = ("--message", "abc", "--max-tokens", "4", "--temperature", "0", "--json")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a LoRA of it, and the same one merged, with their statements."""
    place = tmp_path_factory.mktemp("served")
    model = place / "model"
    model.mkdir()
    save_model("llama", model)
    save_words(model)
    save_adapter(model, place / "lora")
    shutil.copytree(place / "lora", place / "merged")
    statement = ["model", "statement", str(model), "--bucket", "16:4"]
    assert run(statement) == 0
    assert run([*statement, "--adapter", str(place / "lora")]) == 0
    assert run([*statement, "--adapter", str(place / "merged"), "--merge"]) == 0
    assert run(["keys", "new", str(place / "key.pem")]) == 0
    return place


@pytest.fixture(scope="module")
def served(stage: Path) -> Iterator[str]:
    """The model under three names: without an adapter, and with each form of it."""
    model = stage / "model"
    found = Served(
        model, model, model, "--adapter", "-", "--adapter", stage / "lora", "--adapter",
        stage / "merged", "--listen", "127.0.0.1:0", "--key", stage / "key.pem", "--keep",
        stage / "kept", verb="serve-model", forked=True,
    )  # fmt: skip
    yield found.url
    code, errors = found.stop()
    assert code == 0 and "Traceback" not in errors


@pytest.mark.parametrize("name", ["model", "lora", "merged"])
def test_an_answer_is_the_adapters(
    name: str, served: str, stage: Path, tmp_path: Path, ts: Run
) -> None:
    own = () if name == "model" else ("--adapter", stage / name)
    copy = ("--model", stage / "model", *own)
    ask = ("chat", served, *ASK, "--served", name, "-o", tmp_path / "answer")
    said = as_json(ts(*ask, *copy))
    assert any(line.startswith("computation") for line in said["checked"]) and said["accepted"]
    stated = read_statement(stage / f"{name}.statement")
    assert said["model_digest"] == stated.digest.hex()
    (shown,) = (
        one
        for one in httpx2.get(f"{served}/models", trust_env=False).json()["data"]
        if one["id"] == name
    )
    adapter = None if stated.adapter is None else stated.adapter.digest.hex()
    assert shown["adapter"] == adapter and shown["digest"] == stated.digest.hex()
    messages = [{"role": "user", "content": "abc"}]
    (wanted,) = tallystick.generate(
        stage / "model", messages=messages, max_tokens=4,
        adapter=None if name == "model" else stage / name,
    )  # fmt: skip
    assert said["text"] == wanted.text
    assert ts("check", tmp_path / "answer", *copy)[0] == 0


def test_a_client_without_the_adapter_is_told(served: str, stage: Path, ts: Run) -> None:
    ask = ("chat", served, *ASK, "--served", "lora")
    code, _, errors = ts(*ask, "--model", stage / "model")
    assert code == 1 and "none is given" in errors
    assert ts(*ask, "--adapter", stage / "lora")[0] == 3


def test_what_is_kept_is_defended_with_the_adapter(
    served: str, stage: Path, tmp_path: Path, ts: Run
) -> None:
    """The server's directory is read beside it."""
    as_json(ts("chat", served, *ASK, "--served", "lora"))
    as_json(ts("chat", served, *ASK, "--served", "merged"))
    with KeptReader(stage / "kept") as reader:
        places = {model.directory: model.adapter for model in reader.models()}
        assert set(places) == {stage / "model"} and len(reader.models()) == 3
        assert {model.adapter for model in reader.models()} == {
            None, stage / "lora", stage / "merged",
        }  # fmt: skip
        for row in reader.rows():
            job = reader.disputed(row).job()
            assert job.genesis().root() == job.commitment.genesis_root
            found = reader.find(row.id, row.owner)
            assert found is not None and found.spoken.text
    listed = as_json(ts("kept", stage / "kept", "--check", "--json"))
    assert {one["adapter"] for one in listed["models"]} == {
        None, str(stage / "lora"), str(stage / "merged"),
    }  # fmt: skip


def test_an_adapter_that_has_moved(served: str, stage: Path, tmp_path: Path, ts: Run) -> None:
    as_json(ts("chat", served, *ASK, "--served", "lora"))
    place = tmp_path / "kept"
    shutil.copytree(stage / "kept", place)
    away = tmp_path / "away"
    (stage / "lora").rename(away)
    try:
        code, out, _ = ts("kept", place, "--check")
        assert code == 1 and "has no adapter in" in out
        moved = ("kept", place, "--model", stage / "model")
        assert ts(*moved)[0] == 0  # the model without an adapter
        assert ts("kept", place, "--check")[0] == 1
        assert ts(*moved, "--adapter", away)[0] == 0
        assert ts("kept", place, "--check")[0] == 0
        assert ts("kept", place, "--adapter", away)[0] == 3
    finally:
        away.rename(stage / "lora")


def test_what_is_refused(stage: Path, ts: Run) -> None:
    model, lora = stage / "model", stage / "lora"
    serve = ("serve-model", model, "--listen", "127.0.0.1:0")
    code, _, errors = ts(*serve, "--adapter", lora, "--adapter", lora)
    assert code == 3 and "once for each MODEL" in errors
    twice = ("serve-model", model, model, "--listen", "127.0.0.1:0")
    for more in ((), ("--adapter", lora, "--adapter", lora)):
        code, _, errors = ts(*twice, *more)
        assert code == 3 and "same name" in errors
    code, _, errors = ts(*serve, "--adapter", lora, "--statement", stage / "model.statement")
    assert code == 1 and "names no adapter" in errors
