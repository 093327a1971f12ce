"""`generate` with speculation: the same answer, by a lookup and by a smaller model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from answer_models import save_model
from answer_words import save_words
from commands import Run

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

import tallystick
from tallystick.api.answering import Answering, GivenAnswer
from tallystick.api.speculating import DraftDirectory, Speculation, drafter_of, speculation_of
from tallystick.errors import UsageError
from tallystick.generation.drafters import DraftModel, PromptLookup


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its statement, and others: a smaller one, and two with other tokens."""
    from tallystick.cli.main import run

    made = tmp_path_factory.mktemp("speculation")
    small, wide = {"num_hidden_layers": 1}, {"vocab_size": 50}
    for name, changes in {"model": {}, "small": small, "other": {}, "wide": wide}.items():
        (made / name).mkdir()
        save_model("smollm", made / name, **changes)
        save_words(made / name)
    tokenizer = made / "other" / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    assert run(["model", "statement", str(made / "model"), "--bucket", "48:24"]) == 0
    return made


def given(model: Answering, **asked: object) -> GivenAnswer:
    settings = {"prompt": "thecat", "seed": 3, "max_tokens": 20, **asked}
    return tallystick.generate(model, **settings)[0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"temperature": 0.9},
        {"temperature": 1.1, "top_k": 20, "top_p": 0.9, "repetition": 1.2, "presence": 0.3},
    ],
)
def test_the_answer_is_the_same(models: Path, asked: dict[str, object]) -> None:
    wanted = given(Answering(models / "model"), **asked)
    half = wanted.text[len(wanted.text) // 3 :][:4]
    ended = given(Answering(models / "model"), **asked, stop_strings=[half])
    assert ended.finish == "stop" and len(ended.tokens) < len(wanted.tokens)
    same, small = DraftDirectory(models / "model", 7), DraftDirectory(models / "small")
    ways: tuple[Speculation, ...] = (PromptLookup(longest=1), same, small)
    for way in ways:
        opened = Answering(models / "model", speculation=way)
        for true, stop in ((wanted, []), (ended, [half])):
            found = given(opened, **asked, stop_strings=stop)
            assert found.tokens == true.tokens and found.text == true.text
            assert found.finish == true.finish
            assert found.logprobs.tobytes() == true.logprobs.tobytes()
            assert tallystick.check(found, models / "model").accepted


def test_the_command_speculates(ts: Run, models: Path, tmp_path: Path) -> None:
    ways: dict[str, list[str]] = {
        "none": [],
        "lookup": ["--speculate", "lookup"],
        "lookup of 2": ["--speculate", "lookup:2"],
        "draft": ["--draft", str(models / "small")],
    }
    for name, more in ways.items():
        asked = [
            "generate",
            models / "model",
            "--prompt",
            "thecat",
            "--max-tokens",
            16,
            "--seed",
            5,
        ]
        assert ts(*asked, "-o", tmp_path / name, *more)[0] == 0
    answers = {(tmp_path / name / "answer.json").read_bytes() for name in ways}
    assert len(answers) == 1 and len(json.loads(answers.pop())["tokens"]) == 16


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (lambda d: ["--speculate", "luck"], "speculate='luck' is not known"),
        (lambda d: ["--speculate", "lookup:"], "speculate='lookup:' is not known"),
        (lambda d: ["--speculate", "lookup:0"], "at least one token"),
        (lambda d: ["--speculate", "lookup:-1"], "is not known"),
        (lambda d: ["--speculate", "lookup", "--draft", d / "small"], "cannot be used together"),
        (lambda d: ["--draft", d / "other"], "tokenizer.json differs"),
        (lambda d: ["--draft", d / "wide"], "vocabulary counts 50"),
        (lambda d: ["--draft", d / "none"], "none"),
    ],
)
def test_what_cannot_speculate_is_refused_by_name(
    ts: Run, models: Path, asked: Callable[[Path], list[object]], why: str
) -> None:
    code, _, error = ts("generate", models / "model", "--prompt", "the", *asked(models))
    assert code in (2, 3) and why in error


def test_tokens_are_compared_by_the_files_that_decide_them(models: Path, tmp_path: Path) -> None:
    """A template of its own changes no token; without a tokenizer.json the other files count."""
    from tallystick.answers.model import open_model

    copies = [tmp_path / "one", tmp_path / "two"]
    for copy in copies:
        shutil.copytree(models / "model", copy)
        (copy / "chat_template.jinja").write_text(copy.name)
    one = open_model(copies[0])
    made = drafter_of(DraftDirectory(copies[1], most=2), one, "ordered/1", 1)
    assert isinstance(made, DraftModel) and made.most == 2
    for copy in copies:
        (copy / "tokenizer.json").unlink()
        (copy / "vocab.json").write_text("{}")
        (copy / "merges.txt").write_text(copy.name)
    with pytest.raises(UsageError, match=r"merges\.txt differs"):
        drafter_of(DraftDirectory(copies[1]), open_model(copies[0]), "ordered/1", 1)


def test_what_is_asked_for() -> None:
    assert speculation_of(None, None) is None
    assert speculation_of("lookup", None) == PromptLookup()
    assert speculation_of("lookup:12", None) == PromptLookup(most=12)
    assert speculation_of(None, Path("small")) == DraftDirectory(Path("small"))
