"""Claims about answers, and about evidence that convicts who signed them (CLAIMS 4 and 5)."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from claim_schemas import fits
from unit.answers.test_other_tokens import false_one
from unit.answers.toy import KEY, Toy, receipt_of

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.check import AnswerReport
from tallystick.answers.job import AnswerJob
from tallystick.answers.receipt import read_receipt
from tallystick.answers.two_receipts import TwoReceipts
from tallystick.answers.words import Said
from tallystick.claims.findings import answer_conviction_payload, answer_payload
from tallystick.commit.encoding import sha256
from tallystick.errors import CorruptFileError, MismatchError, SignatureInvalidError

TOY = Toy.make()


def spoken(*tokens: int, logprob: float = -1) -> bytes:
    said = Spoken((3, 1, 4), tokens, np.full(len(tokens), logprob, np.float32))
    return receipt_of(AnswerJob(TOY.statement, TOY.request(temperature=2.0), said))


def test_an_answer_is_named_by_its_receipt_alone() -> None:
    data = spoken(1, 2, 3)
    receipt = read_receipt(data).receipt
    found = json.loads(answer_payload(data))
    fits(found, "answer")
    assert found["subject"] == [
        {"digest": {"sha256": sha256(data).hex()}, "name": "receipt.json"},
        {"digest": {"tallystickRunRoot": receipt.root.hex()}, "name": "run"},
        {"digest": {"tallystickStateRoot": receipt.state.hex()}, "name": "final-state"},
    ]
    said = found["predicate"]
    assert (said["prompt"], said["answer"], said["checked"]) == (3, 3, None)
    assert said["signer"] == KEY.public.raw.hex()


def test_what_a_check_found_is_told_by_clauses_alone() -> None:
    """1.7: a sentence may name tokens, which are a text."""
    data = spoken(1, 2, 3)
    receipt = read_receipt(data).receipt
    report = AnswerReport(
        receipt,
        None,
        contradictions=(Said("6.7", "The token 17 stands in row 3."),),
        findings=(Said("8.4", "Secret words."),),
        executed=True,
    )
    payload = answer_payload(data, report)
    found = json.loads(payload)
    fits(found, "answer")
    assert found["predicate"]["checked"] == {
        "accepted": False,
        "contradictions": ["6.7"],
        "executed": True,
        "findings": ["8.4"],
        "state_differs": False,
        "texts": False,
    }
    assert b"token" not in payload and b"Secret" not in payload
    with pytest.raises(MismatchError):
        answer_payload(data, replace(report, receipt=replace(receipt, choice=1)))


def test_a_forged_receipt_has_no_claim() -> None:
    data = bytearray(spoken(1, 2, 3))
    at = data.index(b'"sig":"') + 7
    data[at] = ord("A") if data[at] != ord("A") else ord("B")
    with pytest.raises(SignatureInvalidError):
        answer_payload(bytes(data))


def test_two_receipts_convict_in_a_claim() -> None:
    receipts = spoken(1, 2, 3), spoken(1, 2, 3, logprob=-2)
    evidence = TwoReceipts(receipts).to_bytes()
    found = json.loads(answer_conviction_payload(evidence))
    fits(found, "conviction")
    names = ["evidence", "receipt-1", "run-1", "receipt-2", "run-2"]
    assert [one["name"] for one in found["subject"]] == names
    for number, data in zip((1, 3), receipts, strict=True):
        assert found["subject"][number]["digest"] == {"sha256": sha256(data).hex()}
    assert [one["clause"] for one in found["predicate"]["convicted"]] == ["6.10.1"] * 2
    assert {one["key"] for one in found["predicate"]["convicted"]} == {KEY.public.raw.hex()}
    with pytest.raises(CorruptFileError):
        answer_conviction_payload(TwoReceipts((receipts[0], receipts[0])).to_bytes())


def test_other_tokens_convict_in_a_claim() -> None:
    _, report = false_one(temperature=20.0)
    assert report.convicting is not None
    evidence = report.convicting.to_bytes()
    found = json.loads(answer_conviction_payload(evidence))
    fits(found, "conviction")
    (one,) = found["predicate"]["convicted"]
    assert (one["clause"], one["sentence"]) == ("6.7", "")
    assert found["subject"][0]["digest"] == {"sha256": sha256(evidence).hex()}
    assert found["predicate"]["specification"] == "ANSWERS"
