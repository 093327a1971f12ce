"""A request: what a client asks of a model, and the digest that names it (ANSWERS 5).

Each part of a request has a salt of its own, which follows from the request's secret. So a party
may show some parts of a request, and the digest of the others tells nothing about them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from tallystick.answers.layout import FLOATS, Settings, seed_of
from tallystick.answers.statement import integers
from tallystick.answers.template import moment_of
from tallystick.commit.encoding import (
    JsonValue,
    Writer,
    canonical_json,
    check_hash,
    encode_name,
    float_hex,
    parse_canonical_json,
    parse_float_hex,
    tag,
)
from tallystick.commit.members import Members
from tallystick.commit.signing import PublicKey
from tallystick.commit.tensor import Array
from tallystick.errors import CorruptFileError, TallystickError, UsageError
from tallystick.limits import LIMITS

KIND = "tallystick/request/1"
REQUEST_TAG, PART_TAG = tag("request/1"), tag("request-part/1")
SALT_TAG, SEED_TAG = tag("answer-salt/1"), tag("request-seed/1")
NONCE_BYTES = 16
# Who chose the seed (ANSWERS 5.5).
CLIENT, SERVER = "client", "server"
# The salt of an answer's record (ANSWERS 2.4).
RECORD_SALT = "record"
PARTS = ("choices", "date", "input", "model", "seed", "settings", "stop_strings")
# A part that a request may lack: one without it has the digest of the others (ANSWERS 5.1).
CLIENT_KEY = "client"
_U64 = 20  # decimal digits

Message = Mapping[str, JsonValue]


@dataclass(frozen=True)
class ModelRequest:
    """What a client asks (ANSWERS 5.1). Raises UsageError for parts that are out of range.

    `model` is the model digest. Exactly one of `tokens`, `text` and `messages` is given. The seed
    is that of `settings`, unless there is a `nonce` of the client's: then it follows from that.
    `server_seed` marks a seed that the server chose. `date` is the one that the chat template
    reads. `stop_strings` end an answer whose text has one. `client` is the key of whoever may
    cancel an answer.
    """

    model: bytes
    settings: Settings
    tokens: tuple[int, ...] | None = None
    text: str | None = None
    messages: tuple[Message, ...] | None = None
    nonce: bytes | None = None
    server_seed: bool = False
    date: str | None = None
    stop_strings: tuple[str, ...] = ()
    choices: int = 1
    secret: bytes = b""
    client: PublicKey | None = None

    def __post_init__(self) -> None:
        check_hash(self.model, "model digest")
        check_hash(self.secret, "secret of a request")
        given = [x for x in (self.tokens, self.text, self.messages) if x is not None]
        _require(len(given) == 1, "it needs exactly one of tokens, text and messages")
        _require(len(given[0]) > 0, "its input is empty")
        for message in self.messages or ():
            _require(isinstance(message.get("role"), str), "a message has no role")
        _require(
            self.nonce is None or len(self.nonce) == NONCE_BYTES, "its nonce must have 16 bytes"
        )
        _require(not (self.server_seed and self.nonce), "a server's seed has no nonce")
        _require(1 <= self.choices <= LIMITS.choices, "its number of choices is out of range")
        _require(
            self.date is None or _is_date(self.date), "its date is not in the form of ISO 8601"
        )
        _require(len(self.settings.stop) <= LIMITS.stop_tokens, "it has too many stop tokens")
        _require(len(self.stop_strings) <= LIMITS.stop_tokens, "it has too many stop strings")
        _require(all(self.stop_strings), "a stop string is empty")

    @cached_property
    def parts(self) -> dict[str, JsonValue]:
        """The parts by name, as their salted digests take them."""
        s = self.settings
        settings: dict[str, JsonValue] = {name: float_hex(getattr(s, name)) for name in FLOATS}
        settings["bias"] = [[token, float_hex(value)] for token, value in s.bias]
        settings |= {"max_tokens": s.max_tokens, "stop": list(s.stop), "top_k": s.top_k}
        asked: dict[str, JsonValue]
        if self.tokens is not None:
            asked = {"tokens": list(self.tokens)}
        elif self.text is not None:
            asked = {"text": self.text}
        else:
            asked = {"messages": [dict(message) for message in self.messages or ()]}
        named: dict[str, JsonValue] = {}
        if self.client is not None:
            named[CLIENT_KEY] = self.client.raw.hex()
        return {
            **named,
            "choices": self.choices,
            "date": self.date,
            "input": asked,
            "model": self.model.hex(),
            "seed": {
                "by": SERVER if self.server_seed else CLIENT,
                "nonce": None if self.nonce is None else self.nonce.hex(),
                "seed": None if self.nonce is not None else str(s.seed),
            },
            "settings": settings,
            "stop_strings": list(self.stop_strings),
        }

    def salt(self, name: str) -> bytes:
        """The salt of a part, or of what the answer commits to (ANSWERS 5.3)."""
        return salt_of(self.secret, name)

    @property
    def record_salt(self) -> Array:
        """The salt of the answer's record: i64[4] (ANSWERS 2.4)."""
        return np.frombuffer(self.salt(RECORD_SALT), "<i8").astype(np.int64)

    @cached_property
    def digest(self) -> bytes:
        """The request digest (ANSWERS 5.4)."""
        return request_digest({name: part_digest(name, self.salt(name), value)
                               for name, value in self.parts.items()})  # fmt: skip

    @cached_property
    def seed(self) -> int:
        """The seed of the request (ANSWERS 5.5)."""
        if self.nonce is None:
            return self.settings.seed
        return seed_of_nonce(self.nonce, self.digest)

    def to_bytes(self) -> bytes:
        """The file, with the secret: canonical JSON."""
        return canonical_json({"kind": KIND, "parts": self.parts, "secret": self.secret.hex()})

    @staticmethod
    def from_bytes(data: bytes) -> ModelRequest:
        """Inverse of `to_bytes` for untrusted bytes. Raises CorruptFileError."""
        top = Members(parse_canonical_json(data, "request", LIMITS.request_bytes), malformed)
        top.only("kind", "parts", "secret")
        if top.of("kind", str) != KIND:
            malformed(f"its kind is {top.value['kind']!r}")
        try:
            found = request_of_parts(top.value["parts"], top.hex("secret"))
        except CorruptFileError:
            raise
        except TallystickError as error:
            malformed(error.message.rstrip("."))
        if found.to_bytes() != data:
            malformed("a part is not in its canonical form")
        return found


