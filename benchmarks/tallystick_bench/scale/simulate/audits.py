"""A parallel audit: auditors take segments between stored checkpoints, in turn."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from tallystick_bench.scale.assumed import value
from tallystick_bench.scale.jobs import ScaleJob
from tallystick_bench.scale.step_parts import StepParts
from tallystick_bench.scale.units import Measured


def audit(
    job: ScaleJob, segments: int, steps: int, auditors: int, found: Measured, seed: int = 0
) -> dict[str, Any]:
    """Hours until `auditors` machines have repeated all `segments` of `steps` steps each.

    A machine repeats a segment alone, micro-batch by micro-batch. One that fails leaves its segment
    to the next free machine, which begins it anew, and comes back repaired.
    """
    random = np.random.default_rng(seed)
    parts = StepParts(job, found, 1)
    alone = steps * job.micro_batches * parts.micro_batch_s * found.units.audit_ratio
    sigma, mtbf = value("straggler_sigma"), value("gpu_mtbf_s") / job.gpus
    free = [(0.0, machine) for machine in range(auditors)]
    left, ended, retries, busy = segments, 0.0, 0, 0.0
    # Segments given back by machines that failed, with the time from which they can be taken.
    again: list[float] = []
    while left or again:
        at, machine = heapq.heappop(free)
        if left:
            left -= 1
        else:
            at = max(at, heapq.heappop(again))
        takes = alone * float(random.lognormal(0.0, sigma))
        fails = float(random.exponential(mtbf))
        if fails < takes:
            retries += 1
            busy += fails
            heapq.heappush(again, at + fails)
            heapq.heappush(
                free, (at + fails + float(random.exponential(value("repair_s"))), machine)
            )
            continue
        busy += takes
        ended = max(ended, at + takes)
        heapq.heappush(free, (at + takes, machine))
    return {
        "auditors": auditors,
        "segments": segments,
        "segment_s": alone,
        "seconds": ended,
        "retries": retries,
        "busy_share": busy / (ended * auditors),
    }
