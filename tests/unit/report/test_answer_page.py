"""The page of an answer, and what `inspect` says of an answer and of its files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from unit.answers.toy import KEY, Toy, receipt_of
from unit.report.pages import Page

from tallystick.answers.check import bound, check_answer
from tallystick.answers.files import AnswerFiles, write_statement
from tallystick.answers.job import AnswerJob
from tallystick.answers.receipt import STOP
from tallystick.answers.request import Message
from tallystick.answers.show import say_of_answer
from tallystick.cli.main import run
from tallystick.commit.checkpoint import run_root
from tallystick.commit.encoding import canonical_json
from tallystick.errors import CorruptFileError, DigestMismatchError, SignatureInvalidError
from tallystick.report.answer_page import AnswerFacts, answer_headline, answer_page, read_answer

EVIL = "</blockquote><script>alert(1)</script><img src=x onerror='a'>\"\u202e\ud800\x00"
CLAIM = "A provider has signed that a model gave this answer."


@pytest.fixture(scope="module")
def toy() -> Toy:
    return Toy.make()


@pytest.fixture(scope="module")
def said(toy: Toy) -> AnswerJob:
    found = toy.answered(toy.request())
    return replace(found, spoken=replace(found.spoken, text="Notched twice."))


@pytest.fixture
def place(toy: Toy, said: AnswerJob, tmp_path: Path) -> Path:
    AnswerFiles.of(receipt_of(said), said, toy.text_of(said)).write(tmp_path / "answer")
    return tmp_path / "answer"


def checked(toy: Toy, said: AnswerJob, receipt: bytes) -> AnswerFacts:
    """The facts of a page after a check by the toy's weights."""
    signed, answer = bound(receipt, said.statement, said.request, said.spoken)
    report = check_answer(signed, answer, toy.text_of(said), toy.held)
    return AnswerFacts("answer", answer, report, Path("model"))


def test_a_claim(place: Path, said: AnswerJob) -> None:
    found = read_answer(place)
    shown = Page(answer_page(found))
    assert answer_headline(found) == CLAIM
    for fact in (
        CLAIM,
        "Notched twice.",
        "3 tokens, not by words",
        "2025-11-24 16:00:00.000 UTC",
        "The model was not asked again.",
        "tallystick check answer --model MODEL --text",
        "That the model gives this answer. This page has not asked it.",
        "owner not named",
        KEY.public.key_id,
        said.digest.hex(),
    ):
        assert fact in shown.text, fact
    assert "answer-run" not in shown.text


def test_a_check_that_agrees_and_one_that_does_not(toy: Toy, said: AnswerJob) -> None:
    true = checked(toy, said, receipt_of(said))
    assert answer_headline(true) == "The model gives exactly the answer that was signed."
    shown = Page(answer_page(true)).text
    assert "On the machine that wrote this page it is true." in shown
    assert "has not asked it" not in shown
    tokens = (*said.spoken.tokens[:-1], said.spoken.tokens[-1] ^ 1)
    lie = replace(said, spoken=replace(said.spoken, tokens=tokens))
    false = checked(toy, lie, receipt_of(lie))
    assert answer_headline(false) == "The model does not give the answer that was signed."
    shown = Page(answer_page(false)).text
    assert f"Token number 2 of the answer, the first being number 0, is {tokens[-1]}" in shown
    assert "tallystick answer-run answer --model MODEL -o RUN" in shown
    assert "it is true" not in shown


def test_a_contradiction_needs_no_model(toy: Toy, said: AnswerJob, tmp_path: Path) -> None:
    receipt = receipt_of(said, finish=STOP)
    AnswerFiles.of(receipt, said, toy.text_of(said)).write(tmp_path / "answer")
    found = read_answer(tmp_path / "answer")
    assert answer_headline(found) == "The provider has signed an answer that contradicts itself."
    assert "It contradicts itself: " in Page(answer_page(found)).text
    told = say_of_answer(tmp_path / "answer")
    assert told is not None and "contradicts itself" in told.proves


def test_log_probabilities_that_nobody_signed(toy: Toy, said: AnswerJob, tmp_path: Path) -> None:
    """8.4, without a weight: page and `inspect` do not lay them to the signer."""
    lied = replace(said, spoken=replace(said.spoken, logprobs=said.spoken.logprobs * 2))
    AnswerFiles.of(receipt_of(said), lied, toy.text_of(said)).write(tmp_path / "answer")
    assert "not what was signed" in answer_headline(read_answer(tmp_path / "answer"))
    told = say_of_answer(tmp_path / "answer")
    assert told is not None and "not what stands beside them" in told.proves


