"""What the weights of a state give to people: their validation loss, and text sampled from them.

Neither enters a root. Tokens are taken greedily, or drawn by our own generator.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tallystick.commit.order import philox4x32
from tallystick.commit.tensor import Array
from tallystick.data.sources.tokenizer import load_tokenizer
from tallystick.devices.context import DEFAULT, ExecutionContext, in_its_context
from tallystick.devices.device import Tensor
from tallystick.devices.environment import exact_environment
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.job import TOKENIZER_DIGEST, Job
from tallystick.program.executor import Executor
from tallystick.program.runner import StepInputs


class Evaluator:
    """Mean loss over the job's validation records, in batches of the captured size.

    Records that do not fill a last batch are left out. A loss that draws random numbers gets those
    of the job's seed and the batch's number, so that every evaluation has the same ones.
    """

    def __init__(self, job: Job, context: ExecutionContext = DEFAULT) -> None:
        if job.eval_program is None or job.evaluation is None:
            raise CannotCheckError(
                f"The job {job.directory} has no validation data.",
                "Make a job with validation: save_job(validation=..., eval_program=...), or a "
                "recipe.",
            )
        self._job = job
        self._size = job.evaluation.batch_size
        self._batches = job.evaluation.record_count // self._size
        self._executor = Executor(job.eval_program, context)
        self.context = context

    @in_its_context
    def loss(self, slots: Mapping[str, Tensor], batches: int | None = None) -> float:
        """The validation loss of the state `slots`, a binary32 value.

        `batches` limits the number of batches, for a measurement of time."""
        count = self._batches if batches is None else batches
        total = np.float64(0)
        columns = self._job.validation_columns
        program = self._executor.program
        state = {name: slots[name] for name in program.state_types}
        for index in range(count):
            part = slice(index * self._size, (index + 1) * self._size)
            batch = {name: np.ascontiguousarray(column[part]) for name, column in columns.items()}
            key = (self._job.commitment.rng_seed, index) if program.uses_rng else None
            result = self._executor.execute(state, StepInputs(batch, rng=key))
            total += np.float64(result.loss if result.loss is not None else np.nan)
        with np.errstate(over="ignore"):
            return float(np.float32(total / count))


_MARK = "\ufffd"


def _word(seed: int, position: int) -> int:
    return philox4x32((position, 0, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[0]


@dataclass(frozen=True)
class Draw:
    """How a token is drawn: the likeliest one at temperature 0; else among the `top_k` likeliest
    ones, and among the likeliest ones whose probabilities reach `top_p` together."""

    temperature: float = 0.8
    top_k: int | None = None
    top_p: float | None = None


@exact_environment()
def pick(logits: Array, draw: Draw, word: int) -> int:
    """The token for one row of logits, drawn by `word`.

    Probabilities are binary64 and may differ between machines in the last bit. That does no harm:
    a sample is for people, and no part of a run.
    """
    if draw.temperature <= 0:
        return int(np.argmax(logits))
    scaled = logits.astype(np.float64) / draw.temperature
    weights = np.exp(scaled - scaled.max())
    order = np.arange(len(weights))
    if draw.top_k is not None or draw.top_p is not None:
        order = np.argsort(-weights, kind="stable")[: draw.top_k]
    total = np.cumsum(weights[order])
    if draw.top_p is not None:
        kept = int(np.searchsorted(total, draw.top_p * total[-1])) + 1
        order, total = order[:kept], total[:kept]
    at = int(np.searchsorted(total, total[-1] * (word / 2.0**32), "right"))
    return int(order[min(at, len(order) - 1)])


class TextTokens:
    """The tokens of a job's texts: those of its tokenizer file, else bytes."""

    def __init__(self, job: Job, tokenizer: Path | None) -> None:
        """Raises UsageError unless the file is the one whose tokens the job's records are,
        CannotCheckError without the package tokenizers."""
        digest = job.about.get(TOKENIZER_DIGEST)
        if digest is None and tokenizer is not None:
            raise UsageError(f"{job.directory} uses bytes as tokens.", "Leave --tokenizer out.")
        if digest is not None and tokenizer is None:
            raise UsageError(
                f"{job.directory} uses the tokens of a tokenizer file: "
                f"{job.about.get('tokenizer', 'tokenizer.json')} with the SHA-256 {digest}.",
                "Pass this file with --tokenizer FILE.",
            )
        self._file = None if tokenizer is None else load_tokenizer(tokenizer)
        if self._file is not None and self._file.digest != digest:
            raise UsageError(
                f"{tokenizer} has the SHA-256 {self._file.digest}, but the tokenizer of "
                f"{job.directory} has {digest}.",
                "Pass the file that the job was made with.",
            )

    @property
    def count(self) -> int:
        """One more than the greatest token."""
        return 256 if self._file is None else self._file.count

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        if self._file is None:
            return list(text.encode("utf-8"))
        found: list[int] = self._file.encode(text.encode("utf-8"), "the prompt").tolist()
        return found

    def continued(self, prompt: Sequence[int], tokens: Iterable[int]) -> Iterator[str]:
        """The text of `tokens` behind that of `prompt`, in parts of whole characters."""
        if self._file is None:
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            for token in tokens:
                yield decoder.decode(bytes([token]))
            yield decoder.decode(b"", final=True)
            return
        every, shown = list(prompt), self._file.decode(prompt)
        text = shown
        for token in tokens:
            every.append(token)
            # A part of a character is decoded with a mark at the end, until it is whole.
            text = self._file.decode(every)
            if not text.endswith(_MARK):
                yield text[len(shown) :]
                shown = text
        yield text[len(shown) :]


def sample_tokens(
    job: Job,
    slots: Mapping[str, Array],
    prompt: Sequence[int],
    length: int,
    draw: Draw,
    seed: int,
    count: int = 256,
) -> Iterator[int]:
    """Yield `length` tokens below `count` that continue `prompt`.

    Raises CannotCheckError for a job without a forward program over tokens.
    """
    program = job.forward_program
    if program is None or set(program.batch_types) != {"tokens"}:
        raise CannotCheckError(
            f"The job {job.directory} is not for a text model.",
            "Use the run of a gpt2 or llama job.",
        )
    if not prompt:
        raise UsageError(
            "The prompt is empty, so there is nothing to continue.", "Give at least one character."
        )
    executor = Executor(program)
    block = program.batch_types["tokens"].shape[1]
    state = {name: slots[name] for name in program.state_types}
    tokens = list(prompt)
    for position in range(length):
        window = tokens[-block:]
        # Causal attention: the padding after the last token cannot reach its logits.
        padded = np.array([window + [0] * (block - len(window))], dtype=np.int64)
        logits = executor.execute(state, StepInputs({"tokens": padded})).outputs["logits"]
        row = logits[0, len(window) - 1][:count]
        token = pick(row, draw, _word(seed, position))
        tokens.append(token)
        yield token
