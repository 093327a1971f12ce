"""The four examples of training as people train, in every way, and every cheat against them.

    python benchmarks/trained.py [--only NAME] [--threads 1 2 3] [--steps N] [--work DIR]
        [--out FILE] [--page FILE] [--seed 0]

For each of `examples/`{finetune_trainer,lora,image_net,gan}: its job is trained on every
instruction set of this machine with each number of threads, once without a break and once killed by
SIGKILL at a random place and taken up again; a Trainer's own process is killed too. All roots must
be one. An audit on another path repeats the run. Then every attack of `attacks/` that the job gives
something to do is made, a referee decides between it and the honest run, and `tallystick judge`
repeats the verdict from the evidence, with the job's program alone. `--page` writes what came out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tallystick import _core
from tallystick.installed import checkout
from tallystick_bench.machine import machine
from tallystick_bench.trained.measure import measure, say
from tallystick_bench.trained.page import page
from tallystick_bench.trained.subjects import SUBJECTS
from tallystick_bench.trained.ways import Way


def joined(files: list[Path], out: Path | None, to: Path | None) -> int:
    """Write the results of several calls as one. Of an example that several have, the runs and
    convictions are added up, and a later call settles what an earlier one missed of an attack."""
    parts = [json.loads(file.read_text()) for file in files]
    rows: dict[str, dict[str, Any]] = {}
    for part in parts:
        for row in part["rows"]:
            before = rows.setdefault(row["name"], row)
            if before is row:
                continue
            settled = {c["attack"] for c in row["convicted"]} | {*row["without_effect"]}
            old = [m for m in before["misses"] if not any(f"'{name}'" in m for name in settled)]
            rows[row["name"]] = before | {
                "runs": before["runs"] + row["runs"],
                "convicted": sorted(before["convicted"] + row["convicted"],
                                    key=lambda c: str(c["attack"])),
                "without_effect": before.get("without_effect", []) + row["without_effect"],
                "misses": old + row["misses"],
                "seconds": before["seconds"] + row["seconds"],
            }  # fmt: skip
    found = {**parts[0], "rows": list(rows.values())}
    found["command"] = "\n    ".join(f"{part['command']}   # at {part['commit']}" for part in parts)
    if out:
        out.write_text(json.dumps(found, indent=1) + "\n")
    if to:
        to.write_text(page(found))
    return 1 if any(row["misses"] for row in rows.values()) else 0


def commit() -> str:
    """The commit of the checkout; empty outside of one."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=checkout(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="an example by name; may be repeated")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--path", action="append", help="an instruction set; may be repeated")
    parser.add_argument("--steps", type=int, help="fewer steps than the examples have")
    parser.add_argument("--work", type=Path, help="where the runs are made; it must not exist")
    parser.add_argument("--out", type=Path, help="the results as JSON")
    parser.add_argument("--page", type=Path, help="the results as a page")
    parser.add_argument("--seed", type=int, default=0, help="of the places of the kills")
    parser.add_argument(
        "--attack", action="append", default=[], help="only this attack; repeatable"
    )
    parser.add_argument("--join", type=Path, nargs="+", help="only write the page of these results")
    args = parser.parse_args()
    if args.join:
        return joined(args.join, args.out, args.page)
    paths = args.path or _core.supported_isas()
    ways = [Way(isa, count) for isa in paths for count in args.threads]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for subject in SUBJECTS:
            if args.only and subject.name not in args.only:
                continue
            work = (args.work or Path(scratch)) / subject.name
            rows.append(measure(subject, work, ways, args.steps, args.seed, tuple(args.attack)))
            say(f"{subject.name}: {len(rows[-1]['runs'])} runs, {rows[-1]['root']}, "
                f"{len(rows[-1]['convicted'])} cheats convicted, {rows[-1]['misses'] or 'no miss'}"
                f" ({rows[-1]['seconds']:.0f} s)")  # fmt: skip
            found = {
                "bench": "trained",
                "command": "python benchmarks/trained.py " + " ".join(sys.argv[1:]),
                "commit": commit(),
                "date": time.strftime("%Y-%m-%d", time.gmtime()),
                "machine": machine(),
                "versions": {name: version(name) for name in ("torch", "transformers", "peft")},
                "paths": paths,
                "threads": args.threads,
                "rows": rows,
            }
            if args.out:
                args.out.write_text(json.dumps(found, indent=1) + "\n")
            if args.page:
                args.page.write_text(page(found))
    if not args.page:
        print(page(found))
    return 1 if any(row["misses"] for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
