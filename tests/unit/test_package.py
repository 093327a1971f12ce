"""What importing the package does to the process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_CODE = (
    "import os, sys, tallystick\n"
    "assert 'numpy' not in sys.modules and 'torch' not in sys.modules\n"
    "print(os.environ['OPENBLAS_THREAD_TIMEOUT'])"
)


@pytest.mark.parametrize("given", (None, "20"))
def test_openblas_is_told_not_to_spin_before_numpy_loads(given: str | None) -> None:
    """And a person's own setting is left alone."""
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"}
    environment |= {"OPENBLAS_THREAD_TIMEOUT": given} if given else {}
    done = subprocess.run(
        [sys.executable, "-c", _CODE], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [given or "4"]