def test_the_page_says_no_more_than_was_found(toy: Toy, said: AnswerJob) -> None:
    """After 6.7 and 8.4 the model has given something else than what is shown."""
    spoken = replace(said.spoken, tokens=(said.spoken.tokens[0] ^ 1, *said.spoken.tokens[1:]))
    lied = replace(said, spoken=spoken)
    state = toy.executed(lied).root()
    root = run_root(lied.digest, [(0, lied.commitment.genesis_root), (1, state)])
    shown = Page(answer_page(checked(toy, lied, receipt_of(lied, state=state, root=root)))).text
    assert "that state says other tokens than the signed answer" in shown
    for untrue in ("No model is needed", "gives the same", "do not contradict", "it is true"):
        assert untrue not in shown, untrue
    odd = replace(said, spoken=replace(said.spoken, logprobs=said.spoken.logprobs * 2))
    shown = Page(answer_page(checked(toy, odd, receipt_of(said)))).text
    assert "beside the receipt; the model gives" in shown and "gives the same" not in shown
    assert "Prompt and text are those" not in shown


def test_texts_from_outside_stay_texts(toy: Toy, said: AnswerJob) -> None:
    talk: tuple[Message, ...] = (
        {"role": EVIL, "content": EVIL},
        {"role": "user"},
        {"role": "user", "content": [EVIL]},
    )
    request = replace(said.request, tokens=None, messages=talk)
    spoken = replace(said.spoken, text=EVIL)
    report = checked(toy, said, receipt_of(said)).report
    odd = AnswerFacts(EVIL, replace(said, request=request, spoken=spoken), report, None)
    source = answer_page(odd)
    shown = Page(source)  # refuses scripts, and what loads
    assert "<script" not in source and "\u202e" not in source and "\x00" not in source
    assert "alert(1)" in shown.text
    source.encode("utf-8")


def test_the_command(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert run(["report", str(place), "-o", str(page), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == "answer" and told["sentence"] == CLAIM
    assert CLAIM in page.read_text("utf-8")
    body = json.loads((place / "answer.json").read_bytes())
    body["tokens"][0] ^= 1
    (place / "answer.json").write_bytes(canonical_json(body))
    assert run(["report", str(place), "-o", str(page)]) == 1
    shown = Page(page.read_text("utf-8")).text
    assert "Nothing is shown, and nobody is accused: this answer" in shown
    assert "Notched" not in shown
    assert run(["report", str(page), "-o", str(tmp_path / "p"), "--model", "m"]) == 3


def test_inspect(place: Path, toy: Toy, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_statement(tmp_path / "m.statement", toy.statement, toy.texts)
    kinds = {
        place: "answer",
        place / "receipt.json": "receipt",
        place / "request.json": "request",
        place / "answer.json": "tokens",
        place / "statement.json": "model statement",
        tmp_path / "m.statement": "model statement",
    }
    for path, kind in kinds.items():
        assert run(["inspect", str(path), "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["kind"] == kind and told["proves"] and told["next_action"]
        if "model_digest" in told["claims"]:
            assert told["claims"]["model_digest"] == toy.statement.digest.hex()
        signers = [KEY.public.key_id] if kind in ("answer", "receipt") else []
        assert told["signed_by"] == signers
    assert run(["inspect", str(place)]) == 0
    assert "next        tallystick check" in capsys.readouterr().out
    assert say_of_answer(tmp_path) is None
    (tmp_path / "other").write_bytes(b'{"about":{}}')
    assert say_of_answer(tmp_path / "other") is None


def test_damaged_files_are_refused(place: Path) -> None:
    for name in ("receipt.json", "request.json", "answer.json", "statement.json"):
        path = place / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + b" ")
        with pytest.raises(CorruptFileError):
            say_of_answer(path)
        path.write_bytes(whole)
    body = json.loads((place / "receipt.json").read_bytes())
    signature = body["signatures"][0]["sig"]
    body["signatures"][0]["sig"] = ("B" if signature[0] == "A" else "A") + signature[1:]
    (place / "receipt.json").write_bytes(canonical_json(body))
    with pytest.raises((SignatureInvalidError, DigestMismatchError)):
        say_of_answer(place)
