"""The process of one worker: `python -m tallystick.run.parallel.worker`.

It reads lines of JSON from its standard input, first the task, then segments. It writes lines to
its standard output: {"steps": n} at the beginning and now and then, and an answer for each segment
(task.Repeater). When its input ends it ends at once, whatever it does: then the auditor is gone.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
import time
from typing import Any

# Seconds between two words about progress.
_OFTEN = 0.2


def main() -> None:
    """Serve one auditor."""
    # Ctrl-C reaches every process of a terminal; the auditor decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a library prints must not come between the answers.
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()

    from tallystick.run.parallel.task import Repeater, Segment, Task

    repeater = Repeater(Task(**json.loads(lines.get())))
    while True:
        segment = Segment(*json.loads(lines.get()))
        _write(out, {"steps": 0})
        _write(out, repeater.answer(segment, _Told(out)))


def _read(lines: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)


class _Told:
    def __init__(self, out: int) -> None:
        self._out, self._last = out, 0.0

    def __call__(self, steps: int) -> None:
        now = time.monotonic()
        if now - self._last >= _OFTEN:
            self._last = now
            _write(self._out, {"steps": steps})


def _write(out: int, value: dict[str, Any]) -> None:
    from tallystick.disk.files import write_all

    try:
        write_all(out, json.dumps(value).encode("ascii") + b"\n")
    except OSError:
        os._exit(0)


if __name__ == "__main__":
    main()
