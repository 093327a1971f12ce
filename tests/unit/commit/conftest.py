"""Gives the tests of this room the plain reference that also makes the golden vectors."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "vectors" / "make_commit_vectors.py"
    spec = importlib.util.spec_from_file_location("commit_reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
