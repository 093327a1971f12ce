"""Text sampled from a run's weights: byte tokens, taken greedily or by our own generator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tallystick.commit.philox import philox4x32
from tallystick.commit.tensor import Array
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.job import Job
from tallystick.kernels.environment import exact_environment
from tallystick.program.executor import Executor


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


def sample_bytes(
    job: Job,
    slots: Mapping[str, Array],
    prompt: bytes,
    length: int,
    draw: Draw,
    seed: int,
) -> Iterator[int]:
    """Yield `length` byte tokens that continue `prompt`.

    Raises CannotCheckError for a job without a forward program over byte tokens.
    """
    program = job.forward_program
    if program is None or set(program.batch_types) != {"tokens"}:
        raise CannotCheckError(
            f"The job {job.directory} is not a text model.", "Sample from a gpt2 job."
        )
    if not prompt:
        raise UsageError("An empty prompt cannot be continued.", "Give at least one character.")
    executor = Executor(program)
    block = program.batch_types["tokens"].shape[1]
    state = {name: slots[name] for name in program.state_types}
    tokens = list(prompt)
    for position in range(length):
        window = tokens[-block:]
        # Causal attention: the padding after the last token cannot reach its logits.
        padded = np.array([window + [0] * (block - len(window))], dtype=np.int64)
        logits = executor.run_step(state, {"tokens": padded}).outputs["logits"]
        row = logits[0, len(window) - 1][:256]
        token = pick(row, draw, _word(seed, position))
        tokens.append(token)
        yield token
