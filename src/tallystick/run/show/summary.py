"""The outcome of a run for people: the losses of its steps, and what its journal states.

A job of format 2 has steps that train and steps of passes (COMMITMENTS 7.6). People count the
first. A pass that ends with a step without a batch, its decision, has that step's loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick import _core
from tallystick.commit.checkpoint import run_root
from tallystick.job.job import Job
from tallystick.run.distributed.claims import ConvictedWorker
from tallystick.run.logs.report import FollowReport, follow_report
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import CONVICTED, CONVICTED_TOO, Journal, loss_value
from tallystick.visible import Tabled


@dataclass(frozen=True)
class Series:
    """`training` has the loss of each training step; `validation` pairs of a number of training
    steps and the loss of the pass after them. `by_stream` has the training losses of each stream
    whose programs train; in formats 1 and 2 that is each such program."""

    training: tuple[float, ...]
    validation: tuple[tuple[int, float], ...]
    by_stream: dict[str, tuple[float, ...]]


def series(job: Job, losses: Sequence[float], evaluations: Sequence[tuple[int, float]]) -> Series:
    """The series of a run with these `losses`, one for each step. `evaluations` are the validation
    losses beside the run, by step."""
    timetable = job.commitment.timetable
    training: list[float] = []
    by_stream: dict[str, list[float]] = {s.name: [] for s in timetable.streams if not s.by_pass}
    validation: list[tuple[int, float]] = []
    for step, loss in enumerate(losses):
        if timetable.trains(step):
            training.append(loss)
            by_stream[timetable.programs[timetable.at(step).program].stream.name].append(loss)
        elif timetable.ends_pass(step):
            validation.append((len(training), loss))
    if not any(program.by_pass for program in timetable.programs):
        validation = list(evaluations)
    named = {name: tuple(found) for name, found in by_stream.items()}
    return Series(tuple(training), tuple(validation), named)


def seconds_a_step(sessions: Sequence[Mapping[str, object]]) -> float | None:
    """The time of a step, by the trainer's word: over the sessions that ended as they should and
    executed steps; None without one."""
    steps = spent = 0
    for session in sessions:
        start, end, time = (session.get(k) for k in ("start_step", "end_step", "milliseconds"))
        if isinstance(start, int) and isinstance(end, int) and isinstance(time, int):
            steps, spent = steps + max(0, end - start), spent + max(0, time)
    return spent / 1000 / steps if steps and spent else None


@dataclass(frozen=True, repr=False)
class RunSummary(Tabled):
    """A finished run, or one that was interrupted (`finished` false, roots so far).

    `steps` counts all steps. `losses` are those of the training steps, and `validation` has pairs
    of a number of training steps and a loss. `losses_of` has the training losses of each stream of
    programs, where several take turns. `convicted` are the workers without whom the run went on in
    this command, `convicted_before` those of earlier ones, by the journal: (worker, workers).
    """

    directory: Path
    job_digest: bytes
    contract: str
    steps: int
    finished: bool
    reason: str
    checkpoints: tuple[tuple[int, bytes], ...]
    run_root: bytes
    final_state_root: bytes
    losses: tuple[float, ...]
    validation: tuple[tuple[int, float], ...]
    signer: str
    isa: str
    threads: int
    seconds: float
    log_bytes: int = 0
    workers: int = 1
    followed: FollowReport | None = None
    losses_of: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    convicted: tuple[ConvictedWorker, ...] = ()
    convicted_before: tuple[tuple[int, int], ...] = ()

    def facts_for_people(self) -> tuple[str, dict[str, object]]:
        ends = {n: f"{self.losses[at]:.6g}" for n, at in _ENDS.items() if self.losses}
        return f"Run, {'finished' if self.finished else 'not finished'}", {
            "directory": self.directory,
            "steps": self.steps,
            "reason": self.reason,
            **ends,
            "run root": self.run_root,
            "job": self.job_digest,
            "contract": self.contract,
            "signer": self.signer,
        }


_ENDS = {"first loss": 0, "last loss": -1}


def summary(job: Job, store: RunStore, journal: Journal, signer: str, seconds: float) -> RunSummary:
    """The summary of a run, from its journal."""
    content = journal.content
    session: dict[str, Any] = content.sessions[-1] if content.sessions else {}
    evaluations = [(step, loss_value(bits)) for step, bits in content.evaluations]
    found = series(job, [loss_value(bits) for bits in content.losses], evaluations)
    return RunSummary(
        directory=store.directory,
        job_digest=job.digest,
        contract=job.commitment.contract,
        steps=len(content.losses),
        finished=content.finished,
        reason=content.reason,
        checkpoints=tuple(content.checkpoints),
        run_root=run_root(job.digest, content.checkpoints),
        final_state_root=content.checkpoints[-1][1],
        losses=found.training,
        validation=found.validation,
        signer=signer,
        isa=str(session.get("isa", _core.isa())),
        threads=int(session.get("threads", _core.threads())),
        workers=int(session.get("workers", 1)),
        seconds=seconds,
        log_bytes=store.log_bytes(),
        followed=follow_report(content),
        losses_of=found.by_stream,
        convicted_before=tuple(_convicted(content.sessions)),
    )


def _convicted(sessions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """(worker, workers of its team) of those whom the sessions of a journal say convicted."""
    for session in sessions:
        for key in (CONVICTED, CONVICTED_TOO):
            if key in session:
                yield int(session[key]), int(session.get("workers", 1))
