"""Hashes and stores checkpoints beside the steps that follow.

Theory of operation. A step reads the state in its forward and backward pass and changes it at its
end. So a second thread hashes the state of a checkpoint during the next step, from the state's own
memory: the engine calls `settle` before it changes the first byte (Engine.before_write). What
is not hashed by then, this thread and the caller's hash together. If the state is to be stored,
the same thread then writes it to a temporary file. What of it is not read at `settle` is copied,
if there is memory to spare; else the step waits. The file gets its name after the caller
has journaled the root. So at any moment at most two checkpoints are under way: one whose
digests are computed, and one whose file is written.

The thread computes with one thread of the core. It never touches the journal. An error of the
thread is raised in the caller's thread, by the next method that is called.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Condition, Event, Thread

from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Device, Tensor
from tallystick.disk.memory import spare_memory
from tallystick.disk.snapshot import Snapshot
from tallystick.program.state import State
from tallystick.run.store.stored_states import StateFile

# A copy of what is not written yet may take this share of the memory that is free.
_COPY_SHARE = 0.25


class StateDigests:
    """The tensor digests of a state, computed by every thread that calls `work`."""

    def __init__(self, device: Device, tensors: Mapping[str, Tensor], sizes: Mapping[str, int]):
        self._device, self._tensors = device, tensors
        # The largest first: then the last ones in hand are small.
        self._left = sorted(tensors, key=lambda name: sizes[name])
        self._turn = Condition()
        self.found: dict[str, bytes] = {}
        self.error: BaseException | None = None

    def work(self) -> None:
        """Compute digests until none is left to begin, or one failed."""
        while True:
            with self._turn:
                if self.error is not None or not self._left:
                    return
                name = self._left.pop()
            try:
                digest = self._device.digest(self._tensors[name])
            except BaseException as error:
                self.fail(error)
                raise
            with self._turn:
                self.found[name] = digest
                if len(self.found) == len(self._tensors):
                    self._turn.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._turn:
            self.error = self.error or error
            self._turn.notify_all()

    def finish(self) -> dict[str, bytes]:
        """All digests. Raises the error of the thread that failed first."""
        self.work()
        with self._turn:
            self._turn.wait_for(
                lambda: self.error is not None or len(self.found) == len(self._tensors)
            )
        if self.error is not None:
            raise self.error
        return {name: self.found[name] for name in self._tensors}


@dataclass
class PendingCheckpoint:
    """One checkpoint: its digests, and its file if it is to be stored."""

    step: int
    digests: StateDigests
    chains: Mapping[str, bytes]
    snapshot: Snapshot | None
    file: StateFile | None
    journaled: Event = field(default_factory=Event)
    dropped: bool = False  # the file is not to get its name
    ended: Event = field(default_factory=Event)
    error: BaseException | None = None
    cpu_seconds: float = 0.0  # processor time of the thread for the file

    def run(self) -> None:
        """The thread's part."""
        try:
            self.digests.work()
            if self.digests.error is None and self.file and self.snapshot:
                self._write(self.file, self.snapshot)
        except BaseException as error:
            self.error = error
        finally:
            if self.snapshot is not None:
                self.snapshot.forget()
            self.ended.set()

    def _write(self, file: StateFile, snapshot: Snapshot) -> None:
        began = time.thread_time()
        try:
            file.write(snapshot, lambda: self.dropped)
            self.journaled.wait()
            if not self.dropped:
                file.finish()
        finally:
            file.discard()
            self.cpu_seconds = time.thread_time() - began

    def drop(self) -> None:
        """Keep the file from getting its name, and the thread from waiting."""
        self.dropped = True
        self.journaled.set()


class CheckpointWriter:
    """The checkpoints under way of one training, and the thread that works on them.

    The caller's thread calls every method. `context` is the training's.
    """

    def __init__(self, context: ExecutionContext) -> None:
        self._context = context
        self._queue: SimpleQueue[PendingCheckpoint | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._open: PendingCheckpoint | None = None  # reads the state's own memory
        self._filing: PendingCheckpoint | None = None  # has a file that is not collected yet

    # -- the caller's ------------------------------------------------------------------------------

    @property
    def unsettled(self) -> int | None:
        """The step whose digests are under way."""
        return None if self._open is None else self._open.step

    def begin(self, step: int, state: State, file: StateFile | None) -> None:
        """Begin to hash `state`, which is state[`step`], and to write it to `file`, where given.
        The state must not change before `settle` returns; no other file is under way."""
        assert self._open is None and (file is None or self._filing is None)
        tensors = state.tensors()
        sizes = {name: tensors[name].nbytes for name in state.slots}
        made = PendingCheckpoint(
            step,
            StateDigests(state.device, dict(state.slots), sizes),
            state.chain_digests(),
            Snapshot(tensors) if file is not None else None,
            file,
        )
        if self._thread is None:
            thread = Thread(target=self._work, name="tallystick-checkpoints", daemon=True)
            thread.start()  # if it fails, nothing may be under way: nobody would end it
            self._thread = thread
        self._open = made
        self._filing = made if file is not None else self._filing
        self._queue.put(made)

    def digests(self) -> dict[str, bytes]:
        """The digests of the state under way, chains included. Raises what hashing raises."""
        assert self._open is not None
        return {**self._open.digests.finish(), **self._open.chains}

    def journaled(self) -> None:
        """The root of the state under way is in the journal: return once the state may change.
        Its file gets its name without the caller."""
        made, self._open = self._open, None
        assert made is not None
        made.journaled.set()
        if made.snapshot is not None:
            made.snapshot.detach(_may_copy)

    def collect(self, wait: bool) -> float | None:
        """Whether a file has got its name since the last call: the thread's processor seconds for
        it, else None. With `wait`, return once no file is under way. Raises StorageError where the
        file could not be written."""
        made = self._filing
        if made is None or made is self._open or not (wait or made.ended.is_set()):
            return None
        made.ended.wait()
        self._filing = None
        if made.error is not None:
            # Its traceback holds this frame and the checkpoint: neither may hold it as well.
            error, made.error = made.error, None
            try:
                raise error
            finally:
                del error
        return made.cpu_seconds

    def close(self) -> None:
        """End the thread, and drop what is under way: nothing of it has its name yet."""
        for made in (self._open, self._filing):
            if made is not None:
                made.drop()
        if self._open is not None:
            self._open.digests.fail(RuntimeError("the training ended"))
        self._open = self._filing = None
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    # -- the thread's ------------------------------------------------------------------------------

    def _work(self) -> None:
        with ExecutionContext(1, self._context.isa).entered():
            while (made := self._queue.get()) is not None:
                made.run()


def _may_copy(nbytes: int) -> bool:
    return nbytes <= _COPY_SHARE * spare_memory()
