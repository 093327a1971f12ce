"""A worker other than the first: it follows worker 0's orders until the run ends.

Worker 0 starts it as `python -m tallystick.run.distributed.worker`, or torchrun starts it as
`tallystick train`. It writes no file and prints nothing: what it has to say goes to worker 0, as
long as there is one (torchrun.py).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tallystick.devices.context import context_on
from tallystick.devices.environment import exact_environment
from tallystick.errors import CannotCheckError, TallystickError
from tallystick.job.job_file import load_job
from tallystick.run.distributed.checks import Hand, ShareChecks
from tallystick.run.distributed.engine import TeamEngine
from tallystick.run.distributed.hello import join
from tallystick.run.distributed.team import Order, Team, TeamState
from tallystick.run.distributed.torchrun import speaks
from tallystick.run.distributed.transport import RESUME, Meeting, PeerLostError, WorkerError

LOST, FAULT = "lost", "fault"
LAST_WORDS = 8000  # bytes of them at most
Answering = Callable[[ShareChecks], None]
HandOf = Callable[[Mapping[str, Any]], Hand]


def follow(team: Team, answering: Answering | None = None) -> None:
    """Follow orders until the end of the run, which may be a pause. `answering` answers in a
    dispute over a share of a step.

    Raises PeerLostError where worker 0 or another one is gone."""
    engine: TeamEngine | None = None
    while True:
        order, argument = team.next_order()
        if order == Order.END:
            return
        if order == Order.LOAD:
            engine, state = None, _loaded(team, argument)
            if state is not None:
                # An error of its own ends this worker, which says why.
                engine = TeamEngine(team.job, state, argument, team.context, team=team)
            continue
        engine = _at(engine, argument if order == Order.STEP else None)
        try:
            assert isinstance(engine.state, TeamState)
            if order == Order.STEP:
                engine.run()
            elif order == Order.DIGESTS:
                team.digests(engine.state)
            elif order == Order.FETCH:
                team.send(engine.state, argument)
            elif order == Order.DISPUTE:
                assert team.checks is not None and answering is not None
                answering(team.checks)
        except PeerLostError:
            raise
        except TallystickError:
            pass  # worker 0 has the same error, and decides


def _at(engine: TeamEngine | None, step: int | None) -> TeamEngine:
    """The engine, which executes step `step` next where one is given. Raises WorkerError, which
    ends this worker: no other knows of it, and none has begun."""
    if engine is None or step not in (None, engine.step):
        place = "has no state" if engine is None else f"is at step {engine.step}"
        wants = "an order" if step is None else f"the order to execute step {step}"
        raise WorkerError(
            f"It {place}, and has {wants}: its own memory, worker 0's or the network between them "
            "is faulty.",
            RESUME,
        )
    return engine


def _loaded(team: Team, step: int) -> TeamState | None:
    """state[`step`]; None where no worker gets it."""
    try:
        return team.load(step)
    except PeerLostError:
        raise
    except TallystickError:
        return None  # worker 0 has the same error, and decides


def work(
    meeting: Meeting,
    job: Path,
    threads: int,
    device: str,
    verify: bool,
    answering: Answering | None = None,
    hand: Hand | None = None,
) -> int:
    """Be worker `meeting.rank` of a run of `job`; the exit code.

    With `verify` the job's records are hashed: its directory is not worker 0's. With `answering`
    this worker signs its shares, and computes others' again (checks.py); `hand` is the worker's.
    Raises PeerLostError where worker 0 is gone, and this worker is the one to say so.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # worker 0 decides where a run pauses
    try:
        loaded = load_job(job)
        context = context_on(device, lambda: loaded.commitment.contract, threads)
        if verify:
            loaded.verify_but_state()
        with context.entered():
            transport = join(meeting, loaded, answering is not None)
            checks = None
            if answering is not None:
                checks = ShareChecks(loaded, transport, context, hand=hand or Hand())
            follow(Team(loaded, transport, context, checks), answering)
        transport.close()
        return 0
    except PeerLostError as error:
        _say(meeting, LOST, str(error.rank))
        if speaks(meeting, error):
            raise
        return error.exit_code
    except TallystickError as error:
        _say(meeting, FAULT, json.dumps([error.message, error.next_action]))
        return error.exit_code
    except MemoryError:
        _say(meeting, FAULT, json.dumps(["It has too little memory.", "Use more workers."]))
        return CannotCheckError.exit_code


def _say(meeting: Meeting, key: str, text: str) -> None:
    """Leave last words for worker 0, if it is there to read them."""
    with suppress(RuntimeError):
        meeting.put(f"{key}/{meeting.rank}", text.encode()[:LAST_WORDS])


def _die_with_parent() -> None:
    """End this process as soon as worker 0 has: its end of our standard input closes."""

    def watch() -> None:
        while sys.stdin.buffer.read(1):
            pass
        os._exit(CannotCheckError.exit_code)

    threading.Thread(target=watch, daemon=True).start()


def main(answering: Answering | None = None, hand_of: HandOf | None = None) -> None:
    """Be the worker that the arguments say: a JSON object (launch.py). `hand_of` makes the worker's
    hand of it."""
    given = json.loads(sys.argv[1])
    _die_with_parent()
    code = CannotCheckError.exit_code
    try:
        with exact_environment():
            meeting = Meeting(given["rank"], given["size"], given["timeout"], given["port"])
            hand = None if hand_of is None else hand_of(given)
            place = Path(given["job"])
            code = work(meeting, place, given["threads"], given["device"], False, answering, hand)
    except Exception:
        sys.excepthook(*sys.exc_info())  # as if nothing had caught it
        sys.stderr.flush()
    # At an ordinary exit connections of a broken team could wait for the dead, and the thread that
    # reads standard input would end Python with SIGABRT, which says nothing.
    os._exit(code)


if __name__ == "__main__":
    main()
