"""A process of its own for every entry, with a time limit: a crash or a hang is one entry's."""

from __future__ import annotations

import math
import multiprocessing
import resource
import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import tallystick
from tallystick.contracts.ordered.cpu import kernel
from tallystick.program.capture.lower import lowering
from tallystick_bench.opdb.entries import name_of
from tallystick_bench.opdb.verdict import Verdict, judge

_CONTEXT = multiprocessing.get_context("fork")
_WALL = 8


def load_rules() -> None:
    """Import what every entry needs: the rules, the kernels and torch's decompositions."""
    with tallystick.reproducible():
        pass
    lowering.get("")
    kernel.get("")


def _work(entry: Any, limit: int | None, seconds: float, end: Connection) -> None:
    soft = math.ceil(seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 5))
    end.send(judge(entry, limit))
    end.close()


def _ended(name: str, code: int, seconds: float) -> Verdict:
    if code == -signal.SIGXCPU:
        return Verdict(name, "time", f"more than {seconds:g} s of processor time")
    return Verdict(name, "error", f"the process ended with {code}")


def run(
    entries: Sequence[Any], jobs: int, seconds: float, limit: int | None = None
) -> Iterator[Verdict]:
    """The verdicts as they come, of at most `jobs` entries at a time.

    An entry has `seconds` of processor time, so that a loaded machine changes no verdict, and
    `_WALL` times as much by the clock.

    The caller must not have computed with torch in several threads before: the processes are forks.
    """
    load_rules()  # once, before the forks
    waiting = list(reversed(entries))
    running: dict[Connection, tuple[Any, Any, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            entry = waiting.pop()
            here, there = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(target=_work, args=(entry, limit, seconds, there))
            process.start()
            there.close()
            running[here] = (process, name_of(entry), time.monotonic() + _WALL * seconds)
        soonest = min(deadline for _, _, deadline in running.values())
        ready = wait(list(running), timeout=max(0.0, soonest - time.monotonic()))
        for end, (process, name, deadline) in list(running.items()):
            if end in ready:
                try:
                    yield end.recv()
                except EOFError:
                    process.join()
                    yield _ended(name, process.exitcode, seconds)
            elif time.monotonic() >= deadline:
                process.kill()
                yield Verdict(name, "time", f"more than {_WALL * seconds:g} s by the clock")
            else:
                continue
            process.join()
            end.close()
            del running[end]
