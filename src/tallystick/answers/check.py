"""Checking an answer by one prefill (ANSWERS 8).

First everything that needs no weight: signatures, digests, the receipt's own words. Then the
answer's job is executed once, over the whole text, and its state is compared with the signed one.
Where an execution says something else than stands beside a receipt, that is found too (8.5, 11.9).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tallystick.answers.beside_receipt import Encoded, Spoken
from tallystick.answers.cancellation import finding_of
from tallystick.answers.encoding_job import AnyRequest, EncodingJob, EncodingRequest
from tallystick.answers.encoding_programs import VALUES
from tallystick.answers.job import LOGPROBS, TOKENS, AnswerJob, check_weights
from tallystick.answers.other_tokens import OtherTokens
from tallystick.answers.receipt import CANCELLED, AnswerReceipt, SignedReceipt, read_receipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.statement import ModelStatement
from tallystick.answers.words import AnyJob, Said, contradictions
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
    def is_of_tokens(self) -> bool:
        return self.claimed != self.drawn

    @property
    def sentence(self) -> str:
        if self.is_of_tokens:
            return (
                f"Token number {self.row} of the answer, the first being number 0, is "
                f"{self.claimed} in the receipt; the model draws {self.drawn} there."
            )
        return (
            f"Token number {self.row} of the answer, the first being number 0, has the "
            f"log-probability {self.claimed_logprob!r} beside the receipt; the model gives "
            f"{self.computed_logprob!r}."
        )

    @property
    def facts(self) -> dict[str, object]:
        """For JSON; documented keys."""
        return {
            "row": self.row,
            "claimed": self.claimed,
            "drawn": self.drawn,
            "claimed_logprob": self.claimed_logprob,
            "computed_logprob": self.computed_logprob,
            "sentence": self.sentence,
        }


@dataclass(frozen=True)
class ValueDifference:
    """The first value of an encoding that the model does not give. The claimed one stands beside
    the receipt, and is the signed one only where the report has no finding of 8.4."""

    row: int
    claimed: float
    computed: float

    @property
    def is_of_tokens(self) -> bool:
        return False

    @property
    def sentence(self) -> str:
        return (
            f"Value number {self.row} of the encoding, the first being number 0, is "
            f"{self.claimed!r} beside the receipt; the model gives {self.computed!r}."
        )

    @property
    def facts(self) -> dict[str, object]:
        """For JSON; documented keys."""
        return {
            "row": self.row,
            "claimed": self.claimed,
            "computed": self.computed,
            "sentence": self.sentence,
        }


Difference = TokenDifference | ValueDifference


def token_difference(spoken: Spoken, drawn: Array, logs: Array) -> TokenDifference | None:
    """The first row where tokens or the bits of log-probabilities differ."""
    count = len(spoken.tokens)
    said = np.asarray(spoken.tokens, np.int64) != drawn[:count]
    at = _first(said | (_bits(spoken.logprobs) != _bits(logs[:count])))
    if at is None:
        return None
    return TokenDifference(
        at, spoken.tokens[at], int(drawn[at]), float(spoken.logprobs[at]), float(logs[at])
    )


def value_difference(encoded: Encoded, values: Array) -> ValueDifference | None:
    """The first value whose bits differ."""
    at = _first(_bits(encoded.values) != _bits(values))
    if at is None:
        return None
    return ValueDifference(at, float(encoded.values[at]), float(values[at]))


def _bits(x: Array) -> Array:
    return np.ascontiguousarray(x).view("<u4")


def _first(differ: Array) -> int | None:
    rows = np.flatnonzero(differ)
    return int(rows[0]) if rows.size else None


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
    difference: Difference | None = None
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
    request: AnyRequest,
    said: Spoken | Encoded,
    trust: Sequence[PublicKey] | None = None,
) -> tuple[SignedReceipt, AnyJob]:
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
                f"The receipt names a different {name} than the one here.",
                f"Ask its sender for the {name} that it names, or reject the answer.",
            )
    answer = job_of(statement, request, said, receipt.choice)
    try:
        job = answer.digest
    except UsageError as error:  # the sizes are the sender's, and so is the fault
        raise CorruptFileError(
            f"These files are not an answer of the model: {error.message}", "Reject the answer."
        ) from error
    if job != receipt.job:
        raise DigestMismatchError(
            "The receipt's job is not that of this request and these tokens: nobody has signed "
            "this answer.",
            "Reject the answer.",
        )
    return signed, answer


def job_of(
    statement: ModelStatement, request: AnyRequest, said: Spoken | Encoded, choice: int
) -> AnyJob:
    """The job that files of another party make. Raises CorruptFileError for a request and an answer
    of two kinds."""
    if isinstance(request, ModelRequest) and isinstance(said, Spoken):
        return AnswerJob(statement, request, said, choice)
    if isinstance(request, EncodingRequest) and isinstance(said, Encoded):
        return EncodingJob(statement, request, said, choice)
    raise CorruptFileError(
        "Either the request or the answer is for an encoder, but not both.", "Reject the answer."
    )


def check_words(
    signed: SignedReceipt, answer: AnyJob, cancellation: bytes | None = None
) -> AnswerReport:
    """What there is to find without weights. `cancellation` is the file beside the receipt."""
    notes, unsigned = list[Said](), list[Said]()
    if cancellation is not None and isinstance(answer, AnswerJob):
        unsigned += finding_of(cancellation, signed.receipt, answer.request)
    elif cancellation is not None:
        unsigned.append(Said("6.6.3", "A cancellation stands beside an encoding."))
    elif signed.receipt.finish == CANCELLED:
        notes.append(Said("6.6", "Nothing here shows that the client cancelled the answer."))
    if isinstance(answer, AnswerJob) and answer.request.server_seed:
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
    answer: AnyJob,
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
    answer: AnyJob,
    program: Program,
    weights: Mapping[str, Array],
    context: ExecutionContext = DEFAULT,
    compared: Callable[[], object] = lambda: None,
) -> AnswerReport:
    """The report of `check_words` with what one execution of the job shows. The caller has compared
    the weights, or `compared` waits for that: it is called when all is ready, before anything is
    executed. `seconds` has no part of that waiting. Raises CorruptFileError for a program that no
    answer has, and what `compared` does."""
    began = time.monotonic()
    answer.check_program(program)
    with context.entered():
        engine = Engine(
            answer.in_memory(program), State(answer.state(program, weights)), context=context
        )
        waited = time.monotonic()
        compared()
        began += time.monotonic() - waited
        engine.run()
        final, host = answer.digests_after(engine.state), engine.context.device.host
        made = {n: np.asarray(host(engine.state.slots[n])) for n in answer.slot_types()}
    root, seconds = state_root(final), time.monotonic() - began
    report = _compared(report, _difference(answer, made), root, seconds)
    if report.contradictions and isinstance(answer, AnswerJob):
        evidence = OtherTokens.of(signed, answer, final, made[TOKENS])
        report = replace(report, convicting=evidence)
    return report


def _difference(answer: AnyJob, made: Mapping[str, Array]) -> Difference | None:
    """The first row of the claim that the execution did not make."""
    if isinstance(answer, EncodingJob):
        return value_difference(answer.encoded, made[VALUES])
    return token_difference(answer.spoken, made[TOKENS], made[LOGPROBS])


def _compared(
    report: AnswerReport, difference: Difference | None, root: bytes, seconds: float
) -> AnswerReport:
    """The report with what the execution shows (ANSWERS 8.5)."""
    receipt, words = report.receipt, report.contradictions
    if root == receipt.state and difference is not None and difference.is_of_tokens:
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
