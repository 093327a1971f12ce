"""The command line, for every test here."""

from __future__ import annotations

import pytest
from commands import Outcome, Run

from tallystick.cli.main import run


@pytest.fixture
def ts(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command line in this process: exit code, stdout, stderr."""

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
