"""The states of a run, as a prover gets them back: from files, or by executing again.

Theory of operation. state[s] comes from the nearest state at or before s that is at hand. That is
the state in memory, one of this dispute's scratch files, a state that the run has stored, or
genesis. The prover keeps every state that a query needs as a scratch file, so that the next,
narrower query of a search begins where the last one ended (PROTOCOL 4.6).

The prover believes no file. A stored state counts only at a step whose root the signed commitment
covers, and the prover hashes every state in its own memory after it has read it. It names a state
that does not fit, and does not use it again. So damage costs re-execution, and nothing else. An
object store that fails is no damage: then there is no answer yet, since a later attempt may have
the state without hours of execution.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from tallystick.commit.checkpoint import checkpoint_steps
from tallystick.commit.merkle import Tree
from tallystick.commit.state import CHAIN_START, extend_log_chain, slot_order, state_tree
from tallystick.devices.context import ExecutionContext
from tallystick.disk.files import free_bytes, new_directory, remove_tree
from tallystick.disk.tensorfile import file_size, read_tensors, write_tensors
from tallystick.errors import (
    CounterpartyError,
    DigestMismatchError,
    MachineFaultError,
    StorageError,
    StoreError,
)
from tallystick.job.job import Job
from tallystick.program.runner import Tap
from tallystick.program.state import State
from tallystick.run.execute.engine import Engine
from tallystick.run.logs.followed import OwnLogs, own_logs
from tallystick.run.store.directory import SCRATCH_PREFIX, RunStore
from tallystick.run.store.journal import JournalContent
from tallystick.run.store.stored_states import state_metadata

# The largest number of scratch files, and the share of the free disk that one of them may take.
SCRATCH_FILES = 256
SCRATCH_SHARE = 0.5
DIGESTS_KEPT = 512


class ScratchStates:
    """Files of states in the run's directory, as many as the disk has room for; `close` removes
    them."""

    def __init__(self, run: Path | None) -> None:
        """Without a `run`, or on a read-only disk, the prover executes more steps again."""
        self._directory: Path | None = None
        if run is not None:
            with suppress(StorageError):
                self._directory = new_directory(SCRATCH_PREFIX, run)
        self._roots: dict[int, bytes] = {}

    @property
    def steps(self) -> list[int]:
        """The steps whose states are kept."""
        return list(self._roots)

    def _path(self, step: int) -> Path:
        assert self._directory is not None
        return self._directory / f"step-{step:08d}.safetensors"

    def save(self, step: int, state: State, root: bytes) -> None:
        """Keep state[step], whose root is `root`, if there is room."""
        full = len(self._roots) >= SCRATCH_FILES
        if self._directory is None or full or step in self._roots:
            return
        with suppress(StorageError):  # without the file the prover executes more steps again
            metadata, tensors = state_metadata(step), state.tensors()
            if file_size(tensors, metadata) <= SCRATCH_SHARE * free_bytes(self._directory):
                write_tensors(self._path(step), tensors, metadata)
                self._roots[step] = root

    def load(self, job: Job, step: int) -> tuple[State, bytes]:
        """A kept state, its arrays memory-mapped, and the root that it had."""
        tensors, _ = read_tensors(self._path(step), "scratch state")
        state = State.from_tensors(tensors, job.program.state_types, "scratch state")
        return state, self._roots[step]

    def drop(self, step: int) -> None:
        """Never use this state again."""
        self._roots.pop(step, None)

    def clear(self) -> None:
        """Never use any of the kept states again."""
        self._roots.clear()

    def close(self) -> None:
        if self._directory is not None:
            remove_tree(self._directory)
        self.clear()


class RunStates:
    """state[s] of a run for any s, with as little execution as the states at hand allow."""

    def __init__(
        self,
        store: RunStore,
        job: Job,
        journal: JournalContent,
        context: ExecutionContext,
        notice: Callable[[str], None],
        scratch: bool = True,
    ) -> None:
        """Without `scratch` no state is kept on the disk."""
        self.store, self.job, self.journal = store, job, journal
        self.context, self._notice = context, notice
        self.executed = 0
        self.scratch = ScratchStates(store.directory if scratch else None)
        self._engine: Engine | None = None
        self._committed = dict(journal.checkpoints)
        self._live = False  # whether the engine's state is state[engine.step]
        self._refused: set[int] = set()  # stored states that have not the committed root
        self._digests: OrderedDict[int, dict[str, bytes]] = OrderedDict()

    # -- state[s] in memory --------------------------------------------------------------------

    def at(self, step: int) -> Engine:
        """The engine, in state[step]. Raises NodeError where a step cannot be executed, StoreError
        where a store does not give what is listed there."""
        engine = self._nearest(step)
        while engine.step < step:
            self._live = False
            engine.run()
            self.executed += 1
            self._live = True
        return engine

    def look(self, step: int, tap: Tap) -> tuple[int, int]:
        """Call Engine.look for the step after state[step]; the engine stays in that state."""
        engine = self.at(step)
        self.executed += 1
        return engine.look(tap)

    def look_at(self, step: int, node: int, tap: Tap) -> None:
        """As `look`, for the operands of one node: the rest of the step need not be executed."""
        engine = self.at(step)
        self.executed += 1
        engine.look_at(node, tap)

    def shows_folded(self, step: int) -> bool:
        """True if `look` shows the operands of folds over micro-batches."""
        return self.at(step).shows_folded

    def repeat(self, step: int) -> int:
        """Execute the step after state[step]; return the bits of its loss, as the run commits to
        it."""
        engine = self.at(step)
        self._live = False
        bits, _, _ = engine.run()
        self.executed += 1
        self._live = True
        return bits

    def _keep(self, step: int) -> None:
        """Keep state[step], if there is room, so that no step before it is executed again."""
        if step and step not in self.scratch.steps and step not in self._stored():
            state = self.at(step).state
            known = self._digests.get(step)
            root = state.root() if known is None else State.root_of(known)
            self.scratch.save(step, state, root)

    def _stored(self) -> list[int]:
        """The steps of stored states with a committed root. The root of a pause is not
        committed."""
        there = self.store.stored_steps()
        return [s for s in there if s in self._committed and s not in self._refused]

    def _nearest(self, step: int) -> Engine:
        """The engine in the nearest state at or before `step` that is at hand."""
        while True:
            there = {0, *self._stored(), *self.scratch.steps}
            base = max(s for s in there if s <= step)
            engine = self._engine
            if engine is not None and self._live and base <= engine.step <= step:
                return engine
            try:
                return self._load(base)
            except StoreError as error:
                if base:
                    error.next_action += (
                        " A copy of the run without that file executes the steps again instead."
                    )
                raise
            except (CounterpartyError, StorageError) as error:
                if not base:
                    raise
                if base in self.scratch.steps:
                    self.scratch.drop(base)
                else:
                    self._refused.add(base)
                self._notice(f"The state of step {base} is executed again: {error.message}")

    def _load(self, step: int) -> Engine:
        """The engine in a state at hand. Raises CounterpartyError, StorageError where the file is
        damaged, or holds another state than the committed one."""
        if step in self.scratch.steps:
            state, root = self.scratch.load(self.job, step)
        elif step:
            state, root = self.store.read_state(self.job, step), self._committed[step]
        else:
            return self._enter(step, self._genesis())
        committed = step not in self.scratch.steps
        engine = self._enter(step, state)
        self._live = False
        found = engine.state.root()
        if committed:
            found = self._stated(step, found)
        if found != root:
            raise DigestMismatchError(
                f"The file of the state of step {step} in {self.store.directory} does not have "
                "the root that the run has committed to.",
                "Remove it; `tallystick fsck` lists what is damaged.",
            )
        self._live = True
        return engine

    def _enter(self, step: int, state: State) -> Engine:
        """Put the engine into a state. Where the engine has arrays already, they stay in place."""
        engine = self._engine
        if engine is None:
            own = {name: np.array(a, order="C") for name, a in state.slots.items()}
            engine = self._make_engine(State(own, state.loss_chain, state.log_chain), step)
            self._engine = engine
        else:
            self._live = False
            for name, array in state.slots.items():
                engine.state.device.write(array, engine.state.slots[name])
            engine.state.loss_chain, engine.state.log_chain = state.loss_chain, state.log_chain
            engine.step = step
        self._live = True
        return engine

    # -- methods that a declared cheat replaces (prover.cheating) ----------------------------------

    def _genesis(self) -> State:
        """state[0] of the run."""
        return self.job.genesis()

    def _stated(self, step: int, root: bytes) -> bytes:
        """The root that the run commits to for state[step], whose own root is `root`."""
        return root

    def _make_engine(self, state: State, step: int) -> Engine:
        """Make the engine that executes the run's steps again from `state`."""
        return Engine(self.job, state, step, self.context, log=self._own_logs())

    def _own_logs(self) -> OwnLogs | None:
        return own_logs(self.store, self.job, self.journal)

    def _check(self, step: int, digests: dict[str, bytes]) -> None:
        """Execute again where the run has committed to another state than that of `digests`."""
        if self._committed.get(step) not in (None, State.root_of(digests)):
            self._confirm(step, digests)

    # -- the files that the commitment covers ------------------------------------------------------

    def logs_fit(self, last: int) -> bool:
        """True if the journal's logs are those in the log chain of the committed final state."""
        chain = CHAIN_START
        for at, digest in enumerate(self.journal.logs[:last]):
            chain = extend_log_chain(chain, at, digest)
        if len(self.journal.logs) != last:
            return False
        state = self.at(last).state
        return chain == state.log_chain and state.root() == self._committed[last]

    def rebuild(self, last: int) -> None:
        """Get all checkpoints up to step `last` by executing the run from its initial state."""
        self._committed.clear()
        found = [(s, self.root(s)) for s in checkpoint_steps(last, self.job.interval)]
        self.journal.checkpoints[:] = found
        self._committed = dict(found)

    # -- answers about states --------------------------------------------------------------------

    def digests(self, step: int) -> dict[str, bytes]:
        """The tensor digest of every slot of state[step], chains included."""
        known = self._digests.get(step)
        if known is None:
            known = self.at(step).state.digests()
            self._check(step, known)
            self._digests[step] = known
            if len(self._digests) > DIGESTS_KEPT:
                self._digests.popitem(last=False)
            self._keep(step)
        return known

    def _confirm(self, step: int, digests: dict[str, bytes]) -> None:
        """Where the run has committed to another state, execute it again before any signature.

        After a false commitment both executions give the same state. After a fault of this machine
        (its memory, a library's threads) they do not: the function raises MachineFaultError.
        """
        self.distrust()
        if self.at(step).state.digests() != digests:
            raise MachineFaultError(
                f"Two executions of the run on this machine gave two states after {step} steps.",
                "Nothing was signed. Try again with --threads 1, or on another machine.",
            )

    def commits(self, step: int) -> bool:
        """True if the run has committed to state[step]."""
        return step in self._committed

    def root(self, step: int) -> bytes:
        """The root that the run states for state[step]."""
        committed = self._committed.get(step)
        if committed is not None:
            return committed
        return self._stated(step, State.root_of(self.digests(step)))

    def slot(self, step: int, name: str) -> tuple[bytes, tuple[bytes, ...]]:
        """The digest of a slot of state[step], and its inclusion proof (COMMITMENTS 5.4)."""
        digests = self.digests(step)
        tree: Tree = state_tree(digests)
        return digests[name], tuple(tree.inclusion(slot_order(list(digests)).index(name)))

    def forget(self) -> None:
        """Free all memory. The prover reads or executes again the states that it needs later."""
        self._engine, self._live = None, False
        self._digests.clear()

    def distrust(self) -> None:
        """Let go of whatever was executed here: it may be wrong, and is executed again."""
        self.forget()
        self.scratch.clear()

    def close(self) -> None:
        """Free all memory and remove the scratch files."""
        self.forget()
        self.scratch.close()
