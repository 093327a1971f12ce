"""Requests, whole and shown in part: their parts, digests and seeds (ANSWERS 3.1, 3.2, 5, 11.7)."""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass
from typing import Any

from reference.floats import rn32
from reference.judge.encoding import (
    RefusedError,
    blob,
    canonical_json,
    digest_of,
    dumped,
    good_point,
    sha,
    tag,
    text,
    u64,
)
from reference.judge.json_members import decimal, members, whole, word
from reference.judge.manifest import binary64
from reference.sampler import Asked

MOST_BYTES, MOST_CHOICES, MOST_LISTED = 4194304, 1024, 4096
FLOATS = ("temperature", "top_p", "min_p", "repetition", "presence", "frequency")
PARTS = ("choices", "date", "input", "model", "seed", "settings", "stop_strings")
ENCODINGS = ("embedding", "classes")
Object = dict[str, Any]


@dataclass
class Request:
    """A request's parts and secret."""

    parts: Object
    secret: bytes

    @property
    def is_of_encoding(self) -> bool:
        return "output" in self.parts

    def salt(self, name: str) -> bytes:
        """5.3."""
        return sha(tag("answer-salt/1") + self.secret + text(name))

    def part_digest(self, name: str) -> bytes:
        return part_digest(name, self.salt(name), self.parts[name])

    @property
    def digest(self) -> bytes:
        return request_digest({name: self.part_digest(name) for name in self.parts})

    @property
    def seed(self) -> int:
        """5.5."""
        told = self.parts["seed"]
        if told["nonce"] is None:
            return int(told["seed"])
        made = sha(tag("request-seed/1") + bytes.fromhex(told["nonce"]) + self.digest)
        return int.from_bytes(made[:8], "big") & (2**63 - 1)

    @property
    def asked(self) -> Asked:
        """The settings, as the sampler reads them: rounded."""
        s = self.parts["settings"]
        numbers = {name: float(rn32(float.fromhex(s[name]))) for name in FLOATS}
        bias = {token: float(rn32(float.fromhex(value))) for token, value in s["bias"]}
        return Asked(**numbers, top_k=s["top_k"], bias=bias)


def part_digest(name: str, salt: bytes, value: Any) -> bytes:
    """5.3."""
    return sha(tag("request-part/1") + text(name) + salt + blob(dumped(value).encode()))


def request_digest(parts: dict[str, bytes]) -> bytes:
    """5.4."""
    names = sorted(parts, key=str.encode)
    return sha(tag("request/1") + u64(len(names)) + b"".join(text(n) + parts[n] for n in names))


def read_request(data: bytes) -> Request:
    """5.2."""
    top = members(_read(data), ("kind", "parts", "secret"), "a request")
    if top["kind"] != "tallystick/request/1":
        raise RefusedError("another kind")
    parts = top["parts"]
    if not isinstance(parts, dict):
        raise RefusedError("no parts")
    if "output" in parts:
        names: tuple[str, ...] = ("input", "model", "output")
    else:
        names = (*PARTS, "client") if "client" in parts else PARTS
    for name, value in members(parts, names, "parts").items():
        check_part(name, value, is_of_encoding="output" in parts)
    return Request(parts, digest_of(top["secret"]))


@dataclass
class Shown:
    """A request in part (5.9)."""

    shown: dict[str, tuple[bytes, Any]]
    hidden: dict[str, bytes]

    @property
    def digest(self) -> bytes:
        found = {name: part_digest(name, *part) for name, part in self.shown.items()}
        return request_digest({**self.hidden, **found})


def read_shown(data: bytes) -> Shown:
    top = members(_read(data), ("hidden", "kind", "shown"), "a shown request")
    if top["kind"] != "tallystick/shown-request/1":
        raise RefusedError("another kind")
    shown, hidden = top["shown"], top["hidden"]
    if not isinstance(shown, dict) or not isinstance(hidden, dict) or not shown:
        raise RefusedError("nothing shown")
    names = sorted([*shown, *hidden])
    if names not in (sorted(PARTS), sorted((*PARTS, "client"))):
        raise RefusedError("other parts")
    found = {}
    for name, part in shown.items():
        part = members(part, ("salt", "value"), "a shown part")
        check_part(name, part["value"])
        found[name] = digest_of(part["salt"]), part["value"]
    return Shown(found, {name: digest_of(digest) for name, digest in hidden.items()})


