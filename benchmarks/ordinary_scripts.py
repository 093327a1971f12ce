"""Ordinary training scripts within `tallystick.reproducible()`: the same bits in all ways.

    python benchmarks/ordinary_scripts.py [--threads 1 2 3] [--only TEXT] [--json]

Each script of `tallystick_bench/scripts` runs on every instruction set of this machine, with each
number of threads, and with 0 and 2 workers of its loader; each instruction set in a process of its
own. Compared are digests over the trained weights, buffers and all losses. Exits with 1 where one
differs or fails, and says which script lacks which package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from tallystick import _core
from tallystick_bench.machine import machine
from tallystick_bench.scripts.table import SCRIPTS, Script, outcome


def ways(script: Script, isa: str, threads: list[int]) -> dict[str, dict[str, Any]]:
    """The outcomes on one instruction set, by way."""
    found = {}
    for count in threads:
        torch.set_num_threads(count)
        _core.set_threads(count)
        for workers in (0, 2) if script.loads else (0,):
            found[f"{isa}, {count} threads, {workers} workers"] = outcome(script, workers)
    return found


def _one(number: int, isa: str, threads: list[int]) -> None:
    out = sys.stdout
    sys.stdout = sys.stderr  # the trainers print
    found = ways(SCRIPTS[number], isa, threads)
    print(json.dumps(found), file=out)


def measured(number: int, threads: list[int]) -> dict[str, Any]:
    """A row of the record: `status` is same, DIFFERENT or failed."""
    script = SCRIPTS[number]
    runs: dict[str, dict[str, Any]] = {}
    for isa in _core.supported_isas():
        command = [sys.executable, str(Path(__file__)), "--one", str(number), isa]
        done = subprocess.run(
            [*command, "--threads", *map(str, threads)],
            env=os.environ | {"TALLYSTICK_ISA": isa, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            return {"name": script.name, "status": "failed", "why": lines[-1] if lines else isa}
        runs |= json.loads(done.stdout.splitlines()[-1])
    digests = {way: run["digest"] for way, run in runs.items()}
    first = next(iter(runs.values()))
    same = len(set(digests.values())) == 1
    row = {"name": script.name, "status": "same" if same else "DIFFERENT", "ways": len(runs)}
    return row | {"losses": first["losses"], "digest": first["digest"], "digests": digests}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", default="", help="scripts whose name has this text")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("NUMBER", "ISA"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        _one(int(args.one[0]), args.one[1], args.threads)
        return 0
    rows: list[dict[str, Any]] = []
    for number, script in enumerate(SCRIPTS):
        if args.only in script.name:
            missing = script.missing()
            lacks = {"name": script.name, "status": "skipped", "why": f"without {missing}"}
            rows.append(lacks if missing else measured(number, args.threads))
            if not args.json:
                row = rows[-1]
                print(row["name"], row["status"], row.get("digest", row.get("why")), flush=True)
    if args.json:
        print(json.dumps({"machine": machine(), "torch": torch.__version__, "rows": rows}))
    return 1 if any(row["status"] in ("DIFFERENT", "failed") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
