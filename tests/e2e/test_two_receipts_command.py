"""`tallystick check RECEIPT --against OTHER`: no model is needed, and none is made here."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from commands import Run, as_json
from unit.answers.toy import KEY, Toy, receipt_of

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.files import AnswerFiles
from tallystick.answers.job import AnswerJob
from tallystick.answers.receipt import CANCELLED, LENGTH
from tallystick.answers.two_receipts import TwoReceipts
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import PrivateKey
from tallystick.disk.keys import save_private_key

TOY = Toy.make()


def written(place: Path, *tokens: int, finish: str = LENGTH, logprob: float = -1) -> Path:
    spoken = Spoken((3, 1, 4), tokens, np.full(len(tokens), logprob, np.float32))
    job = AnswerJob(TOY.statement, TOY.request(temperature=2.0), spoken)
    AnswerFiles.of(receipt_of(job, finish), job, TOY.text_of(job)).write(place)
    return place


def test_two_answers_to_one_request(tmp_path: Path, ts: Run) -> None:
    a, b = written(tmp_path / "a", 1, 2, 3), written(tmp_path / "b", 1, 7, 3)
    place = tmp_path / "evidence.json"
    code, out, _ = ts("check", a, "--against", b, "--evidence", place)
    assert code == 1 and "CONVICTED   by two receipts: One request has one answer." in out
    assert "(ANSWERS 6.10.2)" in out and str(place) in out
    found = as_json(ts("check", place, "--json"), 1)
    assert (found["clause"], found["row"], found["tokens"]) == ("6.10.2", 1, [2, 7])
    assert found["convicted"] == KEY.public.key_id
    assert found["job_digests"][0] != found["job_digests"][1]
    code, out, _ = ts("check", place)
    assert code == 1 and "CONVICTED" in out
    said = as_json(ts("inspect", place, "--json"))
    assert said["kind"] == "two receipts" and said["claims"]["clause"] == "6.10.2"
    assert ts("check", a, "--against", b, "--evidence", place)[0] == 3, "it is there already"
    key, claim = tmp_path / "me.pem", tmp_path / "claim.json"
    save_private_key(PrivateKey(bytes([8]) * 32), key)
    assert ts("check", place, "--claim", claim, "--key", key)[0] == 1
    assert ts("claim", "check", claim, "--trust", key, "--file", place)[0] == 0
    assert ts("check", a, "--against", b, "--claim", claim, "--key", key)[0] == 3
    assert ts("check", place, "--claim", claim)[0] == 3
    # The receipts alone do not have the tokens.
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_bytes((tmp_path / name / "receipt.json").read_bytes())
    assert ts("check", tmp_path / "a.json", "--against", tmp_path / "b.json")[0] == 2


def test_two_runs_of_one_job_by_the_receipts_alone(tmp_path: Path, ts: Run) -> None:
    places = []
    for n, logprob in enumerate((-1, -2)):
        made = written(tmp_path / str(n), 1, 2, 3, logprob=logprob)
        places.append(tmp_path / f"{n}.json")
        places[-1].write_bytes((made / "receipt.json").read_bytes())
    found = as_json(ts("check", places[0], "--against", places[1], "--json"), 1)
    assert (found["clause"], found["row"], found["evidence"]) == ("6.10.1", None, None)


def test_an_answer_that_was_cancelled_earlier_is_no_lie(tmp_path: Path, ts: Run) -> None:
    a = written(tmp_path / "a", 1, 2, 3)
    b = written(tmp_path / "b", 1, 2, finish=CANCELLED)
    code, out, _ = ts("check", a, "--against", b, "--evidence", tmp_path / "none")
    assert code == 0 and "NOTHING     follows from these two. One of the two answers" in out
    found = as_json(ts("check", a, "--against", b, "--json"))
    assert found["convicted"] is None and found["evidence"] is None
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "more", ["--text", "--model", "--receipt", "--request", "--statement", "--adapter",
             "--threads", "--device", "--sample", "--seed"],
)  # fmt: skip
def test_what_does_not_go_together(tmp_path: Path, ts: Run, more: str) -> None:
    a = written(tmp_path / "a", 1, 2, 3)
    line = ("check", a, "--against", a, more)
    code, out, errors = ts(*(line if more == "--text" else (*line, 1)))
    assert code == 3 and out == "" and more in errors


def test_what_convicts_nobody_is_no_conviction(tmp_path: Path, ts: Run) -> None:
    """A forged signature, a signer that is not trusted, and a damaged directory."""
    a, b = written(tmp_path / "a", 1, 2, 3), written(tmp_path / "b", 1, 7, 3)
    other = tmp_path / "other.pem"
    save_private_key(PrivateKey(bytes([8]) * 32), other)
    code, out, errors = ts("check", a, "--against", b, "--trust", other)
    assert code == 2 and out == "" and "trust" in errors
    answer = b / "answer.json"
    answer.write_bytes(answer.read_bytes().replace(b"[1,7,3]", b"[1,8,3]"))
    code, out, errors = ts("check", a, "--against", b)
    assert code == 2 and out == "" and "nobody has signed" in errors
    receipt = b / "receipt.json"
    envelope = json.loads(receipt.read_bytes())
    envelope["signatures"][0]["sig"] = base64.b64encode(bytes(64)).decode()
    receipt.write_bytes(canonical_json(envelope))
    code, out, errors = ts("check", a, "--against", b)
    assert code == 2 and out == "" and "does not verify" in errors


def test_a_file_about_receipts_that_say_nothing(tmp_path: Path, ts: Run) -> None:
    a = (written(tmp_path / "a", 1, 2, 3) / "receipt.json").read_bytes()
    file = tmp_path / "evidence.json"
    file.write_bytes(TwoReceipts((a, a)).to_bytes())
    code, out, errors = ts("check", file)
    assert code == 2 and out == "" and "one run" in errors
