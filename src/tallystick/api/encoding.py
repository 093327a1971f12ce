"""Encodings that anyone can check: `embed`, `classify` (ANSWERS 11)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from tallystick.answers.beside_receipt import Encoded
from tallystick.answers.derive import check_adapter, check_program_of, check_vocabulary
from tallystick.answers.encoding_job import EncodingJob, EncodingRequest
from tallystick.answers.encoding_programs import VALUES, encoding_slots
from tallystick.answers.files import AnswerFiles, free_places, read_program, read_statement
from tallystick.answers.job import check_weights
from tallystick.answers.layout import CLASSES, EMBEDDING, EncodingBucket
from tallystick.answers.model import open_model, weights
from tallystick.answers.receipt import AnswerReceipt, sign_receipt
from tallystick.answers.request import new_secret
from tallystick.answers.statement import ProgramName
from tallystick.answers.text import ModelWords
from tallystick.api import given
from tallystick.api.answering import DAYS, statement_place
from tallystick.api.given import PathLike
from tallystick.closing import made_once
from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import DTYPES, Array
from tallystick.devices.context import ExecutionContext
from tallystick.disk.regular import is_directory
from tallystick.errors import RefusedModelError, UsageError
from tallystick.generation.encoders import EncoderEngine, ModelEncoder
from tallystick.program.executor import Executor
from tallystick.program.ir import Program
from tallystick.program.runner import StepInputs

_DAY_MS = 24 * 60 * 60 * 1000
# Texts of one call from which on the engine pays, which takes a second or more to open.
MANY_TEXTS = 32


@dataclass(frozen=True, eq=False)
class GivenEncoding:
    """An encoding: its values (f32[D]), the names of the classes that they are of, if they are of
    classes, and the signed receipt. `job` is what the receipt is about."""

    values: Array
    labels: tuple[str, ...]
    receipt: bytes
    job: EncodingJob
    program: Program

    @property
    def scores(self) -> Mapping[str, float]:
        """The logit of each class, by its name, the largest first; classes of one name are numbered
        from the second on."""
        named: dict[str, float] = {}
        for n in np.argsort(np.negative(self.values), kind="stable"):
            label = self.labels[n] if self.labels else str(n)
            named[label if label not in named else f"{label} ({n})"] = float(self.values[n])
        return named

    @property
    def label(self) -> str:
        """The name of the class with the largest logit, the first one of several."""
        return next(iter(self.scores))

    def save(self, directory: Path, overwrite: bool = False) -> None:
        """Write the encoding's directory. Raises UsageError where there is one, StorageError."""
        self.files.write(directory, overwrite)

    @property
    def files(self) -> AnswerFiles:
        """The files of the encoding, as its directory has them."""
        return AnswerFiles.of(self.receipt, self.job, self.program)


