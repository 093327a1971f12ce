"""What importing the package does to the process, and what is checked and packed with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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


def test_mypy_checks_every_script_of_the_benchmarks() -> None:
    """A script is a module without a package: mypy finds none that it is not told of."""
    told = (ROOT / "pyproject.toml").read_text().partition("modules = [")[2].partition("]")[0]
    scripts = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
    assert scripts == [name.strip().strip('"') for name in told.split(",") if name.strip()]


def test_the_two_distributions_have_one_version() -> None:
    """The benchmarks measure one build, by its inner modules (docs/adr/0008)."""
    ours, theirs = ((ROOT / place / "pyproject.toml").read_text() for place in (".", "benchmarks"))
    version = ours.partition('\nversion = "')[2].partition('"')[0]
    assert version and f'\nversion = "{version}"\n' in theirs
    assert f'"tallystick[train]=={version}"' in theirs


def test_a_wheel_holds_the_package_and_the_cheats_alone() -> None:
    """The benchmarks are no part of it (docs/adr/0008)."""
    packages = (ROOT / "pyproject.toml").read_text().partition("wheel.packages = {")[2]
    named = [entry.partition("=")[2].strip(' "') for entry in packages.partition("}")[0].split(",")]
    assert named == ["src/tallystick", "attacks"]
    assert not [path for path in (ROOT / "attacks").rglob("*") if "bench" in path.name]
