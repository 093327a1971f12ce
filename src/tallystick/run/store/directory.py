"""The run directory: where each file of a run lies, and typed reads and writes of them.

run.json       manifest: format, job digest, contract
job/           a copy of the job
journal        losses and checkpoint roots, append-only
metrics.jsonl  losses, gradient norms and metrics for people (unsigned.py); no digest covers them
checkpoints/   some of the hashed states, as safetensors
nodes/         node digests of traced steps
logs/          one rounding log for each step, under a contract that keeps logs
commitment.json  the signed run commitment, once the run is finished
signer.pem     the signing key, mode 0600, where the user gave none (claim.py): keep it secret
override.json  the declared cheat that made the run (unsigned.py); an honest run has none
scratch-*/     states of a dispute under way; removed at its end
lock           empty; held by a running trainer
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from tallystick.commit.encoding import JsonValue
from tallystick.commit.members import Members
from tallystick.commit.signing import Envelope
from tallystick.disk.files import (
    TEMPORARY_SUFFIX,
    locked,
    make_directory,
    remove,
    remove_all,
    remove_temporaries,
    write_file,
)
from tallystick.disk.manifest import load_manifest, manifest_bytes, refuse_strangers
from tallystick.disk.regular import (
    check_directory,
    entries,
    is_directory,
    names,
    present,
    read_file,
    refuse_kind,
)
from tallystick.disk.tensorfile import (
    Check,
    FileTypes,
    TensorFile,
    header_bytes,
    open_tensors,
    read_tensors,
    write_each,
)
from tallystick.errors import CorruptFileError, DigestMismatchError, StorageError, UsageError
from tallystick.installed import tallystick_version
from tallystick.job.job import JOB_DIRECTORY, Job
from tallystick.job.job import MANIFEST as JOB_MANIFEST
from tallystick.job.job_file import copy_job, load_job
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import parse_contract
from tallystick.program.state import State, check_file_types
from tallystick.run.logs.writer import log_path
from tallystick.run.store.journal import JournalContent, journal_limit, read_journal
from tallystick.run.store.stored_states import StateFile, state_metadata
from tallystick.run.store.unsigned import NodeTrace, load_trace

MANIFEST = "run.json"
STATE_NAME = re.compile(r"step-([0-9]{8,13})\.safetensors", re.ASCII)
LOG_NAME = re.compile(r"([0-9]{10,13})\.log", re.ASCII)
TRACE_NAME = re.compile(r"step-([0-9]{8,13})\.bin", re.ASCII)
SCRATCH_PREFIX = "scratch-"


def checkpoint_name(step: int) -> str:
    """File name of a stored state."""
    return f"step-{step:08d}.safetensors"


def trace_name(step: int) -> str:
    """File name of a node trace."""
    return f"step-{step:08d}.bin"


@dataclass(frozen=True)
class RunPaths:
    """The paths of the run in `directory`."""

    directory: Path

    @property
    def manifest_path(self) -> Path:
        return self.directory / MANIFEST

    @property
    def job_path(self) -> Path:
        return self.directory / "job"

    @property
    def journal_path(self) -> Path:
        return self.directory / "journal"

    @property
    def metrics_path(self) -> Path:
        return self.directory / "metrics.jsonl"

    @property
    def checkpoints_path(self) -> Path:
        return self.directory / "checkpoints"

    @property
    def nodes_path(self) -> Path:
        return self.directory / "nodes"

    @property
    def logs_path(self) -> Path:
        return self.directory / "logs"

    @property
    def commitment_path(self) -> Path:
        return self.directory / "commitment.json"

    @property
    def signer_path(self) -> Path:
        return self.directory / "signer.pem"

    @property
    def override_path(self) -> Path:
        return self.directory / "override.json"

    @property
    def lock_path(self) -> Path:
        return self.directory / "lock"

    @property
    def own_names(self) -> set[str]:
        """The names of files that a run's directory may hold, but for the scratch states of a
        dispute."""
        return {
            path.name
            for path in (
                self.manifest_path,
                self.job_path,
                self.journal_path,
                self.metrics_path,
                self.checkpoints_path,
                self.nodes_path,
                self.logs_path,
                self.commitment_path,
                self.signer_path,
                self.override_path,
                self.lock_path,
            )
        }

    def log_path(self, step: int) -> Path:
        return log_path(self.logs_path, step)

    def checkpoint_path(self, step: int) -> Path:
        return self.checkpoints_path / checkpoint_name(step)

    def trace_path(self, step: int) -> Path:
        return self.nodes_path / trace_name(step)


FORMAT = "tallystick-run/1"
_OWN_COPY = "`tallystick audit` and `dispute` take your own copy with --job."


@dataclass(frozen=True)
class RunStore(RunPaths):
    """The files of a run, read and written. It knows no arithmetic."""

    @property
    def exists(self) -> bool:
        return present(self.manifest_path)

    def require(self) -> None:
        """Raise UsageError unless this is a run directory."""
        if not self.exists:
            raise UsageError(
                f"{self.directory} is not a run: it has no {MANIFEST}.",
                "Make one with `tallystick train JOB --out RUN`.",
            )

    def create(self, job: Job) -> None:
        """Lay out a new run of `job`, or find the one already there.

        Raises UsageError when the directory holds other files, StorageError where it cannot be
        written.
        """
        if self.exists:
            if self.job_digest() != job.digest:
                raise UsageError(
                    f"{self.directory} contains a run of another job.",
                    "Choose another directory with --out, or pass --overwrite.",
                )
        else:
            self._refuse_foreign_files()
        make_directory(self.directory)
        for path in (self.checkpoints_path, self.nodes_path):
            make_directory(path, self.directory)
        if parse_contract(job.commitment.contract).keeps_log:
            # The write of the manifest makes this name durable too.
            make_directory(self.logs_path, self.directory)
        if not self.exists:
            copy_job(job, self.job_path, self.directory)
            body: dict[str, JsonValue] = {
                "contract": job.commitment.contract,
                "format": FORMAT,
                "job_digest": job.digest.hex(),
                "tallystick": tallystick_version(),
            }
            write_file(self.manifest_path, [manifest_bytes(body)])
        for path in (self.directory, self.checkpoints_path, self.nodes_path, self.logs_path):
            remove_temporaries(path, self.directory)

    def discard(self) -> None:
        """Remove the run that is there, if one is. The manifest goes last: what a killed removal
        leaves is still a run, which is overwritten, or another file is missed and named.

        Raises UsageError where the directory holds other files too, StorageError where a trainer
        writes it or a file cannot be removed.
        """
        if not self.exists:
            return
        refuse_strangers(self.directory, self._is_own)
        with locked(self.lock_path):
            for name in names(self.directory):
                if name not in (MANIFEST, self.lock_path.name):
                    remove_all(self.directory / name)
            remove_all(self.manifest_path)

    def _is_own(self, name: str) -> bool:
        own = name.removesuffix(TEMPORARY_SUFFIX)
        top, _, inside = own.partition("/")
        if not inside:
            return own in self.own_names or own.startswith(SCRATCH_PREFIX)
        if top == self.job_path.name:
            return JOB_DIRECTORY.is_own(inside)
        patterns = (STATE_NAME, TRACE_NAME, LOG_NAME)
        return own.startswith(SCRATCH_PREFIX) or any(p.fullmatch(inside) for p in patterns)

    def _refuse_foreign_files(self) -> None:
        ours = {"job", "checkpoints", "nodes", "logs", "lock", MANIFEST + ".part"}
        if present(self.directory) and not is_directory(self.directory):
            raise UsageError(f"{self.directory} is a file, not a directory.", "Name a directory.")
        others = set(names(self.directory)) - ours
        if others:
            raise UsageError(
                f"{self.directory} contains other files ({min(others)}).",
                "Choose a new or empty directory with --out.",
            )

    def manifest(self) -> dict[str, JsonValue]:
        """The contents of run.json, checked against its own digest."""
        self.require()
        body = load_manifest(self.manifest_path, "run manifest", FORMAT)
        Members(body, self._malformed).only("contract", "format", "job_digest", "tallystick")
        return body

    def _malformed(self, why: str) -> NoReturn:
        raise CorruptFileError(
            f"The run manifest {self.manifest_path} is malformed: {why}.",
            "Restore it from an intact copy.",
        )

    def job_digest(self) -> bytes:
        """The digest of the job that the manifest names."""
        return Members(self.manifest(), self._malformed).hex("job_digest")

    def job(self) -> Job:
        """The run's own copy of the job, which must be the one the manifest names."""
        check_directory(self.job_path, self.directory)
        if not present(self.job_path / JOB_MANIFEST):
            raise StorageError(
                f"The run's copy of the job is missing: {self.job_path} contains no "
                f"{JOB_MANIFEST}.",
                f"Restore it. {_OWN_COPY}",
            )
        job, manifest = load_job(self.job_path), Members(self.manifest(), self._malformed)
        if job.digest != manifest.hex("job_digest"):
            raise DigestMismatchError(
                f"The job in {self.job_path} is not the job of this run.",
                f"Restore the right one. {_OWN_COPY}",
            )
        if manifest.of("contract", str) != job.commitment.contract:
            raise CorruptFileError(
                f"The run manifest {self.manifest_path} and the job name different contracts.",
                "Restore the manifest from an intact copy.",
            )
        return job

    def journal(self, job: Job | None = None) -> JournalContent:
        """Read the journal. It may be no longer than a run of `job`, where given, can need."""
        self.require()
        return read_journal(self.journal_path, journal_limit(job), self.directory)

    def envelope(self) -> Envelope | None:
        """The signed run commitment, not yet verified; None while the run is unfinished."""
        if not self.signed:
            return None
        return Envelope.from_bytes(self.commitment_bytes(), LIMITS.commitment_bytes)

    @property
    def signed(self) -> bool:
        return present(self.commitment_path)

    def commitment_bytes(self) -> bytes:
        """The file of the signed run commitment. Raises StorageError, CorruptFileError."""
        path, limit = self.commitment_path, LIMITS.commitment_bytes
        return read_file(path, limit, "run commitment", self.directory)

    # ---- stored states --------------------------------------------------------------------------

    def _steps(
        self, directory: Path, pattern: re.Pattern[str], name_of: Callable[[int], str]
    ) -> list[int]:
        found = []
        for name in names(directory, self.directory):
            match = pattern.fullmatch(name)
            # One step has one name: no run of ours writes 13 digits that begin with zeros.
            if match and (step := int(match[1])) <= LIMITS.steps and name_of(step) == name:
                found.append(step)
        return sorted(found)

    def stored_steps(self) -> list[int]:
        """Steps with a checkpoint file, ascending."""
        return self._steps(self.checkpoints_path, STATE_NAME, checkpoint_name)

    def traced_steps(self) -> list[int]:
        """Steps with a node trace, ascending."""
        return self._steps(self.nodes_path, TRACE_NAME, trace_name)

    def logged_steps(self) -> list[int]:
        """Steps with a rounding log, ascending."""
        return self._steps(self.logs_path, LOG_NAME, self._log_name)

    def _log_name(self, step: int) -> str:
        return self.log_path(step).name

    def log_bytes(self) -> int:
        """Bytes of all rounding logs. Raises CorruptFileError where a log is no plain file."""
        total = 0
        for name, mode, size in entries(self.logs_path, self.directory):
            if LOG_NAME.fullmatch(name):
                if not stat.S_ISREG(mode):
                    refuse_kind(self.logs_path / name, "rounding log", mode)
                total += size
        return total

    def disk_bytes(self) -> int:
        """Bytes of the plain files in the run's own directories; other directories do not count."""
        own = (self.checkpoints_path, self.nodes_path, self.logs_path)
        job = (self.job_path, self.job_path / "data")
        return sum(
            entry.size
            for path in (self.directory, *own, *job)
            for entry in entries(path, self.directory)
        )

    def store_state(self, step: int, state: State) -> None:
        """Write state[step], either whole or not at all. Raises StorageError."""
        path, metadata = self.checkpoint_path(step), state_metadata(step)
        write_each(path, state.file_types(), state.pieces, metadata)

    def state_file(self, step: int) -> StateFile:
        """The file of state[step], to be written while the run goes on."""
        return StateFile(self.checkpoint_path(step), step)

    def load_state(self, job: Job, step: int, root: bytes, copy: bool = True) -> State:
        """Load state[step] from its file, and check it against its committed root.

        Raises StorageError, CorruptFileError, CounterpartyError, DigestMismatchError.
        """
        state = self.read_state(job, step, copy)
        self.check_root(step, state.root(), root)
        return state

    def check_root(self, step: int, found: bytes, root: bytes) -> None:
        """Raise DigestMismatchError unless `found`, the root of the stored state of `step`, is the
        committed root."""
        if found != root:
            raise DigestMismatchError(
                f"The stored checkpoint {self.checkpoint_path(step)} does not have the state root "
                f"that was committed for step {step}.",
                "Do not trust this file. The run's owner can compute it again.",
            )

    def read_state(self, job: Job, step: int, copy: bool = False) -> State:
        """Read state[step] from its file; the state is well formed, its digest not yet checked."""
        path, check = self.checkpoint_path(step), self._check_of(job, step)
        tensors, _ = read_tensors(path, "checkpoint", copy=copy, check=check, inside=self.directory)
        return State.from_tensors(tensors, job.program.state_types, f"checkpoint {path}")

    @contextmanager
    def open_state(self, job: Job, step: int) -> Iterator[TensorFile]:
        """The file of state[step], open to be read tensor by tensor; its header is checked, no
        value is. Raises as `read_state`."""
        path, check = self.checkpoint_path(step), self._check_of(job, step)
        with open_tensors(path, "checkpoint", check=check, inside=self.directory) as found:
            yield found

    def _check_of(self, job: Job, step: int) -> Check:
        path = self.checkpoint_path(step)

        def check(types: FileTypes, metadata: Mapping[str, str]) -> None:
            if metadata != state_metadata(step):
                raise CorruptFileError(
                    f"The checkpoint {path} has another step or another format.",
                    "Restore it from an intact copy.",
                )
            check_file_types(types, job.program.state_types, f"checkpoint {path}")

        return check

    def drop_state(self, step: int) -> None:
        """Remove a stored state, if it is there."""
        remove(self.checkpoint_path(step))

    def load_trace(self, job: Job, step: int) -> NodeTrace:
        """Load the node trace of `step`."""
        path = self.trace_path(step)
        number = job.commitment.timetable.at(step).program
        digest = job.commitment.timetable.programs[number].digest
        nodes = len(job.loose_terms.programs[number].nodes)
        return load_trace(path, digest, step, nodes, self.directory)

    def save_trace(self, trace: NodeTrace) -> None:
        """Write the node trace of one step."""
        trace.save(self.trace_path(trace.step))


def state_file_bytes(state: State) -> int:
    """The size in bytes of a checkpoint file of `state`."""
    header, ranges = header_bytes(state.file_types(), state_metadata(10**7))
    return len(header) + max((end for _, end in ranges.values()), default=0)
