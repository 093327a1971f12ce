"""What is kept, for whoever reads it: the server, `tallystick kept`, and `serve --answers`.

Sessions of referees about it are in `sessions/JOB` of the keeper's directory, which `serve
--answers` writes (prover.sessions). A session that began before a promise ended is answered to its
end, so its answer is not deleted while it may go on.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tallystick.answers.beside_receipt import Spoken, read_said
from tallystick.answers.cancellation import finding_of
from tallystick.answers.check import bound
from tallystick.answers.encoding_job import read_request
from tallystick.answers.files import AnswerFiles
from tallystick.answers.job import checked_program
from tallystick.answers.model import open_model
from tallystick.answers.receipt import SignedReceipt, read_receipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.statement import ModelStatement
from tallystick.answers.text import ModelWords
from tallystick.closing import Closing
from tallystick.commit.signing import PublicKey
from tallystick.disk.files import remove_tree
from tallystick.disk.regular import is_directory, names, statuses
from tallystick.errors import CorruptFileError, TallystickError
from tallystick.serving.kept.prover import DisputedAnswer
from tallystick.serving.kept.tables import DATABASE, pages_in_use, reading, sqlite_errors

SESSIONS = "sessions"
# So long after its last record a session counts as over (ANSWERS 7.7.3).
SESSION_MS = 7 * 24 * 60 * 60 * 1000
_JOB = re.compile(r"[0-9a-f]{64}")


def sessions_of(directory: Path, job: bytes) -> Path:
    """Where the sessions about one job lie."""
    return directory / SESSIONS / job.hex()


def jobs_in_session(directory: Path, now: int) -> list[bytes]:
    """The jobs of which a session may still go on at `now`, in milliseconds since 1970."""
    return [job for job in _jobs(directory) if now - _newest(directory, job) <= SESSION_MS]


def forget_sessions(directory: Path, kept: Callable[[bytes], bool]) -> None:
    """Remove the records of sessions about answers that are not kept any more."""
    for job in _jobs(directory):
        if not kept(job):
            remove_tree(sessions_of(directory, job))


def _jobs(directory: Path) -> list[bytes]:
    room = directory / SESSIONS
    if not is_directory(room):
        return []
    return [bytes.fromhex(name) for name in names(room, directory) if _JOB.fullmatch(name)]


def _newest(directory: Path, job: bytes) -> int:
    found = statuses(sessions_of(directory, job), directory)
    return max((status.st_mtime_ns for _, status in found), default=0) // 1_000_000


_ROW = "number, id, owner, model, program, job, until, receipt"


@dataclass(frozen=True)
class KeptRow:
    """An answer as it is kept. `files` reads the rest that a dispute needs."""

    number: int
    id: str
    owner: str
    model: bytes
    program: bytes
    job: bytes
    until: int
    receipt: bytes


@dataclass(frozen=True)
class KeptModel:
    """A model of kept answers: where its directory is, and its adapter's if it has one; how many
    there are, and until when it is needed, in milliseconds since 1970; 0 where no answer is of
    it."""

    digest: bytes
    directory: Path
    answers: int
    until: int
    seen: str
    adapter: Path | None


class KeptReader(Closing):
    """The answers that are kept in `directory`; another process may write them. Its methods are
    safe for threads. Raises UsageError where nothing is kept, StorageError, CorruptFileError."""

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory)
        self._connection = reading(self.directory)
        self._lock = threading.Lock()
        self._words: dict[bytes, ModelWords | None] = {}

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    # -- rows --------------------------------------------------------------------------------------

    def find(self, id_: str, owner: str) -> AnswerFiles | None:
        """The answer with this id, if it is one to `owner`. An answer's text follows from the
        model's files; it is empty where they are gone."""
        rows = self._rows("WHERE id = ? AND owner = ?", id_, owner)
        if not rows:
            return None
        files = self.files(rows[0])
        said, request = files.spoken, files.request
        if not isinstance(said, Spoken) or not isinstance(request, ModelRequest):
            return files
        text = self._text(files.statement, request, said)
        return replace(files, spoken=replace(said, text=text))

    def of_job(self, job: bytes) -> list[KeptRow]:
        """The answers whose job has this digest, the oldest first."""
        return self._rows("WHERE job = ? ORDER BY number", job)

    def rows(self) -> Iterator[KeptRow]:
        """All answers, one after the other."""
        number = 0
        while found := self._rows("WHERE number > ? ORDER BY number LIMIT 1", number):
            number = found[0].number
            yield found[0]

    def files(self, row: KeptRow) -> AnswerFiles:
        """The files of an answer (ANSWERS 7.5), without its text. Raises CorruptFileError."""
        found = self._all("SELECT request, spoken FROM answers WHERE number = ?", row.number)
        if not found:
            raise CorruptFileError(
                "The answer is no longer kept.", "No action is needed: its promise has ended."
            )
        ((request, spoken),) = found
        return AnswerFiles(
            row.receipt,
            self.statement(row.model),
            read_request(request),
            read_said(spoken),
            self._blob("SELECT text FROM programs WHERE digest = ?", row.program, "program"),
            self._cancellation(row.id),
        )

    def check(self, row: KeptRow) -> SignedReceipt:
        """The receipt of an answer, after everything that a dispute needs was compared with it.
        Raises CounterpartyError."""
        files = self.files(row)
        signed, answer = bound(files.receipt, files.statement, files.request, files.spoken)
        receipt = signed.receipt
        stated = row.model, row.program, row.job, row.until
        if stated != (receipt.model, answer.program_digest, receipt.job, receipt.until):
            raise CorruptFileError(
                "The stored row belongs to another receipt.", "Restore the directory."
            )
        checked_program(files.program, row.program)
        if files.cancellation is not None and isinstance(files.request, ModelRequest):
            for found in finding_of(files.cancellation, receipt, files.request):
                raise CorruptFileError(found.sentence, "Restore the directory.")
        return signed

    def damaged(self) -> list[str]:
        """What is wrong with the directory, a sentence each; nothing where all is well."""
        with self._lock:
            try:
                with sqlite_errors(self.directory):
                    said = self._connection.execute("PRAGMA integrity_check(16)").fetchall()
            except TallystickError as error:
                return [error.message]
        found = [f"{DATABASE}: {line}" for (line,) in said if line != "ok"]
        if found:
            return found
        for row in self.rows():
            try:
                self.check(row)
            except TallystickError as error:
                found.append(f"{row.id}: {error.message}")
        return found

    def signer(self, row: KeptRow) -> PublicKey:
        """Who has signed an answer's receipt. Raises CounterpartyError."""
        return read_receipt(row.receipt).receipt.signer

    def disputed(self, row: KeptRow) -> DisputedAnswer:
        """An answer as its signer defends it. Raises CounterpartyError where what is kept is
        damaged, or is no answer."""
        signed, files = self.check(row), self.files(row)
        _, answer, program = files.bound()
        answer.check_program(program)
        return DisputedAnswer(signed, answer, program, *self._places(row.model))

    # -- models ------------------------------------------------------------------------------------

    def models(self) -> list[KeptModel]:
        """Every model that answers were kept of, the one that is needed longest first."""
        found = self._all(
            "SELECT digest, directory, count(answers.number), ifnull(max(until), 0), seen, adapter"
            " FROM models LEFT JOIN answers ON answers.model = digest GROUP BY digest"
            " ORDER BY 4 DESC, digest"
        )
        return [
            KeptModel(digest, Path(place), n, until, seen, None if beside is None else Path(beside))
            for digest, place, n, until, seen, beside in found
        ]

    def statement(self, model: bytes) -> ModelStatement:
        """The statement of a model. Raises CorruptFileError."""
        data = self._blob("SELECT statement FROM models WHERE digest = ?", model, "statement")
        found = ModelStatement.from_bytes(data)
        if found.digest != model:
            raise CorruptFileError(
                "A kept model statement does not match its digest.", "Restore the directory."
            )
        return found

    # -- numbers -----------------------------------------------------------------------------------

    def counted(self) -> int:
        """The number of answers."""
        return int(self._all("SELECT count(*) FROM answers")[0][0])

    def pages(self) -> int:
        """Pages of the database in use."""
        with self._lock, sqlite_errors(self.directory):
            return pages_in_use(self._connection)

    def _text(self, statement: ModelStatement, request: ModelRequest, said: Spoken) -> str:
        words = self._words_of(statement)
        return "" if words is None else words.text(statement, request, said)

    def _words_of(self, statement: ModelStatement) -> ModelWords | None:
        digest = statement.digest
        if digest not in self._words:
            place, _ = self._places(digest)  # an adapter changes no word
            try:
                model = open_model(place)
                found = ModelWords.of(statement, model.files, model.chat_template)
            except TallystickError:
                return None  # the directory may come back
            self._words[digest] = found
        return self._words[digest]

    def _cancellation(self, id_: str) -> bytes | None:
        found = self._all("SELECT signed FROM cancellations WHERE answer = ?", id_)
        return bytes(found[0][0]) if found else None

    def _places(self, model: bytes) -> tuple[Path, Path | None]:
        """Where a model lies, and its adapter."""
        ((place, beside),) = self._all(
            "SELECT directory, adapter FROM models WHERE digest = ?", model
        )
        return Path(place), None if beside is None else Path(beside)

    def _rows(self, where: str, *values: object) -> list[KeptRow]:
        found = self._all(f"SELECT {_ROW} FROM answers {where}", *values)
        return [KeptRow(*row) for row in found]

    def _blob(self, query: str, key: bytes, what: str) -> bytes:
        found = self._all(query, key)
        if not found:
            raise CorruptFileError(
                f"A {what} of kept answers is missing.", "Restore the directory."
            )
        return bytes(found[0][0])

    def _all(self, query: str, *values: object) -> list[sqlite3.Row]:
        with self._lock, sqlite_errors(self.directory):
            return self._connection.execute(query, values).fetchall()
