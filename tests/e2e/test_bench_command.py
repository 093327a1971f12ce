"""`tallystick bench` finds the benchmarks, or says how to get them (docs/adr/0008)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import Run, as_json

from tallystick.cli import bench

pytest.importorskip("torch")

# A package of benchmarks by another name, so that no real one stands in its way.
NAME = "tallystick_bench_of_a_test"
CODE = """
BENCHMARKS = {"gemm": "of no account"}
def measure(name, threads, **options):
    rows = [{"name": "gemm/x", "value": threads, "unit": "ratio", "target": None}]
    return {"bench": name, "machine": {"home": HOME}, "rows": rows}
"""


def package(home: Path) -> str:
    """A package called NAME in `home`, which says where it is."""
    (home / NAME).mkdir(parents=True)
    (home / NAME / "__init__.py").write_text(f"HOME = {str(home)!r}\n{CODE}")
    return str(home)


@pytest.fixture(autouse=True)
def other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "BENCH_PACKAGE", NAME)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, NAME, None)  # so that what a test imports goes with it
    monkeypatch.delitem(sys.modules, NAME)


@pytest.mark.parametrize("is_checkout", (False, True))
def test_without_benchmarks_it_says_what_to_do(
    ts: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_checkout: bool
) -> None:
    """One typed error, whatever the name: an installed package holds no table of names either."""
    monkeypatch.setattr(bench, "checkout", lambda: tmp_path if is_checkout else None)
    for name in ("gemm", "nothing"):
        code, _, err = ts("bench", name)
        assert code == 3 and "not installed" in err and "pip install ./benchmarks" in err
        said = as_json(ts("bench", name, "--json"), 3)
        assert said["kind"] == "UsageError" and "pip install" in said["next_action"]


def test_an_installed_package_is_found(
    ts: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "checkout", lambda: None)
    monkeypatch.syspath_prepend(package(tmp_path / "site"))
    said = as_json(ts("bench", "gemm", "--threads", "1", "--json"))
    assert said["rows"][0]["value"] == 1
    assert "gemm/x" in ts("bench", "gemm", "--threads", "1")[1]
    code, _, err = ts("bench", "nothing")
    assert code == 3 and "Choose one of gemm." in err


def test_a_checkout_uses_its_own(ts: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed one may be another checkout's."""
    monkeypatch.syspath_prepend(package(tmp_path / "site"))
    home = package(tmp_path / "checkout" / "benchmarks")
    monkeypatch.setattr(bench, "checkout", lambda: tmp_path / "checkout")
    for _ in range(2):
        said = as_json(ts("bench", "gemm", "--threads", "1", "--json"))
        assert said["machine"]["home"] == home
    assert sys.path.count(home) == 1
