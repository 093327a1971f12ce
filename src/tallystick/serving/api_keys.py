"""Who may ask a model server, and how much: API keys, and what the server gives at most, to one key
and in all. No digest covers these numbers.

The file of keys has hashes of keys, and no key. A key has 256 random bits, so that its plain
SHA-256 tells nothing about it: no slow hash is needed.
"""

from __future__ import annotations

import base64
import hmac
import os
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tallystick.commit.encoding import JsonValue, canonical_json, parse_canonical_json, sha256
from tallystick.commit.members import Members
from tallystick.disk.files import write_file
from tallystick.disk.regular import look, present, read_file
from tallystick.errors import CorruptFileError, StorageError, UsageError
from tallystick.limits import LIMITS
from tallystick.service.doors import Bounds
from tallystick.serving.fields import busy

KIND = "tallystick/api-keys/1"
_PREFIX = "tsk-"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FILE_BYTES = 4 << 20
RELOAD_SECONDS = 1.0


@dataclass(frozen=True)
class ApiKey:
    """A key's name, its hash, and when it was made (milliseconds since 1970). An `operator` reads
    the metrics of all keys."""

    name: str
    digest: bytes
    made: int
    operator: bool = False


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """The keys in a file. Raises CorruptFileError, StorageError."""
    data = read_file(path, _FILE_BYTES, "file of API keys")
    top = Members(parse_canonical_json(data, "file of API keys", _FILE_BYTES), _malformed)
    top.only("keys", "kind")
    if top.of("kind", str) != KIND:
        _malformed("it is of another kind")
    found = []
    for entry in top.of("keys", list):
        one = Members(entry, _malformed)
        one.only("digest", "made", "name", "operator")
        found.append(
            ApiKey(
                one.of("name", str), one.hex("digest"), one.of("made", int),
                one.of("operator", bool),
            )
        )  # fmt: skip
    if len({key.name for key in found}) != len(found):
        _malformed("a name stands twice in it")
    return tuple(found)


def write_keys(path: Path, keys: Sequence[ApiKey]) -> None:
    """Write a file of keys, in the place of the one before. Raises StorageError."""
    entries: list[JsonValue] = [
        {"digest": k.digest.hex(), "made": k.made, "name": k.name, "operator": k.operator}
        for k in keys
    ]
    write_file(path, [canonical_json({"keys": entries, "kind": KIND})], mode=0o600)


def add_key(path: Path, name: str, operator: bool = False) -> str:
    """Make a key, and put its hash into the file. The key, which stands nowhere else. Raises
    UsageError for a name that is taken, or is none."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid name for a key.",
            "Use at most 64 letters, digits, '.', '_' and '-'.",
        )
    keys = read_keys(path) if present(path) else ()
    if any(key.name == name for key in keys):
        raise UsageError(
            f"A key named {name} already exists.", "Remove it, or choose another name."
        )
    text = _PREFIX + base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
    write_keys(path, (*keys, ApiKey(name, _digest(text), int(time.time() * 1000), operator)))
    return text


def remove_key(path: Path, name: str) -> None:
    """Take a key out of the file. Raises UsageError where there is none of this name."""
    keys = read_keys(path)
    left = [key for key in keys if key.name != name]
    if len(left) == len(keys):
        raise UsageError(
            f"No key is named {name}.", "`tallystick serve-model keys list` prints the names."
        )
    write_keys(path, left)


class KeyRing:
    """The keys of a file, read again when it changes, so that a removed key opens nothing."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp, self._looked = self._seen(), time.monotonic()
        self._keys = read_keys(path)

    def find(self, text: str) -> ApiKey | None:
        """The key whose text is `text`. It takes as long for any text. Raises as `read_keys`."""
        self._look()
        digest, found = _digest(text), None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < RELOAD_SECONDS:
            return
        self._looked = now
        if (stamp := self._seen()) != self._stamp:
            self._stamp, self._keys = stamp, read_keys(self._path)

    def _seen(self) -> tuple[int, int, int]:
        try:
            found = look(self._path, None)
        except StorageError:
            found = None
        if found is None:
            return 0, 0, 0
        return found.st_mtime_ns, found.st_size, found.st_ino


def key_text(path: Path | None, variable: str) -> str | None:
    """The API key of a client: the first line of a file, or the environment's. Raises
    StorageError."""
    if path is not None:
        return read_file(path, 4096, "file of an API key").decode("utf-8", "replace").strip()
    return os.environ.get(variable) or None


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape"))


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The file of API keys is malformed: {why}.",
        "Create the keys again with `tallystick serve-model keys add`.",
    )


@dataclass(frozen=True)
class ServingLimits:
    """Upper bounds, all inclusive. An answer is one choice of one prompt. It is *under way* from
    the first pass to its receipt, and *waits* before that."""

    at_once: int = 32  # answers under way, of one model
    key_at_once: int = 16  # of one key
    waiting: int = 512
    key_waiting: int = 256
    answer_tokens: int = 4096  # of one answer
    choices: int = 16
    prompts: int = 64  # of one request for completions
    texts: int = 8192  # that wait for an encoder
    key_texts: int = 2048
    # Tokens of prompts and answers that a key gets in a minute, and at most at once; 0 for any.
    key_tokens_minute: int = 0
    seconds: float = 600.0  # from a request to the end of its answers
    # Tokens that a client has not taken yet, and how long its connection may take nothing.
    unread_tokens: int = 512
    unread_seconds: float = 30.0


def bounds_of(limits: ServingLimits) -> Bounds:
    """The bounds of the HTTP server. Many clients may come from one address, as from a proxy."""
    return Bounds(
        connections=768,
        peer_connections=640,
        requests=768,
        peer_requests=640,
        bad_cost=5.0,  # clients of this interface try what a server refuses
        body_bytes=LIMITS.request_bytes,
        whole_seconds=limits.seconds + 2 * limits.unread_seconds,
    )


class Accounts:
    """Each key gains tokens evenly, up to those of one minute. It may begin a request as long as it
    owes nothing, and pays for what the request has used. 0 tokens a minute mean: any number."""

    def __init__(self, tokens_minute: int) -> None:
        self._minute = tokens_minute
        self._left: dict[str, tuple[float, float]] = {}

    def check(self, owner: str, now: float) -> None:
        """Raise ApiError where a key has used up its tokens. `now` is in seconds of any clock."""
        left = self._of(owner, now)
        if self._minute and left < 0:
            after = max(1, int(-left * 60 / self._minute) + 1)
            why = f"This key has {self._minute} tokens a minute, and has used them."
            raise busy(why, "tokens_exceeded", after)

    def pay(self, owner: str, tokens: int, now: float) -> None:
        if self._minute:
            self._left[owner] = self._of(owner, now) - tokens, now

    def _of(self, owner: str, now: float) -> float:
        left, then = self._left.get(owner, (float(self._minute), now))
        return min(float(self._minute), left + (now - then) * self._minute / 60)
