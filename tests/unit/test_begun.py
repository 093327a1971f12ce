"""Work that goes on beside its caller."""

from __future__ import annotations

import threading

import pytest

from tallystick.api.checking import Begun, BegunOnce
from tallystick.errors import CannotCheckError, CorruptFileError


def test_it_goes_on_beside_and_is_waited_for() -> None:
    there = threading.Event()
    begun = Begun(lambda: there.wait(30))
    there.set()
    assert begun.result() is begun.result() is True


def test_what_it_raises_is_raised_where_it_is_waited_for() -> None:
    def fails() -> None:
        raise CorruptFileError("It is damaged.", "Refuse it.")

    begun = Begun(fails)
    for _ in range(2):
        with pytest.raises(CorruptFileError, match="damaged"):
            begun.result()


@pytest.mark.parametrize(
    ("error", "calls"),
    [(CannotCheckError("No memory.", "Try again."), 2), (CorruptFileError("Damaged.", "Stop."), 1)],
)
def test_a_failure_of_a_moment_is_not_kept(error: Exception, calls: int) -> None:
    """The next answer of a sample begins anew; what is wrong with files stays as it is."""
    made = list[int]()

    def fails_once() -> int:
        made.append(len(made))
        if len(made) == 1:
            raise error
        return len(made)

    once = BegunOnce[int]()
    once.begin(b"a", fails_once)
    once.begin(b"a", fails_once)
    with pytest.raises(type(error)):
        once.result(b"a")
    once.begin(b"a", fails_once)
    if calls == 1:
        with pytest.raises(type(error)):
            once.result(b"a")
    else:
        assert once.result(b"a") == 2
    assert len(made) == calls
