"""What a worker is told: which run to repeat, and how; and the segments that it then repeats, from
one stored state to the next, each without the others.

A segment begins at genesis or at a stored state, which must hash to its committed root, and ends at
the next stored state, or at the end. docs/adr/0021-parallel-audit.md says why the segments' results
in order are the result of one execution of the whole.

Workers are this auditor's own processes, on this machine or on another one. A task and its answers
are JSON, so that nothing is unpickled. A worker checks job and claim itself, once: it believes no
more of the run than a serial audit does.
"""

from __future__ import annotations

import heapq
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from tallystick.commit.encoding import Writer, tag
from tallystick.devices.context import ExecutionContext, context_on
from tallystick.disk.mounts import named
from tallystick.disk.objects.opening import opened
from tallystick.errors import CannotCheckError, MachineFaultError, TallystickError
from tallystick.installed import tallystick_version
from tallystick.job.job_file import load_job
from tallystick.run.execute.auditor import Checked, check_claim, part_of, repeat, start_step
from tallystick.run.execute.listener import Silent, Steady
from tallystick.run.show.estimate import human_seconds
from tallystick.run.store.claim import Claim
from tallystick.run.store.directory import RunStore

_BINDING = tag("parallel-audit/1")


@dataclass(frozen=True, order=True)
class Segment:
    """Steps `first` to `last` - 1."""

    first: int
    last: int

    @property
    def steps(self) -> int:
        return self.last - self.first

    def __str__(self) -> str:
        return f"steps {self.first}:{self.last}"


def segments_of(checked: Checked, steps: tuple[int, int] | None = None) -> list[Segment]:
    """The segments of the run, or of `steps` = (A, B), in order; at least one.

    Those of (A, B) begin at the newest stored state at or before A and end at the first checkpoint
    at or after B. Raises UsageError for steps that the run has not.
    """
    claim = checked.claim
    first, last = part_of(steps, claim.last_step)
    first = start_step(checked.store, claim, first)
    last = min((step for step in claim.roots if step >= last), default=last)
    inner = [s for s in checked.store.stored_steps() if first < s < last and s in claim.roots]
    points = [first, *inner, last]
    return [Segment(a, b) for a, b in pairwise(points)]


def binding(claim: Claim) -> bytes:
    """A digest of all that a segment's result rests on beside the run's files that are checked by
    digests of their own: job, signed commitment, journal, and the version of this build."""
    import numpy as np

    journal, signed = claim.journal, claim.commitment
    writer = Writer(_BINDING)
    writer.hash(journal.job_digest, "job digest").hash(claim.run_root, "run root")
    writer.blob(signed.signer.key_id.encode()).blob(tallystick_version().encode())
    writer.blob(np.array(journal.losses, "<u4").tobytes()).blob(b"".join(journal.logs))
    return writer.digest()


def makespan(segments: Sequence[Segment], workers: int) -> int:
    """The steps that the busiest worker executes when the longest segments go first."""
    loads = [0] * max(1, min(workers, len(segments)))
    for segment in sorted(segments, key=lambda s: -s.steps):
        heapq.heappushpop(loads, loads[0] + segment.steps)
    return max(loads)


def foretell(segments: Sequence[Segment], workers: int, step_seconds: float | None) -> str:
    """What can be said before the first step: the segments, how much they gain, and the time if a
    step takes `step_seconds`, which is the trainer's word."""
    total = sum(s.steps for s in segments)
    longest = max(s.steps for s in segments)
    busiest = makespan(segments, workers)
    gain = total / busiest if busiest else 1.0
    text = (
        f"{len(segments)} segments between stored states, the longest "
        f"{100 * longest / (total or 1):.0f} % of {total} steps"
    )
    if workers > 1:
        text += f": {workers} workers are at most {gain:.3g} times as fast as one"
    if step_seconds:
        text += f"; about {human_seconds(busiest * step_seconds)} at the trainer's speed"
    if gain < 0.9 * workers:
        text += ". `train --keep-checkpoints N` stores more states"
    return text + "."


