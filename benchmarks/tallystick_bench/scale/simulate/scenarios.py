"""The scenarios of docs/SCALE.md, and their outcomes as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from tallystick_bench.scale import assumed
from tallystick_bench.scale.assumed import DAY
from tallystick_bench.scale.jobs import GROWTH, WIDE, WIDE_CUT
from tallystick_bench.scale.simulate.audits import audit
from tallystick_bench.scale.simulate.cluster import Scenario, simulate
from tallystick_bench.scale.step_parts import StepParts
from tallystick_bench.scale.units import Measured

_DAYS = 30 * DAY
# One in a hundred machines lies, in a fifth of its steps, in one micro-batch; one share in a
# hundred is drawn.
RUNS = (
    Scenario("as built; failures, 16 spares", WIDE, 1024, _DAYS, spares=16),
    Scenario("cut; machines never fail", WIDE_CUT, 1024, _DAYS, fails=False),
    Scenario("cut; failures, 16 spares", WIDE_CUT, 1024, _DAYS, spares=16),
    Scenario("cut; failures, no spare", WIDE_CUT, 1024, _DAYS),
    Scenario(
        "cut; failures, 16 spares, 10 liars", WIDE_CUT, 1024, _DAYS, spares=16, liars=10, lies=0.2,
        drawn=0.01,
    ),
)  # fmt: skip
# Many liars on one clock without failures: how many steps until each is caught.
CATCHING = Scenario(
    "400 liars", replace(WIDE_CUT, micro_batches=1024), 1024, 60 * DAY, liars=400, lies=0.5,
    drawn=0.05, fails=False, until_caught=True,
)  # fmt: skip
WORKERS = tuple(2**k for k in range(3, 15))
GROWN_FOR, GROWN_STEPS = DAY, 200
AUDITORS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SEGMENTS = 1000


def fingerprint(found: Measured) -> str:
    """What the outcomes depend on: unit costs, shapes and assumptions."""
    parts = {
        "units": asdict(found.units),
        "shapes": {name: asdict(shape) for name, shape in found.shapes.items()},
        "assumed": {name: a.value for name, a in assumed.ASSUMED.items()},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def outcomes(found: Measured, told: Callable[[str], None]) -> dict[str, Any]:
    """Every scenario simulated."""
    runs = []
    for scenario in RUNS:
        told(scenario.name)
        runs.append(simulate(scenario, found).told())
    told(CATCHING.name)
    catching = simulate(CATCHING, found).told()
    growth = []
    for job in GROWTH:
        for workers in WORKERS:
            told(f"{job.name}, {workers} workers")
            spares = max(1, workers // 64)
            step = sum(StepParts(job, found, workers).parts().values())
            seconds = max(GROWN_FOR, GROWN_STEPS * step)
            grown = Scenario(job.name, job, workers, seconds, spares=spares)
            growth.append(simulate(grown, found).told())
    told("audits")
    audits = [audit(WIDE, SEGMENTS, WIDE.interval, k, found, seed=k) for k in AUDITORS]
    return {
        "format": 1,
        "of": fingerprint(found),
        "runs": runs,
        "catching": catching,
        "growth": growth,
        "audits": audits,
    }
