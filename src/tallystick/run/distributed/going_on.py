"""What a command does when its workers end before the run does: it may go on with others.

Every team is a new one: worker 0 starts other processes, and takes the run up as a new command
would, from the last stored checkpoint. The bits are those of one worker, so of any teams.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tallystick.errors import TallystickError, UsageError
from tallystick.run.distributed.claims import ConvictedWorker, WorkerConvictedError
from tallystick.run.distributed.transport import WorkerError
from tallystick.run.execute.trainer import Options, RunSummary

STOP, CONTINUE = "stop", "continue"  # what follows a conviction
MOST_RETRIES = 1000
# Seconds before the first retry, twice as many before each other one, and these at most.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
# Trains with a number of workers to the end of the run or its first error.
Once = Callable[[int, Options], RunSummary]


@dataclass(frozen=True)
class GoingOn:
    """When the run goes on in the same command.

    `convictions`: without a worker that was convicted. `retries`: how many times with new processes
    where a worker died, fell silent or failed. `tell` gets a sentence each time. `wait` waits so
    many seconds before a retry.
    """

    convictions: bool = False
    retries: int = 0
    tell: Callable[[str], None] = lambda _: None
    wait: Callable[[float], None] = time.sleep

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
            f"--on-conviction={on_conviction!r} is not known.",
            f"Use {STOP} or {CONTINUE}.",
        )
    if not 0 <= retries <= MOST_RETRIES:
        raise UsageError(
            f"--retries {retries} is out of range.", f"Choose from 0 to {MOST_RETRIES:,}."
        )
    found = GoingOn(on_conviction == CONTINUE, retries)
    if found.convictions and not checked:
        raise UsageError(
            "A worker can only be convicted if workers check each other.",
            f"Add --check-workers 0.1, or leave --on-conviction {CONTINUE} out.",
        )
    if found.ever and launched:
        raise UsageError(
            "--on-conviction and --retries do not work under torchrun, which starts and ends all "
            "of its workers together.",
            "Use --workers, or leave both options out. torchrun has --max-restarts.",
        )
    if found.ever and workers == 1:
        raise UsageError(
            "With one worker, no other worker can continue after it has failed.",
            "Use --workers 2 or more, or leave --on-conviction and --retries out.",
        )
    return found


def train_on(once: Once, workers: int, options: Options, how: GoingOn) -> RunSummary:
    """Train by `once` with `workers` workers, and by it again with fewer or new ones as `how` says.

    The summary names the workers that were convicted. Raises the errors of `once` that `how` does
    not go on from; so a conviction of worker 0, which is this process. Their messages say who was
    convicted before.
    """
    convicted: list[ConvictedWorker] = []
    with _told(convicted):
        return _train_on(once, workers, options, how, convicted)


def _train_on(
    once: Once, workers: int, options: Options, how: GoingOn, convicted: list[ConvictedWorker]
) -> RunSummary:
    retries, began = how.retries, options.clock()
    while True:
        try:
            found = once(workers, options)
            before = found.convicted_before
            return replace(
                found,
                convicted=tuple(convicted),
                convicted_before=before[: max(0, len(before) - len(convicted))],
                seconds=options.clock() - began,
            )
        except WorkerConvictedError as error:
            gone = error.convicted
            if not how.convictions or any(one.worker == 0 for one in gone):
                raise
            convicted += gone
            workers -= len(gone)
            for one in gone:
                how.tell(_convicted(one))
            without = "it" if len(gone) == 1 else "them"
            how.tell(f"The run goes on without {without}, {_by(workers)}.")
            options = replace(options, overwrite=False)
        except WorkerError as error:
            if not retries:
                raise
            retries -= 1
            how.tell(
                f"{error.message} The run goes on with new processes; "
                f"{retries} of {how.retries} retries are left."
            )
            how.wait(min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(how.retries - retries - 1, 10)))
            # Only a run that this command has begun is its own.
            options = replace(options, overwrite=options.overwrite and not error.begun)


@contextmanager
def _told(convicted: Sequence[ConvictedWorker]) -> Iterator[None]:
    """An error says who was convicted before it: where the run does not complete, nothing else
    does that lasts."""
    try:
        yield
    except TallystickError as error:
        if isinstance(error, WorkerConvictedError):
            error.convicted = (*convicted, *error.convicted)
        error.message += said(convicted)
        raise


def said(convicted: Sequence[ConvictedWorker]) -> str:
    """Sentences about workers that were convicted, each after a space; none for none."""
    return "".join(f" Before that: {_convicted(one)}" for one in convicted)


def _by(workers: int) -> str:
    return f"with {workers} workers" if workers > 1 else "with worker 0 alone, and without checks"


def _convicted(one: ConvictedWorker) -> str:
    case = f", case {one.case}" if one.case else ""
    return (
        f"Worker {one.worker} of {one.workers} (key {one.key[:16]}) is convicted of a false share "
        f"of step {one.step}, in phase {one.phase}{case}. The evidence is {one.evidence}."
    )
