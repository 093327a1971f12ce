"""What all tests of models share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _probed_once(probed_once: None) -> None:
    """No stranger comes into the threads of numpy's BLAS here, and a probe at every step costs as
    much as these small steps do: tests/adversary/test_foreign_threads.py has the probes."""
