"""The stub of the native module is what its bindings say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MAKER = Path(__file__).resolve().parents[2] / "native" / "tools" / "make_stub.py"


def test_the_stub_is_made_from_the_module() -> None:
    pytest.importorskip("nanobind", reason="nanobind, a build dependency, makes the stub")
    done = subprocess.run([sys.executable, str(MAKER), "--check"], check=False)
    assert done.returncode == 0, "make stub"
