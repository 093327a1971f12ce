"""ANSWERS 6.9: evidence that the signed state has other tokens than the signed text."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from unit.answers.toy import KEY, Toy, receipt_of
from unit.answers.toy_encoder import ToyEncoder

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.check import AnswerReport, bound, check_answer
from tallystick.answers.job import TOKENS, AnswerJob
from tallystick.answers.other_tokens import OtherTokens
from tallystick.answers.receipt import read_receipt
from tallystick.answers.statement import ProgramName
from tallystick.commit.checkpoint import run_root
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import PrivateKey
from tallystick.commit.state import prove_slot
from tallystick.errors import (
    CorruptFileError,
    DigestMismatchError,
    SignatureInvalidError,
    TallystickError,
)
from tallystick.limits import LIMITS

TOY = Toy.make()
SAMPLED = {"temperature": 20.0, "top_k": 9, "top_p": 0.95, "bias": ((2, 1.5),)}


def checked(said: AnswerJob, **odd: Any) -> AnswerReport:
    signed, answer = bound(receipt_of(said, **odd), said.statement, said.request, said.spoken)
    return check_answer(signed, answer, TOY.text_of(said), TOY.held)


def false_one(**settings: Any) -> tuple[AnswerJob, AnswerReport]:
    """Tokens of the server's own, and its receipt of the true run over them."""
    said = TOY.answered(TOY.request(**settings))
    first = (said.spoken.tokens[0] + 1) % 16
    false = replace(
        said, spoken=Spoken((3, 1, 4), (first, *said.spoken.tokens[1:]), said.spoken.logprobs)
    )
    return false, checked(false, **true_run(false))


def true_run(said: AnswerJob) -> dict[str, bytes]:
    state = TOY.executed(said).root()
    checkpoints = [(0, said.commitment.genesis_root), (1, state)]
    return {"state": state, "root": run_root(said.digest, checkpoints)}


@pytest.fixture(scope="module")
def file() -> bytes:
    _, report = false_one()
    assert report.convicting is not None
    return report.convicting.to_bytes()


@pytest.mark.parametrize("settings", [{}, {"temperature": 30.0}, SAMPLED], ids=("g", "d", "f"))
def test_it_convicts_without_the_model_and_the_request(settings: dict[str, Any]) -> None:
    false, report = false_one(**settings)
    assert [one.clause for one in report.contradictions] == ["6.7"]
    assert report.convicting is not None and report.difference is not None
    data = report.convicting.to_bytes()
    assert len(data) <= LIMITS.conviction_bytes
    found = OtherTokens.from_bytes(data)
    assert found == report.convicting
    convicted = found.convicts()
    assert convicted.receipt.signer == KEY.public and convicted.row == 0
    assert convicted.claimed == false.spoken.tokens[0] == report.difference.claimed
    assert convicted.drawn == report.difference.drawn and str(convicted.drawn) in convicted.sentence
    assert false.request.secret.hex().encode() not in data, "nothing of the request"
    assert found.convicts([KEY.public]).trusted
    with pytest.raises(SignatureInvalidError, match="trust list"):
        found.convicts([PrivateKey.generate().public])


def test_an_honest_answer_has_no_evidence() -> None:
    said = TOY.answered(TOY.request())
    assert checked(said).convicting is None
    signed = read_receipt(receipt_of(said))
    state = TOY.executed(said)
    made = OtherTokens.of(signed, said, state.digests(), np.asarray(state.slots[TOKENS]))
    with pytest.raises(CorruptFileError, match="has the tokens of the signed text"):
        made.convicts()


def test_a_lie_that_a_game_convicts_has_none() -> None:
    """The signed state is that of the claim, and not of the run: no slot proof shows a thing."""
    said = TOY.answered(TOY.request())
    first = (said.spoken.tokens[0] + 1) % 16
    false = replace(said, spoken=replace(said.spoken, tokens=(first, *said.spoken.tokens[1:])))
    report = checked(false)
    assert report.state_differs and report.convicting is None


def test_an_honest_signer_is_not_convicted_by_other_files(file: bytes) -> None:
    """The receipt of an honest answer, under every part of a true conviction."""
    honest = TOY.answered(TOY.request())
    evidence = OtherTokens.from_bytes(file)
    with pytest.raises(DigestMismatchError, match="job is not that"):
        replace(evidence, receipt=receipt_of(honest)).convicts()
    own = OtherTokens.of(
        read_receipt(receipt_of(honest)), honest, honest.claimed, honest.claimed_slots()[TOKENS]
    )
    with pytest.raises(DigestMismatchError, match="not proved"):
        replace(own, tokens=evidence.tokens).convicts()
    with pytest.raises(DigestMismatchError, match="not proved"):
        replace(own, tokens=evidence.tokens, path=evidence.path).convicts()
    with pytest.raises(DigestMismatchError, match="job is not that"):
        replace(own, record=evidence.record, tokens=evidence.tokens).convicts()


