"""Kill -9, a full disk, a failed flush and a loss of power at the calls that a keeper of answers
makes: every receipt that was handed out is found again, and no half one is (ANSWERS 7.7.1)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("the shim needs a C compiler and Linux")
    out = tmp_path_factory.mktemp("shim") / "disk_shim.so"
    words = ["-shared", "-fPIC", "-O1", "-Wno-unused-result", "-o", str(out)]
    subprocess.run([compiler, *words, str(HERE / "disk_shim.c"), "-ldl"], check=True)
    return out


@pytest.mark.parametrize(
    ("kind", "stride"), [("k", 17), ("f", 17), ("s", 17), ("p", 11)],
    ids=["killed", "full", "flush fails", "power"],
)  # fmt: skip
def test_what_was_handed_out_is_found(
    kind: str, stride: int, shim: Path, tmp_path: Path, is_exhaustive: bool
) -> None:
    room = tmp_path / "shimmed"
    room.mkdir()
    step = str(1 if is_exhaustive else stride)
    done = subprocess.run(
        [sys.executable, str(HERE / "kept_driver.py"), str(room), kind, step],
        env={**os.environ, "LD_PRELOAD": str(shim), "SHIM_PATH": str(room)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["points"] > 200, found  # the shim sees SQLite's calls
    if kind == "k":
        assert found["-9"] >= 10
    if kind in "fs":
        assert found["1"] >= 10
    if kind == "p":
        assert found["worlds"] >= 100
