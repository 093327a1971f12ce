"""How an answer is asked for and laid out: settings, buckets, and the batch of the answer's step
(ANSWERS 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallystick.commit.encoding import U64_MAX, Writer, sha256, tag
from tallystick.commit.tensor import DTYPES, Array
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.types import TensorType, type_of

# The sampler sets (ANSWERS 3.2).
GREEDY, DRAW, FULL = "greedy", "draw", "full"
SETS = (GREEDY, DRAW, FULL)
# What an encoder gives instead (ANSWERS 11.1).
EMBEDDING, CLASSES = "embedding", "classes"
ENCODINGS = (EMBEDDING, CLASSES)
SALT_WORDS = 4
_SEED_TAG = tag("answer-seed/1")
_SEED_MAX = (1 << 63) - 1  # the program reads the seed as i64 (NUMERICS 8.3)
_U32_MAX = (1 << 32) - 1
_I64_MAX = (1 << 63) - 1
# The settings of kind f32, but for the bias.
FLOATS = ("temperature", "top_p", "min_p", "repetition", "presence", "frequency")
# Those that change logits, with the values that leave them as they are.
_NEUTRAL: Mapping[str, object] = {
    "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition": 1.0, "presence": 0.0,
    "frequency": 0.0, "bias": (),
}  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """How tokens are drawn, and where an answer ends. The defaults are neutral: greedy decoding.

    `bias` has pairs of a token and what is added to its logit, ascending by token; `stop` the
    tokens that end an answer, ascending. Numbers are kept as they were asked for; `rounded` has
    those that programs read. Raises UsageError, which names the setting.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0
    max_tokens: int = 16
    stop: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in FLOATS:
            _number(name, getattr(self, name))
        found = self.rounded
        # A temperature above 0 does not become greedy decoding by rounding.
        _must(found["temperature"] > 0 or self.temperature <= 0 == found["temperature"],
              "temperature", "0, or a positive binary32 number", self.temperature)  # fmt: skip
        _must(0 < found["top_p"] <= 1, "top_p", "in (0, 1]", self.top_p)
        _must(0 <= found["min_p"] <= 1, "min_p", "in [0, 1]", self.min_p)
        _must(found["repetition"] > 0, "repetition", "positive", self.repetition)
        _whole("top_k", self.top_k, 0, _I64_MAX)
        _whole("seed", self.seed, 0, U64_MAX)
        _whole("max_tokens", self.max_tokens, 1, _I64_MAX)
        for token, added in self.bias:
            _whole("bias", token, 0, _I64_MAX)
            _number("bias", added)
        for token in self.stop:
            _whole("stop", token, 0, _I64_MAX)
        _ascending("bias", [token for token, _ in self.bias])
        _ascending("stop", self.stop)

    @cached_property
    def rounded(self) -> Mapping[str, float]:
        """The settings of kind f32 as programs read them: RN32 of each number (ANSWERS 3.1)."""
        return {name: _f32(getattr(self, name)) for name in FLOATS}

    @cached_property
    def set(self) -> str:
        """The sampler set that these settings need (ANSWERS 3.2)."""
        values: dict[str, object] = {"top_k": self.top_k, "bias": self.bias, **self.rounded}
        if any(values[name] != value for name, value in _NEUTRAL.items()):
            return FULL
        return DRAW if self.rounded["temperature"] > 0 else GREEDY


@dataclass(frozen=True)
class Bucket:
    """A program's room: its places of text, and how many of them an answer may take at most."""

    length: int
    answer: int

    def __post_init__(self) -> None:
        if not 1 <= self.answer < self.length:
            raise UsageError(
                f"A bucket of {self.length} places cannot hold an answer of {self.answer} tokens "
                "after a prompt of one or more."
            )


@dataclass(frozen=True)
class EncodingBucket:
    """The room of an encoder's program: places of text, and its values (ANSWERS 11.2)."""

    length: int
    answer: int

    def __post_init__(self) -> None:
        if min(self.length, self.answer) < 1 or max(self.length, self.answer) > LIMITS.text_places:
            raise UsageError(
                f"An encoder's bucket cannot have {self.length} places and {self.answer} values.",
                f"Choose both from 1 to {LIMITS.text_places}.",
            )


AnyBucket = Bucket | EncodingBucket


def bucket_of(length: int, answer: int, set_: str) -> AnyBucket:
    """The bucket of a program of this set. Raises UsageError for one that cannot be."""
    return (EncodingBucket if set_ in ENCODINGS else Bucket)(length, answer)


def _f32(value: float) -> float:
    with np.errstate(over="ignore", under="ignore"):
        return float(np.float32(value))


def _must(holds: bool, name: str, what: str, value: object) -> None:
    if not holds:
        raise UsageError(f"The setting {name} must be {what}, got {value!r}.")


def _number(name: str, value: object) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    finite = is_number and math.isfinite(value) and math.isfinite(_f32(value))  # type: ignore[arg-type]
    _must(finite, name, "a finite binary32 number", value)


def _whole(name: str, value: object, low: int, high: int) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    _must(is_whole, name, f"a whole number from {low} to {high}", value)


