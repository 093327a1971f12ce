"""A process of its own for every entry, with a time limit: a crash or a hang is one entry's."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from tallystick_bench.opdb.entries import name_of
from tallystick_bench.opdb.verdict import Verdict, judge

_CONTEXT = multiprocessing.get_context("fork")


def _work(entry: Any, limit: int | None, end: Connection) -> None:
    end.send(judge(entry, limit))
    end.close()


def run(
    entries: Sequence[Any], jobs: int, seconds: float, limit: int | None = None
) -> Iterator[Verdict]:
    """The verdicts as they come, of at most `jobs` entries at a time.

    The caller must not have computed with torch in several threads before: the processes are forks.
    """
    waiting = list(reversed(entries))
    running: dict[Connection, tuple[Any, Any, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            entry = waiting.pop()
            here, there = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(target=_work, args=(entry, limit, there))
            process.start()
            there.close()
            running[here] = (process, name_of(entry), time.monotonic() + seconds)
        soonest = min(deadline for _, _, deadline in running.values())
        ready = wait(list(running), timeout=max(0.0, soonest - time.monotonic()))
        for end, (process, name, deadline) in list(running.items()):
            if end in ready:
                try:
                    yield end.recv()
                except EOFError:
                    process.join()
                    yield Verdict(name, "error", f"the process ended with {process.exitcode}")
            elif time.monotonic() >= deadline:
                process.kill()
                yield Verdict(name, "time", f"more than {seconds:g} s")
            else:
                continue
            process.join()
            end.close()
            del running[end]
