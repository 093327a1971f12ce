"""Gives segments to workers until the verdict stands.

Theory of operation. The longest segments go first, so that no long one is left for the end. A
result is an outcome, or an error of a class that a serial audit would raise too. The first segment
in the order of steps whose result is not "agreed" decides: no later one is begun any more, and the
verdict stands when all before it have agreed. A worker that dies, or whose machine fails, says
nothing about the run: its segment is repeated, `ATTEMPTS` times in all, and after that the audit
could not check. A worker that is idle while another one is slow repeats its segment too. The first
result counts; if the other one arrives as well and differs, a machine is at fault, and no run is
judged by either.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tallystick.errors import MachineFaultError, StoreError, TallystickError
from tallystick.run.parallel.processes import (
    AttemptEnded,
    AttemptProgress,
    Died,
    Event,
    SegmentExecutor,
)
from tallystick.run.parallel.task import Segment, error_of
from tallystick.run.show.audit_report import StretchOutcome, outcome_of

ATTEMPTS = 3
# A straggler would need this many times as long for its rest as another worker for the whole.
_SLOW = 1.25
# One without a step is a straggler after this many times the usual time, and seconds.
_SILENT, _SILENT_S = 2.0, 5.0
_WAIT_S = 0.5

Result = StretchOutcome | TallystickError


class Watcher:
    """Learns what happens; a base that ignores it all."""

    def notice(self, text: str) -> None:
        """Receive one sentence for a person."""

    def progress(self, steps: int, segments: int) -> None:
        """Note how many steps and whole segments are done."""

    def agreed(self, segment: Segment, outcome: StretchOutcome) -> None:
        """The result of a segment that agreed."""


@dataclass
class _Attempt:
    segment: Segment
    since: float
    began: float | None = None
    steps: int = 0


@dataclass
class AuditDriver:
    """One audit under way. `done` are results of an earlier call that was broken off."""

    executor: SegmentExecutor
    segments: Sequence[Segment]
    watcher: Watcher = field(default_factory=Watcher)
    done: Mapping[Segment, StretchOutcome] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    retries: int = 0
    stragglers: int = 0

    def __post_init__(self) -> None:
        self._results: dict[Segment, Result] = dict(self.done)
        self._from: dict[Segment, str] = {}
        todo = [s for s in self.segments if s not in self.done]
        self._pending = sorted(todo, key=lambda s: (-s.steps, s.first))
        self._live: dict[int, _Attempt] = {}
        self._failed: dict[Segment, int] = {}
        self._speeds: list[float] = []  # steps a second, of attempts that ended
        self._number = 0
        self._workers = self.executor.workers

    def run(self) -> list[Result]:
        """The results in order, up to the one that decides: all of them but the last have agreed.

        Raises MachineFaultError where two repetitions of one segment differ.
        """
        try:
            while not self._decided():
                self._begin()
                for event in self.executor.events(_WAIT_S):
                    self._take(event)
                self._tell()
        finally:
            self.executor.close()
        return [self._results[segment] for segment in self._relevant()]

    def _relevant(self) -> list[Segment]:
        """The segments up to the first one known not to have agreed."""
        found = []
        for segment in self.segments:
            found.append(segment)
            result = self._results.get(segment)
            if result is not None and not (isinstance(result, StretchOutcome) and result.agreed):
                break
        return found

    def _decided(self) -> bool:
        relevant = set(self._relevant())
        self._pending = [s for s in self._pending if s in relevant]
        for number, attempt in list(self._live.items()):
            if attempt.segment not in relevant:
                self._stop(number)
        return all(segment in self._results for segment in relevant)

    def _stop(self, number: int) -> None:
        del self._live[number]
        self.executor.stop(number)

    def _begin(self) -> None:
        """Give work to every idle worker that there is work for."""
        while self._pending:
            if len(self._live) >= self._workers:
                # The second repetition of a segment that has a result gives way.
                spare = [n for n, a in self._live.items() if a.segment in self._results]
                if not spare:
                    return
                self._stop(spare[0])
            self._start(self._pending.pop(0))
        while len(self._live) < self._workers:
            slow = self._straggler()
            if slow is None:
                return
            self.stragglers += 1
            self.watcher.notice(f"{_Text(slow)} take long: another worker repeats them too.")
            self._start(slow)

    def _start(self, segment: Segment) -> None:
        self._number += 1
        self._live[self._number] = _Attempt(segment, self.clock())
        self.executor.start(self._number, segment)

    def _straggler(self) -> Segment | None:
        """The segment whose only attempt will take longest, if another worker would be done
        first."""
        if not self._speeds:
            return None
        speed, now = statistics.median(self._speeds), self.clock()
        segments = [a.segment for a in self._live.values()]
        found: list[tuple[float, Segment]] = []
        for attempt in self._live.values():
            segment = attempt.segment
            if segment in self._results or segments.count(segment) > 1:
                continue
            if attempt.began is None:  # it waits for its turn on a cluster, as another one would
                continue
            usual = segment.steps / speed
            gone = now - attempt.began
            if attempt.steps:
                left = (segment.steps - attempt.steps) * gone / attempt.steps
                if gone > usual / 2 and left > _SLOW * usual:
                    found.append((left, segment))
            elif gone > _SILENT * usual + _SILENT_S:
                found.append((float("inf"), segment))
        return max(found)[1] if found else None

    def _take(self, event: Event) -> None:
        attempt = self._live.get(event.attempt)
        if attempt is None:
            return
        if isinstance(event, AttemptProgress):
            if attempt.began is None:
                attempt.began = self.clock()
            attempt.steps = event.steps
            return
        del self._live[event.attempt]
        if isinstance(event, Died):
            self._again(attempt.segment, f"a worker died ({event.why})", event.memory, None)
        else:
            self._answered(attempt, event)

    def _answered(self, attempt: _Attempt, event: AttemptEnded) -> None:
        segment, answer = attempt.segment, event.answer
        if "bug" in answer:
            raise RuntimeError(f"{segment}, {event.where}:\n{answer['bug']}")
        result: Result
        if "error" in answer:
            result = error_of(answer["error"])
            if isinstance(result, (MachineFaultError, StoreError)):
                memory = isinstance(result, MachineFaultError)
                self._again(segment, f"{event.where}: {result.message}", memory, result)
                return
        else:
            result = outcome_of(answer["outcome"])
            gone = self.clock() - (attempt.began or attempt.since)
            if result.agreed and gone > 0:
                self._speeds.append(segment.steps / gone)
        first = self._results.get(segment)
        if first is not None:
            self._compare(segment, first, result, event.where)
            return
        self._results[segment], self._from[segment] = result, event.where
        if isinstance(result, StretchOutcome) and result.agreed:
            self.watcher.agreed(segment, result)

    def _again(
        self, segment: Segment, why: str, memory: bool, error: TallystickError | None
    ) -> None:
        """Repeat a segment whose attempt came to nothing, or give up."""
        if segment in self._results or any(a.segment == segment for a in self._live.values()):
            return
        failed = self._failed[segment] = self._failed.get(segment, 0) + 1
        if memory and self._workers > 1:
            self._workers -= 1
        if failed < ATTEMPTS:
            self.retries += 1
            self.watcher.notice(
                f"{_Text(segment)}: {why}. They are repeated ({failed + 1} of {ATTEMPTS} attempts"
                + (f", with {self._workers} workers)." if memory else ").")
            )
            self._pending.append(segment)
            return
        self._results[segment] = MachineFaultError(
            f"{_Text(segment)} could not be repeated in {ATTEMPTS} attempts. The last attempt "
            f"failed: {why}. This says nothing about the run.",
            (error.next_action if error is not None else "")
            or "Use fewer workers, or a machine with more memory.",
        )

    def _compare(self, segment: Segment, first: Result, second: Result, where: str) -> None:
        """Two repetitions of one segment must find the same."""
        same = type(first) is type(second) and (
            first.judged() == second.judged()
            if isinstance(first, StretchOutcome) and isinstance(second, StretchOutcome)
            else str(first) == str(second)
        )
        if not same:
            raise MachineFaultError(
                f"{_Text(segment)} were repeated twice, by "
                f"{self._from.get(segment, 'an earlier call')} and by {where}, with different "
                "results. A machine of this audit is faulty, so the run was not judged.",
                "Find the faulty machine (`tallystick doctor`, a memory test), and audit the run "
                f"without it. `audit --steps {segment.first}:{segment.last}` repeats only these "
                "steps.",
            )

    def _tell(self) -> None:
        best = dict.fromkeys(self.segments, 0)
        for attempt in self._live.values():
            best[attempt.segment] = max(best[attempt.segment], attempt.steps)
        for segment in self._results:
            best[segment] = segment.steps
        self.watcher.progress(sum(best.values()), len(self._results))


class _Text:
    """A segment at the beginning of a sentence."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    def __str__(self) -> str:
        return f"Steps {self._segment.first}:{self._segment.last}"
