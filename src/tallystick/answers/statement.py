"""The model statement: the weights, programs and files of a model by digests (ANSWERS 4).

Its digest names the model. Nothing in it is believed but by comparison: weights and files are
hashed where they are used, and a program is the one of its digest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

from tallystick.answers.layout import (
    ENCODINGS,
    SETS,
    AnyBucket,
    Bucket,
    EncodingBucket,
    bucket_of,
    has_answers,
)
from tallystick.commit.encoding import (
    JsonValue,
    Writer,
    canonical_json,
    check_hash,
    encode_name,
    parse_canonical_json,
    tag,
)
from tallystick.commit.members import Members
from tallystick.commit.state import StateRoots
from tallystick.commit.tensor import TensorHeader
from tallystick.errors import CorruptFileError, TallystickError, UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import parse_contract

KIND = "tallystick/model/1"
MODEL_TAG = tag("model/1")
# The slots of an answer begin so; no weight does.
ANSWER_PREFIX = "buffer.answer."
# The names of special tokens end so: bos_token, eos_token, … No name that a chat template reads
# otherwise does (ANSWERS 5.6).
SPECIAL_SUFFIX = "_token"
_MEMBERS = (
    "about", "adapter", "contract", "kind", "programs", "run", "slots", "special_tokens", "stop",
    "template", "tokenizer", "vocabulary",
)  # fmt: skip


@dataclass(frozen=True)
class Weight:
    """A slot of the weights: its stored type and shape, and its tensor digest (COMMITMENTS 3.5)."""

    header: TensorHeader
    digest: bytes


@dataclass(frozen=True, order=True)
class ProgramName:
    """A program of a model: L places of text, at most A of answer, and the sampler's set. Of an
    encoder A is the number of values (ANSWERS 11.2)."""

    length: int
    answer: int
    set: str

    @property
    def bucket(self) -> AnyBucket:
        """Raises UsageError for one that cannot be."""
        return bucket_of(self.length, self.answer, self.set)

    def __str__(self) -> str:
        return f"{self.set} of bucket {self.length}:{self.answer}"


@dataclass(frozen=True)
class Adapter:
    """The digest of an adapter's file, and whether its product is merged into the weights."""

    digest: bytes
    merged: bool


@dataclass(frozen=True)
class SpecialToken:
    """A special token of the tokenizer: its text, and its number where it has one."""

    text: str
    id: int | None


@dataclass(frozen=True)
class StepRoots:
    """What all answers of a model share whose step fills the same slots: how their states' roots
    are made, in which most leaves are weights, and the root of their state[0]."""

    states: StateRoots
    genesis: bytes


