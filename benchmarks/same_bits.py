"""Runs one job in many ways: the run root must be the same every time.

    python benchmarks/same_bits.py [--steps 200] [--clang] [--json] [--out DIR]

Variants: 1 and 2 threads, every instruction set of this machine, a run killed with SIGKILL three
times and taken up again, and with --clang a second build of the core by clang++ (needs clang and
CMake). The script makes the text by a fixed rule, so that machines can compare their roots.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import tallystick
from tallystick import _core

SETTINGS = ["n_layer=2", "n_head=4", "n_embd=64", "block_size=32", "batch_size=8", "warmup=20"]
PACKAGE = Path(tallystick.__file__).parent


def corpus() -> bytes:
    """60,000 bytes of sentences from a linear congruential generator: the same everywhere."""
    words = (
        "the tally stick was split in two so neither side could change what both had seen".split()
    )
    seed = 12345
    text: list[str] = []
    while len(text) < 12000:
        seed = (seed * 1103515245 + 12345) % 2**31
        text.append(words[(seed >> 16) % len(words)])
    return " ".join(text).encode()[:60000]


def environment(path: str | None, isa: str | None) -> dict[str, str]:
    env = dict(os.environ)
    env.pop("TALLYSTICK_ISA", None)
    if isa:
        env["TALLYSTICK_ISA"] = isa
    if path:
        env["PYTHONPATH"] = path
    return env


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tallystick", *arguments]


def train(job: Path, run: Path, threads: int, env: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        command("train", str(job), "--out", str(run), "--threads", str(threads),
                "--quiet", "--json"),
        env=env, check=True, capture_output=True, text=True,
    )  # fmt: skip
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def killed(job: Path, run: Path, times: int, env: dict[str, str]) -> int:
    """Start the trainer and kill -9 it `times` times as it advances; the number of kills."""
    kills = 0
    journal = run / "journal"
    while kills < times:
        process = subprocess.Popen(
            command("train", str(job), "--out", str(run), "--quiet"),
            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        size = journal.stat().st_size if journal.exists() else 0
        deadline = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < deadline:
            if journal.exists() and journal.stat().st_size > size + 400:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.01)
        if process.wait() == 0:
            raise SystemExit("The run ended before it could be killed: use more --steps.")
    return kills


def clang_overlay(directory: Path) -> str:
    """The package with a core built by clang++; the path to put in front."""
    source = PACKAGE.parents[1]
    build = directory / "build-clang"
    nanobind = subprocess.run(
        [sys.executable, "-m", "nanobind", "--cmake_dir"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    subprocess.run(
        ["cmake", "-S", str(source), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release",
         "-DCMAKE_CXX_COMPILER=clang++", f"-Dnanobind_DIR={nanobind}",
         f"-DPython_EXECUTABLE={sys.executable}"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    subprocess.run(["cmake", "--build", str(build), "-j2"], check=True, stdout=subprocess.DEVNULL)
    overlay = directory / "overlay"
    shutil.copytree(
        PACKAGE, overlay / "tallystick", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for module in build.glob("_core*.so"):
        shutil.copy(module, overlay / "tallystick")
    return str(overlay)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--clang", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = given.out or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        text = directory / "text.txt"
        text.write_bytes(corpus())
        job = directory / "job"
        subprocess.run(
            command("job", "new", "gpt2", "--out", str(job), "--text", str(text), "--steps",
                    str(given.steps), *[a for s in SETTINGS for a in ("--set", s)]),
            check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        variants: list[tuple[str, int, str | None, str | None]] = []
        for isa in _core.supported_isas():
            variants += [(f"{isa}, 1 thread", 1, isa, None), (f"{isa}, 2 threads", 2, isa, None)]
        if given.clang:
            overlay = clang_overlay(directory)
            variants += [(f"clang build, {isa}", 2, isa, overlay) for isa in _core.supported_isas()]
        rows = []
        for number, (name, threads, path_isa, path) in enumerate(variants):
            result = train(job, directory / f"run-{number}", threads, environment(path, path_isa))
            rows.append({"name": name, "value": result["run_root"], "unit": "run_root",
                         "isa": result["isa"], "seconds": result["seconds"]})  # fmt: skip
        run = directory / "run-killed"
        kills = killed(job, run, 3, environment(None, None))
        result = train(job, run, 2, environment(None, None))
        rows.append({"name": f"killed {kills} times", "value": result["run_root"],
                     "unit": "run_root", "isa": result["isa"],
                     "seconds": result["seconds"]})  # fmt: skip
    same = len({row["value"] for row in rows}) == 1
    if given.json:
        print(json.dumps({"bench": "same-bits", "same": same, "rows": rows}))
    else:
        for row in rows:
            print(f"{row['name']:28} {row['value']}")
        print("the same bits" if same else "DIFFERENT BITS")
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
