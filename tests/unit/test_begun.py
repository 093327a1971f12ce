"""Work that goes on beside its caller."""

from __future__ import annotations

import threading

import pytest

from tallystick.api.begun import Begun
from tallystick.errors import CorruptFileError


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