@dataclass(frozen=True)
class ModelStatement:
    """What names a model (ANSWERS 4.2). Raises UsageError for parts that are out of range.

    `weights` are by slot name, `programs` are program digests. `files` are the SHA-256 of the
    tokenizer's files by name, `template` that of the chat template's text. `run` is the run root
    of a run of ours that the weights come from. `about` is for people, and outside of the digest.
    """

    contract: str
    vocabulary: int
    weights: Mapping[str, Weight]
    programs: Mapping[ProgramName, bytes]
    files: Mapping[str, bytes] = field(default_factory=dict)
    template: bytes | None = None
    special: Mapping[str, SpecialToken] = field(default_factory=dict)
    stop: tuple[int, ...] = ()
    adapter: Adapter | None = None
    run: bytes | None = None
    about: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _require(not parse_contract(self.contract).keeps_log, "its contract keeps logs")
        _require(1 <= self.vocabulary <= LIMITS.vocabulary, "its vocabulary is out of range")
        _require(0 < len(self.weights) <= LIMITS.slots, "it has no weights, or too many")
        for name, weight in self.weights.items():
            encode_name(name)
            _require(
                not name.startswith(ANSWER_PREFIX),
                f"{name[:80]!r} is a name that only an answer's slots have",
            )
            check_hash(weight.digest, "digest of a slot")
        count = len(self.programs)
        _require(0 < count <= LIMITS.model_programs, "it has too many programs, or none")
        for key, digest in self.programs.items():
            _require(_is_possible(key), "a program has an impossible bucket or an unknown set")
            check_hash(digest, "program digest")
        kinds = {(key.set, key.answer) for key in self.programs}
        if any(set_ in ENCODINGS for set_, _ in kinds):
            _require(len(kinds) == 1, "an encoder's programs are not of one set and one size")
            _require(not self.stop, "an encoder has no stop tokens")
        _require(len(self.files) <= LIMITS.model_files, "it has too many files")
        for name, digest in self.files.items():
            encode_name(name)
            check_hash(digest, "digest of a file")
        _require(len(self.special) <= LIMITS.stop_tokens, "it has too many special tokens")
        for name in self.special:
            _require(
                name.endswith(SPECIAL_SUFFIX), f"{name[:80]!r} is not the name of a special token"
            )
        tokens = [token.id for token in self.special.values() if token.id is not None]
        _require(len(self.stop) <= LIMITS.stop_tokens, "its stop set is too large")
        _require(list(self.stop) == sorted(set(self.stop)), "its stop set is not ascending")
        _require(
            all(0 <= token < self.vocabulary for token in (*tokens, *self.stop)),
            "a token is outside of its vocabulary",
        )
        adapter = None if self.adapter is None else self.adapter.digest
        for optional in (self.template, self.run, adapter):
            if optional is not None:
                check_hash(optional, "digest")

    @cached_property
    def kept(self) -> dict[object, StepRoots]:
        """What all answers whose step fills the same slots share, by these slots."""
        return {}

    @property
    def merged(self) -> bool:
        """Whether the slots have an adapter's product."""
        return self.adapter is not None and self.adapter.merged

    @property
    def encodes(self) -> str | None:
        """The set of an encoder's statement, else None (ANSWERS 11.2)."""
        set_ = next(iter(self.programs)).set
        return set_ if set_ in ENCODINGS else None

    @cached_property
    def digest(self) -> bytes:
        """The model digest (ANSWERS 4.4)."""
        body = {name: value for name, value in self._members().items() if name != "about"}
        return Writer(MODEL_TAG).blob(canonical_json(body)).digest()

    def to_bytes(self) -> bytes:
        """The file: canonical JSON."""
        return canonical_json(self._members())

    def _members(self) -> dict[str, JsonValue]:
        slots = sorted(self.weights, key=encode_name)
        adapter: JsonValue = None
        if self.adapter is not None:
            adapter = {"digest": self.adapter.digest.hex(), "merged": self.adapter.merged}
        return {
            "about": dict(self.about),
            "adapter": adapter,
            "contract": self.contract,
            "kind": KIND,
            "programs": [
                {"answer": k.answer, "digest": v.hex(), "length": k.length, "set": k.set}
                for k, v in sorted(self.programs.items())
            ],
            "run": _hex(self.run),
            "slots": [_slot(name, self.weights[name]) for name in slots],
            "special_tokens": {
                name: {"id": token.id, "text": token.text} for name, token in self.special.items()
            },
            "stop": list(self.stop),
            "template": _hex(self.template),
            "tokenizer": {name: digest.hex() for name, digest in self.files.items()},
            "vocabulary": self.vocabulary,
        }

    @staticmethod
    def from_bytes(data: bytes) -> ModelStatement:
        """Inverse of `to_bytes` for untrusted bytes. Raises CorruptFileError."""
        value = parse_canonical_json(data, "model statement", LIMITS.model_statement_bytes)
        top = Members(value, _malformed)
        top.only(*_MEMBERS)
        if top.of("kind", str) != KIND:
            _malformed(f"its kind is {top.value['kind']!r}")
        try:
            found = _statement(top)
        except CorruptFileError:
            raise
        except TallystickError as error:  # of the constructors, and of an unknown contract
            _malformed(error.message.rstrip("."))
        if found.to_bytes() != data:
            _malformed("its lists are not in order")
        return found

    def bucket(self, prompt: int, answer: int, set_: str) -> Bucket:
        """The bucket of an answer: the first one that has room for it (ANSWERS 2.3).

        `prompt` and `answer` are their numbers of tokens. Raises UsageError where there is none."""
        for found in self._buckets(set_):
            if answer <= found.answer and prompt + answer <= found.length:
                return found
        raise UsageError(
            f"The model has no program of the sampler set {set_} for a prompt of {prompt} tokens "
            f"and an answer of {answer}.",
            "Make a statement with a larger bucket.",
        )

    def most(self, prompt: int, set_: str) -> int:
        """The longest answer that some program allows after a prompt of this length."""
        fits = (min(b.answer, b.length - prompt) for b in self._buckets(set_))
        return max(fits, default=0)

    def _buckets(self, set_: str) -> Iterator[Bucket]:
        for found in self._all_buckets(set_):
            assert isinstance(found, Bucket)
            yield found

    def encoding_bucket(self, count: int) -> EncodingBucket:
        """The bucket for a text of this many tokens (ANSWERS 11.2). Raises UsageError."""
        set_ = self.encodes
        if set_ is None:
            raise UsageError(
                "The model statement is not for an encoder.",
                "Make it from an encoder's directory, or use `tallystick generate`.",
            )
        fits = [b for b in self._all_buckets(set_) if count <= b.length]
        if not fits:
            raise UsageError(
                f"The model has no program for a text of {count} tokens. A text is never "
                "shortened.",
                "Use a shorter text, or make a statement with a larger bucket.",
            )
        assert isinstance(fits[0], EncodingBucket)
        return fits[0]

    def _all_buckets(self, set_: str) -> Iterator[AnyBucket]:
        """The buckets of a set, ascending. One whose record is over the limit has no answers,
        whoever states a program for it (ANSWERS 10.2)."""
        for key in sorted(self.programs):
            if key.set == set_ and has_answers(key.bucket, set_, self.vocabulary):
                yield key.bucket


