"""The sampler as nodes of a program (ANSWERS 3): from logits and settings to tokens and their
log-probabilities. One row or many rows are the same nodes, and a row depends on itself alone."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tallystick.answers.layout import DRAW, FULL, GREEDY
from tallystick.program.build import Builder
from tallystick.program.ir import Value

Fields = Mapping[str, Value]
_DRAW = 0  # the program's one random operator is the first


def emit(
    builder: Builder, sampler: str, logits: Value, fields: Fields, vocabulary: int
) -> tuple[Value, Value]:
    """(drawn, log-probabilities): i64[A] and f32[A], for logits f32[A, vocabulary].

    `fields` are the batch inputs of `layout.batch_types` by name; the random key is the builder's.
    A row that is not live gives the token 0 and +0.
    """
    emitter = _emitter(builder, logits, fields, vocabulary)
    return emitter.outputs(emitter.drawn(sampler, logits), logits)


def emit_scaled(
    builder: Builder, logits: Value, fields: Fields, vocabulary: int, penalties: bool
) -> Value:
    """The logits of `full` before truncation (3.5.1 to 3.5.4). Without `penalties`, which are
    neutral then, the numbers are the same but for the signs of zeros, which no later step reads."""
    emitter = _emitter(builder, logits, fields, vocabulary)
    return emitter.scaled(logits, penalties)[0]


def emit_chosen(
    builder: Builder, truncated: Value, logits: Value, fields: Fields, vocabulary: int, noise: bool
) -> tuple[Value, Value]:
    """What `emit` gives for `full` after truncation; `noise` says that the temperature is above
    0."""
    emitter = _emitter(builder, logits, fields, vocabulary)
    return emitter.outputs(emitter.chosen(truncated, noise), logits)


def _emitter(builder: Builder, logits: Value, fields: Fields, vocabulary: int) -> _Emitter:
    (rows, _) = builder.type_of(logits).shape
    return _Emitter(builder, fields, rows, vocabulary)


class _Emitter:
    def __init__(self, builder: Builder, fields: Fields, rows: int, vocabulary: int) -> None:
        self.one, self.rng = builder.one, builder.rng
        self.fields, self.rows, self.vocabulary = fields, rows, vocabulary

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

    def chosen(self, x: Value, noise: bool) -> Value:
        """The token of each row, after `noise` where there is any."""
        return self.one("aten.argmax", [self._noisy(x) if noise else x], dim=1, keepdim=True)

    def outputs(self, token: Value, logits: Value) -> tuple[Value, Value]:
        """Tokens and log-probabilities where rows are live (3.6)."""
        logprobs = self.one("aten._log_softmax", [logits], dim=1)
        own = self.one("aten.gather", [logprobs, token], dim=1)
        live = self.one("aten.ne.Scalar", [self.fields["live"]], other=0.0)
        return self.where_live(live, token, "i64"), self.where_live(live, own, "f32")

    def _full(self, x: Value) -> Value:
        """ANSWERS 3.5, in its order."""
        x, is_hot = self.scaled(x, penalties=True)
        x = self._truncated(x)
        return self.one("aten.where", [is_hot, self._noisy(x), x])

    def scaled(self, x: Value, penalties: bool) -> tuple[Value, Value]:
        """The logits before truncation, and whether the temperature is above 0."""
        x = self._penalised(x) if penalties else x
        x = self._sum(x, self.fields["bias"])
        temperature = self.fields["temperature"]
        is_hot = self.one("aten.gt.Scalar", [temperature], other=0.0)
        one = self._full_of((1,), 1.0, "f32")
        divisor = self.one("aten.where", [is_hot, temperature, one])
        return self.one("aten.div.Tensor", [x, divisor]), is_hot

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
        rank = self.one("tallystick.rank", [x], dim=1, descending=True)
        top_k = self.fields["top_k"]
        first = self.one("aten.lt.Tensor", [rank, top_k])
        every = self.one("aten.eq.Scalar", [top_k], other=0.0)
        x = self._kept(self.one("aten.logical_or", [first, every]), x)
        p = self.one("aten._softmax", [x], dim=1)
        nucleus, likely = self._in_nucleus(p, rank), self._likely(p)
        return self._kept(self.one("aten.logical_and", [nucleus, likely]), x)

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
