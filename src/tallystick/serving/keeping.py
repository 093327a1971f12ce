"""Where a server keeps what it has signed. A receipt is kept before the answer's end is sent."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from typing import Any, Protocol

from tallystick.answers.files import AnswerFiles
from tallystick.api.answering import GivenAnswer
from tallystick.api.encoding import GivenEncoding


class KeptRoom(Protocol):
    """Room for an answer that is not kept yet."""

    def release(self) -> None:
        """Give back what has not been used. More than once is as good as once."""


class AnswerKeeper(Protocol):
    """Keeps answers for the names of keys. Every method is safe for threads.

    `days` is for how long after its time an answer is kept, and its signer answers disputes: the
    receipts that a server signs say so.
    """

    days: int

    def full(self) -> str | None:
        """Why no further answer can be kept; None where one can. No request is accepted then."""

    def reserve(self, size: int) -> KeptRoom:
        """Room for an answer of `size` bytes (`kept.space.kept_bytes`). Raises StorageError where
        there is none: then the request is not accepted."""

    def keep(self, answer: GivenAnswer | GivenEncoding, owner: str, room: Any) -> str:
        """Keep an answer to the key `owner`, in a `room` of this keeper's. Its id, once it is as
        safe as this keeper makes it. Raises StorageError where it is not kept: then the answer's
        end is not sent."""

    def find(self, id_: str, owner: str) -> AnswerFiles | None:
        """The answer with this id, if it is one to the key `owner`."""


class NoRoom:
    """Room that takes none."""

    def release(self) -> None:
        pass


class MemoryKeeper:
    """Keeps the last `most` answers as long as the process lives. So its receipts promise
    nothing: they are answered for until the moment they are signed."""

    days = 0

    def __init__(self, most: int = 4096) -> None:
        self._most, self._lock = most, threading.Lock()
        self._kept: OrderedDict[str, tuple[str, GivenAnswer | GivenEncoding]] = OrderedDict()

    def full(self) -> str | None:
        return None

    def reserve(self, size: int) -> KeptRoom:
        return NoRoom()

    def keep(self, answer: GivenAnswer | GivenEncoding, owner: str, room: Any = None) -> str:
        id_ = f"answer-{secrets.token_hex(16)}"
        with self._lock:
            self._kept[id_] = owner, answer
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return id_

    def find(self, id_: str, owner: str) -> AnswerFiles | None:
        with self._lock:
            whose, answer = self._kept.get(id_, (None, None))
        return answer.files if answer is not None and whose == owner else None
