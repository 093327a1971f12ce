"""What a receipt says by itself: contradictions, findings and notes (ANSWERS 6, 8.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from reference.answers.asked import ENCODINGS, Request, Shown
from reference.answers.files import Receipt, Said, Statement, read_cancellation, read_receipt
from reference.answers.job import Job, rooms
from reference.judge.encoding import MalformedError, RefusedError


@dataclass
class Found:
    """Clauses, each as often as it is broken."""

    contradictions: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def sorted(self) -> dict[str, list[str]]:
        return {name: sorted(set(found)) for name, found in vars(self).items()}


def bound(
    receipt: bytes, statement: Statement, request: Request, said: Said
) -> tuple[Receipt, Job]:
    """8.2, 8.3; RefusedError for files that are not the receipt's."""
    told = read_receipt(receipt)
    if (statement.digest, request.digest) != (told.model, told.request):
        raise RefusedError("of another model or request")
    job = Job(statement, request, said, told.choice)
    if job.digest != told.job:
        raise RefusedError("nobody has signed this answer")
    return told, job


def words(receipt: Receipt, job: Job, cancellation: bytes | None) -> Found:
    """8.4."""
    found = Found()
    found.contradictions += _of_request(receipt, job)
    found.contradictions += (
        _of_encoding(receipt, job) if job.said.tokens is None else _of_finish(receipt, job)
    )
    if job.root(receipt.state) != receipt.root:
        found.contradictions.append("6.2")
    if cancellation is not None:
        found.findings += _cancelled(receipt, job, cancellation)
    elif receipt.finish == "cancelled" and job.said.tokens is not None:
        found.notes.append("6.6")
    if "seed" in job.request.parts and job.request.parts["seed"]["by"] == "server":
        found.notes.append("5.5")
    if job.state(job.claimed()) != receipt.state:
        found.findings.append("8.4")
    return found


def _of_request(receipt: Receipt, job: Job) -> Iterator[str]:
    """6.2, 6.3."""
    parts, prompt = job.request.parts, job.said.prompt
    if bytes.fromhex(parts["model"]) != receipt.model:
        yield "6.2"
    if receipt.choice >= parts.get("choices", 1):
        yield "6.2"
    if parts["input"].get("tokens", prompt) != prompt:
        yield "6.2"
    count = len(job.said.numbers) if job.said.tokens is None else len(job.answer)
    if (receipt.prompt, receipt.answer) != (len(prompt), count):
        yield "6.2"
    if any(not 0 <= token < job.statement.vocabulary for token in job.text):
        yield "6.3"


def _of_encoding(receipt: Receipt, job: Job) -> Iterator[str]:
    """11.8."""
    if receipt.finish != job.request.parts["output"]:
        yield "11.8"
    if job.statement.encodes != job.request.parts["output"]:
        yield "11.8"


def _of_finish(receipt: Receipt, job: Job) -> Iterator[str]:
    """6.1, 6.4, 6.5."""
    parts, finish, tokens = job.request.parts, receipt.finish, job.answer
    stops = {*job.statement.stop, *parts["settings"]["stop"]}
    if finish in ENCODINGS:
        yield "6.1"
    if stops & set(tokens[:-1]):
        yield "6.4"
    ended = tokens[-1] in stops
    if finish == "stop" and not ended and not parts["stop_strings"]:
        yield "6.4"
    if finish != "stop" and ended:
        yield "6.4"
    asked = parts["settings"]["max_tokens"]
    room = [min(a, n - len(job.said.prompt)) for n, a, _ in rooms(job.statement, job.set)]
    most = min(asked, max(room))
    if len(tokens) > asked or (finish == "length" and len(tokens) < most):
        yield "6.5"
    if finish == "cancelled" and len(tokens) >= most and not ended:
        yield "6.5"


def _cancelled(receipt: Receipt, job: Job, data: bytes) -> Iterator[str]:
    """6.6.3."""
    if job.said.tokens is None:
        yield "6.6.3"
        return
    client = job.request.parts.get("client")
    try:
        said = read_cancellation(data, None if client is None else bytes.fromhex(client))
    except (RefusedError, MalformedError):
        yield "6.6.3"
        return
    told = (receipt.request, receipt.choice, receipt.answer, receipt.finish)
    if told != (said.request, said.choice, said.answer, "cancelled"):
        yield "6.6.3"


def shown_words(shown: Shown, receipt: Receipt) -> list[str]:
    """What the shown parts and the receipt contradict (5.9, 6.2, 6.5)."""
    parts = {name: value for name, (_, value) in shown.shown.items()}
    found = []
    if parts.get("model", receipt.model.hex()) != receipt.model.hex():
        found.append("6.2")
    if receipt.choice >= parts.get("choices", 1024):
        found.append("6.2")
    tokens = parts.get("input", {}).get("tokens")
    if tokens is not None and len(tokens) != receipt.prompt:
        found.append("6.2")
    if "settings" in parts and receipt.answer > parts["settings"]["max_tokens"]:
        found.append("6.5")
    return sorted(set(found))
