"""The disk budget of kept answers: what is used, what is promised to requests under way, and what
is left. Whoever takes a request reserves room for its answers first, so that no answer that has
been computed finds the disk full.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tallystick.answers.request import ModelRequest
from tallystick.disk.files import free_bytes
from tallystick.errors import StorageError, UsageError
from tallystick.limits import LIMITS
from tallystick.serving.kept.tables import PAGE

# A commit lies in the write-ahead log before it lies in the tables. So much of the budget is for
# the log: what may stand there before it is taken over, and the largest answer.
WAL_BYTES = 4 << 20
LARGEST = LIMITS.request_bytes + LIMITS.spoken_bytes + (1 << 20)
HEADROOM = WAL_BYTES + LARGEST
LEAST_BUDGET = HEADROOM + (32 << 20)
_ROW = 1024 + 512  # receipt, digests, names and entries in indices
_OVERFLOW = 4  # bytes of a page that name the next one
_PAGES_BESIDE = 3  # parts of pages: the row's own, and what its indices may be split into
_TOKEN = 9 + 8  # digits and comma; eight digits of a log-probability


class BudgetFullError(StorageError):
    """The answers that are kept fill the disk budget: no request is taken, nothing is dropped."""


# A cancellation beside a receipt: a row, and what its table and index may be split into.
CANCELLED_BYTES = 4 * PAGE


def kept_bytes(request: int, prompt: int, answer: int) -> int:
    """The most bytes of the database that an answer takes: its request has a file of `request`
    bytes, and it has so many tokens. Its text is not kept: it follows from the tokens."""
    return row_bytes(request + 128 + prompt * 9 + answer * _TOKEN)


def row_bytes(files: int) -> int:
    """The most bytes of the database that an answer takes whose request and tokens are files of so
    many bytes together."""
    return (-(-(_ROW + files) // (PAGE - _OVERFLOW)) + _PAGES_BESIDE) * PAGE


def answer_bytes(request: ModelRequest, prompt: int, most: int) -> int:
    """As `kept_bytes`, of one answer to a request, which its client may cancel."""
    cancelled = 0 if request.client is None else CANCELLED_BYTES
    return kept_bytes(len(request.to_bytes()), prompt, most) + cancelled


def kept_bytes_of(request: ModelRequest, prompt: int, most: int) -> int:
    """As `answer_bytes`, for all answers to a request, of at most `most` tokens each."""
    return request.choices * answer_bytes(request, prompt, most)


class Reservation:
    """Room for answers that are not kept yet. `take` turns some of it into use, `release` gives
    back the rest; so does the end of a context."""

    def __init__(self, space: Space, size: int) -> None:
        self._space, self.left = space, size

    def take(self, size: int) -> int:
        """Take room for one answer out of the reservation: what was taken."""
        return self._space.taken(self, size)

    def release(self) -> None:
        self._space.taken(self, self.left, back=True)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class Space:
    """The room in `directory` within `budget` bytes. `used` gives the bytes of the tables and of
    the write-ahead log. Raises UsageError for a budget that is too small to work in."""

    def __init__(self, directory: Path, budget: int, used: Callable[[], tuple[int, int]]) -> None:
        if budget < LEAST_BUDGET:
            raise UsageError(
                f"A budget of {budget} bytes for kept answers is too small.",
                f"Choose at least {LEAST_BUDGET} bytes.",
            )
        self._directory, self.budget, self._used = directory, budget, used
        self._lock, self.reserved = threading.Lock(), 0

    def reserve(self, size: int) -> Reservation:
        """Raises BudgetFullError where the budget has no room for `size` bytes more, StorageError
        where the disk has none."""
        tables, log = self._used()
        with self._lock:
            beside = max(HEADROOM, log + LARGEST)
            if tables + self.reserved + size + beside > self.budget:
                raise BudgetFullError(
                    f"The answers kept in {self._directory} fill their budget of {self.budget} "
                    "bytes.",
                    "Give it more, or wait until receipts have passed their date.",
                )
            if free_bytes(self._directory) < self.reserved + size + HEADROOM:
                raise StorageError(
                    f"The disk of {self._directory} has no room for more answers.",
                    "Free some space. The answers kept so far are safe.",
                )
            self.reserved += size
        return Reservation(self, size)

    def taken(self, held: Reservation, size: int, back: bool = False) -> int:
        """Take up to `size` bytes out of `held`. They stay reserved unless they go `back`."""
        with self._lock:
            size = min(size, held.left)
            held.left -= size
            if back:
                self.reserved -= size
        return size

    def give_back(self, size: int) -> None:
        """The end of what `take` took: it is in use now, or was not needed."""
        with self._lock:
            self.reserved -= size
