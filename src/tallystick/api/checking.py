"""`check`, put together once for one answer and for many: what a model says of answers.

Hashing in the core and waiting for another process need no Python. So they run on threads of their
own, while their caller does something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Generic, TypeVar

from tallystick.answers.check import AnswerReport, check_words, executed
from tallystick.answers.derive import check_adapter, check_program_of, check_vocabulary
from tallystick.answers.encoding_job import EncodingJob
from tallystick.answers.files import AnswerFiles, read_statement
from tallystick.answers.job import check_weights
from tallystick.answers.model import Model, open_model, weights
from tallystick.answers.receipt import SignedReceipt
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.answers.text import ModelWords, findings, findings_of_encoding
from tallystick.answers.words import AnyJob, Said
from tallystick.commit.signing import PublicKey
from tallystick.commit.tensor import Array
from tallystick.devices.context import ExecutionContext, context_on
from tallystick.errors import CannotCheckError, CounterpartyError, DigestMismatchError
from tallystick.made_once import made_once

T = TypeVar("T")


class Begun(Generic[T]):
    """One call that runs on a thread. Nobody has to wait for it, but the process ends only after
    it: a thread cannot be stopped cleanly while it is in the core."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._made: list[T] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="tallystick-begun")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._made.append(self._call())
        except BaseException as error:  # whoever waits gets it, whatever it is
            # The frames of its traceback hold what the call holds, weights for one.
            self._error = error.with_traceback(None)
        finally:
            del self._call

    def result(self) -> T:
        """The result, when it is there. Raises what the call has raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made[0]


class BegunOnce(Generic[T]):
    """Calls by name. Each runs once, for everybody who asks for its result.

    A CounterpartyError is kept, because the same files give it again. Any other failure may be a
    passing one of this machine, so the next caller starts the call again.
    """

    def __init__(self) -> None:
        self._begun: dict[bytes, Begun[T]] = {}

    def begin(self, name: bytes, call: Callable[[], T]) -> None:
        """Start the call, unless one of this name has started."""
        if name not in self._begun:
            self._begun[name] = Begun(call)

    def result(self, name: bytes) -> T:
        """The result of a call that was started. Raises what the call has raised."""
        try:
            return self._begun[name].result()
        except CounterpartyError:
            raise
        except BaseException:
            del self._begun[name]
            raise


class AnswerChecks:
    """A model's own directory, with that of its adapter, and the reader's statement of it where
    there is one, against which answers are checked. What many answers share is compared once.
    Raises as `open_model`, and StorageError, CorruptFileError for the statement.
    """

    def __init__(
        self,
        model: Path,
        statement: Path | None = None,
        trust: list[PublicKey] | None = None,
        threads: int | None = None,
        device: str = "cpu",
        adapter: Path | None = None,
    ) -> None:
        self._directory, self._adapter = model, adapter
        self._model(False)
        self._own = None if statement is None else read_statement(statement)
        self._trust, self._threads, self._device = trust, threads, device
        self._derived: set[tuple[bytes, ProgramName]] = set()
        # By the digest of a statement.
        self._compared = BegunOnce[None]()
        self._words = BegunOnce[ModelWords]()

    # The statement says whether the adapter is merged.
    @made_once
    def _model(self, merged: bool) -> Model:
        return open_model(self._directory, self._adapter, merged)

    @made_once
    def _weights(self, merged: bool) -> dict[str, Array]:
        return weights(self._model(merged))

    def words(self, files: AnswerFiles) -> AnswerReport:
        """Check an answer without a weight: signatures, digests, words and texts. Raises as
        `check`, and CannotCheckError where texts cannot be compared here."""
        signed, answer = self._of_this_model(files)
        report = check_words(signed, answer, files.cancellation)
        if not report.contradictions:
            self._begin_words(answer.statement)
        files.program_of(answer)
        return report if report.contradictions else self._with_texts(report, answer, needed=True)

    def report(self, files: AnswerFiles, *, execute: bool = True) -> AnswerReport:
        """Check an answer: also that weights and program of its statement are the model's, and with
        `execute` every number that it states. Raises as `check`."""
        signed, answer = self._of_this_model(files)
        statement, merged = answer.statement, answer.statement.merged
        report = check_words(signed, answer, files.cancellation)
        # The tokenizer's process, and then the digests of weights, go on beside what follows.
        if not report.contradictions:
            self._begin_words(statement)
        program = files.program_of(answer)
        if not report.contradictions:
            self._begin_weights(statement)
        compared = partial(self._compared.result, statement.digest)
        if self._own is None:
            self._derive(statement, answer.program_name)
        if not report.contradictions and execute:
            context, held = self._context(statement), self._weights(merged)
            report = executed(report, signed, answer, program, held, context, compared)
        elif not report.contradictions:
            compared()
        if self._own is not None:
            sentence = "The program is that of your own statement, and was not derived again."
            report = noted(report, Said("8.5", sentence))
        return report if report.contradictions else self._with_texts(report, answer, needed=False)

    def _context(self, statement: ModelStatement) -> ExecutionContext:
        return context_on(self._device, lambda: statement.contract, self._threads)

    def _of_this_model(self, files: AnswerFiles) -> tuple[SignedReceipt, AnyJob]:
        if self._own is not None and self._own.digest != files.statement.digest:
            raise DigestMismatchError(
                "The answer is from another model than your statement's.", "Reject the answer."
            )
        signed, answer = files.signed(self._trust)
        if self._own is None:
            model = self._model(answer.statement.merged)
            check_adapter(model, answer.statement)
            check_vocabulary(model, answer.statement)
        return signed, answer

    def _derive(self, statement: ModelStatement, name: ProgramName) -> None:
        """Compare a program of the statement with the model's, once."""
        if (statement.digest, name) not in self._derived:
            check_program_of(self._model(statement.merged), statement, name)
            self._derived.add((statement.digest, name))

    def _begin_weights(self, statement: ModelStatement) -> None:
        """Begin to compare the weights with the statement."""
        held = self._weights(statement.merged)
        self._compared.begin(statement.digest, lambda: check_weights(statement, held))

    def _with_texts(self, report: AnswerReport, answer: AnyJob, needed: bool) -> AnswerReport:
        """The report with what 8.6 finds. Where this machine or the model has nothing to compare
        with, that is a note; CannotCheckError if nothing else was asked for (`needed`)."""
        try:
            found = self._found(report, answer)
        except CannotCheckError as error:
            if needed:
                raise
            told = f"Prompt and text were not compared. {error.message}"
            return noted(report, Said("8.6", told))
        return replace(report, findings=(*report.findings, *found), texts=True)

    def _found(self, report: AnswerReport, answer: AnyJob) -> tuple[Said, ...]:
        self._begin_words(answer.statement)
        words = self._words.result(answer.statement.digest)
        if isinstance(answer, EncodingJob):
            encoding = self._model(answer.statement.merged).encoding
            return findings_of_encoding(words, () if encoding is None else encoding.labels, answer)
        return findings(words, answer.statement, answer.request, answer.spoken, report.receipt)

    def _begin_words(self, statement: ModelStatement) -> None:
        """Begin to open the model's tokenizer, whose process takes a while to start."""
        model = self._model(statement.merged)
        self._words.begin(
            statement.digest,
            lambda: ModelWords.of(statement, model.files, model.chat_template, renders=False),
        )


def noted(report: AnswerReport, note: Said) -> AnswerReport:
    return replace(report, notes=(*report.notes, note))
