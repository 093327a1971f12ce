"""From an encoder's directory to a checked embedding or class, and to a convicted lie."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from answer_words import save_words
from commands import Run, as_json
from encoder_models import CLASSES, LABELS, save_classifier, save_encoder
from unit.report.pages import Page

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import tallystick
from tallystick.answers.beside_receipt import Encoded
from tallystick.answers.encoding_job import EncodingJob, EncodingRequest
from tallystick.answers.encoding_programs import VALUES
from tallystick.answers.files import (
    AnswerFiles,
    read_program,
    read_statement,
    write_statement,
)
from tallystick.answers.receipt import read_receipt, sign_receipt
from tallystick.answers.statement import ProgramName
from tallystick.cli.main import run
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import PrivateKey
from tallystick.disk.keys import load_private_key
from tallystick.errors import DigestMismatchError, RefusedModelError, UsageError
from tallystick.limits import LIMITS
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.ir import Program, split_batch

WIDTH = 24
Edit = Callable[[dict[str, object]], None]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder with its statement beside it. Its tokenizer's file asks to cut and to pad."""
    made = tmp_path_factory.mktemp("encodings") / "model"
    made.mkdir()
    save_encoder("bert", made, most=32)
    save_words(made)
    _cutting(made)
    assert run(["model", "statement", str(made), "--bucket", "8,32"]) == 0
    return made


def _cutting(model: Path) -> None:
    table = json.loads((model / "tokenizer.json").read_text())
    table["truncation"] = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst",
                           "stride": 0}  # fmt: skip
    table["padding"] = {"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": None,
                        "pad_id": 0, "pad_type_id": 0, "pad_token": "<s>"}  # fmt: skip
    (model / "tokenizer.json").write_text(json.dumps(table))


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("classes") / "model"
    made.mkdir()
    save_classifier("distilbert", made)
    save_words(made)
    assert run(["model", "statement", str(made), "--bucket", "16"]) == 0
    return made


