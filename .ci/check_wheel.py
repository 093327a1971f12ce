"""Checks a wheel as its user meets it: a fresh environment, no compiler, no checkout on the path.

    python .ci/check_wheel.py dist --python python3.12 [--torch] [--json]

`dist` is a wheel, or a directory of them, of which pip takes the one that fits. It installs the
wheel, judges stored evidence, audits a stored run, trains the jobs of the stored runs, whose roots
must come out, and compares two runs that are equal and two that differ. With --torch it also
installs PyTorch (constraints.txt has the version; the index must have a build without CUDA
packages), makes the golden GPT-2 job and trains it. Then it installs the extras `answers` and
`service`, serves a small model of its own, and asks it a question with `tallystick chat`. It prints
seconds and megabytes, and ends with 1 at the first difference.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from fresh_environment import Environment
from serving_check import EXTRAS, ask_a_server

ROOT = Path(__file__).resolve().parents[1]
VECTORS = ROOT / "vectors"
# Of the bundle of attacks, every so many cases are judged: each is a process of its own.
EVERY = 10


def fast_paths(env: Environment) -> str:
    """The instruction sets that the wheel uses: all that the processor has.

    A build whose tests of the processor fail gives the right roots, slowly.
    """
    say = "from tallystick import _core; print(*_core.supported_isas())"
    found = env.run("version", "python", "-c", say).split()
    cpu = Path("/proc/cpuinfo")
    flags = set(cpu.read_text().split()) if cpu.exists() else set()
    for flag, isa in (("avx2", "avx2"), ("avx512vl", "avx512"), ("asimd", "neon")):
        assert flag not in flags or isa in found, f"the wheel uses {found}, and no {isa}"
    return ", ".join(found)


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


def compare(env: Environment) -> int:
    """Compares runs that `train_stored` has made, without a key; the number of comparisons.

    A run is equal to the stored run of the same job. Two runs of one network under two contracts
    differ, and the sums of the first layer are where it begins.
    """
    stored = VECTORS / "runs" / "logreg-run"
    said = env.run("diff, equal", "tallystick", "diff", "run-logreg", str(stored), "--json")
    found = json.loads(said)
    assert found["equal"] and found["compared"]["steps"] == [100, 100], said
    pair = ("run-ordered", "run-rounded")
    said = env.run("diff, different", "tallystick", "diff", *pair, "--json", code=1)
    found = json.loads(said)
    first = found["first"]
    assert not found["equal"] and found["cause"] == "rounding", said
    assert (first["step"], first["operator"]) == (0, ["aten.addmm", "aten.addmm"]), said
    assert len(set(first["element"]["values"])) == 2, said
    return 2


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
    isas = fast_paths(env)
    judged, trained, compared = judge(env), train_stored(env), compare(env)
    asked = 0
    size = {"without torch": small}
    if torch:
        pins = str(ROOT / "constraints.txt")
        env.run("install torch", *pip, "-c", pins, "--only-binary", ":all:", "torch", "xxhash")
        installed = env.run("version", "python", "-m", "pip", "list", "--format", "freeze")
        cuda = [line for line in installed.splitlines() if line.startswith(("nvidia-", "triton"))]
        assert not cuda, f"packages for GPUs came along (docs/INSTALL.md): {cuda}"
        train_gpt2(env)
        size["with torch"] = env.megabytes() - before
        needed = f"{wheel}[{','.join(EXTRAS)}]"
        env.run("install " + ", ".join(EXTRAS), *pip, "-c", pins, "--only-binary", ":all:", needed)
        size["with torch, " + ", ".join(EXTRAS)] = env.megabytes() - before
        asked = ask_a_server(env, ROOT / "tests")
    return {
        "wheel": wheel.name,
        "python": version.strip(),
        "instruction sets": isas,
        "judged": judged,
        "roots": trained + torch,
        "compared": compared,
        "asked": asked,
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
    parser.add_argument("--torch", action="store_true", help="train GPT-2 and serve a model too")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tallystick-wheel-") as directory:
        found = check(args.wheel.resolve(), args.python, args.torch, Path(directory))
    if args.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{found['wheel']} in Python {found['python']}, on {found['instruction sets']}")
    print(f"  {found['judged']} verdicts and {found['roots']} run roots are as stored")
    print(f"  {found['compared']} comparisons and {found['asked']} answers of a server are right")
    for what, megabytes in found["megabytes"].items():  # type: ignore[attr-defined]
        print(f"  {megabytes} MB installed {what}")
    for what, seconds in found["seconds"].items():  # type: ignore[attr-defined]
        print(f"  {seconds} s {what}")


if __name__ == "__main__":
    main()
