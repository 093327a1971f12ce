"""Draws the next tokens from logits, by the same nodes as an answer's program (ANSWERS 3).

Greedy rows are drawn together. Of rows with settings those of one text are, since a program has one
text and one random key.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from tallystick.answers.layout import (
    FULL,
    GREEDY,
    Bucket,
    batch_types,
    choice_seed,
    setting_fields,
)
from tallystick.answers.sampler import FullSteps, emit
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

    def _made(
        self, sampler: str, length: int, rows: int, steps: FullSteps | None = None
    ) -> Executor:
        builder = Builder(self._contract)
        logits = builder.batch("logits", TensorType("f32", (rows, self._vocabulary)))
        types = batch_types(Bucket(length, rows), sampler, self._vocabulary)
        fields = {name: builder.batch(name, type_) for name, type_ in types.items()}
        given = builder, sampler, logits, fields, self._vocabulary
        drawn, logprobs = emit(*given) if steps is None else emit(*given, steps)
        program = builder.finish({"drawn": drawn, "logprobs": logprobs})
        return Executor(program, self._context)

    def draw(self, texts: Sequence[Text], logits: np.ndarray) -> list[list[Drawn]]:
        """Of each text, the token after it and the one after each of its drafts, as if those before
        were its own, with their log-probabilities. `logits` has these rows, text after text."""
        ends = np.cumsum([text.drawn_rows for text in texts], dtype=np.int64)
        rows = [range(end - text.drawn_rows, end) for text, end in zip(texts, ends, strict=True)]
        found: dict[int, list[Drawn]] = {}
        greedy = [i for i, t in enumerate(texts) if t.handle.request.settings.set == GREEDY]
        if greedy:
            together = iter(self._greedy(logits, [row for i in greedy for row in rows[i]]))
            found |= {i: [next(together) for _ in rows[i]] for i in greedy}
        for i, text in enumerate(texts):
            if i not in found:
                found[i] = self._with_settings(text, logits, rows[i])
        return [found[i] for i in range(len(texts))]

    def _greedy(self, logits: np.ndarray, which: Sequence[int]) -> list[Drawn]:
        chosen, live = _filled(which)
        rows = len(chosen)
        executor = self._executor(GREEDY, _LEAST_TEXT + rows, rows)
        return self._run(executor, {"logits": logits[chosen], "live": live}, None)[: len(which)]

    def _with_settings(self, text: Text, logits: np.ndarray, which: Sequence[int]) -> list[Drawn]:
        request, settings = text.handle.request, text.handle.request.settings
        claimed = [*text.text, *text.drafts]
        room = max(_LEAST_TEXT, rows_of_program(len(claimed)))
        padded = np.zeros(room, np.int64)
        padded[: len(claimed)] = claimed
        chosen, live = _filled(which)
        # A row reads the text up to its own place, and no draft after it.
        batch = {
            "logits": logits[chosen],
            "live": live,
            "text": padded,
            "place": len(text.text) - 1 + chosen - which[0],
            "prompt": np.array([text.prompt]),
            **setting_fields(settings, settings.set, self._vocabulary),
        }
        seed = choice_seed(settings.seed, request.choice)
        steps = FullSteps.of(settings) if settings.set == FULL else None
        executor = self._executor(settings.set, room, len(chosen), steps)
        rng = (seed, 0) if executor.program.uses_rng else None
        return self._run(executor, batch, rng)[: len(which)]

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


def _filled(rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a program for these rows, the last one again where there are too few; and which
    of them are live (ANSWERS 3.3)."""
    size = rows_of_program(len(rows))
    live = np.arange(size) < len(rows)
    return np.array([*rows, *[rows[-1]] * (size - len(rows))], np.int64), live.astype(np.int64)
