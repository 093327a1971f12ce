"""docs/SCALE.md as one text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tallystick.errors import UsageError
from tallystick_bench.scale.costs import Training
from tallystick_bench.scale.jobs import GROWTH, LARGE, SMALL, WIDE, ScaleJob
from tallystick_bench.scale.page import tables, words
from tallystick_bench.scale.page.show import shown
from tallystick_bench.scale.simulate.scenarios import CATCHING, WORKERS, fingerprint
from tallystick_bench.scale.step_parts import StepParts
from tallystick_bench.scale.units import Measured

_ISA = {"avx512": "AVX-512", "avx2": "AVX2", "neon": "NEON", "scalar": "scalar"}


def page(found: Measured, outcomes: Mapping[str, Any]) -> str:
    """The whole page. Raises UsageError where the simulation was made with other unit costs, shapes
    or assumptions than `found`."""
    if outcomes["of"] != fingerprint(found):
        raise UsageError(
            "The simulation's outcomes are of other unit costs or assumptions.",
            "Run benchmarks/scale_page.py --simulate.",
        )
    return "\n".join(
        [
            words.HEAD,
            _measured(found),
            tables.measured(found),
            words.ASSUMED,
            tables.assumed(),
            _costs(found),
            _liars(),
            _growth(found),
            _simulation(found, outcomes),
            words.UNSEEN,
        ]
    )


def _measured(found: Measured) -> str:
    machine, load = found.about["machine"], found.about["load"]
    isa = _ISA.get(machine["isa"], machine["isa"])
    where = (
        f"CPU, {machine['cores']} cores x86-64 {isa}, {machine['threads']} threads; load "
        f"{load[0]} before and {load[1]} after"
    )
    if found.about["quick"]:
        where += "; **a quick run: no figure to quote**"
    elif max(load) > 2.5:
        where += "; **other work ran beside it: no figures to quote**"
    return words.MEASURED.format(
        machine=where,
        when=f"the least of {found.about['repeats']}, {found.about['mib']} MiB",
        steps=found.extra["audit_steps"],
    )


def _costs(found: Measured) -> str:
    large = Training(LARGE, found)
    return words.COSTS.format(
        interval=SMALL.interval,
        table=tables.costs(found),
        small=found.shapes[SMALL.shape].most_micro_batches,
        large=found.shapes[LARGE.shape].most_micro_batches,
        taken=LARGE.micro_batches,
        tokens=shown(large.tokens_a_step, "count"),
        steps=shown(large.steps, "count"),
    )


def _liars() -> str:
    return words.LIARS.format(checkers=math.ceil(0.01 * WIDE.workers), table=tables.caught())


def _growth(found: Measured) -> str:
    return words.GROWTH.format(
        table=tables.growth(found), order="\n".join(_order(found, job) for job in GROWTH)
    )


def _order(found: Measured, job: ScaleJob) -> str:
    """The bounds that a growing number of workers meets, one after the other."""
    shape = found.shapes[job.shape]
    lines = []
    if job.gpus > 1:
        lines.append("memory: one device does not hold the model at any W")
    lines.append(f"the format: W ≤ V ≤ {shape.most_micro_batches}")
    crossed = {}
    for name in StepParts(job, found, WORKERS[0]).parts():
        if name != "compute":
            at = next((w for w in WORKERS if _exceeds(found, job, w, name)), None)
            if at:
                crossed[name] = at
    lines += [f"{name}: more than a tenth of a step from W = {crossed[name]:,} on"
              for name in sorted(crossed, key=lambda n: crossed[n])]  # fmt: skip
    return f"- **{job.name}:** " + "; ".join(lines) + "."


def _exceeds(found: Measured, job: ScaleJob, workers: int, name: str) -> bool:
    parts = StepParts(job, found, workers).parts()
    return parts[name] > 0.1 * sum(parts.values())


def _simulation(found: Measured, outcomes: Mapping[str, Any]) -> str:
    mean, expected, width, caught = tables.agreement(outcomes)
    agrees = abs(mean - expected) <= width
    share = WIDE.micro_batches / WIDE.workers
    first = outcomes["audits"][0]
    return words.SIMULATION.format(
        table=tables.runs(outcomes),
        share=f"{share:g}",
        longer=f"{math.ceil(WIDE.micro_batches / (WIDE.workers - 1)) / share:g}",
        liars=len(outcomes["catching"]["liars"]),
        lies=shown(CATCHING.lies, "share"),
        drawn=shown(CATCHING.drawn, "share"),
        caught=caught,
        mean=f"{mean:.1f}",
        expected=f"{expected:.1f}",
        low=f"{expected - width:.1f}",
        high=f"{expected + width:.1f}",
        verdict="They agree." if agrees else "**They do not agree.**",
        knees="\n".join(_knee(job, outcomes["growth"]) for job in GROWTH),
        segments=f"{first['segments']:,}",
        interval=WIDE.interval,
        segment=shown(first["segment_s"], "s"),
        parts=f"{WIDE.micro_batches:,}",
        audits=tables.audits(outcomes),
    )


def _knee(job: ScaleJob, runs: Sequence[Mapping[str, Any]]) -> str:
    """Where less than half of the time is computation, and what takes most of the other."""
    mine = [run for run in runs if run["job"] == job.name]
    at = next((run for run in mine if run["goodput"] < 0.5), None)
    if at is None:
        last = mine[-1]
        worst = max(last["lost"], key=lambda name: last["lost"][name])
        part = shown(last["goodput"], "share")
        return (
            f"- **{job.name}:** at W = {last['workers']:,} {part} of the time is still "
            f"computation; most of the rest is *{worst}*."
        )
    causes = sorted(at["lost"], key=lambda name: -at["lost"][name])[:2]
    rest = " and ".join(
        f"*{name}* ({shown(at['lost'][name] / at['seconds'], 'share')})" for name in causes
    )
    part = shown(at["goodput"], "share")
    return (
        f"- **{job.name}:** from W = {at['workers']:,} on less than half of the time is "
        f"computation ({part}). Most of the rest there: {rest}."
    )
