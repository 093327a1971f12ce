"""The jobs that the page reckons with."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class ScaleJob:
    """A training: `shape` in `micro_batches` of `records` each, by `workers` of `gpus` GPUs.

    `cut`: a tensor may have several owners; as built it has one (program/owners.py), and worker 0
    alone stores and loads states. States are hashed every `interval` steps;
    `kept` of them stay stored for audits and disputes.
    """

    name: str
    shape: str
    micro_batches: int
    records: int
    workers: int
    gpus: int
    cut: bool = False
    interval: int = 20
    kept: int = 100
    note: str = ""


SMALL = ScaleJob("1B", "1b", micro_batches=256, records=4, workers=64, gpus=1)
LARGE = ScaleJob("70B", "70b", micro_batches=64, records=1, workers=64, gpus=8)
# If the limit on a program's nodes were raised.
WIDE = ScaleJob("70B, wide", "70b", micro_batches=2048, records=1, workers=1024, gpus=8)
WIDE_CUT = replace(WIDE, name="70B, wide, cut", cut=True)
JOBS = (SMALL, LARGE, WIDE, WIDE_CUT)
# For the question where it breaks: so many micro-batches that 16,384 workers have one each.
_MANY_SMALL = ScaleJob("1B", "1b", micro_batches=16384, records=1, workers=8, gpus=1)
_MANY_LARGE = ScaleJob("70B", "70b", micro_batches=16384, records=1, workers=8, gpus=8)
GROWTH = (
    _MANY_SMALL,
    _MANY_LARGE,
    replace(_MANY_SMALL, name="1B, cut", cut=True),
    replace(_MANY_LARGE, name="70B, cut", cut=True),
)
