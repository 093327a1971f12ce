"""A call into a library that may never return, with an end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

_Answer = TypeVar("_Answer")


def within(
    seconds: float, ask: Callable[[], _Answer], late: Callable[[], BaseException]
) -> _Answer:
    """What `ask` returns or raises, in a thread of its own.

    Raises `late()` where it has not come within `seconds`. The thread is then left behind, and
    keeps no process from ending: a library's call cannot be broken off.
    """
    found: list[_Answer] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            found.append(ask())
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True, name="tallystick-listing")
    thread.start()
    thread.join(seconds)
    if raised:
        raise raised[0]
    if not found:
        raise late()
    return found[0]
