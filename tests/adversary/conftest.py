"""What the tests of hostile directories share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hostile_trees import Capture

if TYPE_CHECKING:
    from adversary.session_matrix import Small


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    """A tiny job with its honest run and false ones, for sessions."""
    from adversary.session_matrix import Small

    return Small(tmp_path_factory.mktemp("small"), 2)


@pytest.fixture
def capture(capsys: pytest.CaptureFixture[str]) -> Capture:
    """What was written to standard output and standard error since the last call."""

    def read() -> tuple[str, str]:
        found = capsys.readouterr()
        return found.out, found.err

    return read
