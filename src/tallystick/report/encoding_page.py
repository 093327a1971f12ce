"""An encoding as a page: which text, which numbers, who signed them, and what that is worth. What a
receipt says stands on each page in the same way.
"""

from __future__ import annotations

import numpy as np

from tallystick.answers.check import AnswerReport
from tallystick.answers.encoding_job import EncodingJob
from tallystick.answers.layout import CLASSES
from tallystick.job.numbers import moment
from tallystick.report.html import FINGERPRINT, Safe, count, digest, el, facts, items, join
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


def signed_facts(report: AnswerReport) -> dict[str, object]:
    """Who signed what, and until when they answer for it."""
    receipt = report.receipt
    return {
        "Signed by the key": join(digest(receipt.signer.key_id), " ", trust_badge(report.trusted)),
        "Signed at, by its own clock": moment(receipt.time),
        "Answers disputes until": moment(receipt.until),
        "Model": digest(receipt.model),
    }


def digest_facts(report: AnswerReport, contract: str) -> dict[str, object]:
    receipt = report.receipt
    return {
        "Model digest": digest(receipt.model),
        "Request digest": digest(receipt.request),
        "Job digest": digest(receipt.job),
        "Run root": digest(receipt.root),
        "Final state": digest(receipt.state),
        "Contract": contract,
    }


_ABOUT = "What a model makes of a text, and the receipt that its provider has signed for it."
_MOST_VALUES = 64  # shown in the table


def encoding_headline(report: AnswerReport) -> str:
    """The encoding in one sentence."""
    if report.contradictions:
        return "The provider has signed numbers that its receipt contradicts."
    if report.state_differs:
        return "The model does not give the numbers that were signed."
    if report.findings:
        return "What is shown here is not what was signed, or not what the model's files give."
    if report.executed:
        return "The model gives exactly the numbers that were signed."
    return "A provider has signed that a model makes these numbers of a text."


def encoding_page(name: str, answer: EncodingJob, report: AnswerReport) -> str:
    """The page of an encoding: a whole HTML document."""
    good = {True: True if report.executed else None, False: False}[report.accepted]
    contract = answer.statement.contract
    body = join(
        banner(
            encoding_headline(report),
            paragraph(_means(report), class_="lead"),
            paragraph(trust_badge(report.trusted)),
            good=good,
        ),
        _text(answer),
        _values(answer),
        section(
            "Who signed what",
            facts(signed_facts(report)),
            paragraph(FINGERPRINT, class_="soft small"),
        ),
        _checked(report),
        _worth(report),
        _next(name, report),
        fold(
            "For experts: fingerprints",
            section("What was committed to", facts(digest_facts(report, contract))),
        ),
    )
    return page(f"Encoding {name}", body, same=report.accepted, about=_ABOUT)


def _means(report: AnswerReport) -> str:
    if report.contradictions:
        return (
            "No model is needed to see it: the receipt says one thing, and the request and the "
            "text that it names say another. The signature stands on both."
        )
    if report.state_differs:
        return (
            "The model was executed again on the machine that wrote this page, and gave other "
            "numbers. That persuades whoever did it. A dispute convicts the signer before everyone "
            "else, or shows that this machine or this copy of the model is at fault."
        )
    if report.findings:
        return "The numbers that were signed may be in order. What stands beside them is not."
    if report.executed:
        return (
            "The model was executed again on the machine that wrote this page. It gave the same, "
            "to the last bit of every number."
        )
    return (
        "The holder of a key stands by every one of them, and cannot take it back. That is a "
        "claim: this page has not executed the model, and anyone who has it can."
    )


def _text(answer: EncodingJob) -> Safe:
    request = answer.request
    tokens = count(len(answer.encoded.prompt), "token")
    if request.text is None:
        return section("The text", paragraph(f"It was sent as {tokens}, not by words."))
    return section(
        "The text",
        el("pre", request.text),
        paragraph(f"It has {tokens}. A check says whether they are its own.", class_="soft small"),
    )


def _values(answer: EncodingJob) -> Safe:
    encoded = answer.encoded
    if answer.request.output == CLASSES:
        order = np.argsort(np.negative(encoded.values), kind="stable")[:_MOST_VALUES]
        labels = encoded.labels or tuple(map(str, range(len(encoded.values))))
        rows = [(labels[n], str(encoded.values[n])) for n in order]
        how = "The largest number is the model's choice. No signature covers the classes' names."
        caption = f"{len(rows)} of {count(len(encoded.values), 'class', 'classes')}"
        shown = table(caption, ("Class", "Logit"), rows)
        return section("What the model makes of it", paragraph(how, class_="soft small"), shown)
    first = [(str(n), str(x)) for n, x in enumerate(encoded.values[:_MOST_VALUES])]
    caption = f"{len(first)} of {count(len(encoded.values), 'number')} of the embedding"
    return section("What the model makes of it", table(caption, ("Place", "Number"), first))


def _checked(report: AnswerReport) -> Safe:
    told: list[object] = [
        "Both signatures are those of the key above. Request and text are those that were signed."
    ]
    told += [f"It contradicts itself: {one.sentence}" for one in report.contradictions]
    if not report.contradictions:
        told.append("Its own words do not contradict each other.")
    if report.difference is not None:
        told.append(report.difference.sentence)
    elif report.state_differs:
        told.append("The signed result is not the one that the model gives.")
    elif report.executed:
        told.append(f"The model gives the same {count(report.receipt.answer, 'number')}.")
    else:
        told.append("The model was not executed.")
    told += [f"Found: {one.sentence}" for one in report.findings]
    if report.texts and not report.findings:
        told.append("The tokens are those that the model's own files give for the text.")
    told += [f"Note: {one.sentence}" for one in report.notes]
    return section("What was checked when this page was written", items(*told))


def _worth(report: AnswerReport) -> Safe:
    proves = [
        "The holder of the key stands by these numbers as what this model makes of this text.",
        "Anyone who has the model finds out whether that is true, on any machine, and convicts the "
        "signer if it is not.",
    ]
    if report.executed and report.accepted:
        proves.append("On the machine that wrote this page it is true.")
    open_ = [
        "That the numbers are good for anything. They are what the model gives.",
        "That the fingerprint is of the model that you think of. Whoever has that model derives it "
        "again: tallystick model verify.",
        "That they were given in time, or to you.",
        "Who the signer is. A key signs; whose it is, you must know from elsewhere.",
    ]
    if not report.executed:
        open_.insert(0, "That the model gives these numbers. This page has not executed it.")
    return join(section(PROVES, items(*proves)), section(LEAVES_OPEN, items(*open_)))


def _next(name: str, report: AnswerReport) -> Safe:
    lines = [
        f"tallystick check {name} --model MODEL",
        f"tallystick check {name} --model MODEL --text",
    ]
    if report.state_differs:
        lines.append(f"tallystick answer-run {name} --model MODEL -o RUN")
    return section(
        "How to check it",
        paragraph(
            "MODEL is the directory of your own copy of the model. The first line executes it once "
            "and compares every number; the second one reads no weight and compares the text.",
        ),
        commands(*lines),
        paragraph("Whoever gets this page can read the text.", class_="soft small"),
    )