def test_a_proof_of_another_slot_proves_nothing(file: bytes) -> None:
    """`buffer.answer.salt` has a tensor of its own: its proof is not one of the tokens."""
    false, _ = false_one()
    evidence = OtherTokens.from_bytes(file)
    other = prove_slot(TOY.executed(false).digests(), "buffer.answer.salt").path
    for path in (other, evidence.path[:-1], (*evidence.path, bytes(32)), ()):
        with pytest.raises(DigestMismatchError, match="not proved"):
            replace(evidence, path=path).convicts()


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        ({"seed": 12}, DigestMismatchError, "job is not that"),
        ({"seed": 1 << 63}, CorruptFileError, "malformed"),
        ({"record": bytes(8)}, CorruptFileError, "bytes"),
        ({"receipt": b""}, CorruptFileError, "JSON"),
        ({"receipt": b"{}"}, CorruptFileError, "malformed"),
        ({"receipt": bytes(LIMITS.receipt_bytes + 1)}, CorruptFileError, "exceed"),
        ({"statement": replace(TOY.statement, stop=(1,))}, DigestMismatchError, "another model"),
    ],
    ids=str,
)
def test_parts_of_another_answer(
    change: dict[str, Any], error: type[TallystickError], why: str, file: bytes
) -> None:
    with pytest.raises(error, match=why):
        replace(OtherTokens.from_bytes(file), **change).convicts()


def test_a_record_that_is_not_laid_out_for_the_receipts_counts() -> None:
    """A signer that counts other tokens contradicts itself otherwise (6.2), and not by this."""
    false, _ = false_one()
    report = false_one()[1]
    assert report.convicting is not None
    for odd in ({"answer": 2}, {"prompt": 2}, {"prompt": 4}, {"answer": 4}, {"prompt": 1 << 20}):
        receipt = receipt_of(false, **true_run(false), **odd)  # type: ignore[arg-type]
        with pytest.raises(CorruptFileError, match="not laid out"):
            replace(report.convicting, receipt=receipt).convicts()


@pytest.mark.parametrize(
    ("member", "value", "why"),
    [
        ("kind", "tallystick/other-tokens/2", "kind"),
        ("more", 1, "missing or unknown"),
        ("set", "lucky", "none of the statement"),
        ("length", 13, "none of the statement"),
        ("answer", True, "not an integer"),
        ("seed", "01", "decimal"),
        ("seed", 1, "not a string"),
        ("tokens", [1], "number of tokens"),
        ("tokens", ["1", 2, 3, 4], "integers"),
        ("path", ["00" * 32] * 65, "too long a proof"),
        ("path", ["00"], "digits"),
        ("record", "zz", "hexadecimal"),
        ("receipt", None, "hexadecimal"),
        ("statement", {}, "malformed"),
        ("statement", [], "object"),
    ],
)
def test_malformed_members(member: str, value: object, why: str, file: bytes) -> None:
    body = json.loads(file)
    body[member] = value
    with pytest.raises(CorruptFileError, match=why):
        OtherTokens.from_bytes(canonical_json(body))


def test_a_record_over_the_limit_is_never_made(file: bytes) -> None:
    """10.2: a program whose record no job has, though its statement names it."""
    long = ProgramName(1 << 18, 1 << 17, "greedy")
    stated = replace(TOY.statement, programs={long: bytes(32)})
    receipt = receipt_of(false_one()[0], model=stated.digest)
    evidence = replace(
        OtherTokens.from_bytes(file), statement=stated, program=long, receipt=receipt,
        tokens=(0,) * long.answer,
    )  # fmt: skip
    with pytest.raises(CorruptFileError, match="has no answers"):
        OtherTokens.from_bytes(evidence.to_bytes()).convicts()
    with pytest.raises(CorruptFileError, match="exceed the limit"):
        OtherTokens.from_bytes(file + b" " * LIMITS.conviction_bytes)


def test_a_program_of_an_encoder_has_no_tokens(file: bytes) -> None:
    """It may have as many values as places, which no bucket of an answer has."""
    stated = ToyEncoder.make().statement
    name = next(iter(stated.programs))
    receipt = receipt_of(false_one()[0], model=stated.digest)
    evidence = replace(
        OtherTokens.from_bytes(file), statement=stated, program=name, receipt=receipt,
        tokens=(0,) * name.answer,
    )  # fmt: skip
    with pytest.raises(CorruptFileError, match="has no answers"):
        OtherTokens.from_bytes(evidence.to_bytes()).convicts()


def test_any_bytes_convict_nobody_or_are_a_typed_error(file: bytes) -> None:
    rng = random.Random(8)
    for _ in range(400):
        data = bytearray(file)
        for _ in range(rng.randint(1, 2)):
            data[rng.randrange(len(data))] = rng.choice(b'0a9f"{}[],:\x00\xff')
        if bytes(data) == file:
            continue
        try:
            OtherTokens.from_bytes(bytes(data)).convicts()
        except TallystickError as error:
            assert error.exit_code in (1, 2) and error.next_action
        else:
            pytest.fail("an altered file convicts")
