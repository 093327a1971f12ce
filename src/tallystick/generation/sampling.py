"""Draws the next tokens from logits, by the same nodes as an answer's program (ANSWERS 3).

Greedy rows are drawn together. A row with settings is drawn by itself, since a program has one text
and one random key.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from tallystick.answers.layout import (
    GREEDY,
    Bucket,
    batch_types,
    choice_seed,
    setting_fields,
)
from tallystick.answers.sampler import emit
from tallystick.devices.context import ExecutionContext
from tallystick.generation.forward import rows_of_program
from tallystick.generation.sequences import Sequence as Text
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.runner import StepInputs

Drawn = tuple[int, np.float32]
# The shortest text of a sampler's program; longer ones are powers of two.
_LEAST_TEXT = 64


class Sampling:
    """Draws under `contract`, from logits of `vocabulary` tokens."""

    def __init__(self, contract: str, vocabulary: int, context: ExecutionContext) -> None:
        self._contract, self._vocabulary, self._context = contract, vocabulary, context
        self._executor = cache(self._made)

    def _made(self, sampler: str, length: int, rows: int) -> Executor:
        builder = Builder(self._contract)
        logits = builder.batch("logits", TensorType("f32", (rows, self._vocabulary)))
        types = batch_types(Bucket(length, rows), sampler, self._vocabulary)
        fields = {name: builder.batch(name, type_) for name, type_ in types.items()}
        drawn, logprobs = emit(builder, sampler, logits, fields, self._vocabulary)
        program = builder.finish({"drawn": drawn, "logprobs": logprobs})
        return Executor(program, self._context)

    def draw(self, texts: Sequence[Text], logits: np.ndarray) -> list[Drawn]:
        """The next token of each text, and its log-probability. `logits` has a row for each."""
        found: dict[int, Drawn] = {}
        greedy = [i for i, t in enumerate(texts) if t.handle.request.settings.set == GREEDY]
        if greedy:
            found |= dict(zip(greedy, self._greedy(logits, greedy), strict=True))
        for i, text in enumerate(texts):
            if i not in found:
                found[i] = self._with_settings(text, logits[i : i + 1])
        return [found[i] for i in range(len(texts))]

    def _greedy(self, logits: np.ndarray, which: Sequence[int]) -> list[Drawn]:
        rows = rows_of_program(len(which))
        chosen = np.zeros(rows, np.int64)
        chosen[: len(which)] = which
        executor = self._executor(GREEDY, _LEAST_TEXT + rows, rows)
        batch = {"logits": logits[chosen], "live": np.ones(rows, np.int64)}
        return self._run(executor, batch, None)[: len(which)]

    def _with_settings(self, text: Text, logits: np.ndarray) -> Drawn:
        request, settings = text.handle.request, text.handle.request.settings
        room = max(_LEAST_TEXT, rows_of_program(len(text.text)))
        padded = np.zeros(room, np.int64)
        padded[: len(text.text)] = text.text
        batch = {
            "logits": logits,
            "live": np.ones(1, np.int64),
            "text": padded,
            "place": np.array([len(text.text) - 1]),
            "prompt": np.array([text.prompt]),
            **setting_fields(settings, settings.set, self._vocabulary),
        }
        seed = choice_seed(settings.seed, request.choice)
        return self._run(self._executor(settings.set, room, 1), batch, (seed, 0))[0]

    def _run(
        self, executor: Executor, batch: dict[str, np.ndarray], rng: tuple[int, int] | None
    ) -> list[Drawn]:
        inputs = StepInputs({**self._idle(executor), **batch}, rng=rng)
        made = executor.execute({}, inputs).outputs
        return [
            (int(t), np.float32(p)) for t, p in zip(made["drawn"], made["logprobs"], strict=True)
        ]

    @staticmethod
    def _idle(executor: Executor) -> dict[str, np.ndarray]:
        """Fields of a batch that no node reads."""
        return {
            name: np.zeros(type_.shape, np.int64 if type_.dtype == "i64" else np.float32)
            for name, type_ in executor.program.batch_types.items()
        }
