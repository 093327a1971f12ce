"""ANSWERS 6.10: two receipts of one signer, and what an honest one may sign twice."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.answers.toy import KEY, LATER, MOMENT, Toy, receipt_of
from unit.answers.toy_encoder import ToyEncoder, receipt_of_encoding

import tallystick
from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.files import AnswerFiles
from tallystick.answers.job import AnswerJob
from tallystick.answers.receipt import CANCELLED, LENGTH, STOP
from tallystick.answers.two_receipts import NothingFollowsError, Texts, TwoReceipts
from tallystick.commit.checkpoint import run_root
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import PrivateKey
from tallystick.errors import (
    CorruptFileError,
    DigestMismatchError,
    SignatureInvalidError,
    TallystickError,
    UsageError,
)
from tallystick.limits import LIMITS

TOY = Toy.make(stop=(5,))
SAMPLED = {"temperature": 20.0, "top_k": 9, "bias": ((2, 1.5),)}
OTHER = PrivateKey(bytes([8]) * 32)


def said(tokens: tuple[int, ...], prompt: tuple[int, ...] = (3, 1, 4), **given: Any) -> AnswerJob:
    request = TOY.request(**{"max_tokens": 6, **given})
    logs = np.full(len(tokens), -1.5, np.float32)
    return AnswerJob(TOY.statement, request, Spoken(prompt, tokens, logs))


def two(a: AnswerJob, b: AnswerJob, finishes: tuple[str, str] = (LENGTH, LENGTH)) -> TwoReceipts:
    """The file about two answers, read again."""
    first, second = (receipt_of(job, end) for job, end in zip((a, b), finishes, strict=True))
    return TwoReceipts.from_bytes(TwoReceipts((first, second), Texts.of((a, b))).to_bytes())


def other_state(job: AnswerJob) -> dict[str, bytes]:
    state = bytes(32)
    return {
        "state": state,
        "root": run_root(job.digest, [(0, job.commitment.genesis_root), (1, state)]),
    }


# -- what convicts ---------------------------------------------------------------------------------
def test_two_runs_of_one_job() -> None:
    """6.10.1, by the receipts alone: another log-probability, another state, another root."""
    job = said((1, 2))
    logs = replace(job, spoken=replace(job.spoken, logprobs=np.zeros(2, np.float32)))
    for false in (
        receipt_of(logs),
        receipt_of(job, **other_state(job)),
        receipt_of(job, root=bytes(32)),
    ):
        found = TwoReceipts((receipt_of(job), false)).convicts()
        assert (found.clause, found.receipt.signer, found.row) == ("6.10.1", KEY.public, None)
        assert found.trusted is None
        assert TwoReceipts((false, receipt_of(job))).convicts([KEY.public]).trusted
    # Whatever else they say.
    odd = receipt_of(logs, CANCELLED, request=bytes(32), time=1, until=2, choice=9, prompt=7)
    assert TwoReceipts((receipt_of(job), odd)).convicts().clause == "6.10.1"


def test_two_encodings_of_one_text() -> None:
    toy = ToyEncoder.make()
    honest = toy.encoded(toy.request())
    values = honest.encoded.values.copy()
    values[0] += 1
    false = replace(honest, encoded=replace(honest.encoded, values=values))
    pair = receipt_of_encoding(honest), receipt_of_encoding(false)
    assert TwoReceipts(pair).convicts().clause == "6.10.1"
    assert Texts.of((honest, false)) is None
    with pytest.raises(NothingFollowsError, match="one run"):
        TwoReceipts((pair[0], pair[0])).convicts()


@pytest.mark.parametrize("settings", [{}, {"temperature": 3.0}, SAMPLED], ids=("g", "d", "f"))
def test_two_answers_to_one_request(settings: dict[str, Any]) -> None:
    """6.10.2, also where they end at two places, and stand in two buckets."""
    for first, second, row in (
        ((1, 2), (1, 3), 1), ((7,), (1, 2, 3), 0), ((1, 2, 3, 4), (1, 2, 3, 6, 8, 9), 3),
        ((1, -1), (1, 99), 1),
    ):  # fmt: skip
        a, b = said(first, **settings), said(second, **settings)
        found = two(a, b).convicts()
        assert (found.clause, found.row) == ("6.10.2", row)
        assert found.tokens == (first[row], second[row]) and str(row) in found.sentence
        assert two(b, a).convicts().tokens == (second[row], first[row])


# -- what convicts nobody --------------------------------------------------------------------------
@pytest.mark.parametrize("settings", [{}, {"temperature": 3.0}, SAMPLED], ids=("g", "d", "f"))
def test_what_an_honest_signer_signs_twice(settings: dict[str, Any]) -> None:
    """Asked again, after a restart, cancelled at every place, with any finish."""
    request = TOY.request(**{"max_tokens": 6, **settings})
    whole = TOY.answered(request)
    jobs = [
        replace(
            whole,
            spoken=Spoken((3, 1, 4), whole.spoken.tokens[:n], whole.spoken.logprobs[:n]),
        )
        for n in range(1, len(whole.spoken.tokens) + 1)
    ]
    receipts = [
        (job, receipt_of(job, finish, time=MOMENT + n, until=LATER + n))
        for job in jobs
        for n, finish in enumerate((LENGTH, STOP, CANCELLED))
    ]
    for a, first in receipts:
        for b, second in receipts:
            with pytest.raises(NothingFollowsError, match=r"one run|begins with the other"):
                TwoReceipts((first, second), Texts.of((a, b))).convicts()


def test_other_prompts_choices_requests_models_and_signers() -> None:
    a = said((1, 2))
    first = receipt_of(a)
    others: list[tuple[AnswerJob, dict[str, Any], str]] = [
        (said((1, 3), prompt=(3, 1)), {}, "prompt tokens"),
        (said((1, 3), prompt=(3, 1, 5)), {}, "prompt tokens"),
        (said((1, 3)), {"choice": 1}, "two choices"),
        (said((1, 3)), {"request": bytes(32)}, "two requests"),
        (said((1, 3)), {"model": bytes(32)}, "two models"),
        (said((1, 3)), {"key": OTHER}, "two signers"),
    ]
    for b, odd, why in others:
        with pytest.raises(NothingFollowsError, match=why):
            TwoReceipts((first, receipt_of(b, **odd)), Texts.of((a, b))).convicts()


def test_jobs_of_other_requests_under_one_requests_name() -> None:
    """Such a receipt is refused by whoever has the request (8.3): the pair convicts nobody."""
    hot = {"temperature": 3.0}
    a = said((1, 2), **hot)
    for b in (said((1, 3), temperature=4.0), replace(said((1, 3), **hot), choice=1),
              said((1, 3), temperature=3.0, top_k=2)):  # fmt: skip
        texts = Texts.of((a, replace(b, request=a.request, choice=0)))
        assert texts is not None
        second = receipt_of(b, request=a.request.digest, choice=0)
        with pytest.raises(DigestMismatchError, match="job is not that"):
            TwoReceipts((receipt_of(a), second), texts).convicts()
    b = said((1, 3), temperature=4.0)
    pair = receipt_of(a), receipt_of(b, request=a.request.digest)
    with pytest.raises(NothingFollowsError, match="different settings or salts"):
        TwoReceipts(pair, Texts.of((a, b))).convicts()


def test_two_jobs_without_their_texts() -> None:
    with pytest.raises(NothingFollowsError, match="nothing shows"):
        TwoReceipts((receipt_of(said((1, 2))), receipt_of(said((1, 3))))).convicts()


# -- untrusted bytes -------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def file() -> bytes:
    return two(said((1, 2)), said((1, 3))).to_bytes()


def put(*path: str | int, to: Any) -> Callable[[Any], None]:
    def change(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        body[path[-1]] = to

    return change


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        (put("kind", to="tallystick/two-receipts/2"), CorruptFileError, "kind"),
        (put("more", to=1), CorruptFileError, "missing or unknown"),
        (put("receipts", to=[]), CorruptFileError, "not have two receipts"),
        (put("receipts", 0, to="zz"), CorruptFileError, "hexadecimal"),
        (put("receipts", 0, to=""), CorruptFileError, "JSON"),
        (put("texts", to=[]), CorruptFileError, "object"),
        (put("texts", "more", to=1), CorruptFileError, "missing or unknown"),
        (put("texts", "seed", to="01"), CorruptFileError, "decimal"),
        (put("texts", "seed", to="7"), DigestMismatchError, "job is not that"),
        (put("texts", "seed", to=str(1 << 63)), CorruptFileError, "malformed"),
        (put("texts", "set", to="full"), CorruptFileError, "bytes"),
        (put("texts", "set", to="lucky"), CorruptFileError, "none of the statement"),
        (put("texts", "records", to=[]), CorruptFileError, "not have two records"),
        (put("texts", "records", 0, "length", to=13), CorruptFileError, "none of the statement"),
        (put("texts", "records", 0, "answer", to=True), CorruptFileError, "not an integer"),
        (put("texts", "records", 1, "record", to="00"), CorruptFileError, "bytes"),
        (put("texts", "statement", "stop", to=[]), DigestMismatchError, "a different model"),
        (put("texts", "statement", to={}), CorruptFileError, "malformed"),
    ],
)
def test_what_is_no_evidence(
    change: Callable[[Any], None], error: type[TallystickError], why: str, file: bytes
) -> None:
    body = json.loads(file)
    change(body)
    with pytest.raises(error, match=why):
        TwoReceipts.from_bytes(canonical_json(body)).convicts()


def test_an_encoders_program_has_no_tokens(file: bytes) -> None:
    toy = ToyEncoder.make()
    body = json.loads(file)
    name = next(iter(toy.texts))
    statement = json.loads(toy.statement.to_bytes())
    body["texts"] |= {"statement": statement, "set": name.set}
    for record in body["texts"]["records"]:
        record |= {"length": name.length, "answer": name.answer}
    body["receipts"] = [
        receipt_of(job, model=toy.statement.digest).hex() for job in (said((1, 2)), said((1, 3)))
    ]
    with pytest.raises(CorruptFileError, match="has no answers"):
        TwoReceipts.from_bytes(canonical_json(body)).convicts()


def test_signatures_and_trust(file: bytes) -> None:
    evidence = TwoReceipts.from_bytes(file)
    assert evidence.convicts([KEY.public]).trusted
    with pytest.raises(SignatureInvalidError):
        evidence.convicts([OTHER.public])
    with pytest.raises(CorruptFileError, match="exceed the limit"):
        TwoReceipts.from_bytes(file + b" " * LIMITS.conviction_bytes)


def test_any_bytes_convict_nobody_or_are_a_typed_error(file: bytes) -> None:
    rng = random.Random(9)
    for _ in range(400):
        data = bytearray(file)
        for _ in range(rng.randint(1, 2)):
            data[rng.randrange(len(data))] = rng.choice(b'0a9f"{}[],:\x00\xff')
        if bytes(data) == file:
            continue
        try:
            TwoReceipts.from_bytes(bytes(data)).convicts()
        except TallystickError as error:
            assert error.exit_code in (1, 2) and error.next_action
        else:
            pytest.fail("an altered file convicts")


# -- from files ------------------------------------------------------------------------------------
def written(place: Path, job: AnswerJob, finish: str = LENGTH) -> Path:
    AnswerFiles.of(receipt_of(job, finish), job, TOY.text_of(job)).write(place)
    return place


def test_directories_and_the_file_of_evidence(tmp_path: Path) -> None:
    a, b = (written(tmp_path / str(n), said((1, n, 4))) for n in (2, 3))
    target = tmp_path / "evidence.json"
    report = tallystick.compare_receipts(a, b / "receipt.json", evidence=target)
    assert report.conviction is not None and report.conviction.clause == "6.10.2"
    found = tallystick.check_conviction(target, trust=[KEY.public])
    assert isinstance(found, tallystick.ReceiptsConviction)
    assert found.tokens == (2, 3) and found.trusted
    secret = said((1,)).request.secret.hex().encode()
    assert secret not in target.read_bytes()
    short = written(tmp_path / "short", said((1, 2)), CANCELLED)
    report = tallystick.compare_receipts(a, short, evidence=tmp_path / "none.json")
    assert report.conviction is None and "begins with the other" in report.sentence
    assert not (tmp_path / "none.json").exists()


def test_the_bytes_of_receipts_alone() -> None:
    job = said((1, 2))
    report = tallystick.compare_receipts(receipt_of(job), receipt_of(job, **other_state(job)))
    assert report.conviction is not None and report.convicting is not None
    assert report.convicting.texts is None
    with pytest.raises(UsageError, match="different jobs"):
        tallystick.compare_receipts(receipt_of(job), receipt_of(said((1, 3))))
    report = tallystick.compare_receipts(receipt_of(job), receipt_of(said((9, 9), seed=2)))
    assert report.conviction is None and "two requests" in report.sentence
