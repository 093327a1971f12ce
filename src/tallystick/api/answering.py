"""`generate`, put together once for every face: a model that gives answers with receipts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.derive import (
    check_adapter,
    check_program_of,
    check_vocabulary,
    stated_model,
)
from tallystick.answers.files import AnswerFiles, read_program, read_statement
from tallystick.answers.job import AnswerJob, check_weights
from tallystick.answers.layout import Settings
from tallystick.answers.model import Model, weights
from tallystick.answers.receipt import CANCELLED, LENGTH, STOP, AnswerReceipt, sign_receipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.special import TOKENIZER
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.answers.text import ModelWords
from tallystick.answers.words import most_tokens, stop_set
from tallystick.api.speculating import Speculation, drafter_of
from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import Array
from tallystick.data.sources.tokenizer import TokenizerFile, tokenizer_of
from tallystick.disk.regular import is_directory
from tallystick.errors import UsageError
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import ModelNetwork
from tallystick.generation.sequences import SubmittedRequest
from tallystick.program.ir import Program

# Gets the number of the answer and its text so far, whenever there is more of it.
Heard = Callable[[int, str], None]
# Gets each token of one answer with its log-probability, on the engine's thread.
HearsTokens = Callable[[int, np.float32], None]
# After how many tokens a client ends an answer, and its cancellation (ANSWERS 6.6.2).
ClientsEnd = tuple[int, bytes]
MEMORY = 1 << 30
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
        self.files.write(directory, overwrite)

    @property
    def files(self) -> AnswerFiles:
        """The files of the answer, as its directory has them."""
        return AnswerFiles.of(self.receipt, self.job, self.program, self.cancellation)


def statement_place(model: Path, adapter: Path | None = None) -> Path:
    """Where a model's statement lies unless another place is named: beside its directory, or beside
    that of its adapter."""
    beside = model if adapter is None else adapter
    return beside.with_name(beside.name + ".statement")


@dataclass(frozen=True, eq=False)
class PreparedRequest:
    """A request with its prompt's tokens, and the settings by which the engine draws: those of the
    request, with its seed, its whole stop set, and as many tokens as there can be."""

    request: ModelRequest
    prompt: tuple[int, ...]
    asked: Settings

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end an answer."""
        return self.asked.stop