class Encoder:
    """An encoder's directory with its statement, ready to encode. The weights are compared with the
    statement and bound once, a program before the first signature that names it. Many texts are
    computed together (`engine`); then and alone they have the same bits.

    Raises as `open_model`, RefusedModelError for a model that is no encoder, UsageError without a
    statement, DigestMismatchError for another model's.
    """

    def __init__(
        self, directory: Path, statement: Path | None = None, threads: int | None = None
    ) -> None:
        self.model = open_model(directory)
        if self.model.encoding is None:
            raise RefusedModelError(
                "The model generates text, so it is not an encoder.",
                "Use `tallystick generate`.",
            )
        self.encoding = self.model.encoding
        self.place = statement_place(directory) if statement is None else statement
        if not is_directory(self.place):
            raise UsageError(
                f"{directory} has no model statement at {self.place}.",
                f"Make one with `tallystick model statement {directory} --bucket "
                f"{self.model.longest} -o {self.place}`.",
            )
        self.statement = read_statement(self.place)
        check_adapter(self.model, self.statement)
        check_vocabulary(self.model, self.statement)
        held = weights(self.model)
        check_weights(self.statement, held)
        self.words = ModelWords.of(self.statement, self.model.files, self.model.chat_template)
        self._held = held
        self._context = ExecutionContext(threads)

    @cached_property
    def engine(self) -> EncoderEngine:
        """What computes several texts at once. Whoever opens it has every text of the engine's
        size computed by it from then on."""
        network = ModelEncoder(self.model, self.statement.contract)
        return EncoderEngine(network, self._held, self._context)

    def encode(self, request: EncodingRequest, key: PrivateKey, days: int = DAYS) -> GivenEncoding:
        """The encoding of a request's text. Raises UsageError for one that has none: a text that is
        too long is never shortened."""
        return self.encode_all([request], key, days)[0]

    def encode_all(
        self, requests: Sequence[EncodingRequest], key: PrivateKey, days: int = DAYS
    ) -> list[GivenEncoding]:
        """The encodings of the texts of several requests. Raises as `encode`."""
        asked = [self.prepare(request) for request in requests]
        found = zip(asked, self.values(asked), strict=True)
        return [self.signed(one, values, key, days) for one, values in found]

    def prepare(self, request: EncodingRequest) -> EncodingJob:
        """The job of a request, whose values are not known yet. Raises as `encode`."""
        self._check(request)
        prompt = self.words.prompt(request)
        if odd := [token for token in prompt if not 0 <= token < self.model.vocabulary]:
            raise UsageError(
                f"Token {odd[0]} is outside the model's vocabulary of {self.model.vocabulary} "
                "tokens.",
                "Send tokens of this model.",
            )
        if len(prompt) > self.model.longest:
            raise UsageError(
                f"The text has {len(prompt)} tokens, but the model reads at most "
                f"{self.model.longest}. A text is never shortened.",
                "Split the text, and send its parts separately.",
            )
        unknown = np.zeros(self.encoding.values, np.float32)
        job = EncodingJob(self.statement, request, Encoded(prompt, unknown))
        assert job.bucket  # or the text has none
        return job

    def values(self, jobs: Sequence[EncodingJob]) -> list[Array]:
        """The values of the text of each job. A text of more places than a pass has rows is
        computed by the program of its bucket."""
        if len(jobs) < MANY_TEXTS and "engine" not in self.__dict__:
            return [self._values(job) for job in jobs]
        engine = self.engine
        short = [job.text for job in jobs if len(job.text) <= engine.longest]
        found = iter(engine.values(short))
        return [
            next(found) if len(job.text) <= engine.longest else self._values(job) for job in jobs
        ]

    def signed(
        self, asked: EncodingJob, values: Array, key: PrivateKey, days: int = DAYS
    ) -> GivenEncoding:
        """The encoding of a prepared request, with its receipt. Raises DigestMismatchError where
        the statement's program is not the model's."""
        labels = self.encoding.labels
        program = self.program(asked.program_name)
        job = replace(asked, encoded=Encoded(asked.encoded.prompt, values, labels))
        return GivenEncoding(values, labels, _signed(job, key, days), job, program)

    def _check(self, request: EncodingRequest) -> None:
        if request.model != self.statement.digest:
            raise UsageError(
                "The request is for another model.",
                "Make the request with the digest of this model's statement.",
            )
        if request.output != self.encoding.set:
            raise UsageError(
                f"The request asks for `{request.output}`, but the model gives "
                f"`{self.encoding.set}`.",
                "Ask for what the model gives.",
            )

    def _values(self, job: EncodingJob) -> Array:
        executor, slots = self._bound(job.program_name)
        executor.execute(slots, StepInputs(job.columns))
        return np.array(slots[VALUES], np.float32)

    @made_once
    def _bound(self, name: ProgramName) -> tuple[Executor, dict[str, Array]]:
        """The executor of a program, and its slots: the weights, and room for what it makes."""
        program = self.program(name)
        own = encoding_slots(EncodingBucket(name.length, name.answer))
        room = {n: np.zeros(type_.shape, DTYPES[type_.dtype]) for n, type_ in own.items()}
        held = {**self._held, **room}
        return Executor(program, self._context), {n: held[n] for n in program.state_types}

    @made_once
    def program(self, name: ProgramName) -> Program:
        """A program of the statement, which is the model's: a job that named another program would
        convict whoever signs its receipt."""
        check_program_of(self.model, self.statement, name)
        return read_program(self.place, self.statement, name)


