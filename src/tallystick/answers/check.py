"""Checking an answer by one prefill (ANSWERS 8).

First everything that needs no weight: signatures, digests, the receipt's own words. Then the
answer's job is executed once, over the whole text, and its state is compared with the signed one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tallystick.answers.cancellation import finding_of
from tallystick.answers.job import LOGPROBS, TOKENS, AnswerJob, check_weights
from tallystick.answers.other_tokens import OtherTokens
from tallystick.answers.receipt import CANCELLED, AnswerReceipt, SignedReceipt, read_receipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.spoken import Spoken
from tallystick.answers.statement import ModelStatement
from tallystick.answers.words import Said, contradictions
from tallystick.commit.signing import PublicKey
from tallystick.commit.state import state_root
from tallystick.commit.tensor import Array
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.errors import CorruptFileError, DigestMismatchError, UsageError
from tallystick.program.ir import Program
from tallystick.program.state import State
from tallystick.run.execute.engine import Engine


@dataclass(frozen=True)
class TokenDifference:
    """The first row of an answer (ANSWERS 1.2) where the model says something else (8.5).

    Where the tokens are equal, the log-probabilities differ: those that stand beside the receipt,
    which are the signed ones only where the report has no finding of 8.4."""

    row: int
    claimed: int
    drawn: int
    claimed_logprob: float
    computed_logprob: float

    @property
    def sentence(self) -> str:
        if self.claimed != self.drawn:
            return (
                f"Token number {self.row} of the answer, the first being number 0, is "
                f"{self.claimed} in the receipt; the model draws {self.drawn} there."
            )
        return (
            f"Token number {self.row} of the answer, the first being number 0, has the "
            f"log-probability {self.claimed_logprob!r} beside the receipt; the model gives "
            f"{self.computed_logprob!r}."
        )


@dataclass(frozen=True)
class AnswerReport:
    """What a check has found. `accepted` is true if nothing contradicts the receipt.

    `contradictions` convict the signer by its own words. `difference` is the first row that the
    model does not repeat, `state_differs` whether the signed state is another one: a dispute
    convicts then. `findings` are what no game decides. `notes` say what is not proved. `executed`
    says that the model was asked again, `texts` that 8.6 was compared. `convicting` is the evidence
    of 6.7, where that is the contradiction.
    """

    receipt: AnswerReceipt
    trusted: bool | None
    contradictions: tuple[Said, ...] = ()
    state_differs: bool = False
    difference: TokenDifference | None = None
    findings: tuple[Said, ...] = ()
    notes: tuple[Said, ...] = ()
    executed: bool = False
    texts: bool = False
    seconds: float = field(default=0.0, compare=False)
    convicting: OtherTokens | None = field(default=None, compare=False)

    @property
    def accepted(self) -> bool:
        return not (self.contradictions or self.state_differs or self.findings)


def bound(
    data: bytes,
    statement: ModelStatement,
    request: ModelRequest,
    spoken: Spoken,
    trust: Sequence[PublicKey] | None = None,
) -> tuple[SignedReceipt, AnswerJob]:
    """The signed receipt in `data`, and the job of the answer, which is the one that it names.

    Raises the errors of `read_receipt`; DigestMismatchError where statement, request or tokens are
    not those of the receipt (ANSWERS 8.3); CorruptFileError for an answer that has no job, as one
    that fits no bucket.
    """
    signed = read_receipt(data, trust)
    receipt = signed.receipt
    for name, found in (("model", statement.digest), ("request", request.digest)):
        if getattr(receipt, name) != found:
            raise DigestMismatchError(
                f"The receipt is of another {name} than the one here.",
                f"Ask its sender for the {name} that it names, or refuse the answer.",
            )
    answer = AnswerJob(statement, request, spoken, receipt.choice)
    try:
        job = answer.digest
    except UsageError as error:  # the sizes are the sender's, and so is the fault
        raise CorruptFileError(
            f"These files do not make an answer of the model: {error.message}", "Refuse the answer."
        ) from error
    if job != receipt.job:
        raise DigestMismatchError(
            "The receipt's job is not that of this request and these tokens: nobody has signed "
            "this answer.",
            "Refuse the answer.",
        )
    return signed, answer


def check_words(
    signed: SignedReceipt, answer: AnswerJob, cancellation: bytes | None = None
) -> AnswerReport:
    """What there is to find without weights. `cancellation` is the file beside the receipt."""
    notes, unsigned = list[Said](), list[Said]()
    if cancellation is not None:
        unsigned += finding_of(cancellation, signed.receipt, answer.request)
    elif signed.receipt.finish == CANCELLED:
        notes.append(Said("6.6", "Nothing here shows that the client cancelled the answer."))
    if answer.request.server_seed:
        notes.append(
            Said("5.5", "The server chose the seed: it may have picked among several answers.")
        )
    found = contradictions(signed.receipt, answer)
    if answer.roots()[0] != signed.receipt.state:
        sentence = (
            "The signed state is not that of the tokens and log-probabilities that stand beside "
            "the receipt."
        )
        unsigned.append(Said("8.4", sentence))
    return AnswerReport(
        signed.receipt, signed.trusted, found, findings=tuple(unsigned), notes=tuple(notes)
    )


def check_answer(
    signed: SignedReceipt,
    answer: AnswerJob,
    program: Program,
    weights: Mapping[str, Array],
    context: ExecutionContext = DEFAULT,
    cancellation: bytes | None = None,
) -> AnswerReport:
    """Check an answer whole: its words, then one execution of its job.

    `program` is the one that the statement names, `weights` are by slot. The caller has compared
    the program with the model (`compared`), or believes the statement. Raises DigestMismatchError
    for other weights than the statement's, CorruptFileError for a program that no answer has.
    """
    report = check_words(signed, answer, cancellation)
    if report.contradictions:
        return report
    check_weights(answer.statement, weights)
    return executed(report, signed, answer, program, weights, context)


def executed(
    report: AnswerReport,
    signed: SignedReceipt,
    answer: AnswerJob,
    program: Program,
    weights: Mapping[str, Array],
    context: ExecutionContext = DEFAULT,
) -> AnswerReport:
    """The report of `check_words` with what one execution of the job shows. The caller has compared
    the weights. Raises CorruptFileError for a program that no answer has."""
    began = time.monotonic()
    answer.check_program(program)
    with context.entered():
        engine = Engine(
            answer.in_memory(program), State(answer.state(program, weights)), context=context
        )
        engine.run()
        final, host = answer.digests_after(engine.state), engine.context.device.host
        drawn, logs = (np.asarray(host(engine.state.slots[n])) for n in (TOKENS, LOGPROBS))
    report = _compared(report, answer, state_root(final), drawn, logs, time.monotonic() - began)
    if report.contradictions:
        evidence = OtherTokens.of(signed, answer, final, drawn)
        report = replace(report, convicting=evidence)
    return report


def _compared(
    report: AnswerReport, answer: AnswerJob, root: bytes, drawn: Array, logs: Array, seconds: float
) -> AnswerReport:
    """The report with what the execution shows (ANSWERS 8.5)."""
    receipt, difference = report.receipt, _first_difference(answer.spoken, drawn, logs)
    words = report.contradictions
    if root == receipt.state and difference is not None and difference.claimed != difference.drawn:
        # The signed run is the true one of this job, and says other tokens than its text.
        words = (*words, Said("6.7", difference.sentence))
    return replace(
        report,
        contradictions=words,
        state_differs=root != receipt.state,
        difference=difference,
        executed=True,
        seconds=seconds,
    )


def _first_difference(spoken: Spoken, drawn: Array, logs: Array) -> TokenDifference | None:
    """The first row where tokens or the bits of log-probabilities differ."""
    count = len(spoken.tokens)
    said = np.asarray(spoken.tokens, np.int64) != drawn[:count]
    bits = spoken.logprobs.view("<u4") != np.ascontiguousarray(logs[:count]).view("<u4")
    rows = np.flatnonzero(said | bits)
    if not rows.size:
        return None
    at = int(rows[0])
    return TokenDifference(
        at, spoken.tokens[at], int(drawn[at]), float(spoken.logprobs[at]), float(logs[at])
    )
