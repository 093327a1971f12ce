"""Work that runs on a thread of its own until somebody needs its result.

Hashing in the core and waiting for another process need no Python. So they run while their caller
does something else.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

from tallystick.errors import CounterpartyError

T = TypeVar("T")


class Begun(Generic[T]):
    """One call that runs on a thread. Nobody has to wait for it, but the process ends only after
    it: a thread cannot be stopped cleanly while it is in the core."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._made: list[T] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="tallystick-begun")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._made.append(self._call())
        except BaseException as error:  # whoever waits gets it, whatever it is
            self._error = error

    def result(self) -> T:
        """The result, when it is there. Raises what the call has raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made[0]


class BegunOnce(Generic[T]):
    """Calls by name. Each runs once, for everybody who asks for its result.

    A CounterpartyError is kept, because the same files give it again. Any other failure may be a
    passing one of this machine, so the next caller starts the call again.
    """

    def __init__(self) -> None:
        self._begun: dict[bytes, Begun[T]] = {}

    def begin(self, name: bytes, call: Callable[[], T]) -> None:
        """Start the call, unless one of this name has started."""
        if name not in self._begun:
            self._begun[name] = Begun(call)

    def result(self, name: bytes) -> T:
        """The result of a call that was started. Raises what the call has raised."""
        try:
            return self._begun[name].result()
        except CounterpartyError:
            raise
        except BaseException:
            del self._begun[name]
            raise