def new_secret() -> bytes:
    """A secret from the operating system's randomness."""
    return os.urandom(32)


def new_nonce() -> bytes:
    return os.urandom(NONCE_BYTES)


def salt_of(secret: bytes, name: str) -> bytes:
    """The salt of a part, or of what a record commits to, by the request's secret (ANSWERS 5.3)."""
    return Writer(SALT_TAG).hash(secret).text(name).digest()


def part_digest(name: str, salt: bytes, value: JsonValue) -> bytes:
    """The digest of a part of a request, by which it may be hidden (ANSWERS 5.3)."""
    out = Writer(PART_TAG).text(name).hash(salt, "salt").blob(canonical_json(value))
    return out.digest()


def request_digest(parts: Mapping[str, bytes]) -> bytes:
    """The request digest from the digests of its parts (ANSWERS 5.4)."""
    out = Writer(REQUEST_TAG).u64(len(parts))
    for name in sorted(parts, key=encode_name):
        out.text(name).hash(parts[name])
    return out.digest()


def seed_of_nonce(nonce: bytes, digest: bytes) -> int:
    """The seed of a request without one (ANSWERS 5.5)."""
    return seed_of(Writer(SEED_TAG).raw(nonce).hash(digest))


def request_of_parts(value: JsonValue, secret: bytes) -> ModelRequest:
    """The request with these untrusted parts. Raises CorruptFileError, and UsageError for parts
    that are out of range."""
    parts = Members(value, malformed)
    named = CLIENT_KEY in parts.value
    parts.only(*PARTS, *((CLIENT_KEY,) if named else ()))
    asked, seed = parts.child("input"), parts.child("seed")
    seed.only("by", "nonce", "seed")
    kinds: dict[str, Any] = {"tokens": None, "text": None, "messages": None}
    if len(asked.value) != 1 or not set(asked.value) <= set(kinds):
        malformed("its input needs exactly one of tokens, text and messages")
    if "tokens" in asked.value:
        kinds["tokens"] = integers(asked, "tokens")
    elif "text" in asked.value:
        kinds["text"] = asked.of("text", str)
    else:
        kinds["messages"] = tuple(Members(m, parts.fail).value for m in asked.of("messages", list))
    if (by := seed.of("by", str)) not in (CLIENT, SERVER):
        malformed("its seed is neither the client's nor the server's")
    nonce = None if seed.value["nonce"] is None else seed.hex("nonce", NONCE_BYTES)
    settings = _settings(parts.child("settings"))
    if nonce is None:
        settings = replace(settings, seed=seed.decimal("seed", _U64))
    return ModelRequest(
        model=parts.hex("model"),
        settings=settings,
        nonce=nonce,
        server_seed=by == SERVER,
        date=None if parts.value["date"] is None else parts.of("date", str),
        stop_strings=_strings(parts, "stop_strings"),
        choices=parts.of("choices", int),
        secret=secret,
        client=PublicKey(parts.hex(CLIENT_KEY)) if named else None,
        **kinds,
    )


def _settings(told: Members) -> Settings:
    told.only("bias", "max_tokens", "stop", "top_k", *FLOATS)
    floats: dict[str, Any] = {
        name: parse_float_hex(told.value[name], f"setting {name}") for name in FLOATS
    }
    bias = []
    for pair in told.of("bias", list):
        if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) is not int:
            told.fail("a bias is not a token and a number")
        bias.append((pair[0], parse_float_hex(pair[1], "bias of a token")))
    return Settings(
        **floats,
        top_k=told.of("top_k", int),
        bias=tuple(bias),
        max_tokens=told.of("max_tokens", int),
        stop=integers(told, "stop"),
    )


def _strings(top: Members, name: str) -> tuple[str, ...]:
    items = top.of(name, list)
    found = tuple(item for item in items if isinstance(item, str))
    if len(found) != len(items):
        top.fail(f"{name!r} is not a list of strings")
    return found


def _is_date(text: str) -> bool:
    try:
        moment_of(text)
    except ValueError:
        return False
    return True


def _require(holds: bool, why: str) -> None:
    if not holds:
        raise UsageError(f"This request is not valid: {why}.", "Correct what the message names.")


def malformed(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The request is malformed: {why}.", "Ask its sender for an intact copy."
    )
