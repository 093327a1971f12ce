"""Checks a wheel as its user meets it: a fresh environment, no compiler, no checkout on the path.

    python .ci/check_wheel.py dist --python python3.12 [--torch] [--json]

`dist` is a wheel, or a directory of them, of which pip takes the one that fits. It installs the
wheel, judges stored evidence, audits a stored run and trains the jobs of the stored runs, whose
roots must come out. With --torch it also installs PyTorch (constraints.txt has the version; the
index must have a build without CUDA packages), makes the golden GPT-2 job and trains it. It prints
seconds and megabytes, and ends with 1 at the first difference.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VECTORS = ROOT / "vectors"
COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "clang++", "cmake", "ninja")
# Of the bundle of attacks, every so many cases are judged: each is a process of its own.
EVERY = 10


class Environment:
    """A virtual environment and the commands run in it, with what each of them cost."""

    def __init__(self, python: str, directory: Path) -> None:
        self.directory = directory
        self.costs: dict[str, float] = {}
        subprocess.run([python, "-m", "venv", str(directory / "venv")], check=True)
        self.bin = directory / "venv" / "bin"
        # Only the environment's own programs: a build from source would find no compiler.
        self.variables = {
            name: value
            for name, value in os.environ.items()
            if name not in ("PYTHONPATH", "PYTHONHOME", "CC", "CXX", "VIRTUAL_ENV")
        } | {"PATH": str(self.bin), "PYTHONNOUSERSITE": "1"}
        found = [name for name in COMPILERS if (self.bin / name).exists()]
        assert not found, f"the environment has {found}"

    def run(self, what: str, *command: str, code: int = 0) -> str:
        """What `command` printed; its seconds are added to those of `what`."""
        start = time.perf_counter()
        done = subprocess.run(
            [str(self.bin / command[0]), *command[1:]],
            cwd=self.directory,
            env=self.variables,
            capture_output=True,
            text=True,
        )
        self.costs[what] = self.costs.get(what, 0.0) + time.perf_counter() - start
        if done.returncode != code:
            sys.exit(
                f"{' '.join(command)}: exit code {done.returncode} instead of {code}\n"
                f"{done.stdout}{done.stderr}"
            )
        return done.stdout

    def megabytes(self) -> float:
        """The size of everything that is installed, pip included."""
        files = (self.directory / "venv" / "lib").rglob("*")
        return sum(f.stat().st_size for f in files if f.is_file() and not f.is_symlink()) / 1e6


def judge(env: Environment) -> int:
    """Judges evidence of attacks; the number of cases."""
    bundle = json.loads((VECTORS / "protocol" / "attacks.json").read_text())
    data: bytes = (VECTORS / "protocol" / bundle["data"]).read_bytes()

    def part(place: list[int]) -> bytes:
        return data[place[0] : place[0] + place[1]]

    cases = bundle["cases"][::EVERY]
    for number, case in enumerate(cases):
        job = env.directory / f"judged-{number}"
        job.mkdir()
        for name, place in bundle["jobs"][case["job"]].items():
            (job / name).write_bytes(part(place))
        evidence = job / "evidence"
        evidence.write_bytes(part(case["evidence"]))
        said = env.run(
            "judge", "tallystick", "judge", str(evidence), "--job", str(job), "--json",
            code=case["code"],
        )  # fmt: skip
        found = [(c["party"], c["clause"]) for c in json.loads(said)["convicted"]]
        expected = [(c["party"], c["clause"]) for c in case["found"]["convicted"]]
        assert found == expected, f"{case['name']}: {found}, not {expected}"
    return len(cases)


def train(env: Environment, job: Path, name: str, root: str) -> None:
    """Trains `job`, whose run must have `root`."""
    said = env.run(
        f"train {name}", "tallystick", "train", str(job), "--out", f"run-{name}", "--json"
    )
    found = json.loads(said)["run_root"]
    assert found == root, f"{name}: run root {found}, not {root}"


def train_stored(env: Environment) -> int:
    """Trains the job of each stored run that follows no other's logs; their number."""
    roots = json.loads((VECTORS / "runs" / "roots.json").read_text())
    stored = VECTORS / "runs" / "logreg-run"
    env.run("audit", "tallystick", "audit", str(stored), "--job", str(stored / "job"))
    train(env, stored / "job", "logreg", roots["logreg"]["run_root"])
    names = ("ordered", "rounded", "exact", "bounded")
    for name in names:
        frozen = VECTORS / "runs" / "frozen" / name
        said = json.loads((frozen / "said.json").read_text())
        train(env, frozen / "run" / "job", name, said["inspect"]["json"]["run_root"])
    return 1 + len(names)


