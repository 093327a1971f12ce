"""The jobs that the page reckons with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ScaleJob:
    """A training: `shape` in `micro_batches` of `records` each, by `workers` of `gpus` GPUs.

    States are hashed every `interval` steps; `kept` of them stay stored for audits and disputes.
    """

    name: str
    shape: str
    micro_batches: int
    records: int
    workers: int
    gpus: int
    interval: int = 20
    kept: int = 100
    note: str = ""


SMALL = ScaleJob("1B", "1b", micro_batches=256, records=4, workers=64, gpus=1)
LARGE = ScaleJob(
    "70B", "70b", micro_batches=64, records=1, workers=64, gpus=8,
    note="as the format allows: V is at most 65",
)  # fmt: skip
WIDE = ScaleJob(
    "70B, wide", "70b", micro_batches=2048, records=1, workers=1024, gpus=8,
    note="if the limit on a program's nodes were raised",
)  # fmt: skip
JOBS = (SMALL, LARGE, WIDE)
# For the question where it breaks: so many micro-batches that 16,384 workers have one each.
GROWTH = (
    ScaleJob("1B", "1b", micro_batches=16384, records=1, workers=8, gpus=1),
    ScaleJob("70B", "70b", micro_batches=16384, records=1, workers=8, gpus=8),
)
