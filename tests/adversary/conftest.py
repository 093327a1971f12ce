"""What the tests of hostile directories share."""

from __future__ import annotations

import pytest
from hostile_trees import Capture


@pytest.fixture
def capture(capsys: pytest.CaptureFixture[str]) -> Capture:
    """What was written to standard output and standard error since the last call."""

    def read() -> tuple[str, str]:
        found = capsys.readouterr()
        return found.out, found.err

    return read
