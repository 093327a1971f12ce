"""The sampler's nodes as a program of their own, and what they give for some rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tallystick.answers.layout import Bucket, Settings, batch_types, record
from tallystick.answers.sampler import emit
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.ir import Program

SALT = np.arange(4)


def program(bucket: Bucket, sampler: str, vocabulary: int, contract: str = "ordered/1") -> Program:
    """Logits are one more batch input."""
    builder = Builder(find_contract(contract).text)
    types = batch_types(bucket, sampler, vocabulary)
    fields = {name: builder.batch(name, type_) for name, type_ in types.items()}
    logits = builder.batch("logits", TensorType("f32", (bucket.answer, vocabulary)))
    if sampler != "greedy":
        builder.rng()
    drawn, logprobs = emit(builder, sampler, logits, fields, vocabulary)
    return builder.finish({"drawn": drawn, "logprobs": logprobs})


@dataclass
class Drawn:
    """What a program gives: tokens, log-probabilities, and what argmax has chosen of."""

    tokens: np.ndarray
    logprobs: np.ndarray
    chosen_of: np.ndarray


def run(executor: Executor, batch: Mapping[str, np.ndarray], seed: int) -> Drawn:
    seen: list[np.ndarray] = []

    def tap(_: int, node: object, inputs: Sequence[object], __: object) -> None:
        if getattr(node, "op", "") == "aten.argmax":
            seen.append(np.array(inputs[0]))

    rng = (seed, 0) if executor.program.uses_rng else None
    found = executor.run_step({}, batch, rng=rng, tap=tap).outputs
    return Drawn(found["drawn"], found["logprobs"], seen[0])


def sampled(
    bucket: Bucket,
    settings: Settings,
    prompt: Sequence[int],
    answer: Sequence[int],
    logits: np.ndarray,
    seed: int,
    sampler: str | None = None,
) -> Drawn:
    """`logits` f32[A, V]; the settings' own sampler set, unless another one is named."""
    sampler = settings.set if sampler is None else sampler
    vocabulary = logits.shape[1]
    batch = record(bucket, settings, prompt, answer, SALT, vocabulary, sampler)
    executor = Executor(program(bucket, sampler, vocabulary))
    return run(executor, {**batch, "logits": logits}, seed)
