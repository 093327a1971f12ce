"""Fuzzes every decoder in slices, so long as told; the counts are in docs/proofs/fuzz.md.

    PYTHONPATH=tests python tests/adversary/fuzzing/slices.py --work DIR [--seconds 600]
        [--slice 20] [--targets a,b] [--most 1000000]

DIR keeps the world, the corpora that grow, the findings and `ledger.json`, so the same command goes
on. Needs atheris (`make fuzz` installs it).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from adversary.fuzzing.targets import TARGETS
from adversary.fuzzing.world import World, make_world

from tallystick.installed import tallystick_version

HERE = Path(__file__).resolve().parent
SECONDS_EACH = 10  # of one input
LONGEST = 16 << 10  # bytes of an input


def ledger(work: Path) -> dict[str, dict[str, int]]:
    """Counts by target: inputs taken and refused, seconds, findings."""
    path = work / "ledger.json"
    return json.loads(path.read_text()) if path.exists() else {}


def fuzz_slice(work: Path, world: World, name: str, seconds: int) -> dict[str, int]:
    """One slice of one target, and its counts."""
    grown, found = work / "corpus" / name, work / "findings" / name
    for directory in (grown, found):
        directory.mkdir(parents=True, exist_ok=True)
    counts = work / f"counts-{name}.json"
    counts.unlink(missing_ok=True)
    before = len(list(found.iterdir()))
    words = [
        f"-max_total_time={seconds}", f"-timeout={SECONDS_EACH}", f"-max_len={LONGEST}",
        "-rss_limit_mb=2048", f"-artifact_prefix={found}/", "-print_final_stats=0", "-verbosity=0",
        str(grown), str(world.seeds(name)),
    ]  # fmt: skip
    script = [sys.executable, str(HERE / "harness.py"), str(world.directory), name, str(counts)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent.parent)}
    began = time.monotonic()
    done = subprocess.run(
        [*script, *words], env=environment, capture_output=True, text=True, check=False
    )
    told = json.loads(counts.read_text()) if counts.exists() else {"taken": 0, "refused": 0}
    findings = len(list(found.iterdir())) - before
    if done.returncode:
        findings = max(findings, 1)
        (work / f"last-{name}.txt").write_text(done.stdout[-4000:] + done.stderr[-8000:])
        print(f"{name}: a finding\n{done.stderr[-3000:]}", file=sys.stderr, flush=True)
    return {**told, "seconds": round(time.monotonic() - began), "findings": findings}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--slice", type=int, default=20)
    parser.add_argument("--most", type=int, default=10**9, help="inputs of one target")
    parser.add_argument("--targets", default=",".join(TARGETS))
    given = parser.parse_args()
    work, end = given.work.resolve(), time.monotonic() + given.seconds
    world = World(work / "world")
    if not world.directory.exists():
        make_world(world.directory)
    totals = ledger(work)
    names = given.targets.split(",")
    while time.monotonic() < end:
        left = [n for n in names if _inputs(totals.get(n, {})) < given.most]
        if not left:
            break
        # The one with the fewest inputs so far; targets that are slow get no more time than others.
        name = min(left, key=lambda n: totals.get(n, {}).get("seconds", 0))
        counts = fuzz_slice(work, world, name, given.slice)
        before = totals.setdefault(name, {})
        for key, value in counts.items():
            before[key] = before.get(key, 0) + value
        (work / "ledger.json").write_text(json.dumps(totals, indent=2, sort_keys=True) + "\n")
    _tell(totals)


def _inputs(counts: dict[str, int]) -> int:
    return counts.get("taken", 0) + counts.get("refused", 0)


def _tell(totals: dict[str, dict[str, int]]) -> None:
    for name, counts in sorted(totals.items()):
        print(f"{name:12} {_inputs(counts):>10} taken {counts['taken']:>9} "
              f"{counts['seconds']:>6} s findings {counts['findings']}")  # fmt: skip
    every = sum(_inputs(counts) for counts in totals.values())
    print(f"inputs {every}, tallystick {tallystick_version()}, {time.strftime('%Y-%m-%d')}")


if __name__ == "__main__":
    main()
