"""A process in which the rules of a tokenizer file are executed.

Such a file is a program of its own: replacements that feed one another, regular expressions, tables
of any size. A few hundred bytes of it can ask for 10^18 bytes of memory, and the library then ends
the process that it is in. So it is never this one. The other process has a limit of memory, and a
time in which each answer comes.

Requests and answers: u8 kind, u64 length, so many bytes. The first request is the file.
"""

from __future__ import annotations

import json
import os
import resource
import select
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import IO, Any

from tallystick.disk.memory import own_addresses
from tallystick.errors import UsageError
from tallystick.started import Child

ENCODE, DECODE, TOKEN, COUNT, WHOLE = range(5)
_DONE, _REFUSED = range(2)
_HEAD = struct.Struct("<BQ")
_PIECE = 1 << 20
# Of the other process, and more for each byte of a request: an honest tokenizer needs a part of it.
MEMORY_BYTES, MEMORY_EACH = 4 << 30, 1 << 10
SECONDS, SECONDS_EACH = 120.0, 1e-3
_MODULE = "tallystick.data.sources.tokenizer_process"


class RulesProcess:
    """The rules in a file of these bytes, executed by `module` in a process that ends with this
    object: those of a tokenizer, or other ones.

    Safe for threads. Every method raises UsageError, whose message begins with what was wrong: the
    caller names the file."""

    def __init__(self, data: bytes, module: str = _MODULE) -> None:
        self._lock = threading.Lock()
        self._child = Child(module, answering=True)
        weakref.finalize(self, _end, self._child)
        self._asked(0, data)

    def ask(self, kind: int, data: bytes = b"") -> bytes:
        """The answer to a request. Of a tokenizer: tokens as i64 for ENCODE, which has a text, and
        for WHOLE with the special tokens around it; a text for DECODE, which has tokens; a JSON
        number or null for TOKEN, which has a token's text, and for COUNT."""
        with self._lock:
            return self._asked(kind, data)

    def _asked(self, kind: int, data: bytes) -> bytes:
        patience = SECONDS + SECONDS_EACH * len(data)
        try:
            status, answer = self._exchanged(kind, data, time.monotonic() + patience)
        except (OSError, EOFError):
            self._child.kill()
            raise UsageError(
                f"its rules do not end within {patience:.0f} seconds and "
                f"{_memory(len(data)) >> 20} MiB of memory",
                "Give the tokenizer.json of the model, from its author.",
            ) from None
        if status == _REFUSED:
            why = answer.decode("utf-8", "replace")
            raise UsageError(why, "Give the tokenizer.json of the model.")
        return answer

    def _exchanged(self, kind: int, data: bytes, until: float) -> tuple[int, bytes]:
        """The other process's status and answer. Raises OSError and EOFError, also `until`."""
        message = _HEAD.pack(kind, len(data)) + data
        if len(message) <= select.PIPE_BUF:  # an empty pipe takes it at once
            self._child.write(message)
        else:
            late = threading.Timer(until - time.monotonic(), self._child.kill)
            late.start()
            try:
                self._child.write(message)
            finally:
                late.cancel()
        status, size = _HEAD.unpack(self._received(_HEAD.size, until))
        return status, self._received(size, until)

    def _received(self, size: int, until: float) -> bytes:
        """So many bytes of its output, of which nothing else reads. Raises as `_exchanged`."""
        pipe, found = self._child.output.fileno(), bytearray()
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        while len(found) < size:
            left = until - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise TimeoutError
            piece = os.read(pipe, min(size - len(found), _PIECE))
            if not piece:
                raise EOFError
            found += piece
        return bytes(found)


def _end(child: Child) -> None:
    child.end()
    child.output.close()


def _memory(size: int) -> int:
    return MEMORY_BYTES + MEMORY_EACH * size


def _read(file: IO[bytes]) -> tuple[int, bytes]:
    """One message. Raises EOFError."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    kind, size = _HEAD.unpack(head)
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return kind, data


def _answer(tokenizer: Any, kind: int, data: bytes) -> bytes:
    if kind in (ENCODE, WHOLE):
        found = tokenizer.encode(data.decode("utf-8"), add_special_tokens=kind == WHOLE)
        return struct.pack(f"<{len(found.ids)}q", *found.ids)
    if kind == DECODE:
        tokens = list(struct.unpack(f"<{len(data) // 8}q", data))
        return str(tokenizer.decode(tokens, skip_special_tokens=False)).encode("utf-8")
    if kind == TOKEN:
        return json.dumps(tokenizer.token_to_id(data.decode("utf-8"))).encode()
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    return json.dumps(1 + max(vocabulary.values(), default=-1)).encode()


def _limit_memory(most: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(
        resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )


def _opened(data: bytes) -> Any:
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(data.decode("utf-8"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def serve(opened: Callable[[bytes], Any], answered: Callable[[Any, int, bytes], bytes]) -> None:
    """Answer requests until the standard input ends: `opened` makes of the file what `answered`
    gets with each request after it."""
    rules: Any = None
    own = own_addresses()
    while True:
        try:
            kind, data = _read(sys.stdin.buffer)
        except EOFError:
            return
        try:
            _limit_memory(own + _memory(len(data)))
            if rules is None:
                rules, answer = opened(data), b""
            else:
                answer = answered(rules, kind, data)
            status = _DONE
        # The package raises plain Exception, and where it panics a BaseException of its own.
        except BaseException as error:
            status, answer = _REFUSED, str(error)[:120].rstrip(".").encode("utf-8", "replace")
        sys.stdout.buffer.write(_HEAD.pack(status, len(answer)) + answer)
        sys.stdout.buffer.flush()


def main() -> None:
    import tokenizers  # noqa: F401 (its memory is our own, and none of the file's)

    serve(_opened, _answer)


if __name__ == "__main__":
    main()
