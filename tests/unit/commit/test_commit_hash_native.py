"""native/tools/check_sha256.cpp: the same digests from every compiler and processor at hand."""

from __future__ import annotations

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tallystick import _core

ROOT = Path(__file__).resolve().parents[3]
SOURCES = [
    "native/tools/check_sha256.cpp",
    "native/src/sha256.cpp",
    "native/src/sha256_lanes.cpp",
    "native/src/thread_pool.cpp",
    "native/src/dispatch.cpp",
    "native/src/environment.cpp",
]
# What the tool prints on every machine: a digest over all its results.
EXPECTED = "ff92deefeea9850d692307cdda70f40b36596ab01d72a45f736d2a4d6329d0eb"


def build(compiler: str, out: Path, *flags: str) -> None:
    includes = ["-Inative/src", "-Inative/include"]
    command = [compiler, "-std=c++17", "-O2", *flags, *includes, "-o", str(out), *SOURCES]
    subprocess.run([*command, "-pthread"], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_compilers(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    build(compiler, tmp_path / "check")
    found = subprocess.run([tmp_path / "check"], check=True, capture_output=True, text=True)
    assert found.stdout.split()[-1] == EXPECTED
    if platform.machine() in ("x86_64", "AMD64"):
        assert found.stdout.split()[:-1] == _core.sha256_implementations()


def test_aarch64_under_an_emulator(tmp_path: Path) -> None:
    compiler, emulator = "aarch64-linux-gnu-g++", "qemu-aarch64"
    if shutil.which(compiler) is None or shutil.which(emulator) is None:
        pytest.skip("no aarch64 cross compiler or emulator")
    build(compiler, tmp_path / "check", "-static")
    command = [emulator, str(tmp_path / "check")]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["portable", "armv8", EXPECTED]
