"""Draws the next tokens from logits, by the nodes of an answer's program (ANSWERS 3).

Greedy rows are drawn together. Of rows with settings those of one text are, since a program has one
text and one random key. Of the set `full`, penalties that are neutral are left out, and truncation
puts no more tokens in order than decide: tokens and log-probabilities are the same.

Top-k, top-p and min-p (3.5.5 to 3.5.7) sort no row whole.
An answer's program puts all tokens in order. Only the first ones of it decide: what top-k cuts are
the tokens from place k on, and probabilities are not negative, so the sums before a token never
fall from place to place. Once they reach top_p, no later token is in the nucleus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tallystick.answers.layout import (
    FULL,
    GREEDY,
    Bucket,
    Settings,
    batch_types,
    choice_seed,
    setting_fields,
)
from tallystick.answers.sampler import emit, emit_chosen, emit_scaled
from tallystick.closing import made_once
from tallystick.devices.context import ExecutionContext
from tallystick.generation.forward import rows_of_program
from tallystick.generation.sequences import Sequence as Text
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.ir import Value
from tallystick.program.runner import StepInputs

# How many tokens are put in order at first, where top-k does not say.
_FIRST = 256
_MAGNITUDE, _INFINITY = np.int32(0x7FFFFFFF), np.int32(0x7F800000)
_INDEX = (1 << 32) - 1

Softmax = Callable[[np.ndarray], np.ndarray]  # of each row, by NUMERICS 6.1


def truncates(settings: Settings) -> bool:
    """Whether these settings cut any token."""
    found = settings.rounded
    return settings.top_k > 0 or found["top_p"] < 1 or found["min_p"] > 0


def truncated(y: np.ndarray, settings: Settings, softmax: Softmax) -> np.ndarray:
    """`y` f32[rows, V], divided by the temperature, with −∞ for what the settings cut."""
    found, k = settings.rounded, settings.top_k
    top_p, min_p = np.float32(found["top_p"]), np.float32(found["min_p"])
    firsts: list[np.ndarray | None] = [None] * len(y)
    if 0 < k < y.shape[1]:
        orders = [largest_tokens(row, k) for row in y]
        y = np.stack([_only(row, first) for row, first in zip(y, orders, strict=True)])
        firsts = [*orders]
    if top_p >= 1 and min_p <= 0:
        return y
    kept = []
    for row, p, first in zip(y, softmax(y), firsts, strict=True):
        if top_p < 1:
            # What top-k has cut stays so, in the nucleus or not.
            row = _only(row, _nucleus(row, p, top_p) if first is None else _below(first, p, top_p))
        if min_p > 0:
            with np.errstate(under="ignore"):
                floor = min_p * p.max()
            row = np.where(p >= floor, row, -np.float32(np.inf))
        kept.append(row)
    return np.stack(kept)


def _only(row: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """The row with −∞ for all but these tokens."""
    found = np.full_like(row, -np.inf)
    found[tokens] = row[tokens]
    return found


def _nucleus(row: np.ndarray, p: np.ndarray, top_p: np.float32) -> np.ndarray:
    """The tokens of the whole row before which the probabilities sum to below top_p."""
    count = _FIRST
    while True:
        first = largest_tokens(row, min(count, len(row)))
        found = _below(first, p, top_p)
        if len(found) < len(first) or count >= len(row):
            return found
        count *= 8


def _below(first: np.ndarray, p: np.ndarray, top_p: np.float32) -> np.ndarray:
    """Those of the first tokens before which the probabilities sum to below top_p: one after the
    other, each sum rounded (NUMERICS 3.8). The very first has no probability before it."""
    sums = np.add.accumulate(p[first[:-1]])
    return np.concatenate([first[:1], first[1:][sums < top_p]])


def largest_tokens(row: np.ndarray, count: int) -> np.ndarray:
    """The first tokens of a row's descending order, in this order (NUMERICS 3.9)."""
    # Integers in the numbers' order: of the same size for both zeros, and negative where they are.
    seen = row.view(np.int32)
    size, sign = seen & _MAGNITUDE, seen >> 31
    keys = (size ^ sign) - sign
    keys[size > _INFINITY] = _MAGNITUDE  # NaN before everything
    np.invert(keys, out=keys)
    tokens = np.arange(len(row))
    if count < len(row):
        tokens = np.flatnonzero(keys <= np.partition(keys, count - 1)[count - 1])
    # Of equal numbers the lower token is first: a key with its token below it is one number.
    packed = (keys[tokens].astype(np.int64) << 32) | tokens
    packed.sort()
    found: np.ndarray = packed[:count] & _INDEX
    return found


Drawn = tuple[int, np.float32]
Rng = tuple[int, int]
Emit = Callable[[Builder, Mapping[str, Value]], Mapping[str, Value]]
# The shortest text of a sampler's program; longer ones are powers of two.
_LEAST_TEXT = 64


