"""Peak memory of a step, ours over torch's, each in a fresh process of its own (`step_side`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick_bench import process
from tallystick_bench.step_side import Engines


def _child(arguments: Mapping[str, Any]) -> Any:
    """The output of `step_side`: bytes at the start, and at the peak of the steps."""
    return process.answer(
        "tallystick_bench.step_side",
        json.dumps(arguments),
        failed=f"The process that measures the memory of {arguments['engine']} failed",
        next_action="Run it where there is more memory.",
    )


def memory_rows(
    name: str,
    target: float | None,
    job: Path,
    model: Mapping[str, Any],
    threads: int,
    anchor: str,
    steps: int = 3,
) -> list[dict[str, Any]]:
    """Peak resident memory, ours over torch's: of the whole process, and without its start.

    `model` says which one torch's side builds: `settings` of the recipe, or `net`. torch runs
    eagerly with the optimizer variant `anchor`: a process that compiles would count the compiler.
    """
    given = {"job": str(job), "threads": threads, "steps": steps, **model}
    ours = _child({"engine": Engines.OURS, **given})
    theirs = _child({"engine": anchor, **given})
    net = [side["peak"] - side["start"] for side in (ours, theirs)]
    common = {
        "unit": "ratio",
        "target": target,
        "anchor": f"torch eager float32, optimizer {anchor}",
        "threads": threads,
        "steps": steps,
    }
    return [
        {
            "name": f"step/{name}/memory_ratio",
            "value": ours["peak"] / theirs["peak"],
            "bytes": ours["peak"],
            "anchor_bytes": theirs["peak"],
            **common,
        },
        {
            "name": f"step/{name}/net_memory_ratio",
            "value": net[0] / net[1],
            "bytes": net[0],
            "anchor_bytes": net[1],
            **common,
        },
    ]
