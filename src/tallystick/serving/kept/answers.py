"""The answers that a server keeps: durable before their receipts are sent, within a disk budget,
and for as long as the receipts promise (ANSWERS 7.7).

Theory of operation. A request is taken only where there is room for its answers (`reserve`), so
nothing that was promised is ever dropped for want of room. `keep` returns when the answer is on the
disk; the server sends the receipt after that. So a process that is killed has at most answers on
the disk that nobody has heard of, and never the other way round. What has passed its date is
deleted (`expire`), unless a referee's session about it still goes on.
"""

from __future__ import annotations

import json
import secrets
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.files import AnswerFiles, said_of
from tallystick.answers.receipt import read_receipt
from tallystick.answers.statement import ModelStatement
from tallystick.api.answering import DAYS, GivenAnswer
from tallystick.api.encoding import GivenEncoding
from tallystick.closing import Closing
from tallystick.disk.files import locked
from tallystick.errors import StorageError, UsageError
from tallystick.program.ir import Program
from tallystick.serving.kept.commits import Commits, Statements
from tallystick.serving.kept.reader import KeptModel, KeptReader, forget_sessions, jobs_in_session
from tallystick.serving.kept.same_files import fingerprint, require_models
from tallystick.serving.kept.space import (
    CANCELLED_BYTES,
    Reservation,
    Space,
    kept_bytes,
    row_bytes,
)
from tallystick.serving.kept.tables import (
    LOCK,
    PAGE,
    connected,
    create_tables,
    make_private,
    pages_in_use,
    require_version,
    wal_bytes,
)

# A session that begins in the last moment of a promise has left its record by then.
_GRACE_MS = 60_000
_AT_ONCE = 256  # answers that one transaction deletes
_USUAL = kept_bytes(1 << 16, 1 << 12, 1 << 12)