# Called with the number of steps done.
Told = Callable[[int], None]
Answer = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """The run to repeat, by a path that every worker sees, or by a URL that each opens for itself;
    `binding` (hexadecimal) says which run must be there (segments.binding). `job` is another copy
    of the job, by path or URL; without it the run's own is used. `isa` is None for the worker's own
    choice."""

    run: str
    job: str | None
    binding: str
    device: str = "cpu"
    threads: int = 1
    isa: str | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Repeater:
    """Repeats segments of one run in this process; `close` removes what came from a store."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._places = ExitStack()
        self._checked: Checked | None = None
        self._context: ExecutionContext | None = None

    def answer(self, segment: Segment, told: Told | None = None) -> Answer:
        """Repeat `segment`: {"outcome": …}, or {"error": …} where it could not be done, or
        {"bug": traceback}. Of a run at a URL the sentences name the URL: a mirror is one worker's
        own."""
        found: Answer = _with_urls(self._answer(segment, told))
        return found

    def close(self) -> None:
        """Forget the run, and let go of its mirrors."""
        self._checked = None
        self._places.close()

    def _answer(self, segment: Segment, told: Told | None) -> Answer:
        try:
            return {"outcome": self._repeat(segment, told).as_json()}
        except TallystickError as error:
            return {"error": error_json(error)}
        except MemoryError as error:
            return {"error": error_json(no_memory(error))}
        except Exception:
            return {"bug": traceback.format_exc()}

    def _repeat(self, segment: Segment, told: Told | None) -> Any:
        if self._checked is None:
            try:
                self._prepare()
            except BaseException:
                self.close()  # the next attempt opens the URLs anew
                raise
        assert self._checked is not None and self._context is not None
        with self._context.entered():
            listener = Steady(_Counter(told)) if told is not None else Silent()
            found = repeat(self._checked, segment.first, segment.last, self._context, listener)
        if not found.at_start and found.first != segment.first:
            raise CannotCheckError(
                f"The stored state of step {segment.first} has disappeared.",
                "The run changed during the audit. Restore it, and audit it again.",
            )
        return found

    def _prepare(self) -> None:
        task, enter = self.task, self._places.enter_context
        job = load_job(enter(opened(task.job))) if task.job is not None else None
        run = enter(opened(task.run))

        def contract() -> str:
            return (job or RunStore(run).job()).commitment.contract

        context = context_on(task.device, contract, task.threads)
        if task.isa is not None and task.device == "cpu":
            context = ExecutionContext(task.threads, task.isa)
        with context.entered():
            checked = check_claim(run, job)
        if binding(checked.claim).hex() != task.binding:
            raise CannotCheckError(
                f"A worker found a different run in {task.run}, or has another version of "
                f"Tallystick (here {tallystick_version()}).",
                "Let no process write the run during the audit, and install the same version "
                "everywhere.",
            )
        self._context, self._checked = context, checked


class _Counter(Silent):
    def __init__(self, told: Told) -> None:
        self._told, self._done = told, 0

    def step(self, step: int, loss: float, seconds: float) -> None:
        self._done += 1
        self._told(self._done)


def _with_urls(value: Any) -> Any:
    """A JSON value whose sentences have URLs in the place of mounted directories."""
    if isinstance(value, str):
        return named(value)
    if isinstance(value, dict):
        return {key: _with_urls(one) for key, one in value.items()}
    return [_with_urls(one) for one in value] if isinstance(value, list) else value


def no_memory(error: MemoryError) -> MachineFaultError:
    """The error of a worker that got no memory."""
    return MachineFaultError(
        str(error) or "There is not enough memory.", "Use fewer workers, or another machine."
    )


def error_json(error: TallystickError) -> dict[str, str]:
    """An error as plain values; `error_of` makes it again."""
    kind = type(error).__name__
    return {"kind": kind, "message": error.message, "next_action": error.next_action}


def error_of(value: dict[str, str]) -> TallystickError:
    """The error in `value`: one of the same class and so of the same exit code."""
    kinds: list[type[TallystickError]] = [TallystickError]
    for kind in kinds:  # grows as it goes: the whole tree
        kinds += kind.__subclasses__()
    kind = next((k for k in kinds if k.__name__ == value["kind"]), CannotCheckError)
    made = kind.__new__(kind)
    TallystickError.__init__(made, value["message"], value["next_action"])
    return made
