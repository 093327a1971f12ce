"""The states of a run, as a prover gets them back: from files, or by executing again.

Theory of operation. state[s] comes from the nearest state at or before s that is at hand: the one
in memory, one of this dispute's scratch files, one that the run has stored, genesis. Every state
that is asked for is kept as a scratch file, so that the next, narrower question of a search
begins where the last one has left off (PROTOCOL 4.6). Scratch files are trusted, being our own
and young; a stored state counts only if it still has the root in the journal.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import numpy as np

from tallystick.commit.merkle import Tree
from tallystick.commit.state import slot_order, state_tree
from tallystick.disk.files import free_bytes
from tallystick.errors import CounterpartyError, StorageError
from tallystick.program.executor import Tap
from tallystick.run.engine import Engine
from tallystick.run.follow import own_logs
from tallystick.run.job import Job
from tallystick.run.journal import JournalContent
from tallystick.run.override import Override
from tallystick.run.state import State
from tallystick.run.store import SCRATCH_PREFIX, STATE_FORMAT, RunStore, state_file_bytes
from tallystick.run.tensorfile import read_tensors, write_tensors

# Scratch files at most; and the share of what is free on the disk that one may take.
SCRATCH_FILES = 256
SCRATCH_SHARE = 0.5
DIGESTS_KEPT = 512


class Scratch:
    """Files of states beside the run, as many as the disk has room for; gone when closed."""

    def __init__(self, run: Path) -> None:
        self._directory: Path | None = None
        with suppress(OSError):  # a run on a read-only disk: more is executed again
            self._directory = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=run))
        self.steps: list[int] = []

    def _path(self, step: int) -> Path:
        assert self._directory is not None
        return self._directory / f"step-{step:08d}.safetensors"

    def save(self, step: int, state: State) -> None:
        """Keep state[step] if there is room."""
        full = len(self.steps) >= SCRATCH_FILES
        if self._directory is None or full or step in self.steps:
            return
        with suppress(StorageError):  # without it, more is executed again
            if state_file_bytes(state) <= SCRATCH_SHARE * free_bytes(self._directory):
                metadata = {"format": STATE_FORMAT, "step": str(step)}
                write_tensors(self._path(step), state.tensors(), metadata)
                self.steps.append(step)

    def load(self, job: Job, step: int) -> State:
        """A kept state, its arrays memory-mapped."""
        tensors, _ = read_tensors(self._path(step), "scratch state")
        return State.from_tensors(tensors, job.program.state_types, "scratch state")

    def close(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
        self.steps.clear()


class States:
    """state[s] of a run for any s, with as little execution as what is at hand allows."""

    def __init__(
        self,
        store: RunStore,
        job: Job,
        journal: JournalContent,
        override: Override | None,
        threads: int | None,
    ) -> None:
        self.store, self.job, self.journal, self.override = store, job, journal, override
        self.threads = threads
        self.executed = 0
        self.scratch = Scratch(store.directory)
        self._engine: Engine | None = None
        self._committed = dict(journal.checkpoints)
        self._live = False  # whether the engine's state is state[engine.step]
        self._checked: set[int] = set()  # stored states that have the root in the journal
        self._refused: set[int] = set()  # and those that have not
        self._digests: OrderedDict[int, dict[str, bytes]] = OrderedDict()

    # -- state[s] in memory --------------------------------------------------------------------

    def at(self, step: int) -> Engine:
        """The engine, in state[step]. Raises NodeError where a step cannot be executed."""
        engine = self._nearest(step)
        while engine.step < step:
            self._live = False
            engine.run()
            self.executed += 1
            self._live = True
        return engine

    def look(self, step: int, tap: Tap) -> tuple[int, int]:
        """Engine.look at the step after state[step], where the engine stays."""
        if self.override is not None:
            self._keep(step)  # the hooks are about to change the state
        engine = self.at(step)
        self._live = self.override is None
        self.executed += 1
        return engine.look(tap)

    def _keep(self, step: int) -> None:
        """Make sure that state[step] need not be executed again, if there is room."""
        if step and step not in self.scratch.steps and step not in self._stored():
            self.scratch.save(step, self.at(step).state)

    def _stored(self) -> list[int]:
        known = self.journal.roots
        return [s for s in self.store.stored_steps() if s in known and s not in self._refused]

    def _nearest(self, step: int) -> Engine:
        """The engine in the nearest state at or before `step` that is at hand."""
        while True:
            there = {0, *self._stored(), *self.scratch.steps}
            base = max(s for s in there if s <= step)
            engine = self._engine
            if engine is not None and self._live and base <= engine.step <= step:
                return engine
            state = self._read(base)
            if state is not None:
                return self._enter(base, state)

    def _read(self, step: int) -> State | None:
        """A state at hand, None (and never again) where its file is damaged."""
        if step in self.scratch.steps:
            return self.scratch.load(self.job, step)
        if step == 0:
            state = self.job.genesis()
            if self.override is not None:
                self.override.genesis(state)
            return state
        try:
            if step in self._checked:
                return self.store.read_state(self.job, step)
            root = self.journal.roots[step]
            state = self.store.load_state(self.job, step, root, False, self.override)
        except (CounterpartyError, StorageError):
            self._refused.add(step)
            return None
        self._checked.add(step)
        return state

    def _enter(self, step: int, state: State) -> Engine:
        """Put the engine into a state; its arrays stay where they are once there are any."""
        before = self.journal.losses[step - 1] if step else 0
        engine = self._engine
        if engine is None:
            own = {name: np.array(a, order="C") for name, a in state.slots.items()}
            state = State(own, state.loss_chain, state.log_chain)
            logs = own_logs(self.store, self.job, self.journal)
            engine = Engine(self.job, state, step, self.threads, self.override, before, logs)
            self._engine = engine
        else:
            self._live = False
            for name, array in state.slots.items():
                np.copyto(engine.state.slots[name], array)
            engine.state.loss_chain, engine.state.log_chain = state.loss_chain, state.log_chain
            engine.step, engine.last_bits = step, before
        self._live = True
        return engine

    # -- what is said of states ------------------------------------------------------------------

    def digests(self, step: int) -> dict[str, bytes]:
        """Tensor digest of every slot of state[step], chains included."""
        known = self._digests.get(step)
        if known is None:
            known = self.at(step).state.digests()
            self._digests[step] = known
            if len(self._digests) > DIGESTS_KEPT:
                self._digests.popitem(last=False)
            self._keep(step)
        return known

    def root(self, step: int) -> bytes:
        """The root that the run states for state[step]."""
        committed = self._committed.get(step)
        if committed is not None:
            return committed
        root = State.root_of(self.digests(step))
        return root if self.override is None else self.override.root(step, root)

    def slot(self, step: int, name: str) -> tuple[bytes, tuple[bytes, ...]]:
        """The digest of a slot of state[step], and its inclusion proof (COMMITMENTS 5.4)."""
        digests = self.digests(step)
        tree: Tree = state_tree(digests)
        return digests[name], tuple(tree.inclusion(slot_order(list(digests)).index(name)))

    def close(self) -> None:
        """Forget everything and remove the scratch files."""
        self._engine = None
        self._digests.clear()
        self.scratch.close()
