"""One example in every way: its runs, an audit, the cheats."""

from __future__ import annotations

import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from tallystick_bench.trained.cheats import cheats
from tallystick_bench.trained.subjects import Subject
from tallystick_bench.trained.ways import Way, killed, tallystick, train, trainer_killed


def say(text: str) -> None:
    """A line about what is going on."""
    print(text, file=sys.stderr, flush=True)


def measure(
    subject: Subject,
    work: Path,
    ways: list[Way],
    steps: int | None,
    seed: int,
    attacks: tuple[str, ...] = (),
) -> dict[str, Any]:
    """The row of an example; `misses` has every sentence that should not be there. `attacks` are
    those to be made; none are all."""
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
    played = cheats(job, honest, work / "cheats", attacks)
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
        "without_effect": played["without_effect"],
        "misses": misses,
        "seconds": time.perf_counter() - started,
    }
