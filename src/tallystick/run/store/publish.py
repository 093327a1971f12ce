"""Publishing a run on an object store while it is made, beside the next steps.

Theory of operation. The trainer works in a directory of its own and knows nothing of this. A thread
looks at that directory and puts what is durable there on the store, in the order in which the disk
has it: the job and the manifest; then, again and again, the rounding logs, the traces and the
metrics of the steps up to a checkpoint, the journal up to that checkpoint, and then the states
whose roots that journal has; at the end the signed claim. So at any moment the objects are a run:
each state has its root in the journal, each log is there before its digest, and a plain copy of
the prefix is a run directory that resumes. (`signer.pem`, `lock` and scratch states stay here.)

A log's object may be there although no journal on the store names it: a trainer that was killed has
put it, or another one is putting its own. The first is replaced, since another machine may round
otherwise and fill as many bytes; the second stays, and stops this trainer. So the puts of logs and
traces are conditional, as the journal's are. The job's manifest, which names all of its files by
digest, is put where there is none: so the trainer of another job writes nothing here, even if both
found the prefix empty. The other files are only taken to be there once the run's manifest is, which
is put after them.

No store can append, so the journal is put whole: when it has grown by a sixteenth, or when the last
put is `_PACE` seconds a byte ago. Over a run the puts are therefore at most 17 journals, and
1/_PACE bytes a second, whatever its length. A journal replaces the version that this trainer put
last, and no other: so two trainers of one URL are noticed. States are put in parts, two at a time;
a state that the trainer gave up meanwhile is not waited for, so nothing piles up. Only what this
directory once held is removed from the store.

A store that is out of reach stops no training: the thread tries again, and the end of the command
says what is still to be put. Another writer stops it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tallystick.disk.files import sync_path
from tallystick.disk.objects.store import NEW, PART_BYTES, PARTS, Found, Objects
from tallystick.disk.regular import open_file, os_errors, present, read_file, size_of
from tallystick.errors import StoreConflictError, StoreError, TallystickError
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.run.store.directory import MANIFEST, RunStore
from tallystick.run.store.journal import JournalContent, JournalTail

POLL_S = 0.2
_RETRY_S = 5.0
_GROWTH = 16
_PACE = 1 / (64 << 10)
_STATES = 2


def another_job(objects: Objects) -> StoreConflictError:
    """The error of a trainer that finds the files of another job, and no run yet."""
    return StoreConflictError(
        f"{objects.address.url} contains the files of another job.",
        "Choose another prefix. If its trainer will not come back, remove the files with the "
        "store's own tools.",
    )


class Publisher:
    """Puts the run in `store` on `objects`, which holds `there`, `journal` being the journal there.
    Start it when the run's manifest and job stand in the directory."""

    def __init__(
        self,
        objects: Objects,
        there: dict[str, Found],
        journal: JournalContent | None,
        store: RunStore,
        job: Job,
        notice: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.objects, self.store, self.job = objects, store, job
        self._there = dict(there)
        # The journal on the store names the files of these steps, and was put after them.
        self._named = range(0 if journal is None else max(journal.roots, default=0))
        self._ours: set[str] = set()  # logs and traces that this publisher has put
        self._notice, self._clock = notice, clock
        self._tail = JournalTail(store.journal_path)
        self._put_length = self._put_steps = self._put_logs = 0
        self._put_roots: set[int] = set()
        self._put_at = -float("inf")
        self._was_here: set[int] = set()
        self._laid_out = self._told = False
        self._error: Exception | None = None
        self._stop, self._wake = threading.Event(), threading.Event()
        self._small = ThreadPoolExecutor(PARTS, "tallystick-publish")
        self._large = ThreadPoolExecutor(_STATES, "tallystick-states")
        self._states: dict[int, Future[None]] = {}
        self._thread = threading.Thread(target=self._run, name="tallystick-publisher", daemon=True)

    def start(self) -> None:
        """Begin to publish."""
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the publishing: StoreConflictError, or a fault of the directory."""
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Put everything that is durable, the claim last. Raises StoreError where the store stays
        out of reach: the directory keeps all, and the same command goes on."""
        self._end_thread()
        self.check()
        try:
            self._round(final=True)
        except StoreConflictError:
            raise
        except StoreError as error:
            raise StoreError(
                f"{error.message} The run is not completely published, but nothing is lost.",
                f"Run the same command again. The run is in {self.store.directory}.",
            ) from error

    def close(self) -> None:
        """Stop. What is under way is finished, what is not begun is left for the next time."""
        self._end_thread()
        self._small.shutdown(cancel_futures=True)
        self._large.shutdown(cancel_futures=True)

    def _end_thread(self) -> None:
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    # -- the thread -------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._stop.is_set():
            pause = POLL_S
            try:
                self._round(final=False)
                self._told = False
            except StoreConflictError as error:
                self._error = error
                return
            except StoreError as error:
                if not self._told:
                    self._notice(f"{error.message} Training goes on; it is tried again.")
                self._told, pause = True, _RETRY_S
            except Exception as error:  # whatever it is, it must not end the thread unseen
                self._error = error
                return
            self._wake.wait(pause)

    def _round(self, final: bool) -> None:
        if not self._laid_out:
            self._lay_out()
            self._laid_out = True
        self._tail.advance()
        if self._put_at < 0 and self._is_published():
            self._note_put()
        if self._due(final):
            self._put_journal()
        self._put_states(final)
        self._remove_states()
        if final and self._tail.finished and self._put_length == self._tail.length:
            self._put_claim()

    def _due(self, final: bool) -> bool:
        length, put = self._tail.length, self._put_length
        if length <= put or final:
            return length > put
        long_ago = self._clock() - self._put_at >= length * _PACE
        return length >= put + put // _GROWTH or long_ago

    def _each(self, names: Iterable[str], put: Callable[[str], object]) -> None:
        """Put small files side by side; the first fault is raised when all are through."""
        for done in [self._small.submit(put, name) for name in names]:
            done.result()

    # -- what is put ------------------------------------------------------------------------------
    def _lay_out(self) -> None:
        """The job, and the run's manifest, which the first trainer puts."""
        *files, manifest = [f"job/{name}" for name in self.job.files()]
        if MANIFEST in self._there:
            missing = [n for n in (*files, manifest) if not self._same_size(n)]
            self._each(missing, self._put_file)
            return
        self._claim(manifest)
        self._each(files, self._put_file)  # what is there may be of another job
        self._put_bytes(MANIFEST, self._read(MANIFEST), NEW)

    def _claim(self, manifest: str) -> None:
        """Put the job's manifest unless another one is there."""
        try:
            self._put_bytes(manifest, self._read(manifest), NEW)
        except StoreConflictError:
            raise another_job(self.objects) from None

    def _put_journal(self) -> None:
        length, steps, logs = self._tail.length, self._tail.steps, self._tail.logs
        sync_path(self.store.journal_path)
        made = [(step, self.store.log_path(step)) for step in range(self._put_logs, logs)]
        made += [(step, self.store.trace_path(step)) for step in self._traced(steps)]
        self._each(
            [n for step, path in made if self._is_due(step, n := self._name(path))], self._put_own
        )
        metrics = self._name(self.store.metrics_path)
        if present(self.store.metrics_path):
            self._put_bytes(metrics, self._read(metrics))
        name = self._name(self.store.journal_path)
        data = self._read(name)[:length]
        before = self._there.get(name)
        self._put_bytes(name, data, NEW if before is None else before.tag)
        self._note_put()

    def _is_due(self, step: int, name: str) -> bool:
        """True if the log or trace of a step is here, and not what the journal's reader finds."""
        done = name in (self._there if step in self._named else self._ours)
        return not done and present(self._path(name))

    def _put_own(self, name: str) -> None:
        """Put a log or trace unless another process has put that object since it was listed."""
        found = self._there.get(name)
        if size_of(self._path(name), "file", self.store.directory) <= PART_BYTES:
            self._put_bytes(name, self._read(name), NEW if found is None else found.tag)
        else:  # in parts, which no store puts under a condition: it is looked at before
            now = self.objects.head(name)
            if now is None or (found is not None and found.tag == now.tag):
                self._put_file(name)
            elif self._is_whole(name, now):  # it is ours; the answer was lost
                self._there[name] = now
            else:
                raise self.objects.conflict(name)
        self._ours.add(name)

    def _is_whole(self, name: str, found: Found) -> bool:
        """True if the object has the bytes of the file."""
        path = self._path(name)
        file, size = open_file(path, "file", self.store.directory)
        with os_errors(path), file:
            starts = range(0, size, PART_BYTES) if size == found.size else ()
            return bool(starts) and all(
                self.objects.read(name, at, min(at + PART_BYTES, size), found)
                == file.read(PART_BYTES)
                for at in starts
            )

    def _is_published(self) -> bool:
        """True if the journal on the store is this one already, as after a restart."""
        found = self._there.get(name := self._name(self.store.journal_path))
        if found is None or not 0 < found.size == self._tail.length:
            return False
        return self._get(name) == self._read(name)[: found.size]

    def _note_put(self) -> None:
        tail = self._tail
        self._put_length, self._put_steps, self._put_logs = tail.length, tail.steps, tail.logs
        self._put_roots, self._put_at = set(tail.roots), self._clock()

    def _traced(self, steps: int) -> list[int]:
        return [step for step in self.store.traced_steps() if self._put_steps <= step < steps]

    def _put_states(self, wait: bool) -> None:
        """Begin to put each stored state that the put journal has; at most two are under way."""
        for step, under_way in list(self._states.items()):
            if wait or under_way.done():
                del self._states[step]
                under_way.result()
        here = [step for step in self.store.stored_steps() if step in self._put_roots]
        self._was_here |= set(here)
        for step in here:
            name = self._state_name(step)
            if step in self._states or name in self._there or len(self._states) == _STATES:
                continue
            self._states[step] = self._large.submit(self._put_state, name)
        if wait and self._states:
            self._put_states(wait)

    def _put_state(self, name: str) -> None:
        try:
            self._put_file(name)
        except FileNotFoundError:
            return  # the trainer keeps another one in its place

    def _remove_states(self) -> None:
        """Remove from the store what the trainer has given up here, once a later state is there."""
        gone = self._was_here - set(self.store.stored_steps()) - self._states.keys()
        later = {s for s in self._was_here - gone if self._state_name(s) in self._there}
        for step in sorted(gone):
            if self._state_name(step) in self._there and not any(s > step for s in later):
                continue  # it is the newest that another machine could begin from
            name = self._state_name(step)
            if name in self._there:
                self.objects.delete([name])
                del self._there[name]
            self._was_here.discard(step)

    def _put_claim(self) -> None:
        if not self.store.signed:
            return
        name = self._name(self.store.commitment_path)
        data = self._read(name)
        if name not in self._there or self._get(name) != data:
            self._put_bytes(name, data, NEW)

    # -- one object -------------------------------------------------------------------------------
    def _name(self, path: Path) -> str:
        return path.relative_to(self.store.directory).as_posix()

    def _path(self, name: str) -> Path:
        return self.store.directory / name

    def _read(self, name: str) -> bytes:
        return read_file(self._path(name), LIMITS.journal_bytes, "file", self.store.directory)

    def _state_name(self, step: int) -> str:
        return self._name(self.store.checkpoint_path(step))

    def _get(self, name: str) -> bytes:
        found = self._there[name]
        return bytes(self.objects.read(name, 0, found.size, found))

    def _same_size(self, name: str) -> bool:
        found = self._there.get(name)
        return found is not None and found.size == size_of(
            self._path(name), "file", self.store.directory
        )

    def _put_file(self, name: str) -> None:
        path = self._path(name)
        try:
            size = size_of(path, "file", self.store.directory)
        except TallystickError:
            raise FileNotFoundError(str(path)) from None
        tag = self.objects.put(name, path)
        self._there[name] = Found(size, tag)

    def _put_bytes(self, name: str, data: bytes, condition: str = "") -> None:
        try:
            tag = self.objects.put(name, data, condition)
        except StoreConflictError:
            # A put that was repeated after its answer was lost meets itself.
            found = self.objects.head(name)
            if found is None or found.size != len(data):
                raise
            self._there[name] = found
            if self._get(name) != data:
                raise
            tag = found.tag
        self._there[name] = Found(len(data), tag)