def _read(data: bytes) -> Any:
    if len(data) > MOST_BYTES:
        raise RefusedError("too long")
    return canonical_json(data)


def check_part(name: str, value: Any, is_of_encoding: bool = False) -> None:
    """5.1, 11.7."""
    if name in ("model", "client"):
        digest_of(value)
        if name == "client" and not good_point(bytes.fromhex(value)):
            raise RefusedError("no key")
    elif name == "output":
        if value not in ENCODINGS:
            raise RefusedError("no output")
    elif name == "choices":
        whole(value, 1, MOST_CHOICES, "choices")
    elif name == "date":
        if value is not None:
            _date(word(value, "date"))
    elif name == "stop_strings":
        strings = _listed(value, "stop strings")
        if len(strings) > MOST_LISTED or not all(word(s, "a stop string") for s in strings):
            raise RefusedError("stop strings")
    elif name == "input":
        _input(value, is_of_encoding)
    elif name == "seed":
        _seed(value)
    else:
        _settings(value)


def _input(value: Any, is_of_encoding: bool) -> None:
    kinds = {"tokens", "text"} if is_of_encoding else {"tokens", "text", "messages"}
    if not isinstance(value, dict) or len(value) != 1 or not set(value) <= kinds:
        raise RefusedError("an input")
    (kind, given), *_ = value.items()
    if kind == "text":
        word(given, "a text")
    for item in [] if kind == "text" else _listed(given, kind):
        if kind == "tokens":
            whole(item, -(2**53) + 1, 2**53 - 1, "a token")
        elif not isinstance(item, dict) or not isinstance(item.get("role"), str):
            raise RefusedError("a message")
    if not given:
        raise RefusedError("an empty input")


def _seed(value: Any) -> None:
    told = members(value, ("by", "nonce", "seed"), "a seed")
    if told["by"] not in ("client", "server") or (told["nonce"] is None) == (told["seed"] is None):
        raise RefusedError("a seed")
    if told["nonce"] is None:
        decimal(told["seed"], 2**64 - 1, "seed")
    elif told["by"] == "server" or not re.fullmatch("[0-9a-f]{32}", word(told["nonce"], "nonce")):
        raise RefusedError("a nonce")


def _settings(value: Any) -> None:
    s = members(value, ("bias", "max_tokens", "stop", "top_k", *FLOATS), "settings")
    rounded = {}
    for name in FLOATS:
        rounded[name] = float(rn32(binary64(s[name], name)))
        if not math.isfinite(rounded[name]):
            raise RefusedError(f"{name} is not finite")
    temperature = binary64(s["temperature"], "temperature")
    holds = (
        (rounded["temperature"] > 0 or (rounded["temperature"] == 0 and temperature <= 0))
        and 0 < rounded["top_p"] <= 1
        and 0 <= rounded["min_p"] <= 1
        and rounded["repetition"] > 0
    )
    if not holds:
        raise RefusedError("a setting out of range")
    whole(s["top_k"], 0, 2**53 - 1, "top_k")
    whole(s["max_tokens"], 1, 2**53 - 1, "max_tokens")
    tokens = []
    for pair in _listed(s["bias"], "bias"):
        if not isinstance(pair, list) or len(pair) != 2:
            raise RefusedError("a bias")
        tokens.append(whole(pair[0], 0, 2**53 - 1, "a token"))
        if not math.isfinite(float(rn32(binary64(pair[1], "a bias")))):
            raise RefusedError("a bias is not finite")
    stop = [whole(t, 0, 2**53 - 1, "a token") for t in _listed(s["stop"], "stop")]
    for listed in (tokens, stop):
        if listed != sorted(set(listed)):
            raise RefusedError("not ascending")
    if len(stop) > MOST_LISTED:
        raise RefusedError("too many stop tokens")


def _date(value: str) -> None:
    form = r"\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d)?"
    try:
        datetime.datetime.fromisoformat(value)
    except ValueError as error:
        raise RefusedError("no date") from error
    if not re.fullmatch(form, value, re.ASCII):
        raise RefusedError("no date")


def _listed(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise RefusedError(f"{what} is no list")
    return value
