"""An answer of a model as a page: what was asked and answered, who signed it, and what that is
worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.answers.check import AnswerReport, check_words
from tallystick.answers.encoding_job import EncodingJob
from tallystick.answers.files import AnswerFiles
from tallystick.answers.job import AnswerJob
from tallystick.answers.receipt import CANCELLED, LENGTH, STOP
from tallystick.answers.request import ModelRequest
from tallystick.answers.words import AnyJob
from tallystick.api.answers import check
from tallystick.commit.signing import PublicKey
from tallystick.report.encoding_page import (
    digest_facts,
    encoding_headline,
    encoding_page,
    signed_facts,
)
from tallystick.report.html import FINGERPRINT, Safe, count, el, facts, items, join, number
from tallystick.report.page import (
    banner,
    commands,
    fold,
    page,
    paragraph,
    section,
    table,
    trust_badge,
)
from tallystick.report.proved import LEAVES_OPEN, PROVES

_ABOUT = "An answer of a language model, and the receipt that its provider has signed for it."
_ENDED = {
    STOP: "the model, or a text that the request names, ended it",
    LENGTH: "it has as many tokens as there was room for",
    CANCELLED: "the provider says that the client ended it, and nothing shows that",
}
_CANCELLED_BY_CLIENT = "the client has signed that it ends there"
_MOST_TOKENS = 64  # shown in the table


@dataclass(frozen=True)
class AnswerFacts:
    """An answer's directory whose receipt, request and tokens belong together. `model` says that
    the report is of an execution of the model."""

    name: str
    answer: AnyJob
    report: AnswerReport
    model: Path | None


def read_answer(
    place: Path,
    trust: Sequence[PublicKey] | None = None,
    model: Path | None = None,
    adapter: Path | None = None,
) -> AnswerFacts:
    """The answer at `place`; with `model` it is checked by the weights, and its texts by the files,
    of that directory, and by the `adapter` where it has one. Raises as `api.check`."""
    files = AnswerFiles.read(place)
    signed, answer, _ = files.bound(None if trust is None else [*trust])
    if model is None:
        report = check_words(signed, answer, files.cancellation)
    else:
        report = check(place, model, adapter=adapter, trust=trust)
    return AnswerFacts(place.name, answer, report, model)


def answer_headline(found: AnswerFacts) -> str:
    """The answer in one sentence."""
    report = found.report
    if isinstance(found.answer, EncodingJob):
        return encoding_headline(report)
    if report.contradictions:
        return "The provider has signed an answer that contradicts itself."
    if report.state_differs:
        return "The model does not give the answer that was signed."
    if report.findings:
        return "What is shown here is not what was signed, or not what the model's files give."
    if report.executed:
        return "The model gives exactly the answer that was signed."
    return "A provider has signed that a model gave this answer."


def answer_page(found: AnswerFacts) -> str:
    """The page of an answer or of an encoding: a whole HTML document."""
    if isinstance(found.answer, EncodingJob):
        return encoding_page(found.name, found.answer, found.report)
    answer = found.answer
    good = {True: True if found.report.executed else None, False: False}[found.report.accepted]
    body = join(
        banner(
            answer_headline(found),
            paragraph(_means(found), class_="lead"),
            paragraph(trust_badge(found.report.trusted)),
            good=good,
        ),
        _said(answer),
        _signed(found),
        _checked(found),
        _worth(found, answer.request),
        _next(found),
        fold(
            "For experts: settings, tokens and fingerprints",
            _settings(found, answer),
            _digests(found),
        ),
    )
    return page(f"Answer {found.name}", body, same=found.report.accepted, about=_ABOUT)


def _means(found: AnswerFacts) -> str:
    report = found.report
    if report.contradictions and report.executed:
        return (
            "The model was asked again on the machine that wrote this page. The signed state is "
            "the one that it gives, and that state says other tokens than the signed answer. "
            "Whoever has the model sees both."
        )
    if report.contradictions:
        return (
            "No model is needed to see it: the receipt says one thing, and the request and the "
            "answer that it names say another. The signature stands on both."
        )
    if report.state_differs:
        return (
            "The model was asked again on the machine that wrote this page, and said something "
            "else. That persuades whoever did it. A dispute convicts the signer before everyone "
            "else, or shows that this machine or this copy of the model is at fault."
        )
    if report.findings:
        return "The numbers that were signed may be in order. The words around them are not."
    if report.executed:
        return (
            "The model was asked again on the machine that wrote this page. It said the same, to "
            "the last bit of every number."
        )
    return (
        "The holder of a key stands by every token of it, and cannot take it back. That is a "
        "claim: this page has not asked the model again, and anyone who has the model can."
    )


def _said(answer: AnswerJob) -> Safe:
    request, spoken = answer.request, answer.spoken
    how = "These texts are shown as they came. A check says whether they are those of the tokens."
    return section(
        "What was asked, and what was answered",
        *_asked(request),
        el("h3", "The answer"),
        el("pre", spoken.text) if spoken.text else paragraph("It has no text."),
        paragraph(how, class_="soft small"),
    )


def _asked(request: ModelRequest) -> list[Safe]:
    if request.text is not None:
        return [el("h3", "The prompt"), el("pre", request.text)]
    if request.messages is None:
        told = f"It was asked by {count(len(request.tokens or ()), 'token')}, not by words."
        return [paragraph(told)]
    shown = []
    for message in request.messages:
        shown += [el("h3", message.get("role", "")), el("pre", message.get("content", ""))]
    return shown


def _signed(found: AnswerFacts) -> Safe:
    receipt = found.report.receipt
    rows = {
        **signed_facts(found.report),
        "How the answer ended": f"{receipt.finish}: {_ended(found.report)}",
    }
    words = f"{FINGERPRINT} The one of the model stands for all its weights and for how it answers."
    return section("Who signed what", facts(rows), paragraph(words, class_="soft small"))


def _ended(report: AnswerReport) -> str:
    unproved = any(one.clause.startswith("6.6") for one in (*report.notes, *report.findings))
    if report.receipt.finish == CANCELLED and not unproved:
        return _CANCELLED_BY_CLIENT
    return _ENDED[report.receipt.finish]


def _checked(found: AnswerFacts) -> Safe:
    report = found.report
    told: list[object] = [
        "Both signatures are those of the key above. Request and tokens are those that were signed."
    ]
    told += [f"It contradicts itself: {one.sentence}" for one in report.contradictions]
    if not report.contradictions:
        told.append("Its own words do not contradict each other.")
    if report.state_differs:
        why = "The signed result is not the one that the model gives."
        told.append(report.difference.sentence if report.difference else why)
    elif report.executed and report.difference is not None:
        if not report.contradictions:  # one of 6.7 has said it
            told.append(report.difference.sentence)
    elif report.executed:
        told.append(
            f"The model gives the same {count(report.receipt.answer, 'token')}, and for each the "
            "same number that says how likely it was."
        )
    else:
        told.append("The model was not asked again.")
    told += [f"Found: {one.sentence}" for one in report.findings]
    if report.texts and not report.findings:
        told.append("Prompt and text are those that the model's own files give.")
    told += [f"Note: {one.sentence}" for one in report.notes]
    return section("What was checked when this page was written", items(*told))


def _worth(found: AnswerFacts, request: ModelRequest) -> Safe:
    proves = [
        "The holder of the key stands by these tokens as this model's answer to this request.",
        "Anyone who has the model finds out whether that is true, on any machine, and convicts the "
        "signer if it is not.",
    ]
    if found.report.executed and found.report.accepted:
        proves.append("On the machine that wrote this page it is true.")
    open_ = [
        "That the answer is right, good or harmless. A true answer is what the model says, and "
        "models say false things.",
        "That the fingerprint is of the model that you think of. Whoever has that model derives it "
        "again: tallystick model verify.",
        "That the answer was given in time, or to you, or that it is the only one that was given.",
        "Who the signer is. A key signs; whose it is, you must know from elsewhere.",
    ]
    if not found.report.executed:
        open_.insert(0, "That the model gives this answer. This page has not asked it.")
    if request.server_seed:
        open_.append("That the provider did not choose this answer among several.")
    return join(section(PROVES, items(*proves)), section(LEAVES_OPEN, items(*open_)))


def _next(found: AnswerFacts) -> Safe:
    name = found.name
    lines = [
        f"tallystick check {name} --model MODEL",
        f"tallystick check {name} --model MODEL --text",
    ]
    if found.report.state_differs:
        lines.append(f"tallystick answer-run {name} --model MODEL -o RUN")
    return section(
        "How to check it",
        paragraph(
            "MODEL is the directory of your own copy of the model. The first line asks it again "
            "and compares every number; the second one reads no weight and compares the texts.",
        ),
        commands(*lines),
        paragraph("Whoever gets this page can read prompt and answer.", class_="soft small"),
    )


def _settings(found: AnswerFacts, answer: AnswerJob) -> Safe:
    request, spoken = answer.request, answer.spoken
    s = request.settings
    rows: dict[str, object] = {
        "Sampler": s.set,
        "Temperature": f"{s.temperature:g}",
        "Top-k, top-p, min-p": f"{s.top_k}, {s.top_p:g}, {s.min_p:g}",
        "Repetition, presence, frequency": f"{s.repetition:g}, {s.presence:g}, {s.frequency:g}",
        "Biased tokens": count(len(s.bias)),
        "Most tokens": count(s.max_tokens),
        "Seed": f"{request.seed}, {'the server' if request.server_seed else 'the client'}'s",
        "Choice": f"{found.report.receipt.choice} of {count(request.choices)}",
        "Date for the template": request.date or "none",
    }
    pairs = zip(spoken.tokens[:_MOST_TOKENS], spoken.logprobs, strict=False)
    shown = [(n, token, number(float(log))) for n, (token, log) in enumerate(pairs)]
    caption = f"{len(shown)} of {count(len(spoken.tokens), 'token')} of the answer"
    return join(
        section("How the tokens were drawn", facts(rows)),
        section("Tokens", table(caption, ("Place", "Token", "Log-probability"), shown)),
    )


def _digests(found: AnswerFacts) -> Safe:
    receipt = found.report.receipt
    rows = {
        **digest_facts(found.report, found.answer.statement.contract),
        "Tokens of prompt and answer": f"{receipt.prompt} and {receipt.answer}",
    }
    return section("What was committed to", facts(rows))
