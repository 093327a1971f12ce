"""Text sampled from a run's weights: byte tokens, taken greedily or by our own generator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from tallystick.commit.philox import philox4x32
from tallystick.commit.tensor import Array
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.job import Job
from tallystick.kernels.environment import exact_environment
from tallystick.program.executor import Executor


def _word(seed: int, position: int) -> int:
    return philox4x32((position, 0, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[0]


@exact_environment()
def pick(logits: Array, temperature: float, word: int) -> int:
    """The token for one row of logits: that of the largest logit at temperature 0, else drawn by
    `word`.

    Probabilities are binary64 and may differ between machines in the last bit. That does no harm:
    a sample is for people, and no part of a run.
    """
    if temperature <= 0:
        return int(np.argmax(logits))
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    total = np.cumsum(weights)
    return min(int(np.searchsorted(total, total[-1] * (word / 2.0**32), "right")), len(logits) - 1)


def sample_bytes(
    job: Job,
    slots: Mapping[str, Array],
    prompt: bytes,
    length: int,
    *,
    temperature: float = 0.8,
    seed: int = 0,
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
        token = pick(row, temperature, _word(seed, position))
        tokens.append(token)
        yield token
