"""The sampler as nodes of a program (ANSWERS 3): from logits and settings to tokens and their
log-probabilities. One row or many rows are the same nodes, and a row depends on itself alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tallystick.answers.layout import DRAW, FULL, GREEDY, Settings
from tallystick.program.build import Builder
from tallystick.program.ir import Value

Fields = Mapping[str, Value]
_DRAW = 0  # the program's one random operator is the first


@dataclass(frozen=True)
class FullSteps:
    """Which steps of `full` change a token (ANSWERS 3.5). An answer's program has them all.

    Without the others a program draws the same tokens: with neutral settings a step leaves each
    number as it is, but for the sign of a zero, which no later step tells apart.
    """

    penalties: bool = True
    top_k: bool = True
    top_p: bool = True
    min_p: bool = True
    noise: bool = True

    @staticmethod
    def of(settings: Settings) -> FullSteps:
        """Those that are not neutral in `settings`."""
        found = settings.rounded
        neutral = {"repetition": 1, "presence": 0, "frequency": 0}
        return FullSteps(
            penalties=any(found[name] != value for name, value in neutral.items()),
            top_k=settings.top_k > 0,
            top_p=found["top_p"] < 1,
            min_p=found["min_p"] > 0,
            noise=found["temperature"] > 0,
        )


_ALL = FullSteps()


def emit(
    builder: Builder,
    sampler: str,
    logits: Value,
    fields: Fields,
    vocabulary: int,
    steps: FullSteps = _ALL,
) -> tuple[Value, Value]:
    """(drawn, log-probabilities): i64[A] and f32[A], for logits f32[A, vocabulary].

    `fields` are the batch inputs of `layout.batch_types` by name; the random key is the builder's.
    Of its steps `full` gets those that `steps` names, for settings that need no other. A row that
    is not live gives the token 0 and +0.
    """
    (rows, _) = builder.type_of(logits).shape
    emitter = _Emitter(builder, fields, rows, vocabulary, steps)
    token = emitter.drawn(sampler, logits)
    logprobs = builder.one("aten._log_softmax", [logits], dim=1)
    own = builder.one("aten.gather", [logprobs, token], dim=1)
    live = builder.one("aten.ne.Scalar", [fields["live"]], other=0.0)
    return emitter.where_live(live, token, "i64"), emitter.where_live(live, own, "f32")


class _Emitter:
    def __init__(
        self, builder: Builder, fields: Fields, rows: int, vocabulary: int, steps: FullSteps
    ) -> None:
        self.one, self.rng = builder.one, builder.rng
        self.fields, self.rows, self.vocabulary = fields, rows, vocabulary
        self.steps = steps

    def drawn(self, sampler: str, logits: Value) -> Value:
        """The token of each row, i64[A, 1]."""
        if sampler == DRAW:
            hot = self.one("aten.div.Tensor", [logits, self.fields["temperature"]])
            logits = self._noisy(hot)
        elif sampler == FULL:
            logits = self._full(logits)
        elif sampler != GREEDY:
            raise ValueError(f"no sampler set {sampler!r}")
        return self.one("aten.argmax", [logits], dim=1, keepdim=True)

    def where_live(self, live: Value, x: Value, dtype: str) -> Value:
        """x, one number a row, where the row is live; else zero."""
        flat = self.one("aten.view", [x], size=(self.rows,))
        return self.one("aten.where", [live, flat, self._full_of((self.rows,), 0.0, dtype)])

    def _full(self, x: Value) -> Value:
        """ANSWERS 3.5, in its order."""
        if self.steps.penalties:
            x = self._penalised(x)
        x = self._sum(x, self.fields["bias"])
        if not self.steps.noise:
            return self._truncated(x)
        temperature = self.fields["temperature"]
        is_hot = self.one("aten.gt.Scalar", [temperature], other=0.0)
        one = self._full_of((1,), 1.0, "f32")
        divisor = self.one("aten.where", [is_hot, temperature, one])
        x = self._truncated(self.one("aten.div.Tensor", [x, divisor]))
        return self.one("aten.where", [is_hot, self._noisy(x), x])

    # -- penalties (3.5.1, 3.5.2) ------------------------------------------------------------------
    def _penalised(self, x: Value) -> Value:
        start = self._full_of((self.rows,), 0.0, "i64")
        seen = self.one("aten.gt.Scalar", [self._occurrences(start)], other=0.0)
        repetition = self.fields["repetition"]
        negative = self.one("aten.lt.Scalar", [x], other=0.0)
        more = self.one("aten.mul.Tensor", [x, repetition])
        less = self.one("aten.div.Tensor", [x, repetition])
        changed = self.one("aten.where", [negative, more, less])
        x = self.one("aten.where", [seen, changed, x])
        prompt = self.one("aten.expand", [self.fields["prompt"]], size=(self.rows,))
        count = self._occurrences(prompt)
        there = self.one("aten.gt.Scalar", [count], other=0.0)
        for setting, times in (("frequency", count), ("presence", there)):
            times = self.one("aten._to_copy", [times], dtype="f32")
            off = self.one("aten.mul.Tensor", [self.fields[setting], times])
            x = self.one("aten.sub.Tensor", [x, off], alpha=1.0)
        return x

    def _occurrences(self, first: Value) -> Value:
        """How often each token stands in the text from `first` up to the row's place."""
        operands = [self.fields["text"], first, self.fields["place"]]
        return self.one("tallystick.occurrences", operands, classes=self.vocabulary)

    # -- truncation (3.5.5 to 3.5.7) ---------------------------------------------------------------
    def _truncated(self, x: Value) -> Value:
        steps, kept = self.steps, list[Value]()
        if steps.top_k or steps.top_p:
            rank = self.one("tallystick.rank", [x], dim=1, descending=True)
        if steps.top_k:
            top_k = self.fields["top_k"]
            first = self.one("aten.lt.Tensor", [rank, top_k])
            every = self.one("aten.eq.Scalar", [top_k], other=0.0)
            x = self._kept(self.one("aten.logical_or", [first, every]), x)
        if not (steps.top_p or steps.min_p):
            return x
        p = self.one("aten._softmax", [x], dim=1)
        if steps.top_p:
            kept.append(self._in_nucleus(p, rank))
        if steps.min_p:
            kept.append(self._likely(p))
        both = self.one("aten.logical_and", kept) if len(kept) == 2 else kept[0]
        return self._kept(both, x)

    def _in_nucleus(self, p: Value, rank: Value) -> Value:
        """Whether the probabilities before a token's, in descending order, sum to below top_p."""
        ordered = self.one("aten.scatter.src", [p, rank, p], dim=1)
        sums = self.one("aten.cumsum", [ordered], dim=1)
        last = self.vocabulary - 1
        sums = self.one("aten.slice", [sums], dim=1, start=0, end=last, step=1)
        nothing = self._full_of((self.rows, 1), 0.0, "f32")
        sums = self.one("aten.cat", [nothing, sums], dim=1)
        before = self.one("aten.gather", [sums, rank], dim=1)
        top_p = self.fields["top_p"]
        below = self.one("aten.lt.Tensor", [before, top_p])
        every = self.one("aten.ge.Scalar", [top_p], other=1.0)
        return self.one("aten.logical_or", [below, every])

    def _likely(self, p: Value) -> Value:
        """Whether a probability is at least min_p of the largest."""
        min_p = self.fields["min_p"]
        largest = self.one("aten.amax", [p], dim=(1,), keepdim=True)
        floor = self.one("aten.mul.Tensor", [min_p, largest])
        enough = self.one("aten.ge.Tensor", [p, floor])
        every = self.one("aten.le.Scalar", [min_p], other=0.0)
        return self.one("aten.logical_or", [enough, every])

    # -- shared ------------------------------------------------------------------------------------
    def _noisy(self, x: Value) -> Value:
        operands = [self.rng(), self.fields["place"]]
        noise = self.one("tallystick.gumbel", operands, classes=self.vocabulary, draw=_DRAW)
        return self._sum(x, noise)

    def _kept(self, kept: Value, x: Value) -> Value:
        cut = self.one("aten.logical_not", [kept])
        return self.one("aten.masked_fill", [x, cut], value=-math.inf)

    def _sum(self, a: Value, b: Value) -> Value:
        return self.one("aten.add.Tensor", [a, b], alpha=1.0)

    def _full_of(self, size: tuple[int, ...], value: float, dtype: str) -> Value:
        return self.one("aten.full", [], size=size, value=value, dtype=dtype)