class Answering:
    """A model directory, and that of its adapter if it has one, with the statement, ready to
    answer. The weights are compared with the statement once, a program before the first signature
    that names it. `memory` is the most bytes of keys and values. With `speculation` a pass may give
    several tokens, of the same bits. Raises as `open_model`, and DigestMismatchError for another
    model's statement.
    """

    def __init__(
        self,
        directory: Path,
        statement: Path | None = None,
        threads: int | None = None,
        adapter: Path | None = None,
        memory: int = MEMORY,
        speculation: Speculation | None = None,
    ) -> None:
        self.place = statement_place(directory, adapter) if statement is None else statement
        if not is_directory(self.place):
            with_ = "" if adapter is None else f" --adapter {adapter}"
            raise UsageError(
                f"{directory} has no model statement at {self.place}.",
                f"Make one with `tallystick model statement {directory}{with_} -o {self.place}`.",
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
        drafter = drafter_of(speculation, self.model, self.statement.contract, threads)
        self._engine = AnswerEngine(network, threads=threads, memory=memory, drafter=drafter)
        self._programs: dict[ProgramName, Program] = {}
        self._deriving = threading.Lock()

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens. Raises UsageError."""
        return self._decoder.decode(tokens)

    @cached_property
    def _decoder(self) -> TokenizerFile:
        """The tokenizer in a process of its own: what is drawn waits for no prompt that is read."""
        return tokenizer_of(self.model.files[TOKENIZER], Path(TOKENIZER))

    def prepare(self, request: ModelRequest) -> PreparedRequest:
        """The prompt of a request, and how it is drawn after. Any thread may call it. Raises
        UsageError for one that can never be answered."""
        if request.model != self.statement.digest:
            raise UsageError(
                "The request is for another model.",
                "Make the request with the digest of this model's statement.",
            )
        prompt = self.words.prompt(request)
        most = most_tokens(self.statement, request, len(prompt))
        if most < 1:
            raise UsageError(
                f"The model statement has no bucket for a prompt of {len(prompt)} tokens.",
                "Shorten the prompt, or make a statement with a larger bucket (--bucket).",
            )
        stop = tuple(sorted(stop_set(self.statement, request)))
        asked = replace(request.settings, seed=request.seed, stop=stop, max_tokens=most)
        return PreparedRequest(request, prompt, asked)

    def submit(
        self,
        prepared: PreparedRequest,
        number: int,
        hears: HearsTokens | None = None,
        namespace: bytes = b"",
        end: ClientsEnd | None = None,
    ) -> AnswerUnderway:
        """Put answer `number` to a request into the engine's queue. `end` is where the client ends
        it. Only the engine's thread calls it, and `step`. Raises UsageError for one that can never
        be answered."""
        asked, underway = prepared.asked, AnswerUnderway(prepared, number, self.decode, hears)
        if end is not None:
            underway.end_after(end)
        if underway.end is not None:
            asked = replace(asked, max_tokens=underway.end[0])
        underway.handle = self._engine.submit(prepared.prompt, asked, number, underway, namespace)
        return underway

    def step(self) -> bool:
        """One pass over the weights, for all answers that are under way. True if there is more to
        do."""
        return self._engine.step()

    def answer(
        self,
        request: ModelRequest,
        key: PrivateKey,
        days: int = DAYS,
        heard: Heard | None = None,
        ends: Mapping[int, ClientsEnd] | None = None,
    ) -> list[GivenAnswer]:
        """The answers to a request, one for each choice. `ends` says by choice where the client
        ends it. Raises UsageError for one that can never be answered, DigestMismatchError where the
        statement's program is not the model's."""
        prepared = self.prepare(request)
        answers = [
            self.submit(
                prepared,
                n,
                None if heard is None else self._texts(n, prepared, heard),
                end=(ends or {}).get(n),
            )
            for n in range(request.choices)
        ]
        while self.step():
            pass
        return [self.signed(one, key, days) for one in answers]

    def _texts(self, number: int, prepared: PreparedRequest, heard: Heard) -> HearsTokens:
        tokens: list[int] = []

        def hear(token: int, _logprob: np.float32) -> None:
            if token not in prepared.ends:
                tokens.append(token)
                heard(number, self.decode(tokens))

        return hear

    def signed(self, underway: AnswerUnderway, key: PrivateKey, days: int = DAYS) -> GivenAnswer:
        """The answer that has ended, with its receipt. Any thread may call it. Raises
        DigestMismatchError where the statement's program is not the model's, and what whoever heard
        its tokens has raised."""
        if underway.failure is not None:
            raise underway.failure
        assert underway.handle is not None and underway.handle.answer is not None
        said, request = underway.handle.answer, underway.prepared.request
        prompt, number = underway.prepared.prompt, underway.number
        finish, count = underway.finish, underway.tokens
        tokens, logprobs = said.tokens[:count], np.asarray(said.logprobs[:count], np.float32)
        spoken = Spoken(prompt, tokens, logprobs)
        text = self.words.text(self.statement, request, spoken)
        job = AnswerJob(self.statement, request, replace(spoken, text=text), number)
        program = self.program(job.program_name)
        final, root = job.roots()
        now = int(time.time() * 1000)
        receipt = AnswerReceipt(
            model=self.statement.digest,
            request=request.digest,
            choice=number,
            job=job.digest,
            root=root,
            state=final,
            prompt=len(prompt),
            answer=count,
            finish=finish,
            time=now,
            until=now + days * _DAY_MS,
            signer=key.public,
        )
        return GivenAnswer(
            text,
            tokens,
            logprobs,
            finish,
            sign_receipt(key, receipt),
            job,
            program,
            underway.end[1] if underway.end is not None and finish == CANCELLED else None,
        )

    def program(self, name: ProgramName) -> Program:
        """A program of the statement, which is the model's: the engine computes by the model, and
        a job that named another program would convict whoever signs its receipt. Any thread may
        call it."""
        with self._deriving:
            if name not in self._programs:
                check_program_of(self.model, self.statement, name)
                self._programs[name] = read_program(self.place, self.statement, name)
            return self._programs[name]


class AnswerUnderway:
    """An answer that is computed. It hears its tokens, and ends with a stop string (ANSWERS 6.4),
    or where the client ends it (6.6).

    `stopped` says that a stop string has ended it, `failure` what has. `decode` makes texts of
    tokens. `end` is the client's, if it comes before all tokens that there can be.
    """

    def __init__(
        self,
        prepared: PreparedRequest,
        number: int,
        decode: Callable[[Sequence[int]], str],
        hears: HearsTokens | None,
    ) -> None:
        self.prepared, self.number = prepared, number
        self.end: ClientsEnd | None = None
        self.handle: SubmittedRequest | None = None
        self.stopped = False
        self.failure: Exception | None = None
        self._decode, self._hears = decode, hears
        self._tokens: list[int] = []
        self._heard = 0

    @property
    def ended(self) -> bool:
        """Whether the answer is there, or what there is of a cancelled one."""
        return self.handle is not None and self.handle.answer is not None

    def cancel(self) -> None:
        """End the answer before the next pass. One that is there stays."""
        assert self.handle is not None
        self.handle.cancel()

    def end_after(self, end: ClientsEnd) -> None:
        """The client ends the answer there; of several such ends the one of the fewest tokens
        counts. The engine's thread calls it until the answer is there, and whoever signs it after
        that."""
        if end[0] >= self.prepared.asked.max_tokens:
            return  # the answer has ended with that token or before it (ANSWERS 6.5)
        if self.end is None or end[0] < self.end[0]:
            self.end = end
        self._end_in_time()

    def _end_in_time(self) -> None:
        if self.end is not None and self.handle is not None and self._heard >= self.end[0]:
            self.cancel()

    @property
    def tokens(self) -> int:
        """How many tokens of those that are there are the answer (ANSWERS 6.6.2)."""
        assert self.handle is not None and self.handle.answer is not None
        count = len(self.handle.answer.tokens)
        return count if self.end is None else min(count, self.end[0])

    @property
    def finish(self) -> str:
        """Why the answer that is there ends with its last token (ANSWERS 6.4 to 6.6)."""
        assert self.handle is not None and self.handle.answer is not None
        said, cut = self.handle.answer, self.end is not None and self.tokens == self.end[0]
        if cut and self.tokens < len(said.tokens):
            return CANCELLED
        if self.stopped:
            return STOP
        # To the engine the client's end is a length, or it is told to end there.
        return CANCELLED if cut and said.finish == LENGTH else said.finish

    def token(self, token: int, logprob: np.float32) -> None:
        """Called by the engine for each token, at once. Where whoever hears it fails, this answer
        ends, and no other."""
        if self.stopped or self.failure is not None:
            return
        try:
            self._hear(token, logprob)
        except Exception as error:
            self.failure = error
            self.cancel()
        else:
            self._heard += 1
            self._end_in_time()

    def _hear(self, token: int, logprob: np.float32) -> None:
        if self._hears is not None:
            self._hears(token, logprob)
        stops = self.prepared.request.stop_strings
        if not stops or token in self.prepared.ends:
            return  # what ends the answer is no part of its text (ANSWERS 5.7)
        self._tokens.append(token)
        text = self._decode(self._tokens)
        if any(stop in text for stop in stops):
            self.stopped = True
            self.cancel()
