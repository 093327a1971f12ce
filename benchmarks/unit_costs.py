"""The unit costs behind docs/SCALE.md, measured in one go on this machine.

    python benchmarks/unit_costs.py --json [--out benchmarks/results/scale/units.json] [--threads 2]

SHA-256 tensor digests, checksums of messages, folds, durable checkpoint writes and reads,
signatures, journal records, two disputes of a small GPT-2 played to their ends, an audit beside the
training that it repeats, and gloo between two processes. `--quick` is for the tests: its
figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tallystick.cli.output import note
from tallystick_bench.machine import machine
from tallystick_bench.scale.measure import games, local, network
from tallystick_bench.step_time import load


def measure(threads: int, quick: bool, directory: Path) -> dict[str, Any]:
    """Every unit cost, by its name in `tallystick_bench.scale.units.Units`."""
    mib, repeats = (4, 1) if quick else (256, 7)
    settings = games.QUICK if quick else games.SMALL
    steps, turns = (4, 1) if quick else (40, 5)
    before = load()
    found: dict[str, Any] = {}
    calls: dict[str, Callable[[], dict[str, Any]]] = {
        "digests": lambda: local.digests(mib, repeats, threads),
        "checksums": lambda: local.checksums(mib, repeats, threads),
        "folds": lambda: local.folds(mib, repeats, threads),
        "disk": lambda: local.disk(mib, repeats, directory),
        "records": lambda: local.records(20 if quick else 2000, repeats, directory),
        "disputes": lambda: games.disputes(settings, directory / "disputes", threads),
        "audits": lambda: games.audits(settings, steps, turns, directory / "audits", threads),
        "gloo": lambda: network.loopback(min(mib, 64), repeats),
    }
    for name, call in calls.items():
        note(f"unit costs: {name}")
        found |= call()
    about = {
        "machine": machine() | {"threads": threads},
        "load": [before, load()],
        "mib": mib,
        "repeats": repeats,
        "quick": quick,
    }
    return {"format": 1, "bench": "unit-costs", "about": about, "units": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write them to this file too")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--dir", type=Path, help="where the measured disk is")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tallystick-units-", dir=given.dir) as scratch:
        found = measure(given.threads, given.quick, Path(scratch))
    text = json.dumps(found, indent=1, allow_nan=False)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")
    if given.json:
        print(text)
    else:
        for name, value in found["units"].items():
            print(f"{name:24} {value}")


if __name__ == "__main__":
    main()