@pytest.fixture(scope="module")
def key(model: Path) -> Path:
    path = model.parent / "key.pem"
    assert run(["keys", "new", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def encoded(model: Path, key: Path) -> Path:
    """The directory of an embedding."""
    out = model.parent / "encoding"
    assert run(["embed", str(model), "abcdef", "--key", str(key), "-o", str(out)]) == 0
    return out


def edited(answer: Path, to: Path, name: str, edit: Edit) -> Path:
    shutil.copytree(answer, to)
    body = json.loads((to / name).read_bytes())
    edit(body)
    (to / name).write_bytes(canonical_json(body))
    return to


# -- what a client does ----------------------------------------------------------------------------
def test_an_embedding_is_checked(model: Path, key: Path, encoded: Path, ts: Run) -> None:
    said = as_json(ts("check", encoded, "--model", model, "--json"))
    assert said["accepted"] and said["executed"] and said["texts"] and said["notes"] == []
    assert (said["values"], said["prompt_tokens"], said["finish"]) == (WIDTH, 7, "embedding")
    assert "answer_tokens" not in said and said["difference"] is None
    assert (encoded / "receipt.json").stat().st_size <= LIMITS.receipt_bytes
    by_file = ts("check", encoded / "receipt.json", "--model", model, "--trust", f"{key}.pub")
    assert by_file[0] == 0 and f"{WIDTH} values, bit for bit" in by_file[1]
    words = as_json(ts("check", encoded, "--model", model, "--text", "--json"))
    assert words["accepted"] and words["texts"] and not words["executed"]
    own = model.with_name("model.statement")
    believed = as_json(ts("check", encoded, "--model", model, "--statement", own, "--json"))
    assert believed["accepted"] and [one["clause"] for one in believed["notes"]] == ["8.5"]
    assert ts("model", "verify", own, "--model", model)[0] == 0


def test_several_texts_and_what_is_printed(model: Path, tmp_path: Path, ts: Run) -> None:
    code, out, notes = ts("embed", model, "abc", "xyz", "-o", tmp_path / "e")
    lines = out.splitlines()
    assert code == 0 and len(lines) == 2 and lines[0] != lines[1]
    assert all(line.startswith(f"{WIDTH} numbers of length 1.00000") for line in lines)
    assert f"tallystick check {tmp_path / 'e'}/0" in notes
    for number in (0, 1):
        assert ts("check", tmp_path / "e" / str(number), "--model", model)[0] == 0
    code, _, errors = ts("embed", model, "abc", "xyz", "-o", tmp_path / "e")
    assert code == 3 and "already contains an answer" in errors
    made = as_json(ts("embed", model, "abc", "--json"))["encodings"]
    assert len(made[0]["values"]) == WIDTH and made[0]["tokens"] == [0, 4, 5, 6]


def test_classes_by_name(classifier: Path, tmp_path: Path, ts: Run) -> None:
    code, out, _ = ts("classify", classifier, "abc", "-o", tmp_path / "c")
    assert code == 0 and all(label in out for label in LABELS.values())
    said = as_json(ts("check", tmp_path / "c", "--model", classifier, "--json"))
    assert said["accepted"] and (said["values"], said["finish"]) == (CLASSES, "classes")
    (one,) = tallystick.classify(classifier, "abc")
    assert one.label == one.labels[int(one.values.argmax())]
    assert list(one.scores.values()) == sorted(map(float, one.values), reverse=True)

    def swapped(body: dict[str, object]) -> None:
        body["labels"] = ["glad", "sad", "neither"]

    place = edited(tmp_path / "c", tmp_path / "d", "answer.json", swapped)
    for only in ((), ("--text",)):  # nothing signed is about names
        found = as_json(ts("check", place, "--model", classifier, "--json", *only), 1)
        assert [one["clause"] for one in found["findings"]] == ["8.6"]
        assert not (found["contradictions"] or found["state_differs"])


def test_a_text_that_is_too_long_is_refused(model: Path, tmp_path: Path, ts: Run) -> None:
    assert ts("embed", model, "a" * 31, "-o", tmp_path / "a")[0] == 0
    code, _, errors = ts("embed", model, "a" * 32, "-o", tmp_path / "b")
    assert code == 3 and "33 tokens" in errors and "at most 32" in errors
    assert not (tmp_path / "b").exists()
    small = tmp_path / "small"
    assert ts("model", "statement", model, "--bucket", "8", "-o", small)[0] == 0
    code, _, errors = ts("embed", model, "a" * 8, "--statement", small)
    assert code == 3 and "never shortened" in errors
    code, _, errors = ts("model", "statement", model, "--bucket", "33", "-o", tmp_path / "s")
    assert code == 3 and "has 32 places" in errors


def test_models_of_other_kinds(model: Path, classifier: Path, tmp_path: Path, ts: Run) -> None:
    from answer_models import save_model

    for verb, place, why in (
        ("classify", model, "the model gives `embedding`"),
        ("embed", classifier, "the model gives `classes`"),
    ):
        code, _, errors = ts(verb, place, "abc")
        assert code == 3 and why in errors
    code, _, errors = ts("generate", model, "--prompt", "abc")
    assert code != 0 and "encoder" in errors
    save_model("smollm", tmp_path)
    save_words(tmp_path)
    with pytest.raises(RefusedModelError, match="not an encoder"):
        tallystick.embed(tmp_path, "abc")


def test_the_python_interface(model: Path, key: Path, tmp_path: Path) -> None:
    encoder = tallystick.Encoder(model)
    texts: list[str | list[int]] = ["abc", [0, 4, 5, 6]]
    one, two = tallystick.embed(encoder, texts, key=key, out=tmp_path / "e")
    assert one.values.tobytes() == two.values.tobytes() and one.receipt != two.receipt
    assert tallystick.check(two, model).accepted
    assert tallystick.check(tmp_path / "e" / "0", model).accepted
    again = tallystick.embed(encoder, "abc", threads=1)[0]
    assert again.values.tobytes() == one.values.tobytes()
    for bad, why in (([], "No text was given"), ([[99]], "Token 99"), ([""], "input is empty")):
        with pytest.raises(UsageError, match=why):
            tallystick.embed(encoder, bad)
    elsewhere = EncodingRequest(bytes(32), "embedding", text="abc", secret=bytes(32))
    with pytest.raises(UsageError, match="another model"):
        encoder.encode(elsewhere, PrivateKey.generate())


# -- pages and words -------------------------------------------------------------------------------
def test_inspect_and_report(model: Path, encoded: Path, tmp_path: Path, ts: Run) -> None:
    said = as_json(ts("inspect", encoded, "--json"))
    assert said["kind"] == "encoding" and said["claims"]["values"] == WIDTH
    assert as_json(ts("inspect", encoded / "request.json", "--json"))["claims"]["output"]
    values = as_json(ts("inspect", encoded / "answer.json", "--json"))
    assert (values["kind"], values["claims"]["values"]) == ("values", WIDTH)
    receipt = as_json(ts("inspect", encoded / "receipt.json", "--json"))
    assert "encoding" in receipt["what"] and receipt["claims"]["finish"] == "embedding"
    page = tmp_path / "page.html"
    assert ts("report", encoded, "-o", page)[0] == 0
    shown = Page(page.read_text()).text
    assert "A provider has signed that a model makes these numbers of a text." in shown
    assert "abcdef" in shown and "7 tokens" in shown
    assert ts("report", encoded, "-o", page, "--model", model)[0] == 0
    assert "The model gives exactly the numbers that were signed." in Page(page.read_text()).text


def test_the_page_of_classes(classifier: Path, tmp_path: Path, ts: Run) -> None:
    assert ts("classify", classifier, "abc", "-o", tmp_path / "c")[0] == 0
    assert ts("report", tmp_path / "c", "-o", tmp_path / "p.html")[0] == 0
    shown = Page((tmp_path / "p.html").read_text()).text
    assert all(label in shown for label in LABELS.values()) and "3 of 3 classes" in shown


# -- what a check finds ----------------------------------------------------------------------------
def lied(encoded: Path, key: Path, to: Path, at: int = 5) -> Path:
    """A signed encoding with another number."""
    files = AnswerFiles.read(encoded)
    assert isinstance(files.spoken, Encoded) and isinstance(files.request, EncodingRequest)
    values = files.spoken.values.copy()
    values[at] *= 2
    job = EncodingJob(files.statement, files.request, replace(files.spoken, values=values))
    final, root = job.roots()
    receipt = replace(read_receipt(files.receipt).receipt, state=final, root=root)
    program = files.bound()[2]
    AnswerFiles.of(sign_receipt(load_private_key(key), receipt), job, program).write(to)
    return to


def test_a_false_number_is_found_and_convicted(
    model: Path, key: Path, encoded: Path, tmp_path: Path, ts: Run
) -> None:
    place = lied(encoded, key, tmp_path / "lie")
    found = as_json(ts("check", place, "--model", model, "--json"), 1)
    assert found["state_differs"] and found["difference"]["row"] == 5
    assert ts("check", place, "--model", model, "--text")[0] == 0  # no weight, no lie to see
    code, out, _ = ts("check", place, "--model", model)
    assert code == 1 and "Value number 5 of the encoding" in out and "answer-run" in out
    assert ts("report", place, "-o", tmp_path / "p.html", "--model", model)[0] == 0
    shown = Page((tmp_path / "p.html").read_text()).text
    assert "does not give the numbers that were signed" in shown and "answer-run" in shown
    run = ("answer-run", place, "--model", model, "-o", tmp_path / "mine")
    assert not as_json(ts(*run, "--json"))["same"]
    job = tmp_path / "mine" / "job"
    assert ts("attack", "false-embedding", job, "--out", tmp_path / "cheat", "--quiet")[0] == 0
    play = ("dispute", tmp_path / "mine", tmp_path / "cheat", "--job", job, "--as-attack", "B")
    said = as_json(ts(*play, "--out", tmp_path / "e", "--json"), 1)
    judged = as_json(ts("judge", tmp_path / "e", "--job", job, "--json"), 1)
    for one in (said, judged):
        assert [party["party"] for party in one["convicted"]] == ["B"]


def test_an_honest_run_is_the_receipts(model: Path, encoded: Path, tmp_path: Path, ts: Run) -> None:
    made = as_json(ts("answer-run", encoded, "--model", model, "-o", tmp_path / "r", "--json"))
    assert made["same"]


def test_false_files_are_refused(model: Path, encoded: Path, tmp_path: Path, ts: Run) -> None:
    def token(body: dict[str, object]) -> None:
        prompt = body["prompt"]
        assert isinstance(prompt, list)
        prompt[1] += 1

    def text(body: dict[str, object]) -> None:
        parts = body["parts"]
        assert isinstance(parts, dict)
        parts["input"]["text"] = "abcdeg"

    def number(body: dict[str, object]) -> None:
        values = body["values"]
        assert isinstance(values, str)
        body["values"] = values[:-8] + "0000803f"

    for name, edit, why in (
        ("answer.json", token, "nobody has signed this answer"),
        ("request.json", text, "a different request"),
    ):
        place = edited(encoded, tmp_path / name, name, edit)
        code, _, errors = ts("check", place, "--model", model)
        assert code == 1 and why in errors
    place = edited(encoded, tmp_path / "n", "answer.json", number)
    found = as_json(ts("check", place, "--model", model, "--json"), 1)
    assert [one["clause"] for one in found["findings"]] == ["8.4"] and not found["state_differs"]


def test_tokens_that_the_text_does_not_give(
    model: Path, key: Path, encoded: Path, tmp_path: Path
) -> None:
    """A receipt over the tokens of a cut text, computed honestly: a finding."""
    short = tallystick.embed(model, [[0, 4, 5]])[0]
    files = AnswerFiles.read(encoded)
    assert isinstance(files.request, EncodingRequest)
    job = EncodingJob(files.statement, files.request, short.job.encoded)
    final, root = job.roots()
    receipt = replace(
        read_receipt(files.receipt).receipt, job=job.digest, state=final, root=root, prompt=3
    )
    AnswerFiles.of(sign_receipt(load_private_key(key), receipt), job, short.program).write(
        tmp_path / "a"
    )
    for text in (False, True):
        report = tallystick.check(tmp_path / "a", model, text=text)
        assert not report.accepted and report.contradictions == () and not report.state_differs
        assert "other prompt tokens" in report.findings[0].sentence


# -- a statement of the signer's own (8.5) ---------------------------------------------------------
def louder(honest: Program) -> Program:
    """`honest` with its values doubled: the slots are those of an encoding."""
    b = Builder(honest.contract)
    given = [
        b.state(i.name, i.type) if i.kind == "state" else b.batch(split_batch(i.name)[0], i.type)
        for i in honest.inputs
    ]
    copied = b.copy(honest, given)
    outputs = {name: copied(value) for name, value in honest.output_values.items()}
    values = outputs[VALUES]
    outputs[VALUES] = b.one("aten.add.Tensor", [values, values], alpha=1.0)
    zero = b.one("aten.full", [], size=(), value=0.0, dtype="f32")
    total = b.one("aten.sum", [outputs[VALUES]])
    outputs["loss"] = b.one("aten.sub.Tensor", [zero, total], alpha=1.0)
    b.commit({name: value for name, value in outputs.items() if name != "loss"})
    return canonicalize(b.finish(outputs))


def test_a_hostile_statements_program_is_refused(
    model: Path, key: Path, encoded: Path, tmp_path: Path, ts: Run
) -> None:
    """True weights and files, and a program of the signer's own: only deriving it again shows."""
    place = model.with_name("model.statement")
    stated, name = read_statement(place), ProgramName(8, WIDTH, "embedding")
    program = louder(read_program(place, stated, name))
    programs = {n: read_program(place, stated, n) for n in stated.programs} | {name: program}
    hostile = replace(stated, programs={n: p.digest() for n, p in programs.items()})
    write_statement(tmp_path / "s", hostile, programs)
    # An honest server refuses to sign for it.
    with pytest.raises(DigestMismatchError, match="program of 8:24, embedding"):
        tallystick.embed(model, "abcdef", statement=tmp_path / "s")
    files = AnswerFiles.read(encoded)
    assert isinstance(files.spoken, Encoded) and isinstance(files.request, EncodingRequest)
    request = replace(files.request, model=hostile.digest)
    doubled = Encoded(files.spoken.prompt, np.asarray(files.spoken.values * 2, np.float32))
    job = EncodingJob(hostile, request, doubled)
    job.check_program(program)
    final, root = job.roots()
    signed = sign_receipt(
        load_private_key(key),
        replace(
            read_receipt(files.receipt).receipt, model=hostile.digest, request=request.digest,
            job=job.digest, state=final, root=root,
        ),
    )  # fmt: skip
    AnswerFiles.of(signed, job, program).write(tmp_path / "a")
    code, _, errors = ts("check", tmp_path / "a", "--model", model)
    assert code == 1 and "The statement's program of 8:24, embedding is not the model's" in errors
    # Whoever gives that statement as their own believes it.
    believed = ("check", tmp_path / "a", "--model", model, "--statement", tmp_path / "s")
    assert ts(*believed)[0] == 0
    code, out, _ = ts("model", "verify", tmp_path / "s", "--model", model)
    assert code == 1 and "embedding of bucket 8:24" in out