def _signed(job: EncodingJob, key: PrivateKey, days: int) -> bytes:
    final, root = job.roots()
    now = int(time.time() * 1000)
    receipt = AnswerReceipt(
        model=job.statement.digest,
        request=job.request.digest,
        choice=job.choice,
        job=job.digest,
        root=root,
        state=final,
        prompt=len(job.encoded.prompt),
        answer=len(job.encoded.values),
        finish=job.request.output,
        time=now,
        until=now + days * _DAY_MS,
        signer=key.public,
    )
    return sign_receipt(key, receipt)


def embed(
    model: PathLike | Encoder,
    texts: str | Sequence[str | Sequence[int]],
    *,
    key: PrivateKey | PathLike | None = None,
    out: PathLike | None = None,
    statement: PathLike | None = None,
    days: int = DAYS,
    threads: int | None = None,
) -> list[GivenEncoding]:
    """The embedding of each text by the encoder in a directory, with a signed receipt for each.

    `model` is a transformers directory with the files of sentence-transformers, or an `Encoder`
    that has been opened. `texts` is a text, or a list of texts and of lists of token ids.
    `statement` is the directory of `tallystick model statement`; by default MODEL.statement beside
    the model. `key` signs; without one, a key that is made for this call and thrown away, which
    answers no dispute later. Disputes are answered for `days`. A text that is longer than the model
    reads is refused.

    The encodings are written to `out`, or to `out`/0, `out`/1, … where there are several. Raises
    UsageError for a text that has no encoding and where `out` is taken, RefusedModelError,
    DigestMismatchError where the statement is another model's, StorageError.
    """
    return _encoded(EMBEDDING, model, texts, key, out, statement, days, threads)


def classify(
    model: PathLike | Encoder,
    texts: str | Sequence[str | Sequence[int]],
    *,
    key: PrivateKey | PathLike | None = None,
    out: PathLike | None = None,
    statement: PathLike | None = None,
    days: int = DAYS,
    threads: int | None = None,
) -> list[GivenEncoding]:
    """The logit of each class for each text, by a model with a classifier: as `embed`, with the
    names of the classes from the model's config."""
    return _encoded(CLASSES, model, texts, key, out, statement, days, threads)


def _encoded(
    output: str,
    model: PathLike | Encoder,
    texts: str | Sequence[str | Sequence[int]],
    key: PrivateKey | PathLike | None,
    out: PathLike | None,
    statement: PathLike | None,
    days: int,
    threads: int | None,
) -> list[GivenEncoding]:
    asked = [texts] if isinstance(texts, str) else list(texts)
    if not asked:
        raise UsageError("No text was given.", "Pass at least one text.")
    places = [] if out is None else free_places(given.path(out), len(asked))
    place = None if statement is None else given.path(statement)
    opened = model if isinstance(model, Encoder) else Encoder(given.path(model), place, threads)
    signing = given.private(key) or PrivateKey.generate()
    digest = opened.statement.digest
    requests = [
        EncodingRequest(digest, output, text=one, secret=new_secret())
        if isinstance(one, str)
        else EncodingRequest(digest, output, tokens=tuple(one), secret=new_secret())
        for one in asked
    ]
    encodings = opened.encode_all(requests, signing, days)
    for directory, one in zip(places, encodings, strict=False):  # none without `out`
        one.save(directory)
    return encodings
