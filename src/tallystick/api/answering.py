"""`generate`, put together once for every face: a model that gives answers with receipts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tallystick.answers.compared import (
    check_adapter,
    check_program_of,
    check_vocabulary,
    stated_model,
)
from tallystick.answers.files import read_program, read_statement, write_answer
from tallystick.answers.job import AnswerJob, check_weights
from tallystick.answers.model import Model, weights
from tallystick.answers.receipt import CANCELLED, LENGTH, STOP, AnswerReceipt, sign_receipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.spoken import Spoken
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.answers.text import ModelWords
from tallystick.answers.words import most_tokens, stop_set
from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import Array
from tallystick.disk.regular import is_directory
from tallystick.errors import UsageError
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import ModelNetwork
from tallystick.generation.requests import SubmittedRequest
from tallystick.program.ir import Program

# Gets the number of the answer and its text so far, whenever there is more of it.
Heard = Callable[[int, str], None]
_DAY_MS = 24 * 60 * 60 * 1000
DAYS = 30


@dataclass(frozen=True, eq=False)
class GivenAnswer:
    """An answer: its text, tokens (N), log-probabilities (f32[N]) and finish, and the signed
    receipt of it. `job` is what the receipt is about."""

    text: str
    tokens: tuple[int, ...]
    logprobs: Array
    finish: str
    receipt: bytes
    job: AnswerJob
    program: Program
    cancellation: bytes | None = None

    def save(self, directory: Path, overwrite: bool = False) -> None:
        """Write the answer's directory. Raises UsageError where there is one, StorageError."""
        write_answer(directory, self.receipt, self.job, self.program, overwrite, self.cancellation)


def statement_place(model: Path, adapter: Path | None = None) -> Path:
    """Where a model's statement lies unless another place is named: beside its directory, or beside
    that of its adapter."""
    beside = model if adapter is None else adapter
    return beside.with_name(beside.name + ".statement")


class Answering:
    """A model directory, and that of its adapter if it has one, with the statement, ready to
    answer. The weights are compared with the statement once, a program before the first signature
    that names it. Raises as `open_model`, and DigestMismatchError for another model's statement.
    """

    def __init__(
        self,
        directory: Path,
        statement: Path | None = None,
        threads: int | None = None,
        adapter: Path | None = None,
    ) -> None:
        self.place = statement_place(directory, adapter) if statement is None else statement
        if not is_directory(self.place):
            with_ = "" if adapter is None else f" --adapter {adapter}"
            raise UsageError(
                f"{directory} has no model statement at {self.place}.",
                f"Make one: `tallystick model statement {directory}{with_} -o {self.place}`.",
            )
        self.statement: ModelStatement = read_statement(self.place)
        self.model: Model = stated_model(directory, adapter, self.statement)
        check_adapter(self.model, self.statement)
        check_vocabulary(self.model, self.statement)
        # The bytes that were compared are those that the engine computes with.
        held = weights(self.model)
        check_weights(self.statement, held)
        self.words = ModelWords.of(self.statement, self.model.files, self.model.chat_template)
        network = ModelNetwork(self.model, self.statement.contract, held)
        self._engine = AnswerEngine(network, threads=threads)
        self._programs: dict[ProgramName, Program] = {}

    def answer(
        self,
        request: ModelRequest,
        key: PrivateKey,
        days: int = DAYS,
        heard: Heard | None = None,
        ends: Mapping[int, tuple[int, bytes]] | None = None,
    ) -> list[GivenAnswer]:
        """The answers to a request, one for each choice. `ends` has, by choice, after how many
        tokens the client ends it, and its cancellation (ANSWERS 6.6.2). Raises UsageError for one
        that can never be answered, DigestMismatchError where the statement's program is not the
        model's."""
        if request.model != self.statement.digest:
            raise UsageError(
                "The request is to another model than the one here.",
                "Make it with the digest of this model's statement.",
            )
        prompt = self.words.prompt(request)
        settings = request.settings
        most = most_tokens(self.statement, request, len(prompt))
        if most < 1:
            raise UsageError(
                f"The model statement has no bucket for a prompt of {len(prompt)} tokens.",
                "Shorten it, or make a statement with a larger one (--bucket).",
            )
        stop = tuple(sorted(stop_set(self.statement, request)))
        asked = replace(settings, seed=request.seed, stop=stop, max_tokens=most)
        listeners = [_Listener(self, request, stop, n, heard) for n in range(request.choices)]
        for number, listener in enumerate(listeners):
            count, listener.cancellation = (ends or {}).get(number, (most, None))
            settings = replace(asked, max_tokens=min(most, count))
            listener.cut = count < most
            listener.handle = self._engine.submit(prompt, settings, number, listener)
        self._engine.run()
        return [self._signed(listener, prompt, key, days) for listener in listeners]

    def _signed(
        self, listener: _Listener, prompt: tuple[int, ...], key: PrivateKey, days: int
    ) -> GivenAnswer:
        assert listener.handle is not None and listener.handle.answer is not None
        said, request = listener.handle.answer, listener.request
        finish = STOP if listener.stopped else said.finish
        if finish == LENGTH and listener.cut:
            finish = CANCELLED
        spoken = Spoken(prompt, said.tokens, np.asarray(said.logprobs, np.float32))
        text = self.words.text(self.statement, request, spoken)
        job = AnswerJob(self.statement, request, replace(spoken, text=text), listener.number)
        program = self._program(job.program_name)
        final, root = job.roots()
        now = int(time.time() * 1000)
        receipt = AnswerReceipt(
            model=self.statement.digest,
            request=request.digest,
            choice=listener.number,
            job=job.digest,
            root=root,
            state=final,
            prompt=len(prompt),
            answer=len(said.tokens),
            finish=finish,
            time=now,
            until=now + days * _DAY_MS,
            signer=key.public,
        )
        return GivenAnswer(
            text,
            said.tokens,
            spoken.logprobs,
            finish,
            sign_receipt(key, receipt),
            job,
            program,
            listener.cancellation if finish == CANCELLED else None,
        )

    def _program(self, name: ProgramName) -> Program:
        """A program of the statement, which is the model's: the engine computes by the model, and
        a job that named another program would convict whoever signs its receipt."""
        if name not in self._programs:
            check_program_of(self.model, self.statement, name)
            self._programs[name] = read_program(self.place, self.statement, name)
        return self._programs[name]


class _Listener:
    """Hears the tokens of one answer, and ends it with a stop string (ANSWERS 6.4)."""

    def __init__(
        self,
        answering: Answering,
        request: ModelRequest,
        ends: tuple[int, ...],
        number: int,
        heard: Heard | None,
    ) -> None:
        self.request, self.number = request, number
        self.handle: SubmittedRequest | None = None
        self.stopped = self.cut = False
        self.cancellation: bytes | None = None
        self._heard, self._tokens, self._ends = heard, list[int](), ends
        self._tokenizer = answering.words.tokenizer

    def token(self, token: int, logprob: np.float32) -> None:
        if token in self._ends:
            return  # it ends the answer, and is no part of its text (ANSWERS 5.7)
        self._tokens.append(token)
        if self._heard is None and not self.request.stop_strings:
            return
        text = self._tokenizer.decode(self._tokens)
        if self._heard is not None:
            self._heard(self.number, text)
        assert self.handle is not None
        if any(stop in text for stop in self.request.stop_strings):
            self.stopped = True
            self.handle.cancel()  # an answer that has ended by itself stays
