"""`make gpu-check`: everything that needs a GPU, in at most 8 minutes.

It builds the core, then starts each part in a process of its own with a bound on its time, and
writes benchmarks/results/GPU.json after every part: what ran, what came out, what did not fit. It
needs no registry: the Python that runs it has what _NEEDED names, and cmake is there.

Run: python3 tests/gpu/check/run.py [--seconds 480] [--only PART ...]
Exit code 1 where a part failed or did not end, 3 where nothing could be built.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "benchmarks" / "results"
ONE = Path(__file__).with_name("one.py")
_NEEDED = (
    "numpy", "cryptography", "click", "rich", "torch", "cuda.bindings", "nanobind", "mpmath",
    "pytest", "hypothesis",
)  # fmt: skip
_REPLAY = ("tests/gpu/test_resident_cuda.py", "tests/gpu/test_published_cuda.py")


SECONDS, BUILD_SECONDS = 480, 90  # of the whole check; of building the core


@dataclass(frozen=True)
class Part:
    """A command and the seconds that are kept for it. The first ones matter most."""

    name: str
    seconds: int
    command: list[str]


def parts(device: str) -> list[Part]:
    """All parts, in their order: bits, races, faults, speed."""

    def one(name: str, seconds: int) -> Part:
        return Part(name, seconds, [sys.executable, str(ONE), name, "--device", device])

    sanitizer = ["compute-sanitizer", "--tool", "racecheck", "--error-exitcode", "9"]
    return [
        one("kernels", 50),
        one("vectors", 40),
        one("roots", 70),
        one("fingerprints", 30),
        one("nasty", 30),
        one("bounded", 35),
        one("large", 15),
        Part("racecheck", 30, [*sanitizer, *one("products", 0).command]),
        Part("replay", 25, [sys.executable, "-m", "pytest", "-q", "-x", "--no-skips", *_REPLAY]),
        one("faults", 10),
        one("gemm", 15),
        one("exact", 20),
        one("step", 20),
    ]


@dataclass
class Report:
    """What is written."""

    path: Path
    began: float = field(default_factory=time.monotonic)
    found: dict[str, Any] = field(default_factory=dict)

    def note(self, name: str, outcome: dict[str, Any]) -> None:
        """Add a part's outcome and write the file."""
        self.found[name] = outcome
        text = json.dumps(self.found, indent=1) + "\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text)
        told = "ok" if outcome.get("ok") else "FAILED"
        print(f"{name}: {told}, {outcome.get('seconds_taken', 0):.0f} s", flush=True)


def environment() -> dict[str, str]:
    """That of a part: this checkout's modules."""
    folders = ("src", "tests", "tests/vectors", "tests/gpu", "benchmarks")
    own = [str(ROOT / f) for f in folders] + [os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, own))}


def _ended(command: list[str], seconds: float) -> tuple[int, str]:
    """The exit code of a command and what it printed. Raises TimeoutExpired, when it and all that
    it started have been ended."""
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=seconds)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise


def bounded(part: Part, seconds: float) -> dict[str, Any]:
    """The outcome of a part: what it wrote, or why it wrote nothing."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        command = [*part.command, "--out", str(out)] if str(ONE) in part.command else part.command
        try:
            code, said = _ended(command, seconds)
            found: dict[str, Any] = {"ok": code == 0}
            if out.exists():
                found |= json.loads(out.read_text())
                found["ok"] = bool(found["ok"]) and code == 0
            if not found["ok"] or not out.exists():
                found |= {"exit_code": code, "said": said[-3000:]}
        except subprocess.TimeoutExpired:
            found = {"ok": False, "error": f"it took longer than {seconds:.0f} s"}
        except OSError as error:
            found = {"ok": False, "error": f"{part.command[0]} cannot be started: {error}"}
    found["seconds_taken"] = round(time.monotonic() - began, 1)
    return found


def build(seconds: float) -> dict[str, Any]:
    """The core, built by cmake and put beside the package's modules."""
    began = time.monotonic()
    probe = (
        "import importlib.util as u, sys\n"
        "def has(n):\n"
        "    try: return u.find_spec(n) is not None\n"
        "    except ImportError: return False\n"
        "print(*[n for n in sys.argv[1:] if not has(n)])"
    )
    missing = subprocess.run(
        [sys.executable, "-c", probe, *_NEEDED], capture_output=True, text=True
    ).stdout.split()
    if missing:
        why = f"this Python lacks {', '.join(missing)}: bring the wheels and set PYTHONPATH"
        return {"ok": False, "error": why}
    nanobind = subprocess.run(
        [sys.executable, "-m", "nanobind", "--cmake_dir"], capture_output=True, text=True
    ).stdout.strip()
    folder = ROOT / "build" / "gpu-check"
    configure = [
        "cmake", "-S", str(ROOT), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release",
        f"-DPython_EXECUTABLE={sys.executable}", f"-Dnanobind_DIR={nanobind}",
        *(["-G", "Ninja"] if shutil.which("ninja") else []),
    ]  # fmt: skip
    compile_ = ["cmake", "--build", str(folder), "-j", str(os.cpu_count() or 2)]
    for command in (configure, compile_):
        left = seconds - (time.monotonic() - began)
        outcome = bounded(Part("build", 0, command), max(left, 1))
        if not outcome["ok"]:
            return outcome
    made = sorted(folder.rglob("_core*.so"))
    if not made:
        return {"ok": False, "error": "the build made no core"}
    shutil.copy(made[0], ROOT / "src" / "tallystick" / made[0].name)
    return {"ok": True, "seconds_taken": round(time.monotonic() - began, 1)}


def gpu_name() -> str:
    """The GPU's name for a file, or "no-gpu"."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=30,
        ).stdout  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    return re.sub(r"[^a-z0-9]+", "-", said.splitlines()[0].lower()).strip("-") if said else "no-gpu"


def run(report: Report, todo: list[Part], seconds: float) -> bool:
    """Every part within its own time and what the parts before it left; true if all are well. Where
    less than all of their times is left, the first ones have theirs."""
    later = sum(part.seconds for part in todo)
    for part in todo:
        later -= part.seconds
        left = seconds - (time.monotonic() - report.began)
        if left < 5:
            report.note(part.name, {"ok": False, "error": "no time was left for it"})
            continue
        report.note(part.name, bounded(part, max(min(part.seconds, left), left - later)))
    return all(report.found[part.name]["ok"] for part in todo)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--only", nargs="*", help="these parts only; the core is not built")
    asked = parser.parse_args()
    name = gpu_name()
    report = Report(RESULTS / f"{name}.json")
    report.found["gpu"] = {
        "ok": True,
        "name": name,
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    if not asked.only:
        built = build(BUILD_SECONDS)
        report.note("build", built)
        if not built["ok"]:
            print(built.get("error", built.get("said", "")), file=sys.stderr)
            return 3
    todo = [p for p in parts(asked.device) if not asked.only or p.name in asked.only]
    well = run(report, todo, asked.seconds)
    print(
        f"{report.path.relative_to(ROOT)}: {'all parts are well' if well else 'see the failures'}"
    )
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
