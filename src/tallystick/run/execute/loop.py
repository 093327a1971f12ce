"""The trainer's loop: from the newest stored state it executes, commits and stores, step by step.

Theory of operation. The journal is the truth about how far a run got. From a stored state the
trainer can resume. The trainer appends a step's loss after the step. The state of a checkpoint is
hashed, and written to a temporary file where it is to be stored, beside the next step
(checkpoints.py). Before that step changes the state, the trainer appends the root and flushes the
journal; only then the file may get its name. So the journal has the records of a trainer that does
one thing after the other, in the same order: the root of state[t] stands before the loss of step t.
At any moment a stored state has its root in the journal, and a killed run loses at most the steps
after the newest stored state. When the trainer resumes, it repeats those steps and demands the
losses and roots that the journal already holds. A difference is a fault of the machine; the trainer
never ignores it. On a device that cannot be read beside a step (Device.hashes_beside), the trainer
hashes and stores between two steps.
Ctrl-C and SIGTERM end the loop at the end of a step, so that nothing is lost.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

from tallystick import _core
from tallystick.commit.checkpoint import run_root
from tallystick.commit.state import loss_bits
from tallystick.errors import CounterpartyError, MismatchError, StorageError
from tallystick.installed import tallystick_version
from tallystick.job.job import Job
from tallystick.program.state import State
from tallystick.program.validation import BEST_PASS, PASSES, best_pass_step
from tallystick.run.execute.checkpoints import CheckpointWriter
from tallystick.run.execute.engine import Engine, nothing
from tallystick.run.execute.evaluation import Evaluator
from tallystick.run.execute.listener import Steady
from tallystick.run.execute.options import Options
from tallystick.run.logs.training import TrainerLogs
from tallystick.run.show.estimate import check_disk, estimate_disk
from tallystick.run.store.directory import RunStore, state_file_bytes
from tallystick.run.store.journal import CONVICTED, Journal, end_reason, loss_value
from tallystick.run.store.stored_states import StorePolicy, spread, to_drop
from tallystick.run.store.unsigned import MetricLog, has_metrics, scalar_metrics


@dataclass
class Stop:
    """A flag that the first interrupt sets; the second interrupt raises.

    Under torchrun no interrupt raises: one Ctrl-C is two signals there, the terminal's and
    torchrun's, and it is torchrun that kills a process which takes too long."""

    requested: bool = False
    patient: bool = field(default_factory=lambda: "TORCHELASTIC_RUN_ID" in os.environ)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.requested and not self.patient:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def interrupts(stop: Stop) -> Iterator[None]:
    """Within this context SIGINT and SIGTERM set `stop`; main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


@dataclass
class TrainingLoop:
    """One call of `train_job`: its parts, and the loop over steps."""

    job: Job
    store: RunStore
    journal: Journal
    options: Options
    listener: Steady
    genesis: State | None
    engine: Engine = field(init=False)
    policy: StorePolicy = field(init=False)
    evaluator: Evaluator | None = None
    logs: TrainerLogs | None = None
    metrics: MetricLog | None = None
    wanted: frozenset[int] = frozenset()
    checkpoints: CheckpointWriter = field(init=False)
    waited: float = 0.0  # seconds that steps waited for the file under way
    best: int = 0  # the step after the best pass of committed validation, from which one exports

    def prepare(self) -> None:
        """Load the state to start from, check the room on the disk, and begin a session."""
        options, losses, make = self.options, self.journal.content.losses, self.options.maker
        state, step = self._newest_state()
        size = state_file_bytes(state)  # before the engine moves the state to its device
        self.logs = make.logs(self.job, self.store, self.journal, options.replay, options.compress)
        self.engine = make.engine(self.job, state, step, options.context, self.logs, losses)
        if options.keep is not None:
            self.wanted = spread(self.engine.last_step, self.job.interval, options.keep)
        self._take_up_best()
        logs = self.logs.estimate() if self.logs is not None else 0
        estimate = estimate_disk(self.job, size, options.kept, logs)
        present = size * len(self.store.stored_steps()) + estimate.job
        need = max(0, estimate.total - present - self.store.log_bytes())
        check_disk(self.store.directory, need, estimate.sentence())
        self.listener.notice(estimate.sentence())
        self.policy = StorePolicy(size, options.clock)
        self.checkpoints = CheckpointWriter(options.context)
        self.engine.notice = self.listener.notice
        if self.job.evaluation is not None and self.job.evaluation.every:
            self.evaluator = Evaluator(self.job, options.context)
        if has_metrics(self.job.loose_terms.programs):
            self.metrics = MetricLog(self.store.metrics_path, step)
        session = {
            "compiler": _core.compiler(),
            "isa": options.context.isa,
            "keep_checkpoints": options.kept,
            "start_step": step,
            "tallystick": tallystick_version(),
            "threads": options.context.threads,
            **make.session(),
        }
        if self.logs is not None:
            session |= self.logs.session()
        self.journal.session(session)
        # Last: where this method fails, nobody calls `close`.
        self.engine.before_write = self._settle

    def _newest_state(self) -> tuple[State, int]:
        """The newest stored state that has its root in the journal, or genesis."""
        content = self.journal.content
        roots, make = content.roots, self.options.maker
        for step in reversed(self.store.stored_steps()):
            if step not in roots or step > len(content.losses):
                continue
            try:
                return make.load_state(self.store, self.job, step, roots[step]), step
            except (CounterpartyError, StorageError) as error:
                self.listener.notice(f"Stored checkpoint of step {step} is not used: {error}")
        return make.first_state(self.job, self.genesis), 0

    def run(self, stop: Stop) -> bool:
        """Execute to the end; False when interrupted before it."""
        engine, journal, job = self.engine, self.journal, self.job
        self.policy.started = self.options.clock()
        self.listener.begin(job, engine.step)
        if engine.step == 0 and not journal.content.checkpoints:
            journal.checkpoint(0, self.options.maker.genesis_root(engine))
        elif engine.step == 0:
            self._expect_root(0, self.options.maker.genesis_root(engine))
        if engine.step > 0 and engine.step == len(journal.content.losses):
            bits = journal.content.losses[-1]
            if engine.stops(bits):
                return self._finish(bits)
        asked = self.options.trace
        traced = range(0) if asked is None else range(*asked)
        while engine.step < engine.last_step:
            if stop.requested or engine.step == self.options.stop_before:
                self._pause()
                self._end_session()
                return False
            began = self.options.clock()
            step = engine.step
            bits, outputs, trace = engine.run(step in traced)
            self._settle()  # a step that a cheat skips writes nothing
            self._loss(step, bits, engine.last_log)
            self._collect(wait=False)
            if self.metrics is not None:
                values = scalar_metrics(outputs)
                self.metrics.add(step, loss_value(bits), values)
                self.listener.metrics(step, values)
            if trace is not None:
                self.store.save_trace(trace)
            ends = engine.stops(bits) or engine.step == engine.last_step
            if engine.checkpoint_due(ends):
                self._checkpoint(force=ends)
            self.listener.step(step, loss_value(bits), self.options.clock() - began)
            self._evaluate(ends)
            if ends:
                return self._finish(bits)
        return self._finish(journal.content.losses[-1] if journal.content.losses else 0)

    def _loss(self, step: int, bits: int, log: bytes | None) -> None:
        """Append a new step's loss and its log's digest, or compare those of a repeated step."""
        content = self.journal.content
        losses = content.losses
        if step == len(losses):
            found = self.logs.found() if self.logs is not None else None
            if found is not None:
                self.journal.followed(found)
            self.journal.loss(step, bits, log)
        elif losses[step] != bits:
            self._fault(step, step + 1, f"loss {loss_value(losses[step])!r}", loss_value(bits))
        elif log is not None and content.logs[step] != log:
            self._fault(step, step + 1, f"log {content.logs[step].hex()}", f"log {log.hex()}")

    def _expect_root(self, step: int, root: bytes) -> None:
        known = dict(self.journal.content.checkpoints).get(step)
        if known is not None and known != root:
            self._fault(max(0, step - self.job.interval), step, known.hex(), root.hex())

    def _fault(self, first: int, last: int, old: object, new: object) -> None:
        next_action = (
            "The machine, its memory or its disk is faulty, or a file of the run was altered: "
            "run `tallystick fsck`, and train again on another machine."
        )
        if any(CONVICTED in session for session in self.journal.content.sessions):
            next_action = (
                "A worker of this run was convicted. What it falsified before that, and nobody "
                "computed again, stands in the journal: begin anew (--overwrite)."
            )
        raise MismatchError(
            f"Repeating steps {first} to {last} gave different bits than before the restart. The "
            f"journal has {old}, this execution {new}.",
            next_action,
        )

    def _root(self) -> bytes:
        """The root of the state, hashed here and now. Every log that the root covers is on the
        disk afterwards."""
        if self.logs is None:
            return self.engine.root()
        self.logs.flush()
        return self._root_of(self.engine.state.digests())

    def _root_of(self, digests: Mapping[str, bytes]) -> bytes:
        """The root of the state whose slots have these digests."""
        if self.logs is not None:
            found = self.logs.compare(self.engine.step, digests)
            if found is not None and self.engine.step == len(self.journal.content.losses):
                self.journal.followed(found)
        return self.engine.root(digests)

    def _checkpoint(self, force: bool) -> None:
        """Commit to the state, and store it if that is worth the time: beside the next step where
        the device allows it."""
        step = self.engine.step
        if not self.engine.hashes_beside:
            self._commit(step, self._root())
            if self._is_worth(force):
                self._store(step)
            return
        if self.logs is not None:
            self.logs.flush()
        file = None
        if self._is_worth(force) and step not in self.store.stored_steps():
            self._collect(wait=True)
            file = self.store.state_file(step)
        self.checkpoints.begin(step, self.engine.state, file)
        if self.logs is not None and self.logs.follows:
            self._settle()

    def _is_worth(self, force: bool) -> bool:
        wanted = force or self.engine.step in self.wanted
        return wanted or self._is_best() or self.policy.worth()

    def _commit(self, step: int, root: bytes) -> None:
        """Append the root of a checkpoint to the journal, or compare it with the one there."""
        done = self.journal.content.checkpoints
        if done and done[-1][0] >= step:
            self._expect_root(step, root)
        else:
            self.journal.checkpoint(step, root)

    def _settle(self) -> None:
        """Commit to the state that is hashed beside, if one is: afterwards the state may change."""
        step = self.checkpoints.unsettled
        if step is None:
            return
        self._commit(step, self._root_of(self.checkpoints.digests()))
        began = self.options.clock()
        self.checkpoints.journaled()
        self.waited += self.options.clock() - began

    def _collect(self, wait: bool) -> None:
        """Give up a state for the one that is stored beside, once it is; with `wait`, wait for it.
        Raises the errors of storing."""
        began = self.options.clock()
        spent = self.checkpoints.collect(wait)
        if spent is not None:
            self._drop_spare()
            waited, self.waited = self.waited, 0.0
            self.policy.wrote(spent + waited + self.options.clock() - began)

    def _drain(self) -> None:
        """Nothing is under way afterwards."""
        self._settle()
        self._collect(wait=True)

    def close(self, failed: bool) -> None:
        """End what goes on beside the steps. After an error of a step, what it found under way is
        finished first, so that no checkpoint is lost by it."""
        try:
            if failed:
                with suppress(Exception):
                    self._drain()
        finally:
            # The loop holds its engine. If the engine held the loop too, that would be a cycle.
            self.engine.before_write = nothing
            self.checkpoints.close()
            if self.metrics is not None:
                self.metrics.close()

    def _is_best(self) -> bool:
        """True after the best pass of committed validation so far: that state stays stored."""
        before = self.best
        self._take_up_best()
        return self.best != before and self.best == self.engine.step

    def _take_up_best(self) -> None:
        """Find the step after the best pass that the present state knows of."""
        slots = self.engine.state.slots
        if BEST_PASS not in slots:
            return
        host = self.engine.context.device.host
        best, passes = (int(host(slots[name])) for name in (BEST_PASS, PASSES))
        timetable = self.job.commitment.timetable
        self.best = best_pass_step(timetable, best, passes, self.engine.step) or 0

    def _store(self, step: int) -> None:
        began = self.options.clock()
        if step not in self.store.stored_steps():
            self.store.store_state(step, self.engine.state)
        self._drop_spare()
        self.policy.wrote(self.options.clock() - began)

    def _drop_spare(self) -> None:
        """Give up the stored states that are too many."""
        pauses = set(self.journal.content.pauses) - dict(self.journal.content.checkpoints).keys()
        while (drop := self._spare(pauses)) is not None:
            self.store.drop_state(drop)

    def _spare(self, pauses: set[int]) -> int | None:
        """The stored step to give up next. The best one stays beside the newest."""
        stored, kept = self.store.stored_steps(), self.options.kept
        if self.best in stored and self.best != stored[-1]:
            stored.remove(self.best)
            kept = max(1, kept - 1)
        return to_drop(stored, kept, pauses, self.wanted)

    def _pause(self) -> None:
        """Store the state of any step, so that the same command goes on from here."""
        self._drain()
        step = self.engine.step
        if step == 0 or len(self.journal.content.losses) > step:
            return  # nothing is new: a stored state serves already
        if step not in self.journal.content.roots:
            self.journal.pause(step, self._root())
        self._store(step)

    def _evaluate(self, last: bool) -> None:
        evaluation = self.job.evaluation
        if self.evaluator is None or evaluation is None:
            return
        step = self.engine.step
        if not last and step % evaluation.every:
            return
        if any(s == step for s, _ in self.journal.content.evaluations):
            return
        loss = self.evaluator.loss(self.engine.state.slots)
        self._settle()
        self.journal.evaluation(step, loss_bits(loss))
        self.listener.evaluated(step, loss)

    def _finish(self, bits: int) -> bool:
        step = self.engine.step
        self._drain()
        if self.journal.content.checkpoints[-1][0] != step:
            self._checkpoint(force=True)
            self._drain()
        if step and step not in self.store.stored_steps():
            self._store(step)
        reason = end_reason(self.job, step, bits)
        root = run_root(self.job.digest, self.journal.content.checkpoints)
        self._drop_pauses()
        self._end_session()
        self.journal.end(step, reason, root)
        return True

    def _end_session(self) -> None:
        spent = self.options.clock() - self.policy.started
        facts = self.engine.session_end()
        self.journal.session_end(self.engine.step, round(1000 * spent), facts)

    def _drop_pauses(self) -> None:
        """Remove the states of pauses: no signature will cover them."""
        content = self.journal.content
        for paused in set(content.pauses) - dict(content.checkpoints).keys():
            self.store.drop_state(paused)
