"""Where a server keeps what it has signed. A receipt is kept before the answer's end is sent."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import Protocol

from tallystick.answers.files import AnswerFiles
from tallystick.api.answering import GivenAnswer


class AnswerKeeper(Protocol):
    """Keeps answers for the names of keys. Every method is safe for threads.

    `days` is for how long after its time an answer is kept, and its signer answers disputes: the
    receipts that a server signs say so.
    """

    days: int

    def full(self) -> str | None:
        """Why no further answer can be kept; None where one can. No request is accepted then."""

    def keep(self, answer: GivenAnswer, name: str) -> str:
        """Keep an answer to the key `name`. Its id, once it is as safe as this keeper makes it.
        Raises StorageError where it is not kept: then the answer's end is not sent."""

    def find(self, id_: str, name: str) -> AnswerFiles | None:
        """The answer with this id, if it is one to the key `name`."""


def new_id() -> str:
    """An id that nobody guesses."""
    return f"answer-{secrets.token_hex(16)}"


class MemoryKeeper:
    """Keeps the last `most` answers as long as the process lives. So its receipts promise
    nothing: they are answered for until the moment they are signed."""

    days = 0

    def __init__(self, most: int = 4096) -> None:
        self._most, self._lock = most, threading.Lock()
        self._kept: OrderedDict[str, tuple[str, GivenAnswer]] = OrderedDict()

    def full(self) -> str | None:
        return None

    def keep(self, answer: GivenAnswer, name: str) -> str:
        id_ = new_id()
        with self._lock:
            self._kept[id_] = name, answer
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return id_

    def find(self, id_: str, name: str) -> AnswerFiles | None:
        with self._lock:
            owner, answer = self._kept.get(id_, (None, None))
        return answer.files if answer is not None and owner == name else None
