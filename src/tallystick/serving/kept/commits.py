"""Group commit: what waits together is written in one transaction, with one flush of the disk.

Theory of operation. One thread writes. While it waits for the disk, others put their writes into
the queue, and the next transaction takes them all, within a bound. Where a transaction fails, each
of its writes is tried alone: one that is too large for the disk takes no other with it. After an
error of the disk itself nothing more is written: a flush that has failed once may have lost what
was written before it, and the next one would not say so.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from tallystick.errors import StorageError, TallystickError
from tallystick.serving.kept.space import WAL_BYTES
from tallystick.serving.kept.tables import sqlite_errors, wal_bytes

Statements = list[tuple[str, tuple[object, ...]]]
_BATCH = WAL_BYTES


@dataclass
class _Write:
    statements: Statements
    size: int
    done: Future[None] = field(default_factory=Future)


class Commits:
    """The one writer of a database; `connection` is its own. Raises nothing itself."""

    def __init__(self, directory: Path, connection: sqlite3.Connection) -> None:
        self._directory, self._connection = directory, connection
        self._queue: deque[_Write] = deque()
        self._work = threading.Condition()
        self._alone = threading.Lock()  # who uses the connection
        self._closed = False
        self.broken: str | None = None
        self.commits = 0
        self._thread = threading.Thread(target=self._run, name="tallystick-keeper", daemon=True)
        self._thread.start()

    def write(self, statements: Statements, size: int) -> None:
        """Write the statements; they are on the disk when this returns. Raises StorageError where
        they are not, CorruptFileError."""
        one = _Write(statements, size)
        with self._work:
            self._require()
            self._queue.append(one)
            self._work.notify()
        one.done.result()

    def alone(self, work: Callable[[sqlite3.Connection], int]) -> int:
        """`work` on the connection, in a transaction of its own. Raises as `write`."""
        self._require()
        with self._alone:
            try:
                with sqlite_errors(self._directory):
                    self._connection.execute("BEGIN IMMEDIATE")
                    try:
                        found = work(self._connection)
                        self._connection.execute("COMMIT")
                    except BaseException:
                        self._rollback()
                        raise
            except TallystickError as error:
                self._note(error)
                raise
            self._take_over(WAL_BYTES)
        return found

    def look(self, work: Callable[[sqlite3.Connection], int]) -> int:
        """A number that `work` reads."""
        with self._alone, sqlite_errors(self._directory):
            return work(self._connection)

    def close(self) -> None:
        """Write what waits, and end. The connection is closed."""
        with self._work:
            self._closed = True
            self._work.notify()
        self._thread.join()
        with self._alone:
            self._connection.close()

    def _require(self) -> None:
        if self.broken is not None or self._closed:
            raise StorageError(
                f"No more answers are kept in {self._directory}: {self.broken or 'it is closed'}",
                "Restart the server. It then reads what was kept from the disk.",
            )

    def _run(self) -> None:
        while True:
            with self._work:
                while not (self._queue or self._closed):
                    self._work.wait()
                if not self._queue:
                    return
                batch = [self._queue.popleft()]
                size = batch[0].size
                while self._queue and size + self._queue[0].size <= _BATCH:
                    batch.append(self._queue.popleft())
                    size += batch[-1].size
            self._commit(batch)

    def _commit(self, batch: list[_Write]) -> None:
        failed: BaseException | None = None
        with self._alone:
            try:
                self._require()
                self._transaction(batch)
            except BaseException as error:
                failed = error
                self._note(error)
        if failed is not None and len(batch) > 1:
            for one in batch:
                self._commit([one])
            return
        for one in batch:
            if failed is None:
                one.done.set_result(None)
            else:
                one.done.set_exception(failed)
        if failed is None:
            with self._alone:
                self._take_over(WAL_BYTES)

    def _transaction(self, batch: list[_Write]) -> None:
        with sqlite_errors(self._directory):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for one in batch:
                    for statement, values in one.statements:
                        self._connection.execute(statement, values)
                self._connection.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise
        self.commits += 1

    def _rollback(self) -> None:
        if self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                self.broken = self.broken or f"{error}."

    def _note(self, error: BaseException) -> None:
        if isinstance(error.__cause__, sqlite3.Error) and "full" not in str(error.__cause__):
            self.broken = self.broken or str(error)

    def _take_over(self, most: int) -> None:
        """Take the write-ahead log over into the tables, where it is longer than `most`. One that
        readers hold stays; it is safe as it is."""
        if wal_bytes(self._directory) <= most:
            return
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            if "full" not in str(error):
                self.broken = self.broken or f"{error}."
