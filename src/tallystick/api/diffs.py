"""Two things compared, and where they first differ: `diff`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from tallystick.api import given
from tallystick.api.given import PathLike, with_torch
from tallystick.comparing.found import Comparison
from tallystick.comparing.jobs import compare_jobs
from tallystick.comparing.repeated import Repeated
from tallystick.comparing.runs import RunsComparison
from tallystick.comparing.tracefile import TraceReader, is_trace
from tallystick.comparing.traces import compare_traces
from tallystick.devices.context import ExecutionContext, context_on
from tallystick.disk.regular import is_directory, present
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.job import MANIFEST, Job
from tallystick.job.job_file import load_job
from tallystick.protocol.verdict import PARTIES
from tallystick.prover.cheating import cheating_states
from tallystick.prover.states import RunStates
from tallystick.run.store.directory import RunStore

JOB, RUN, TRACE = "job", "run", "trace"


def kind_of(place: Path) -> str:
    """What a directory holds, by the manifest in it. Raises UsageError for something else."""
    if RunStore(place).exists:
        return RUN
    if is_directory(place) and present(place / MANIFEST):
        return JOB
    if is_trace(place):
        return TRACE
    raise UsageError(
        f"{place} is not a job, a run or a trace.",
        "Name the directory of a job (`tallystick job new`), of a run (`tallystick train`) or of "
        "a trace (`tallystick.trace`).",
    )


def diff(
    a: Job | PathLike,
    b: Job | PathLike,
    *,
    as_attack: Sequence[str] = (),
    threads: int | None = None,
    device: str = "cpu",
    notice: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Compare two jobs, two runs or two traces, and say where they first differ, and why.

    `a` and `b` are jobs, or directories of jobs, runs or traces. Of two runs the steps are executed
    again from the last state that both have recorded to the first step that differs; two traces
    are read. No key is needed.
    `first` of the result is that step with its operator, its element and both values. The
    directory of a run stands for its job where the other one is a job. `as_attack` names runs
    ("A", "B") that play the cheat which their directory declares, on the CPU. `threads` and
    `device` are for runs. `notice` receives what a run could not use.

    Raises UsageError for a directory of another kind and for arguments that do not go together,
    CannotCheckError for a run without a step, for a trace beside another kind, for traces that end
    before they differ, and for a step with too many operators alike, CounterpartyError for damaged
    files, StorageError.
    """
    if strangers := set(as_attack) - set(PARTIES):
        raise UsageError(f"There is no run {sorted(strangers)[0]!r}.", "Use A or B.")
    places = [None if isinstance(one, Job) else given.path(one) for one in (a, b)]
    kinds = [JOB if place is None else kind_of(place) for place in places]
    if kinds != [RUN, RUN] and (threads is not None or device != "cpu"):
        raise UsageError(
            "threads and device can only be used with two runs. Jobs and traces are only read.",
            "Leave them out.",
        )
    if as_attack and device != "cpu":
        raise UsageError(
            "A run that plays its cheat is executed on the CPU.", "Leave out device or as_attack."
        )
    if kinds == [TRACE, TRACE] and not as_attack:
        readers = [TraceReader(place) for place in places if place is not None]
        return compare_traces(readers[0], readers[1])
    if TRACE in kinds and kinds != [TRACE, TRACE]:
        raise CannotCheckError(
            f"A is a {kinds[0]} and B is a {kinds[1]}, so they have no steps in common.",
            "Compare two traces, two runs or two jobs.",
        )
    if kinds != [RUN, RUN]:
        if as_attack:
            raise UsageError("as_attack can only be used with two runs.", "Leave as_attack out.")
        return compare_jobs(_job(a), _job(b))
    with ExitStack() as stack:
        runs = [
            stack.enter_context(_repeated(place, name in as_attack, threads, device, notice))
            for name, place in zip(PARTIES, places, strict=True)
            if place is not None
        ]
        return RunsComparison(runs[0], runs[1]).compare()


@contextmanager
def _repeated(
    place: Path, plays: bool, threads: int | None, device: str, notice: Callable[[str], None]
) -> Iterator[Repeated]:
    """A run to be executed again. Its scratch files go when the context ends."""
    store = RunStore(place)
    job = store.job()
    journal = store.journal(job)
    if not journal.losses:
        raise CannotCheckError(f"The run {place} has no steps yet.", "Train it first.")
    if plays:  # a cheat changes arrays on the host
        states: RunStates = cheating_states(store, job, journal, ExecutionContext(threads), notice)
    else:
        context = context_on(device, lambda: job.commitment.contract, threads)
        states = RunStates(store, job, journal, context, notice, scratch=False)
    with closing(states), states.context.entered():
        yield Repeated(store, job, journal, states, plays)


def trace(
    directory: PathLike,
    *,
    step: int | None = None,
    keep_bytes: int = 64 << 20,
    log_bytes: int = 256 << 20,
    overwrite: bool = False,
) -> AbstractContextManager[Any]:
    """Within the block, record what a PyTorch loop computes, for `diff` with another recording.

    Every ATen call leaves one line in `directory`: its name, its arguments, the module or the
    optimizer that it stands in, and the digests of the tensors that it read and made. A step ends
    where an optimizer's step ends; in a loop without one, call `.next_step()` on what the block
    yields. The block changes no value and no random number. It costs one SHA-256 of every tensor
    that an operator reads or makes.

    `keep_bytes` of values are kept, from the beginning of the loop or of `step` alone where that
    is given. So, where a comparison knows no values, record both loops again with its step. After
    `log_bytes` of lines the trace ends. Processes that the loop starts are not recorded.

    Raises UsageError for a directory that holds other files, or a trace without `overwrite`,
    StorageError, CannotCheckError without PyTorch.
    """
    recording = with_torch("tallystick.comparing.recording", "trace")
    found: AbstractContextManager[Any] = recording.trace(
        given.path(directory),
        step=step,
        keep_bytes=keep_bytes,
        log_bytes=log_bytes,
        overwrite=overwrite,
    )
    return found


def _job(one: Job | PathLike) -> Job:
    if isinstance(one, Job):
        return one
    place = given.path(one)
    return RunStore(place).job() if kind_of(place) == RUN else load_job(place)
