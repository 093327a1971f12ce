"""What a command does when its workers end before the run does: it may go on with others.

Every team is a new one: worker 0 starts other processes, and takes the run up as a new command
would, from the last stored checkpoint. The bits are those of one worker, so of any teams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tallystick.errors import UsageError
from tallystick.run.distributed.false_share import ConvictedWorker, WorkerConvictedError
from tallystick.run.distributed.faults import WorkerError
from tallystick.run.execute.trainer import Options, RunSummary

STOP, CONTINUE = "stop", "continue"  # what follows a conviction
# Trains with so many workers to the end of the run or its first error.
Once = Callable[[int, Options], RunSummary]


@dataclass(frozen=True)
class GoingOn:
    """When the run goes on in the same command.

    `convictions`: without a worker that was convicted. `retries`: so many times with new processes
    where a worker died, fell silent or failed. `tell` gets a sentence each time.
    """

    convictions: bool = False
    retries: int = 0
    tell: Callable[[str], None] = lambda _: None

    @property
    def ever(self) -> bool:
        return self.convictions or self.retries > 0


def going_on(
    on_conviction: str, retries: int, workers: int, checked: bool, launched: bool
) -> GoingOn:
    """What the user asks for. Raises UsageError where it can never happen: `launched` says that
    torchrun has started the workers, `checked` that they check each other."""
    if on_conviction not in (STOP, CONTINUE):
        raise UsageError(
            f"There is no {on_conviction!r} after a conviction.", f"Say {STOP} or {CONTINUE}."
        )
    if retries < 0:
        raise UsageError(f"{retries} is no number of retries.", "Give 0 or more.")
    found = GoingOn(on_conviction == CONTINUE, retries)
    if found.convictions and not checked:
        raise UsageError(
            "Workers that nobody checks are never convicted.",
            f"Add --check-workers, or leave --on-conviction {CONTINUE} out.",
        )
    if found.ever and launched:
        raise UsageError(
            "torchrun ends and starts its workers all together: none of them can go on alone.",
            "Use --workers, or leave --on-conviction and --retries out (torchrun has "
            "--max-restarts).",
        )
    if found.ever and workers == 1:
        raise UsageError(
            "One worker alone has no others to go on with.",
            "Use --workers 2 or more, or leave --on-conviction and --retries out.",
        )
    return found


def train_on(once: Once, workers: int, options: Options, how: GoingOn) -> RunSummary:
    """Train by `once` with `workers` workers, and by it again with fewer or new ones as `how` says.

    The summary names the workers that were convicted. Raises the errors of `once` that `how` does
    not go on from; so a conviction of worker 0, which is this process.
    """
    convicted: tuple[ConvictedWorker, ...] = ()
    retries, began = how.retries, options.clock()
    while True:
        try:
            found = once(workers, options)
            return replace(found, convicted=convicted, seconds=options.clock() - began)
        except WorkerConvictedError as error:
            gone = error.convicted
            if not how.convictions or any(one.worker == 0 for one in gone):
                raise
            convicted += gone
            workers -= len(gone)
            for one in gone:
                how.tell(_convicted(one))
            how.tell(f"The run goes on without it, {_by(workers)}.")
        except WorkerError as error:
            if not retries:
                raise
            retries -= 1
            how.tell(
                f"{error.message} The run goes on with new processes; "
                f"{retries} of {how.retries} retries are left."
            )
        options = replace(options, overwrite=False)


def _by(workers: int) -> str:
    return f"with {workers} workers" if workers > 1 else "with worker 0 alone, whom nobody checks"


def _convicted(one: ConvictedWorker) -> str:
    case = f", case {one.case}" if one.case else ""
    return (
        f"Worker {one.worker} of {one.workers} (key {one.key[:16]}) is convicted of a false share "
        f"of step {one.step}, in phase {one.phase}{case}. The evidence is {one.evidence}."
    )
