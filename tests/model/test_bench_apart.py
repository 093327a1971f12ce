# ruff: noqa: E402
"""Rows that are measured in processes of their own (`tallystick_bench.apart`)."""

from __future__ import annotations

import os
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tallystick_bench.apart import in_a_process

LIBRARIES = os.path.join(os.sep, "somewhere", "lib")
LIMIT_S = 60.0


@pytest.fixture
def library_file(monkeypatch: pytest.MonkeyPatch) -> str:
    """A file of a library in LIBRARIES; the folder around LIBRARIES is on the path too."""
    monkeypatch.syspath_prepend(LIBRARIES)
    monkeypatch.syspath_prepend(os.path.dirname(LIBRARIES) + os.sep)
    return os.path.join(LIBRARIES, "models", "net.py")


def test_a_row_names_no_folder_of_this_machine(library_file: str) -> None:
    def refused() -> dict[str, Any]:
        return {"status": "refused", "why": f"({library_file}:7) and {library_file}:9", "nodes": 3}

    found = in_a_process(refused, {}, LIMIT_S)
    net = os.path.join("models", "net.py")
    assert found.pop("total_s") > 0
    assert found == {"status": "refused", "why": f"({net}:7) and {net}:9", "nodes": 3}


def test_an_error_names_no_folder_of_this_machine(library_file: str) -> None:
    def fails() -> dict[str, Any]:
        raise ValueError(f"in {library_file}")

    found = in_a_process(fails, {"name": "net"}, LIMIT_S)
    assert (found["name"], found["status"]) == ("net", "crashed")
    assert found["why"] == "ValueError: in " + os.path.join("models", "net.py")


def test_a_process_that_ends_makes_a_row() -> None:
    found = in_a_process(lambda: os._exit(1), {"name": "net"}, LIMIT_S)
    assert (found["status"], found["why"]) == ("crashed", "the process ended")
