"""The job directory: everything that fixes a run (DESIGN 2, COMMITMENTS 7), on disk.

    job.json            manifest: the fields of the job digest, and facts for people
    program.txt         the canonical program text
    state0.safetensors  initial state (slots of one repeated value are in the manifest instead)
    data/train.safetensors          the records, one tensor per field
    data/validation.safetensors     records for `evaluate`, not part of the run
    eval.txt, forward.txt           programs for `evaluate` and `sample`

A job of format 2 or 3 (COMMITMENTS 7.6, 7.7) has a text `program-NAME.txt` for each of its
programs, and `data/NAME.safetensors` for each of its data sets.

Every byte is checked before it is used: programs, states and records against the digests in the
manifest, the manifest against its own digest and the job digest it names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tallystick.commit.data import DataSchema
from tallystick.commit.encoding import float_decimal
from tallystick.commit.job import CONTINUES_NONE, Commitment, JobCommitment, ScalarTable
from tallystick.commit.signing import RunCommitment
from tallystick.commit.streamed import RecordStream, RecordTree
from tallystick.commit.tensor import DTYPES, Array
from tallystick.data.frozen import check_columns, stream_file
from tallystick.devices.environment import exact_environment
from tallystick.disk.files import TEMPORARY_SUFFIX
from tallystick.disk.manifest import DirectoryKind
from tallystick.disk.regular import read_file, size_of
from tallystick.disk.tensorfile import FileTypes, TensorFile, open_tensors, read_tensors
from tallystick.errors import (
    CorruptFileError,
    DigestMismatchError,
)
from tallystick.job.continued import CONTINUES, read_continuation
from tallystick.limits import LIMITS
from tallystick.program.ir import Program
from tallystick.program.state import State, check_slot_types, check_slots
from tallystick.program.terms import Terms
from tallystick.program.text import parse_text, text_digest
from tallystick.visible import Tabled

FORMAT = "tallystick-job/1"
FORMAT_2 = "tallystick-job/2"
FORMAT_3 = "tallystick-job/3"
# By the format version of the commitment, from 1.
FORMATS = (FORMAT, FORMAT_2, FORMAT_3)
MANIFEST = "job.json"
PROGRAM = "program.txt"
STATE0 = "state0.safetensors"
DATA = "data/train.safetensors"
VALIDATION = "data/validation.safetensors"
EVAL_PROGRAM = "eval.txt"
FORWARD_PROGRAM = "forward.txt"
_MOST_SCALARS = 4  # of a job's line: all of them are in `job show`
_PROGRAM_FILE = re.compile(r"program(-[a-z0-9_-]+)?\.txt", re.ASCII)


def _is_own(name: str) -> bool:
    if name.startswith("data/"):
        return name.removesuffix(TEMPORARY_SUFFIX).endswith(".safetensors")
    known = {MANIFEST, STATE0, "data", EVAL_PROGRAM, FORWARD_PROGRAM, CONTINUES}
    return name in known or bool(_PROGRAM_FILE.fullmatch(name)) or name.endswith(TEMPORARY_SUFFIX)


JOB_DIRECTORY = DirectoryKind("job", MANIFEST, _is_own)
# The member of `about` that says whose tokens the records are: `sample` decodes by it.
TOKENIZER_DIGEST = "tokenizer_sha256"

DEFAULT_INTERVAL = 20


@dataclass(frozen=True)
class Evaluation:
    """How a trainer computes the validation loss: for information only, outside the job digest."""

    every: int
    program_digest: bytes
    data_root: bytes
    record_count: int
    batch_size: int


@dataclass(frozen=True, repr=False)
class Job(Tabled):
    """A job loaded from a directory; `load_job` says which digests it has checked."""

    directory: Path
    commitment: Commitment
    scalars: dict[str, ScalarTable]
    schemas: tuple[DataSchema, ...]
    fills: dict[str, float]
    recipe: dict[str, Any] | None
    evaluation: Evaluation | None
    forward_digest: bytes | None
    about: dict[str, str]

    def facts_for_people(self) -> tuple[str, dict[str, object]]:
        """What is known of a job before its programs are read; `tallystick job show` says more."""
        timetable = self.commitment.timetable
        scalars = {
            name: float_decimal(table) if isinstance(table, float) else f"{len(table):,} numbers"
            for name, table in list(self.scalars.items())[:_MOST_SCALARS]
        }
        return "Job", {
            "directory": self.directory,
            "digest": self.digest,
            "steps": self.steps,
            "contract": self.commitment.contract,
            "batch": timetable.programs[0].batch_size,
            "records": ", ".join(f"{d.record_count:,} of {d.name}" for d in timetable.data),
            **scalars,
        }

    @cached_property
    def digest(self) -> bytes:
        """The job digest (COMMITMENTS 7.2)."""
        return self.commitment.digest()

    @property
    def steps(self) -> int:
        return self.commitment.steps

    @property
    def interval(self) -> int:
        return self.commitment.checkpoint_interval

    @property
    def schema(self) -> DataSchema:
        """The fields of the first data set: the only one of a job of format 1."""
        return self.schemas[0]

    def program_file(self, number: int) -> str:
        """The file of a program's text, in the directory."""
        if isinstance(self.commitment, JobCommitment):
            return PROGRAM
        return f"program-{self.commitment.timetable.programs[number].name}.txt"

    def data_file(self, number: int) -> str:
        """The file of a data set, in the directory."""
        return f"data/{self.commitment.timetable.data[number].name}.safetensors"

    @cached_property
    def texts(self) -> tuple[Program, ...]:
        """The programs as their texts have them. Raises DigestMismatchError when a text is not the
        job's."""
        return tuple(
            self._program(self.program_file(number), entry.digest)
            for number, entry in enumerate(self.commitment.timetable.programs)
        )

    @property
    def program(self) -> Program:
        """The program of the first step: the only one of a job of format 1. Raises as `terms`: a
        manifest whose schema is not the program's names fields that no record has."""
        return self.terms.program

    @cached_property
    def loose_terms(self) -> Terms:
        """The terms, without the check that the program fits them."""
        return Terms(self.commitment, self.texts, self.scalars, self.schemas)

    @cached_property
    @exact_environment()
    def terms(self) -> Terms:
        """The parts of the job that a referee needs, without any tensor. Raises the errors of
        `program`, and CorruptFileError where the program does not fit."""
        check_program_fits(self)
        return self.loose_terms

    @cached_property
    def eval_program(self) -> Program | None:
        """The validation program, if the job has one."""
        if self.evaluation is None:
            return None
        return self._program(EVAL_PROGRAM, self.evaluation.program_digest)

    @cached_property
    def forward_program(self) -> Program | None:
        """The inference program, if the job has one."""
        if self.forward_digest is None:
            return None
        return self._program(FORWARD_PROGRAM, self.forward_digest)

    def _program(self, name: str, digest: bytes) -> Program:
        path = self.directory / name
        data = read_file(path, LIMITS.program_bytes, "program", self.directory)
        return checked_text(data, digest, path)

    @property
    def columns(self) -> dict[str, Array]:
        """The records of the first data set."""
        return self.columns_of[0]

    @cached_property
    def columns_of(self) -> tuple[dict[str, Array], ...]:
        """The records of each data set, memory-mapped, one array (N, *field shape) per field; not
        yet hashed."""
        sets = enumerate(zip(self.commitment.timetable.data, self.schemas, strict=True))
        return tuple(self._columns(self.data_file(n), d.record_count, s) for n, (d, s) in sets)

    @cached_property
    def validation_columns(self) -> dict[str, Array]:
        """The validation records."""
        count = self.evaluation.record_count if self.evaluation else 0
        return self._columns(VALIDATION, count, self.schema)

    def _columns(self, name: str, count: int, schema: DataSchema) -> dict[str, Array]:
        path = self.directory / name
        check = partial(check_columns, path, schema, count)
        return read_tensors(path, "data file", check=check, inside=self.directory)[0]

    def _stream(self, name: str, count: int, schema: DataSchema, keep: bool) -> RecordStream:
        """The records of a file, hashed a few MiB at a time: they may be more than the memory."""
        path = self.directory / name
        check = partial(check_columns, path, schema, count)
        return stream_file(path, schema, count, check, self.directory, keep)

    def genesis(self) -> State:
        """state[0], writable. Raises CounterpartyError unless it is the state that the job commits
        to."""
        path, types = self.directory / STATE0, self.program.state_types
        tensors, metadata = read_tensors(
            path, "initial state", copy=True, check=self._check_state0, inside=self.directory
        )
        for name in self.fills:
            tensors[name] = self.filled(name)
        check_slots(tensors, types, f"initial state {path}")
        state = State({name: tensors[name] for name in types})
        if metadata or state.root() != self.commitment.genesis_root:
            altered(path)
        return state

    def filled(self, name: str) -> Array:
        """A slot of state[0] that the manifest fills with one value, writable."""
        type_ = self.program.state_types[name]
        return np.full(type_.shape, self.fills[name], DTYPES[type_.dtype])

    @contextmanager
    def open_genesis(self) -> Iterator[TensorFile]:
        """The file of the slots of state[0] that are not filled, open to be read one by one; its
        header is checked, no value is. Raises as `genesis`."""
        path, check = self.directory / STATE0, self._check_state0
        with open_tensors(path, "initial state", check=check, inside=self.directory) as found:
            if found.metadata:
                altered(path)
            yield found

    def _check_state0(self, found: FileTypes, metadata: Mapping[str, str]) -> None:
        path, types = self.directory / STATE0, self.program.state_types
        for name in self.fills:
            if name not in types or name in found:
                raise CorruptFileError(
                    f"The job {self.directory} fills a slot {name!r} that it does not have.",
                    "Restore it from an intact copy.",
                )
        stored = {name: t for name, t in types.items() if name not in self.fills}
        check_slot_types(found, stored, f"initial state {path}")

    def verify_data(self) -> None:
        """Hash every record. Raises DigestMismatchError unless the data is the committed data."""
        for number in range(len(self.schemas)):
            self._hashed(number)

    def record_tree(self, number: int) -> RecordTree:
        """The tree over the records of a data set, for proofs. Raises as `verify_data`."""
        return self._hashed(number, keep=True).tree(self.columns_of[number])

    def _hashed(self, number: int, keep: bool = False) -> RecordStream:
        data, name = self.commitment.timetable.data[number], self.data_file(number)
        found = self._stream(name, data.record_count, self.schemas[number], keep)
        if found.root() != data.root:
            altered(self.directory / name)
        return found

    def verify(self) -> State:
        """Check every byte of the directory against the job digest. Raises CounterpartyError.

        Returns state[0], since a caller that verifies a job mostly goes on to execute it.
        """
        self.verify_but_state()
        return self.genesis()

    def verify_but_state(self) -> None:
        """`verify` of all but state[0]."""
        check_program_fits(self)
        self.verify_data()
        self.verify_validation()
        self.verify_continuation()
        assert (self.forward_program is None) == (self.forward_digest is None)

    def verify_validation(self) -> None:
        """Check the validation program and records, if there are any. Raises CounterpartyError."""
        if self.evaluation is None:
            return
        assert self.eval_program is not None
        count = self.evaluation.record_count
        found = self._stream(VALIDATION, count, self.schema, False)
        if found.root() != self.evaluation.data_root:
            altered(self.directory / VALIDATION)

    def files(self) -> list[str]:
        """The files of the directory, the manifest last."""
        timetable = self.commitment.timetable
        names = [self.program_file(number) for number in range(len(timetable.programs))]
        names += [STATE0, *(self.data_file(number) for number in range(len(timetable.data)))]
        if self.evaluation is not None:
            names += [VALIDATION, EVAL_PROGRAM]
        if self.forward_digest is not None:
            names.append(FORWARD_PROGRAM)
        if self.continues:
            names.append(CONTINUES)
        return [*names, MANIFEST]

    @property
    def continues(self) -> bool:
        """True if the job goes on with another run (COMMITMENTS 7.6.8)."""
        c = self.commitment
        return not isinstance(c, JobCommitment) and c.continues != CONTINUES_NONE

    def verify_continuation(self) -> RunCommitment | None:
        """The signed commitment of the run that the job continues, checked; None without one.

        Raises CounterpartyError, StorageError."""
        c = self.commitment
        if isinstance(c, JobCommitment) or not self.continues:
            return None
        path, slots = self.directory / CONTINUES, list(self.texts[0].state_types)
        return read_continuation(path, c.continues, slots, c.genesis_root)

    @property
    def disk_bytes(self) -> int:
        """Bytes of the directory's files."""
        return sum(size_of(self.directory / n, "file", self.directory) for n in self.files())


def altered(path: Path) -> NoReturn:
    raise DigestMismatchError(
        f"{path} does not match the job digest. It was altered, or it belongs to another job.",
        "Get an intact copy of the job from its author. `tallystick fsck` lists every altered "
        "file.",
    )


def checked_text(data: bytes, digest: bytes, path: Path) -> Program:
    """The program in a text, called `path`. Raises DigestMismatchError for another one."""
    if text_digest(data) != digest:
        altered(path)
    return parse_text(data)


def check_program_fits(job: Job) -> None:
    """Check that the parts fit together (COMMITMENTS 7.4). Raises CorruptFileError."""
    check_terms_fit(job.loose_terms, job.directory)


def check_terms_fit(terms: Terms, where: Path) -> None:
    """As `check_program_fits`, of the terms of the job that errors call `where`."""
    why = terms.misfit()
    if why is not None:
        raise CorruptFileError(
            f"The parts of the job {where} do not fit together: {why}.",
            "Ask its author for an intact copy.",
        )
