"""The logs of a cheat's trainer: the honest trainer's logs, whose entries hooks change."""

from __future__ import annotations

from tallystick.contracts.replay.blocks import Blocks, decode, encode
from tallystick.contracts.replay.step import Sink
from tallystick.job.job import Job
from tallystick.run.cheats.override import Override
from tallystick.run.logs.other import FollowedRun
from tallystick.run.logs.training import TrainerLogs
from tallystick.run.logs.writer import LogWriter
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import Journal


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