class KeptAnswers(Closing):
    """The keeper of `directory`, within `budget` bytes of disk; `days` is for how long a receipt
    promises answers to disputes. It holds the directory's lock. Every method is safe for threads.

    Raises StorageError where another process keeps answers there, UsageError for a budget that is
    too small, UnsupportedVersionError, CorruptFileError.
    """

    def __init__(self, directory: Path, budget: int, days: int = DAYS) -> None:
        self.directory, self.days = Path(directory), days
        make_private(self.directory)
        with ExitStack() as held:
            held.enter_context(locked(self.directory / LOCK, "model server"))
            create_tables(self.directory)
            connection = connected(self.directory)
            held.callback(connection.close)
            require_version(connection, self.directory)
            # What a killed process left in the log is read, written anew and flushed.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            self._reader = KeptReader(self.directory)
            held.callback(self._reader.close)
            self._space = Space(self.directory, budget, self._used)
            self._commits = Commits(self.directory, connection)
            held.callback(self._commits.close)
            # Of this process: `expire` leaves them, so that a write finds what it found before.
            self._models, self._programs = set[bytes](), set[bytes]()
            self._held = held.pop_all()

    def close(self) -> None:
        """Write what waits, and give the lock back."""
        self._held.close()

    # -- room --------------------------------------------------------------------------------------

    def reserve(self, size: int) -> Reservation:
        """Room for answers of `size` bytes (`space.kept_bytes_of`), before their request is taken.
        Raises BudgetFullError, StorageError."""
        return self._space.reserve(size)

    def full(self) -> str | None:
        """Why no further answer can be kept; None where one of a usual size can."""
        if self._commits.broken is not None:
            return f"Nothing more is kept in {self.directory}: {self._commits.broken}"
        try:
            self.reserve(_USUAL).release()
        except StorageError as error:  # the budget, or the disk
            return error.message
        return None

    def _used(self) -> tuple[int, int]:
        return self._commits.look(pages_in_use) * PAGE, wal_bytes(self.directory)

    # -- keeping -----------------------------------------------------------------------------------

    def uses(self, statement: ModelStatement, directory: Path, adapter: Path | None = None) -> None:
        """Say where the model of `statement` lies, and its adapter, after its weights were
        compared. Its answers may be kept then."""
        seen, place = fingerprint(directory, adapter), str(directory.absolute())
        beside = None if adapter is None else str(adapter.absolute())
        write: Statements = [
            (
                "INSERT INTO models (digest, statement, directory, seen, adapter)"
                " VALUES (?, ?, ?, ?, ?) ON CONFLICT (digest) DO UPDATE SET"
                " directory = excluded.directory, seen = excluded.seen, adapter = excluded.adapter",
                (statement.digest, statement.to_bytes(), place, seen, beside),
            )
        ]
        size = len(statement.to_bytes()) + 4 * PAGE
        with self.reserve(size):
            self._commits.write(write, size)
        self._models.add(statement.digest)

    def require_models(self) -> None:
        """Raise DigestMismatchError unless every model that is still needed is where it was, with
        its weights (ANSWERS 7.7.2)."""
        for model in require_models(self.models(), self.statement):
            # It is not hashed again then.
            self.uses(self.statement(model.digest), model.directory, model.adapter)

    def keep(
        self, answer: GivenAnswer | GivenEncoding, owner: str, room: Reservation | None = None
    ) -> str:
        """Keep an answer to `owner` in the room reserved for it; its id, once it is on the disk.

        Raises StorageError where it is not: its receipt must not be sent then. Raises UsageError
        for an answer of a model that nobody has named (`uses`), or that needs more room than there
        is in `room`.
        """
        receipt, job = read_receipt(answer.receipt).receipt, answer.job
        if receipt.model not in self._models:
            raise UsageError(
                "The model was not registered before its answers were kept.",
                "Register its directory with `uses`.",
            )
        request = job.request.to_bytes()
        said = said_of(job)
        # The text follows from the tokens.
        spoken = (replace(said, text="") if isinstance(said, Spoken) else said).to_bytes()
        signed = answer.cancellation if isinstance(answer, GivenAnswer) else None
        size = row_bytes(len(request) + len(spoken)) + (0 if signed is None else CANCELLED_BYTES)
        id_ = f"answer-{secrets.token_hex(16)}"
        held = self.reserve(size) if room is None else room
        taken = held.take(size)
        try:
            if taken < size:
                raise UsageError(
                    f"An answer needs {size} bytes on the disk, but only {taken} are reserved for "
                    "it.",
                    "Reserve what `kept_bytes_of` returns.",
                )
            row = (
                id_, owner, receipt.model, job.program_digest, receipt.job, receipt.until,
                answer.receipt, request, spoken,
            )  # fmt: skip
            self._keep_program(job.program_digest, answer.program)
            insert = (
                "INSERT INTO answers (id, owner, model, program, job, until, receipt, request,"
                " spoken) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            )
            write: Statements = [(insert, row)]
            if signed is not None:
                write += [("INSERT INTO cancellations VALUES (?, ?)", (id_, signed))]
            self._commits.write(write, size)
        finally:
            self._space.give_back(taken)
        return id_

    def _keep_program(self, digest: bytes, program: Program) -> None:
        """Keep a program's text, once. The first answer of a program needs room for it."""
        if digest in self._programs:
            return
        text = program.text().encode("ascii")
        size = len(text) + 4 * PAGE
        with self.reserve(size):
            insert = "INSERT OR IGNORE INTO programs VALUES (?, ?)"
            self._commits.write([(insert, (digest, text))], size)
        self._programs.add(digest)

    def find(self, id_: str, owner: str) -> AnswerFiles | None:
        """The answer with this id, if it is one to `owner`."""
        return self._reader.find(id_, owner)

    # -- the end of a promise ----------------------------------------------------------------------

    def expire(self, now: int | None = None) -> int:
        """Delete the answers whose promise ended a minute before `now`, in milliseconds since 1970,
        and the programs and statements that none needs any more. An answer that a referee's session
        is about stays until that has ended (ANSWERS 7.7.3). The number of answers deleted."""
        now = int(time.time() * 1000) if now is None else now
        end = now - _GRACE_MS
        open_jobs = json.dumps([job.hex() for job in jobs_in_session(self.directory, now)])
        which = (
            "SELECT number FROM answers WHERE until < ? AND lower(hex(job)) NOT IN"
            " (SELECT value FROM json_each(?))"
        )
        deleted = 0
        while found := self._commits.alone(
            lambda tables: (
                tables.execute(
                    f"DELETE FROM answers WHERE number IN ({which} LIMIT {_AT_ONCE})",
                    (end, open_jobs),
                ).rowcount
            )
        ):
            deleted += found
        beside = "DELETE FROM cancellations WHERE answer NOT IN (SELECT id FROM answers)"
        self._commits.alone(lambda tables: tables.execute(beside).rowcount)
        for table, column, own in (
            ("programs", "program", self._programs), ("models", "model", self._models),
        ):  # fmt: skip
            ours = json.dumps([digest.hex() for digest in own])
            self._delete_unneeded(table, column, ours)
        forget_sessions(self.directory, lambda job: bool(self._reader.of_job(job)))
        return deleted

    def _delete_unneeded(self, table: str, column: str, own: str) -> None:
        statement = (
            f"DELETE FROM {table} WHERE NOT EXISTS"
            f" (SELECT 1 FROM answers WHERE answers.{column} = {table}.digest)"
            " AND lower(hex(digest)) NOT IN (SELECT value FROM json_each(?))"
        )
        self._commits.alone(lambda tables: tables.execute(statement, (own,)).rowcount)

    # -- looking -----------------------------------------------------------------------------------

    def models(self) -> list[KeptModel]:
        return self._reader.models()

    def statement(self, model: bytes) -> ModelStatement:
        """The statement of a model that answers are kept of."""
        return self._reader.statement(model)

    def damaged(self) -> list[str]:
        """What is wrong with the directory, a sentence each."""
        return self._reader.damaged()

    @property
    def commits(self) -> int:
        """Transactions so far, of which each has flushed the disk once."""
        return self._commits.commits
