"""The floating-point environment of NUMERICS 1.7: set on entry; the caller's comes back at exit.

The core brackets each of its own functions. `exact_environment` brackets code that computes in
Python: numpy's loops and Python's own floats follow the calling thread's environment. Foreign code
(a listener, a tap, a hook) may change that thread's environment. So the caller of foreign code
calls `reestablish` after it.

No code of ours can set the threads of other libraries. Code that computes on such threads checks
them (products/probe.py, contracts/replay/stock/stock.py), once after each entry; `entries`
counts the entries.
"""

from __future__ import annotations

import os
import threading
from contextlib import ContextDecorator

from tallystick import _core
from tallystick.errors import EnvironmentRefusedError


class _Here(threading.local):
    """For each thread: the number of its entries."""

    entries = 0


_here = _Here()


class exact_environment(ContextDecorator):  # noqa: N801 (used like a function, as in contextlib)
    """Within the block (or the decorated function), the calling thread has the environment of
    NUMERICS 1.7; afterwards it has its former environment again. Blocks may be nested.

    Not for generators: the code that takes a generator's values would run inside.
    """

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words: list[int] = []

    def _recreate_cm(self) -> exact_environment:
        return exact_environment()  # a decorated function may run in several threads at once

    def __enter__(self) -> None:
        self._words.append(_core.fp_environment_enter())
        _here.entries += 1

    def __exit__(self, *_: object) -> None:
        _core.fp_environment_leave(self._words.pop())


def reestablish() -> None:
    """Set the environment again, inside of `exact_environment`, after a call of foreign code."""
    _core.fp_environment_enter()


def entries() -> int:
    """The number of this thread's entries into `exact_environment`. Before each entry foreign code
    may have run, so that an earlier check of foreign threads no longer holds."""
    return _here.entries


def check_isa() -> None:
    """Raise EnvironmentRefusedError for a TALLYSTICK_ISA this machine or build does not have."""
    wanted, supported = os.environ.get("TALLYSTICK_ISA", ""), _core.supported_isas()
    if wanted and wanted not in supported:
        raise EnvironmentRefusedError(
            f"This machine or build has no instruction set {wanted[:40]!r} (TALLYSTICK_ISA).",
            f"Unset it, or set one of: {', '.join(supported)}.",
        )


def environment_holds() -> bool:
    """True if arithmetic inside of `exact_environment` is that of NUMERICS 1.7: it is, unless a
    platform or an emulator ignores the setting."""
    with exact_environment():
        return bool(_core.fp_environment_ok())


# Python reads the numbers of a source in the rounding mode of the thread that compiles it first,
# and keeps them. To the nearest, 0.1 is rounded away from zero, and 0.3 towards it.
_COMPILED = 0.1, 0.3
_NEAREST = float.fromhex("0x1.999999999999ap-4"), float.fromhex("0x1.3333333333333p-2")


def check_environment() -> None:
    """Refuse a machine that cannot honour the contract (NUMERICS 1.7).

    Raises EnvironmentRefusedError for an unsupported TALLYSTICK_ISA, where setting the environment
    does not help, or where this package was compiled in another rounding mode.
    """
    check_isa()
    if _COMPILED != _NEAREST:
        raise EnvironmentRefusedError(
            "Python compiled this package in a thread that did not round to nearest, so its "
            "numbers are wrong.",
            "Delete the package's __pycache__ directories. Then import the package before anything "
            "changes the rounding mode.",
        )
    if not environment_holds():
        raise EnvironmentRefusedError(
            "This machine flushes subnormals to zero or does not round to nearest, and does not "
            "let a program change that.",
            "Use another machine, or leave the emulator.",
        )
