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
import random
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tallystick import _core
from tallystick.checkout import checkout
from tallystick_bench.machine import machine
from tallystick_bench.trained.cheats import cheats
from tallystick_bench.trained.page import page
from tallystick_bench.trained.subjects import SUBJECTS, Subject
from tallystick_bench.trained.ways import Way, killed, tallystick, train, trainer_killed


def measure(
    subject: Subject, work: Path, ways: list[Way], steps: int | None, seed: int
) -> dict[str, Any]:
    """The row of an example; `misses` has every sentence that should not be there."""
    started = time.perf_counter()
    draw = random.Random(f"{subject.name} {seed}")
    work.mkdir(parents=True)
    job = subject.make(work, steps)
    about = tallystick(None, "inspect", job)
    misses: list[str] = []
    honest = work / "honest"
    runs = [train(job, honest, ways[0])]
    length = (honest / "journal").stat().st_size
    for number, way in enumerate(ways):
        out = work / "run"
        for again in (False, True):
            if again:
                runs.append(killed(job, out, way, length, draw))
            elif number:
                runs.append(train(job, out, way))
            shutil.rmtree(out, ignore_errors=True)
            say(f"{subject.name}: {runs[-1]}")
    if subject.trainer:
        for way in ways[:: max(1, len(ways) // 3)]:
            out = work / "trainer"
            runs.append(trainer_killed(subject, work, out, way, length, steps, draw))
            shutil.rmtree(out)
            say(f"{subject.name}: {runs[-1]}")
    if len({(run["root"], run["final_state"], run["steps"]) for run in runs}) != 1:
        misses.append("the roots differ")
    for way in ways[-1:]:
        audit = tallystick(way, "audit", honest, "--job", job, "--quiet", codes=(0, 1))
        if not audit["accepted"]:
            misses.append(f"the audit on {way} does not accept")
    played = cheats(job, honest, work / "cheats")
    misses += [f"not convicted: {row}" for row in played["misses"]]
    shown = tallystick(None, "inspect", honest)
    return {
        "name": subject.name,
        "title": subject.title,
        "job_digest": about["job_digest"],
        "parameters": about["parameters"],
        "programs": {p["name"]: p["micro_batches"] for p in about["programs"]},
        "root": runs[0]["root"],
        "steps": len(shown["loss"]),
        "job_steps": about["steps"],
        "reason": shown["reason"],
        "loss": [shown["loss"][0], shown["loss"][-1]],
        "validation": shown["validation"],
        "runs": runs,
        "audited_on": str(ways[-1]),
        "convicted": played["convicted"],
        "nothing": played["nothing"],
        "misses": misses,
        "seconds": time.perf_counter() - started,
    }


def joined(files: list[Path], out: Path | None, to: Path | None) -> int:
    """Write the results of several calls, each for some of the examples, as one."""
    parts = [json.loads(file.read_text()) for file in files]
    found = {**parts[0], "rows": [row for part in parts for row in part["rows"]]}
    found["command"] = "\n    ".join(part["command"] for part in parts)
    if out:
        out.write_text(json.dumps(found, indent=1) + "\n")
    if to:
        to.write_text(page(found))
    return 1 if any(row["misses"] for row in found["rows"]) else 0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


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
    parser.add_argument("--steps", type=int, help="fewer steps than the examples have")
    parser.add_argument("--work", type=Path, help="where the runs are made; it must not exist")
    parser.add_argument("--out", type=Path, help="the results as JSON")
    parser.add_argument("--page", type=Path, help="the results as a page")
    parser.add_argument("--seed", type=int, default=0, help="of the places of the kills")
    parser.add_argument("--join", type=Path, nargs="+", help="only write the page of these results")
    args = parser.parse_args()
    if args.join:
        return joined(args.join, args.out, args.page)
    ways = [Way(isa, count) for isa in _core.supported_isas() for count in args.threads]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for subject in SUBJECTS:
            if args.only and subject.name not in args.only:
                continue
            work = (args.work or Path(scratch)) / subject.name
            rows.append(measure(subject, work, ways, args.steps, args.seed))
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
                "paths": _core.supported_isas(),
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
