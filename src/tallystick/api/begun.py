"""Work that is begun on a thread of its own, and whose result somebody else waits for.

Digests in the core and answers of other processes need no Python while they are made: so they go on
beside whatever a caller does next.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

from tallystick.errors import CounterpartyError

T = TypeVar("T")


class Begun(Generic[T]):
    """`call`, which is being executed. Nobody need wait for it, but the process ends after it: a
    thread that is in the core then could not be ended cleanly."""

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
        """What it has made, once it is there. Raises what it has raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made[0]


class BegunOnce(Generic[T]):
    """Work of which each has a name, and which is begun once for all that ask for it.

    What says something of a counterparty's files stays, since it is said again each time. Any other
    failure may have been this machine's for a moment: the next one that asks begins anew.
    """

    def __init__(self) -> None:
        self._begun: dict[bytes, Begun[T]] = {}

    def begin(self, name: bytes, call: Callable[[], T]) -> None:
        """Begin it, unless it is begun already."""
        if name not in self._begun:
            self._begun[name] = Begun(call)

    def result(self, name: bytes) -> T:
        """What it has made. The caller has begun it. Raises what it has raised."""
        try:
            return self._begun[name].result()
        except CounterpartyError:
            raise
        except BaseException:
            del self._begun[name]
            raise