def train_gpt2(env: Environment) -> None:
    """Makes the golden GPT-2 job with PyTorch and trains it (tests/e2e/golden.py)."""
    make = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]);"
        "from golden import golden_job; golden_job('gpt2', Path('golden'))"
    )
    env.run("make the GPT-2 job", "python", "-c", make, str(ROOT / "tests" / "e2e"))
    root = json.loads((VECTORS / "runs" / "roots.json").read_text())["gpt2"]["run_root"]
    train(env, env.directory / "golden" / "gpt2", "gpt2", root)


def fitting(env: Environment, wheels: Path) -> Path:
    """The wheel of a directory that pip takes for this interpreter and machine."""
    pip = ("python", "-m", "pip", "--disable-pip-version-check", "download", "-q")
    where = ("--no-index", "--find-links", str(wheels), "--dest", "chosen")
    env.run("choose", *pip, "--no-deps", "--pre", *where, "tallystick")
    (chosen,) = (env.directory / "chosen").glob("*.whl")
    return chosen


def check(wheel: Path, python: str, torch: bool, directory: Path) -> dict[str, object]:
    env = Environment(python, directory)
    before = env.megabytes()
    wheel = fitting(env, wheel) if wheel.is_dir() else wheel
    pip = ("python", "-m", "pip", "--disable-pip-version-check", "install", "-q")
    env.run("install", *pip, "--only-binary", ":all:", str(wheel))
    small = env.megabytes() - before
    version = env.run(
        "version", "python", "-c", "import platform; print(platform.python_version())"
    )
    env.run("version", "tallystick", "--version")
    judged, trained = judge(env), train_stored(env)
    size = {"without torch": small}
    if torch:
        pins = str(ROOT / "constraints.txt")
        env.run("install torch", *pip, "-c", pins, "--only-binary", ":all:", "torch", "xxhash")
        installed = env.run("version", "python", "-m", "pip", "list", "--format", "freeze")
        cuda = [line for line in installed.splitlines() if line.startswith(("nvidia-", "triton"))]
        assert not cuda, f"packages for GPUs came along (docs/INSTALL.md): {cuda}"
        train_gpt2(env)
        size["with torch"] = env.megabytes() - before
    return {
        "wheel": wheel.name,
        "python": version.strip(),
        "judged": judged,
        "roots": trained + torch,
        "megabytes": {what: round(value, 1) for what, value in size.items()},
        "seconds": {
            what: round(value, 2)
            for what, value in env.costs.items()
            if what not in ("version", "choose")
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--python", default=sys.executable, help="the interpreter to check with")
    parser.add_argument("--torch", action="store_true", help="install PyTorch and train GPT-2 too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tallystick-wheel-") as directory:
        found = check(args.wheel.resolve(), args.python, args.torch, Path(directory))
    if args.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{found['wheel']} in Python {found['python']}")
    print(f"  {found['judged']} verdicts and {found['roots']} run roots are as stored")
    for what, megabytes in found["megabytes"].items():  # type: ignore[attr-defined]
        print(f"  {megabytes} MB installed {what}")
    for what, seconds in found["seconds"].items():  # type: ignore[attr-defined]
        print(f"  {seconds} s {what}")


if __name__ == "__main__":
    main()