def _is_possible(key: ProgramName) -> bool:
    if key.set not in (*SETS, *ENCODINGS) or key.length > LIMITS.text_places:
        return False
    try:
        bucket_of(key.length, key.answer, key.set)
    except UsageError:
        return False
    return True


def _hex(digest: bytes | None) -> str | None:
    return None if digest is None else digest.hex()


def _slot(name: str, weight: Weight) -> dict[str, JsonValue]:
    header = weight.header
    return {
        "digest": weight.digest.hex(),
        "dtype": header.dtype,
        "name": name,
        "shape": list(header.shape),
    }


def _statement(top: Members) -> ModelStatement:
    weights: dict[str, Weight] = {}
    for slot in _objects(top, "slots", LIMITS.slots, "digest", "dtype", "name", "shape"):
        name = slot.of("name", str)
        header = TensorHeader(slot.of("dtype", str), integers(slot, "shape"))
        _once(weights, name)[name] = Weight(header, slot.hex("digest"))
    programs: dict[ProgramName, bytes] = {}
    for entry in _objects(
        top, "programs", LIMITS.model_programs, "answer", "digest", "length", "set"
    ):
        sizes = entry.of("length", int), entry.of("answer", int)
        key = ProgramName(*sizes, entry.of("set", str))
        _once(programs, key)[key] = entry.hex("digest")
    files = top.child("tokenizer")
    special: dict[str, SpecialToken] = {}
    for name in top.child("special_tokens").value:
        token = top.child("special_tokens").child(name)
        token.only("id", "text")
        id_ = None if token.value["id"] is None else token.of("id", int)
        special[name] = SpecialToken(token.of("text", str), id_)
    adapter: Adapter | None = None
    if top.value["adapter"] is not None:
        told = top.child("adapter")
        told.only("digest", "merged")
        adapter = Adapter(told.hex("digest"), told.of("merged", bool))
    about = top.child("about")
    return ModelStatement(
        contract=top.of("contract", str),
        vocabulary=top.of("vocabulary", int),
        weights=weights,
        programs=programs,
        files={name: files.hex(name) for name in files.value},
        template=_optional(top, "template"),
        special=special,
        stop=integers(top, "stop"),
        adapter=adapter,
        run=_optional(top, "run"),
        about={name: about.of(name, str) for name in about.value},
    )


def _objects(top: Members, name: str, most: int, *members: str) -> Iterator[Members]:
    """The objects in the list at `name`, each with exactly `members`."""
    items = top.of(name, list)
    if len(items) > most:
        top.fail(f"{name!r} has more than {most} entries")
    for item in items:
        entry = Members(item, top.fail)
        entry.only(*members)
        yield entry


def integers(top: Members, name: str) -> tuple[int, ...]:
    """The integers in the list at `name`."""
    items = top.of(name, list)
    found = tuple(item for item in items if type(item) is int)
    if len(found) != len(items):
        top.fail(f"{name!r} is not a list of integers")
    return found


def _optional(top: Members, name: str) -> bytes | None:
    return None if top.value[name] is None else top.hex(name)


def _once(known: dict[Any, Any], key: object) -> dict[Any, Any]:
    if key in known:
        _malformed(f"{str(key)[:80]} is there twice")
    return known


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise UsageError(
            f"This model statement is not valid: {why}.", "Make it from a model directory."
        )


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The model statement is malformed: {why}.", "Ask its author for an intact copy."
    )
