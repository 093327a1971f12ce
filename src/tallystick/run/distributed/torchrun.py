"""How a worker under torchrun ends: when torchrun tells it to, and who says why.

When one worker has ended, torchrun sends SIGTERM to the others of its machine, and SIGKILL 30
seconds later. The others need a part of that time: worker 0 notices that a connection is gone, ends
its journal and says whose end it was. Where worker 0 itself is gone, another one says so.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from types import FrameType
from typing import ParamSpec, TypeVar

from tallystick.run.distributed.transport import (
    RESUME,
    Meeting,
    PeerLostError,
    WorkerError,
    launched,
)

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_ENDING, _VOICE = "ending", "tallystick/voice"
# Worker 0 leaves its word before it closes connections; of another worker's end it hears by itself.
WORKER_0_GRACE_S, PEER_GRACE_S = 1.0, 10.0
_signalled = threading.Event()


def outliving_sigterm(call: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """`call`, at worker 0: under torchrun a SIGTERM does not end it where it stands. While the run
    trains, it pauses the run (execute/loop.py); before, `check_signalled` raises; after, it says
    nothing that the lost connection does not say."""

    @wraps(call)
    def made(*given: _Given.args, **named: _Given.kwargs) -> _Made:
        _signalled.clear()  # of an earlier call of this process
        if launched() is None or threading.current_thread() is not threading.main_thread():
            return call(*given, **named)
        before = signal.signal(signal.SIGTERM, _note)
        try:
            return call(*given, **named)
        finally:
            signal.signal(signal.SIGTERM, before)

    return made


def _note(number: int, frame: FrameType | None) -> None:
    _signalled.set()


def check_signalled() -> None:
    """Raise WorkerError where torchrun has told this worker to end before the run began."""
    if _signalled.is_set():
        raise WorkerError(
            "torchrun ended this worker before the run began: another one has ended, or somebody "
            "stopped them.",
            RESUME,
        )


def say_ending(meeting: Meeting) -> None:
    """Worker 0's word, before it closes its connections, that it says itself why the run ends."""
    with suppress(RuntimeError):
        meeting.put(_ENDING, b"1")


def speaks(meeting: Meeting, error: PeerLostError) -> bool:
    """Whether this worker, which has lost a connection, is the one to say so: worker 0 is gone, and
    no other one has begun to speak."""
    if launched() is None:
        return False  # worker 0 has started this process, which ends with it
    end = time.monotonic() + (WORKER_0_GRACE_S if error.rank == 0 else PEER_GRACE_S)
    try:
        while not meeting.has(_ENDING):
            if time.monotonic() > end:
                return int(meeting.store.add(_VOICE, 1)) == 1
            time.sleep(0.05)
    except (RuntimeError, PeerLostError):
        return True  # worker 0's machine is gone, with the table: each worker speaks
    return False
