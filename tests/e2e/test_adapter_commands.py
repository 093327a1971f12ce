"""`--adapter`: from a statement over a LoRA to a checked answer, and to a run for a dispute."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")
pytest.importorskip("peft", reason="peft is not installed (extra `hf`)")

from adapters import save_adapter
from answer_models import save_model
from answer_words import save_words
from commands import Run, as_json

import tallystick
from tallystick.answers.files import read_statement
from tallystick.api.answering import Answering
from tallystick.cli.main import run
from tallystick.commit.encoding import sha256
from tallystick.errors import DigestMismatchError, UsageError

FORMS = pytest.mark.parametrize("form", ["lora", "merged"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with its statement, and adapters with theirs: `lora` is not merged, `merged` is the
    same one merged, `other` has other matrices."""
    place = tmp_path_factory.mktemp("adapted")
    model = place / "model"
    model.mkdir()
    save_model("llama", model)
    save_words(model)
    save_adapter(model, place / "lora", rank_pattern={"down_proj": 2})
    shutil.copytree(place / "lora", place / "merged")
    save_adapter(model, place / "other", r=3)
    statement = ["model", "statement", str(model), "--bucket", "12:4"]
    assert run(statement) == 0
    assert run([*statement, "--adapter", str(place / "lora")]) == 0
    assert run([*statement, "--adapter", str(place / "merged"), "--merge"]) == 0
    assert run(["keys", "new", str(place / "key.pem")]) == 0
    return place


@pytest.fixture(scope="module")
def answers(made: Path) -> Path:
    """An answer with each form of the adapter, and one without."""
    ask = ["generate", str(made / "model"), "--prompt", "abc", "--max-tokens", "4", "--seed", "1"]
    ask += ["--temperature", "1.5", "--key", str(made / "key.pem")]
    for form in ("lora", "merged"):
        assert run([*ask, "--adapter", str(made / form), "-o", str(made / f"by-{form}")]) == 0
    assert run([*ask, "-o", str(made / "by-none")]) == 0
    return made


@FORMS
def test_a_statement_is_derived_again(form: str, made: Path, ts: Run) -> None:
    stated = read_statement(made / f"{form}.statement")
    assert stated.adapter is not None and stated.adapter.merged == (form == "merged")
    file = (made / form / "adapter_model.safetensors").read_bytes()
    assert stated.adapter.digest == sha256(file)
    verify = ("model", "verify", made / f"{form}.statement", "--model", made / "model")
    said = as_json(ts(*verify, "--adapter", made / form, "--json"))
    assert said["accepted"] and said["differing"] == [] and said["unproved"] == []
    other = as_json(ts(*verify, "--adapter", made / "other", "--json"), 1)["differing"]
    assert other[0] == "adapter" and other[1].startswith("weights: ")
    none = as_json(ts(*verify, "--json"), 1)["differing"]
    assert none[0] == "adapter" and none[1].startswith("weights: ")
    base = ("model", "verify", made / "model.statement", "--model", made / "model")
    assert as_json(ts(*base, "--adapter", made / form, "--json"), 1)["differing"][0] == "adapter"


def test_inspect_says_which_adapter(made: Path, ts: Run) -> None:
    claims = as_json(ts("inspect", made / "merged.statement", "--json"))["claims"]
    stated = read_statement(made / "merged.statement").adapter
    assert stated is not None
    assert claims["adapter"] == stated.digest.hex() and claims["adapter_merged"] is True
    code, out, _ = ts("inspect", made / "lora.statement")
    assert code == 0 and "--adapter DIR" in out


def test_there_must_be_something_to_merge(made: Path, ts: Run) -> None:
    out = ("-o", made / "nothing", "--bucket", "12:4")
    code, _, errors = ts("model", "statement", made / "model", "--merge", *out)
    assert code == 3 and "--merge needs an adapter" in errors and not (made / "nothing").exists()


@FORMS
def test_an_answer_is_checked(form: str, answers: Path, ts: Run) -> None:
    check = ("check", answers / f"by-{form}", "--model", answers / "model")
    own = ("--adapter", answers / form)
    said = as_json(ts(*check, *own, "--json"))
    assert said["accepted"] and said["executed"] and said["texts"]
    assert ts(*check, *own, "--text")[0] == 0
    assert ts(*check, *own, "--statement", answers / f"{form}.statement")[0] == 0
    code, _, errors = ts(*check)
    assert code == 1 and "names an adapter, and none is given" in errors
    code, _, errors = ts(*check, "--adapter", answers / "other")
    assert code == 1 and "another adapter than the one that is given" in errors
    code, _, errors = ts("check", answers / "by-none", "--model", answers / "model", *own)
    assert code == 1 and "names no adapter, and one is given" in errors


def test_the_adapter_changes_the_answer(answers: Path) -> None:
    said = {
        name: json.loads((answers / f"by-{name}" / "answer.json").read_bytes())["logprobs"]
        for name in ("lora", "merged", "none")
    }
    assert len(set(said.values())) == 3  # merged sums are rounded otherwise


@FORMS
def test_a_run_for_a_dispute(form: str, answers: Path, tmp_path: Path, ts: Run) -> None:
    command = ("answer-run", answers / f"by-{form}", "--model", answers / "model")
    made = as_json(
        ts(*command, "--adapter", answers / form, "-o", tmp_path / "run", "--key",
           answers / "key.pem", "--json")
    )  # fmt: skip
    assert made["same"] and made["defends"]
    code, _, errors = ts(*command, "-o", tmp_path / "none")
    assert code == 1 and "none is given" in errors and not (tmp_path / "none").exists()


@pytest.mark.parametrize("attack", ["no-adapter", "other-adapter"])
def test_a_cheat_is_convicted(attack: str, answers: Path, tmp_path: Path, ts: Run) -> None:
    """In the program of a real model, whose matrices are read through views."""
    mine, cheat, evidence = (tmp_path / name for name in ("mine", "cheat", "evidence"))
    model = ("--model", answers / "model", "--adapter", answers / "lora")
    assert ts("answer-run", answers / "by-lora", *model, "-o", mine)[0] == 0
    job = mine / "job"
    assert ts("attack", attack, job, "--out", cheat, "--quiet")[0] == 0
    play = ("dispute", mine, cheat, "--job", job, "--as-attack", "B", "--out", evidence, "--json")
    for said in (as_json(ts(*play), 1), as_json(ts("judge", evidence, "--job", job, "--json"), 1)):
        assert [one["party"] for one in said["convicted"]] == ["B"]


def test_a_page_is_checked_with_the_adapter(answers: Path, tmp_path: Path, ts: Run) -> None:
    page = ("report", answers / "by-lora", "-o", tmp_path / "page.html")
    model = ("--model", answers / "model", "--adapter", answers / "lora")
    assert as_json(ts(*page, *model, "--json"))["sentence"].startswith("The model gives exactly")
    assert ts(*page, *model[2:])[0] == 3


def test_in_python(answers: Path, tmp_path: Path) -> None:
    model, lora = answers / "model", answers / "lora"
    (one,) = tallystick.generate(model, prompt="ab", max_tokens=3, adapter=lora, seed=2)
    assert tallystick.check(one, model, adapter=lora).accepted
    with pytest.raises(DigestMismatchError, match="none is given"):
        tallystick.check(one, model)
    opened = Answering(model, adapter=lora)
    assert opened.place == answers / "lora.statement"
    with pytest.raises(UsageError, match="is already open"):
        tallystick.generate(opened, prompt="ab", adapter=lora)
    with pytest.raises(DigestMismatchError, match="names no adapter"):
        Answering(model, model.with_name("model.statement"), adapter=lora)