class Sampling:
    """Draws under `contract`, from logits of `vocabulary` tokens."""

    def __init__(self, contract: str, vocabulary: int, context: ExecutionContext) -> None:
        self._contract, self._vocabulary, self._context = contract, vocabulary, context

    # -- programs ----------------------------------------------------------------------------------
    def _made(
        self, sampler: str, length: int, rows: int, given: Sequence[str], by: Emit
    ) -> Executor:
        """A program whose inputs are those of a set, and f32[rows, V] by the names `given`."""
        builder = Builder(self._contract)
        numbers = TensorType("f32", (rows, self._vocabulary))
        fields = {name: builder.batch(name, numbers) for name in given}
        types = batch_types(Bucket(length, rows), sampler, self._vocabulary)
        fields |= {name: builder.batch(name, type_) for name, type_ in types.items()}
        return Executor(builder.finish(dict(by(builder, fields))), self._context)

    @made_once
    def _whole(self, sampler: str, length: int, rows: int) -> Executor:
        def by(builder: Builder, fields: Mapping[str, Value]) -> Mapping[str, Value]:
            return _named(emit(builder, sampler, fields["logits"], fields, self._vocabulary))

        return self._made(sampler, length, rows, ["logits"], by)

    @made_once
    def _full(self, length: int, rows: int, penalties: bool, noise: bool) -> Executor:
        """The set `full` where nothing is cut."""

        def by(builder: Builder, fields: Mapping[str, Value]) -> Mapping[str, Value]:
            z, count = fields["logits"], self._vocabulary
            y = emit_scaled(builder, z, fields, count, penalties)
            return _named(emit_chosen(builder, y, z, fields, count, noise))

        return self._made(FULL, length, rows, ["logits"], by)

    @made_once
    def _scaled(self, length: int, rows: int, penalties: bool) -> Executor:
        """`full` before truncation."""

        def by(builder: Builder, fields: Mapping[str, Value]) -> Mapping[str, Value]:
            z = fields["logits"]
            return {"y": emit_scaled(builder, z, fields, self._vocabulary, penalties)}

        return self._made(FULL, length, rows, ["logits"], by)

    @made_once
    def _chosen(self, length: int, rows: int, noise: bool) -> Executor:
        """`full` after truncation."""

        def by(builder: Builder, fields: Mapping[str, Value]) -> Mapping[str, Value]:
            y, z = fields["y"], fields["logits"]
            return _named(emit_chosen(builder, y, z, fields, self._vocabulary, noise))

        return self._made(FULL, length, rows, ["y", "logits"], by)

    @made_once
    def _shares(self, rows: int) -> Executor:
        """The probabilities of logits."""
        builder = Builder(self._contract)
        y = builder.batch("y", TensorType("f32", (rows, self._vocabulary)))
        return Executor(
            builder.finish({"p": builder.one("aten._softmax", [y], dim=1)}), self._context
        )

    # -- rows --------------------------------------------------------------------------------------
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
        executor = self._whole(GREEDY, _LEAST_TEXT + rows, rows)
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
        rng = choice_seed(settings.seed, request.choice), 0
        if settings.set != FULL:
            found = self._run(self._whole(settings.set, room, len(chosen)), batch, rng)
        else:
            found = self._with_full(settings, room, batch, rng)
        return found[: len(which)]

    def _with_full(
        self, settings: Settings, room: int, batch: dict[str, np.ndarray], rng: Rng
    ) -> list[Drawn]:
        rows, noise = len(batch["live"]), settings.rounded["temperature"] > 0
        penalties = not _has_no_penalties(settings)
        if not truncates(settings):
            return self._run(self._full(room, rows, penalties, noise), batch, rng)
        y = self._execute(self._scaled(room, rows, penalties), batch, rng)["y"]
        alive = int(batch["live"].sum())
        y[:alive] = truncated(y[:alive], settings, self._softmax)
        return self._run(self._chosen(room, rows, noise), {**batch, "y": y}, rng)

    def _softmax(self, y: np.ndarray) -> np.ndarray:
        return self._execute(self._shares(len(y)), {"y": y}, None)["p"]

    def _run(
        self, executor: Executor, batch: Mapping[str, np.ndarray], rng: Rng | None
    ) -> list[Drawn]:
        made = self._execute(executor, batch, rng)
        return [
            (int(t), np.float32(p)) for t, p in zip(made["drawn"], made["logprobs"], strict=True)
        ]

    @staticmethod
    def _execute(
        executor: Executor, batch: Mapping[str, np.ndarray], rng: Rng | None
    ) -> dict[str, np.ndarray]:
        """The outputs of a program. Fields of a batch that no node reads are zeros."""
        given = {
            name: batch[name]
            if name in batch
            else np.zeros(type_.shape, np.int64 if type_.dtype == "i64" else np.float32)
            for name, type_ in executor.program.batch_types.items()
        }
        drawn = rng if executor.program.uses_rng else None
        return executor.execute({}, StepInputs(given, rng=drawn)).outputs


def _named(drawn: tuple[Value, Value]) -> dict[str, Value]:
    return dict(zip(("drawn", "logprobs"), drawn, strict=True))


def _has_no_penalties(settings: Settings) -> bool:
    found = settings.rounded
    return found["repetition"] == 1 and found["presence"] == 0 == found["frequency"]


def _filled(rows: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a program for these rows, the last one again where there are too few; and which
    of them are live (ANSWERS 3.3)."""
    size = rows_of_program(len(rows))
    live = np.arange(size) < len(rows)
    return np.array([*rows, *[rows[-1]] * (size - len(rows))], np.int64), live.astype(np.int64)
