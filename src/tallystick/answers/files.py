"""The files of an answer and of a model statement, in directories (ANSWERS 7.5, 4.6).

    receipt.json     the signed receipt
    request.json     the request, with its secret
    answer.json      the tokens, log-probabilities and text, or an encoding
    statement.json   the model statement
    program.txt      the program of the answer's bucket
    cancelled.json   where the client has cancelled the answer: its signed word for that

A statement's directory has `statement.json`, and a text `programs/L-A-SET.txt` for each program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tallystick.answers.beside_receipt import Encoded, Spoken, read_said
from tallystick.answers.check import bound
from tallystick.answers.encoding_job import AnyRequest, EncodingJob, read_request
from tallystick.answers.job import checked_program
from tallystick.answers.receipt import SignedReceipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.answers.words import AnyJob
from tallystick.commit.signing import PublicKey
from tallystick.disk.files import TEMPORARY_SUFFIX, make_directory, write_file
from tallystick.disk.manifest import DirectoryKind, written_anew
from tallystick.disk.regular import is_directory, present, read_file
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.program.ir import Program

RECEIPT, REQUEST, SPOKEN = "receipt.json", "request.json", "answer.json"
STATEMENT, PROGRAM, PROGRAMS = "statement.json", "program.txt", "programs"
CANCELLATION = "cancelled.json"
_OF_ANSWER = (RECEIPT, REQUEST, SPOKEN, STATEMENT, PROGRAM, CANCELLATION)

ANSWER_DIRECTORY = DirectoryKind(
    "answer", RECEIPT, lambda name: name.removesuffix(TEMPORARY_SUFFIX) in _OF_ANSWER
)
STATEMENT_DIRECTORY = DirectoryKind(
    "model statement",
    STATEMENT,
    lambda name: (
        name.removesuffix(TEMPORARY_SUFFIX) in (STATEMENT, PROGRAMS)
        or name.startswith(f"{PROGRAMS}/")
    ),
)


def program_file(name: ProgramName) -> str:
    """The file of a program's text in a statement's directory."""
    return f"{PROGRAMS}/{name.length}-{name.answer}-{name.set}.txt"


def write_statement(
    directory: Path,
    statement: ModelStatement,
    programs: Mapping[ProgramName, Program],
    overwrite: bool = False,
) -> None:
    """Write a statement and the texts of its programs, the statement last. Raises UsageError where
    there is one, StorageError."""
    with written_anew(directory, STATEMENT_DIRECTORY, overwrite) as place:
        make_directory(place / PROGRAMS)
        for name, program in programs.items():
            write_file(place / program_file(name), [program.text().encode("ascii")])
        write_file(place / STATEMENT, [statement.to_bytes()])


def read_statement(directory: Path) -> ModelStatement:
    """The statement in a directory, or in a file. Raises StorageError, CorruptFileError."""
    path = directory / STATEMENT if is_directory(directory) else directory
    return ModelStatement.from_bytes(
        read_file(path, LIMITS.model_statement_bytes, "model statement")
    )


def read_program(directory: Path, statement: ModelStatement, name: ProgramName) -> Program:
    """A program in a statement's directory. Raises StorageError, DigestMismatchError."""
    path = directory / program_file(name)
    data = read_file(path, LIMITS.program_bytes, "program", directory)
    return checked_program(data, statement.programs[name])


@dataclass(frozen=True)
class AnswerFiles:
    """An answer's directory as it was read: nothing in it is compared yet."""

    receipt: bytes
    statement: ModelStatement
    request: AnyRequest
    spoken: Spoken | Encoded
    program: bytes
    cancellation: bytes | None = None

    @staticmethod
    def of(
        receipt: bytes, job: AnyJob, program: Program, cancellation: bytes | None = None
    ) -> AnswerFiles:
        """The files of an answer that has just been given."""
        text, said = program.text().encode("ascii"), said_of(job)
        return AnswerFiles(receipt, job.statement, job.request, said, text, cancellation)

    @staticmethod
    def read(place: Path) -> AnswerFiles:
        """The files at `place`, an answer's directory or the receipt in one. Raises StorageError,
        CorruptFileError."""
        inside = place if is_directory(place) else place.parent

        def file(name: str, limit: int, what: str) -> bytes:
            return read_file(inside / name, limit, what, inside)

        return AnswerFiles(
            receipt_bytes(place),
            ModelStatement.from_bytes(
                file(STATEMENT, LIMITS.model_statement_bytes, "model statement")
            ),
            read_request(file(REQUEST, LIMITS.request_bytes, "request")),
            read_said(file(SPOKEN, LIMITS.spoken_bytes, "answer")),
            file(PROGRAM, LIMITS.program_bytes, "program"),
            file(CANCELLATION, LIMITS.cancellation_bytes, "cancellation")
            if present(inside / CANCELLATION)
            else None,
        )

    def signed(self, trust: list[PublicKey] | None = None) -> tuple[SignedReceipt, AnyJob]:
        """The receipt, and the job that it names. Raises as `check.bound`."""
        return bound(self.receipt, self.statement, self.request, self.spoken, trust)

    def program_of(self, answer: AnyJob) -> Program:
        """The program of the job. Raises as `checked_program`."""
        return checked_program(self.program, answer.program_digest)

    def bound(self, trust: list[PublicKey] | None = None) -> tuple[SignedReceipt, AnyJob, Program]:
        """The receipt, the job that it names, and its program. Raises as `check.bound`, and
        DigestMismatchError for another program."""
        signed, answer = self.signed(trust)
        return signed, answer, self.program_of(answer)

    def write(self, directory: Path, overwrite: bool = False) -> None:
        """Write the answer's directory, the receipt last. Raises UsageError where there is one,
        StorageError."""
        with written_anew(directory, ANSWER_DIRECTORY, overwrite) as place:
            make_directory(place)
            write_file(place / REQUEST, [self.request.to_bytes()], mode=0o600)
            write_file(place / SPOKEN, [self.spoken.to_bytes()])
            write_file(place / STATEMENT, [self.statement.to_bytes()])
            write_file(place / PROGRAM, [self.program])
            if self.cancellation is not None:
                write_file(place / CANCELLATION, [self.cancellation])
            write_file(place / RECEIPT, [self.receipt])


def receipt_bytes(place: Path) -> bytes:
    """The receipt at `place`, an answer's directory or a file. Raises StorageError,
    CorruptFileError."""
    path = place / RECEIPT if is_directory(place) else place
    return read_file(path, LIMITS.receipt_bytes, "receipt")


def read_model_request(path: Path) -> ModelRequest:
    """The request in a file. Raises StorageError, CorruptFileError."""
    return ModelRequest.from_bytes(read_file(path, LIMITS.request_bytes, "request"))


def said_of(answer: AnyJob) -> Spoken | Encoded:
    """What stands beside the receipt."""
    return answer.encoded if isinstance(answer, EncodingJob) else answer.spoken


def free_places(out: Path, count: int) -> list[Path]:
    """The directories of `count` answers. UsageError, before anything is computed, where one is
    there already: a receipt is not written over."""
    places = [out] if count == 1 else [out / str(number) for number in range(count)]
    for place in places:
        if present(place / RECEIPT):
            raise UsageError(f"{place} already contains an answer.", "Choose another directory.")
    return places
