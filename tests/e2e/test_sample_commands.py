"""`check DIRECTORY --sample N`: many answers, all of them read, some of them executed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from answer_models import save_model
from answer_words import save_words
from commands import Run, as_json

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import tallystick
from tallystick.answers.files import AnswerFiles
from tallystick.answers.job import AnswerJob
from tallystick.answers.receipt import read_receipt, sign_receipt
from tallystick.api.answering import Answering
from tallystick.api.samples import drawn, receipt_digest, set_digest
from tallystick.commit.signing import PrivateKey
from tallystick.program.text import parse_text

COUNT = 12
SEED = bytes(range(32))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tallystick.cli.main import run

    made = tmp_path_factory.mktemp("samples") / "model"
    made.mkdir()
    save_model("smollm", made)
    save_words(made)
    assert run(["model", "statement", str(made), "--bucket", "12:4"]) == 0
    return made


@pytest.fixture(scope="module")
def given(model: Path) -> Path:
    """Answers of one server, in directories of two depths."""
    opened, key, root = Answering(model), PrivateKey.generate(), model.parent / "answers"
    for number in range(COUNT):
        place = root / ("old" if number % 2 else "new") / str(number)
        tallystick.generate(
            opened, tokens=[5, 6, 7 + number], max_tokens=3, seed=number, key=key, out=place
        )
    return root


def lie(place: Path) -> None:
    """The answer's log-probabilities as a liar signs them: its words are in order."""
    files, key = AnswerFiles.read(place), PrivateKey.generate()
    spoken = replace(files.spoken, logprobs=files.spoken.logprobs - np.float32(1))
    job = AnswerJob(files.statement, files.request, spoken)
    final, root = job.roots()
    receipt = replace(
        read_receipt(files.receipt).receipt, state=final, root=root, signer=key.public
    )
    shutil.rmtree(place)
    AnswerFiles.of(sign_receipt(key, receipt), job, parse_text(files.program)).write(place)


def receipts(root: Path) -> dict[bytes, Path]:
    return {receipt_digest(p.read_bytes()): p.parent for p in root.rglob("receipt.json")}


def test_a_sample_of_honest_answers(model: Path, given: Path, ts: Run) -> None:
    line = ("check", given, "--model", model, "--sample", 4)
    said = as_json(ts(*line, "--seed", SEED.hex(), "--json"))
    known = receipts(given)
    assert said["accepted"] and said["answers"] == COUNT and said["executed"] == 4
    assert said["receipts"] == sorted(one.hex() for one in known)
    assert said["set_digest"] == set_digest(known).hex() and said["seed"] == SEED.hex()
    assert said["drawn"] == [one.hex() for one in drawn(SEED, known, 4)]
    assert said["problems"] == [] and said["notes"] == []
    # 1 - C(11, 4) / C(12, 4), and so on: 5 % and 10 % of 12 are one and two answers.
    assert [(one["share"], one["false_answers"]) for one in said["confidence"]] == [
        (None, 1), (0.01, 1), (0.05, 1), (0.1, 2),
    ]  # fmt: skip
    chances = [float(one["probability"]) for one in said["confidence"]]
    assert chances == pytest.approx([1 / 3, 1 / 3, 1 / 3, 19 / 33], abs=1e-5)
    code, out, _ = ts(*line)
    assert code == 0 and f"digest {set_digest(known).hex()}" in out
    assert "If 10% of the answers were false (2 of 12), such a check would find one in 57.5" in out
    assert ts(*line, "--seed", "12")[0] == 3 and ts(*line, "--text")[0] == 3
    assert ts("check", given, "--model", model, "--seed", SEED.hex())[0] == 3
    assert ts("check", given, "--model", model, "--sample", COUNT + 1)[0] == 3
    assert ts("check", model, "--model", model, "--sample", 1)[0] == 3


def test_all_of_them_leave_nothing_open(model: Path, given: Path, ts: Run) -> None:
    code, out, _ = ts("check", given, "--model", model, "--sample", COUNT)
    assert code == 0 and out.count("for certain") == 4 and f"{COUNT} of the {COUNT} drawn" in out


def test_a_lie_is_found_exactly_where_it_is_drawn(model: Path, given: Path, tmp_path: Path) -> None:
    root = tmp_path / "answers"
    shutil.copytree(given, root)
    lie(root / "old" / "3")
    digest = next(one for one, place in receipts(root).items() if place.name == "3")
    seeds = [bytes([number]) * 32 for number in range(20)]
    hit = [seed for seed in seeds if digest in drawn(seed, receipts(root), 3)]
    missed = next(seed for seed in seeds if seed not in hit)
    assert tallystick.check_sample(root, model, 3, seed=missed).accepted
    report = tallystick.check_sample(root, model, 3, seed=hit[0])
    assert [(p.path, p.kind, p.receipt) for p in report.problems] == [
        ("old/3", "difference", digest)
    ]
    assert not report.accepted and "log-probability" in report.problems[0].sentence


def test_what_needs_no_model_is_found_in_every_answer(
    model: Path, given: Path, tmp_path: Path, ts: Run
) -> None:
    root = tmp_path / "answers"
    shutil.copytree(given, root)
    (root / "new" / "0" / "request.json").unlink()
    (root / "new" / "2" / "receipt.json").write_bytes(b"{}")
    body = json.loads((root / "new" / "4" / "answer.json").read_bytes())
    body["text"] = "another"
    from tallystick.commit.encoding import canonical_json

    (root / "new" / "4" / "answer.json").write_bytes(canonical_json(body))
    (root / "new" / "6" / "receipt.json").write_bytes(b" " * 2000)
    shutil.copytree(root / "new" / "8", root / "again")
    said = as_json(ts("check", root, "--model", model, "--sample", 1, "--json"), 1)
    kinds = {problem["path"]: problem["kind"] for problem in said["problems"]}
    assert kinds == {
        "new/0": "refused", "new/2": "refused", "new/4": "finding", "new/6": "refused",
    }  # fmt: skip
    # One receipt is too long to be one; that of `again` is there already.
    assert said["answers"] == COUNT and len(said["receipts"]) == COUNT - 1
    code, out, _ = ts("check", root, "--model", model, "--sample", 1)
    assert code == 1 and "REFUSED     new/0: " in out and "FINDING     new/4: " in out


def test_an_answer_of_another_model_is_no_answer_of_this_one(
    model: Path, given: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(model, other)
    save_model("smollm", other, initializer_range=0.03)
    save_words(other)
    from tallystick.cli.main import run

    assert run(["model", "statement", str(other), "--bucket", "12:4"]) == 0
    root = tmp_path / "answers"
    shutil.copytree(given / "new", root)
    tallystick.generate(other, tokens=[5, 6, 7], max_tokens=3, seed=1, out=root / "x")
    report = tallystick.check_sample(root, model, 1)
    assert [(p.path, p.kind) for p in report.problems] == [("x", "refused")]
    assert "weights here are not those" in report.problems[0].sentence
    own = model.with_name("model.statement")
    told = tallystick.check_sample(root, model, 1, statement=own).problems
    assert [(p.path, p.kind) for p in told] == [("x", "refused")]