def _ascending(name: str, tokens: Sequence[int]) -> None:
    _must(list(tokens) == sorted(set(tokens)), name, "ascending by token, each once", tokens)


# -- the batch of an answer's step (ANSWERS 3.3) ---------------------------------------------------
def encoding_types(length: int) -> dict[str, TensorType]:
    """The batch inputs of an encoding's program, by name (ANSWERS 11.3)."""
    return {
        "text": TensorType("i64", (length,)),
        "length": TensorType("i64", (1,)),
        "salt": TensorType("i64", (SALT_WORDS,)),
    }


def batch_types(bucket: AnyBucket, sampler: str, vocabulary: int) -> dict[str, TensorType]:
    """The batch inputs of a program of this set, by name."""
    if sampler in ENCODINGS:
        return encoding_types(bucket.length)
    rows, one = (bucket.answer,), (1,)
    types = {
        "text": TensorType("i64", (bucket.length,)),
        "place": TensorType("i64", rows),
        "live": TensorType("i64", rows),
        "salt": TensorType("i64", (SALT_WORDS,)),
    }
    if sampler != GREEDY:
        types["temperature"] = TensorType("f32", one)
    if sampler == FULL:
        types |= {"prompt": TensorType("i64", one), "top_k": TensorType("i64", one)}
        floats = ("repetition", "presence", "frequency", "top_p", "min_p")
        types |= dict.fromkeys(floats, TensorType("f32", one))
        types["bias"] = TensorType("f32", (vocabulary,))
    return types


def has_answers(bucket: AnyBucket, sampler: str, vocabulary: int) -> bool:
    """Whether a record of this bucket and set is within the limit (ANSWERS 10.2)."""
    types = batch_types(bucket, sampler, vocabulary).values()
    return sum(type_.nbytes for type_ in types) <= LIMITS.record_bytes


def setting_fields(settings: Settings, sampler: str, vocabulary: int) -> dict[str, Array]:
    """The batch fields that hold settings: for `sampler`, which may have more of them than these
    settings need. Raises UsageError for a bias of a token that the vocabulary lacks."""
    fields: dict[str, Array] = {}
    if sampler != GREEDY:
        fields["temperature"] = np.array([settings.rounded["temperature"]], DTYPES["f32"])
    if sampler == FULL:
        for name in ("repetition", "presence", "frequency", "top_p", "min_p"):
            fields[name] = np.array([settings.rounded[name]], DTYPES["f32"])
        fields["top_k"] = np.array([settings.top_k], DTYPES["i64"])
        bias = np.zeros(vocabulary, DTYPES["f32"])
        for token, added in settings.bias:
            _whole("bias", token, 0, vocabulary - 1)
            bias[token] = added
        fields["bias"] = bias
    return fields


def record(
    bucket: Bucket,
    settings: Settings,
    prompt: Sequence[int],
    answer: Sequence[int],
    salt: Array,
    vocabulary: int,
    sampler: str | None = None,
) -> dict[str, Array]:
    """The one record of an answer's job: its batch fields. `sampler` is the settings' own set,
    unless another one is named. Raises UsageError for what does not fit the bucket."""
    sampler = settings.set if sampler is None else sampler
    count, drawn = len(prompt), len(answer)
    if not (count >= 1 and 1 <= drawn <= bucket.answer and count + drawn <= bucket.length):
        raise UsageError(
            f"A prompt of {count} tokens and an answer of {drawn} do not fit a bucket of "
            f"{bucket.length} places with room for an answer of {bucket.answer}."
        )
    for token in (*prompt, *answer):
        if not 0 <= token < vocabulary:
            raise UsageError(
                f"Token {token} is outside the vocabulary of {vocabulary} tokens.",
                "Use tokens of this model.",
            )
    text = np.zeros(bucket.length, DTYPES["i64"])
    text[: count + drawn] = [*prompt, *answer]
    rows = np.arange(bucket.answer, dtype=DTYPES["i64"])
    fields = {
        "text": text,
        "place": count - 1 + np.minimum(rows, drawn - 1),
        "live": (rows < drawn).astype(DTYPES["i64"]),
        "salt": np.asarray(salt, DTYPES["i64"]),
        **setting_fields(settings, sampler, vocabulary),
    }
    if sampler == FULL:
        fields["prompt"] = np.array([count], DTYPES["i64"])
    types = batch_types(bucket, sampler, vocabulary)
    if {name: type_of(x) for name, x in fields.items()} != types:
        raise UsageError(f"The salt must be i64[{SALT_WORDS}], got {type_of(fields['salt'])}.")
    return fields


def choice_seed(seed: int, choice: int) -> int:
    """The random seed of answer number `choice` to a request of this seed (ANSWERS 3.4)."""
    _whole("seed", seed, 0, U64_MAX)
    _whole("choice", choice, 0, _U32_MAX)
    return seed_of(Writer(_SEED_TAG).u64(seed).u32(choice))


def seed_of(layout: Writer) -> int:
    """The random seed that follows from a layout: the first 8 bytes of its digest, big-endian,
    without the highest bit, since a program reads it as i64 (NUMERICS 8.3)."""
    return int.from_bytes(sha256(layout.finish())[:8], "big") & _SEED_MAX
