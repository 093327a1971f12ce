"""The trainer of a cheat: its maker makes the parts of a dishonest run, its logs among them.

A cheating run is a signed run plus the override that produced it. The trainer's own code is that of
an honest trainer. `Options(maker=…)` is the one place where it is told to cheat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tallystick.contracts.replay.entries import Blocks, decode, encode
from tallystick.contracts.replay.step import Sink
from tallystick.devices.context import ExecutionContext
from tallystick.disk.files import write_file
from tallystick.disk.regular import present
from tallystick.job.job import Job
from tallystick.program.state import State
from tallystick.run.cheats.attacks import hooks_of
from tallystick.run.cheats.engine import CheatingEngine
from tallystick.run.cheats.override import Override
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.options import Maker, begun_otherwise
from tallystick.run.logs.followed import FollowedRun
from tallystick.run.logs.training import TrainerLogs, trainer_logs
from tallystick.run.logs.writer import LogWriter
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal
from tallystick.run.store.unsigned import Declaration, read_declaration


class _LyingSink:
    """Lets a declared cheat change a log before the file gets it (Override.log)."""

    def __init__(self, writer: LogWriter, lie: Override) -> None:
        self._writer, self._lie = writer, lie
        self.finish, self.discard = writer.finish, writer.discard
        self.published = writer.published

    def bounded(self, number: int, section_blocks: Blocks) -> None:
        """Write section `number` with the cheat's changes."""
        section = self._writer.sections[number]
        honest, _ = decode(section, section_blocks)
        lied = self._lie.log(self._writer.step, section, honest)
        self._writer.bounded(number, encode(section, lied))


class CheatingLogs(TrainerLogs):
    """The logs of one call of `train` that cheats by `override`."""

    def __init__(
        self,
        override: Override,
        job: Job,
        store: RunStore,
        journal: Journal,
        followed: FollowedRun | None,
        compression: int,
    ) -> None:
        super().__init__(job, store, journal, followed, compression)
        self._override = override

    def _into(self, writer: LogWriter) -> Sink:
        return _LyingSink(writer, self._override)

    def _repeated(self, step: int, digest: bytes) -> bytes:
        """The digest in the journal: a cheat's own log may hold entries that no follower keeps."""
        return self._journal.content.logs[step]


@dataclass(frozen=True)
class Cheat(Maker):
    """Makes the parts of a run that cheats by `override`. It writes `declared` into the run's
    directory; None where a program made the hooks itself."""

    override: Override
    declared: Declaration | None = None

    def begin(self, job: Job, store: RunStore) -> None:
        """Declare the cheat of a new run; compare it with the declaration of an existing run."""
        before = read_declaration(store.override_path)
        if before is None and self.declared is not None and not present(store.journal_path):
            write_file(store.override_path, [self.declared.to_bytes()])
        elif before != self.declared:
            raise begun_otherwise(store, before)
        self.override.begin(job)

    def genesis(self, state: State) -> State:
        self.override.genesis(state)
        return state

    def genesis_root(self, engine: Engine) -> bytes:
        return engine.root()  # loading state[0] has hashed the honest one

    def load_state(self, store: RunStore, job: Job, step: int, root: bytes) -> State:
        state = store.read_state(job, step, copy=True)
        store.check_root(step, self.override.root(step, state.root()), root)
        return state

    def logs(
        self, job: Job, store: RunStore, journal: Journal, replay: Path | None, compress: bool
    ) -> TrainerLogs | None:
        make = partial(CheatingLogs, self.override)
        return trainer_logs(job, store, journal, replay, compress, make)

    def engine(
        self,
        job: Job,
        state: State,
        step: int,
        context: ExecutionContext,
        logs: TrainerLogs | None,
        losses: Sequence[int],
    ) -> Engine:
        last = losses[step - 1] if step else 0
        lie = self.override
        return CheatingEngine(job, state, step, context, log=logs, override=lie, last_bits=last)


def declared_cheat(job: Job, declared: Declaration) -> Cheat:
    """The maker of a run of `job` that cheats as declared.

    Raises UsageError where this installation has no such attack, or the attack refuses a parameter.
    """
    return Cheat(hooks_of(declared, job), declared)
