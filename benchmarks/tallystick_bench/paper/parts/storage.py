"""`bench paper`, storage: bytes of a step's published log, zipped, by bits (OVT's Table 2).

Logs without zip, and other forms, are those of `bench ovt --part storage`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from tallystick.cli.output import note
from tallystick_bench.machine import machine
from tallystick_bench.ovt.classes import places
from tallystick_bench.ovt.models import LARGE, MODELS, QUICK
from tallystick_bench.ovt.parts.storage import sections_logged
from tallystick_bench.ovt.results.store import part_file
from tallystick_bench.paper.context import Context

BITS = (32, 26)
STEPS = 1
# The share of the grid's spacing below which a decision is not logged. The first is the least that
# OVT takes; what is calibrated here lies above the second (docs/OVT.md, thresholds).
SHARES = {"": 0.25, "-calibrated": 0.4999}


def measure(out: Path, context: Context) -> None:
    """One entry a number of bits: stored bytes of a step, by place in the step."""
    for name in QUICK[:1] if context.quick else LARGE:
        about = {
            "machine": machine() | {"threads": context.threads},
            "recipe": MODELS[name].recipe,
            "settings": dict(MODELS[name].pairs),
            "data": context.data(MODELS[name]),
            "steps": STEPS,
            "thresholds": "a quarter of the grid's spacing; calibrated: 0.4999 of it",
        }
        with part_file(out, "storage", name, about, "paper") as part:
            for bits in BITS:
                for suffix, share in SHARES.items():
                    key = f"b{bits}{suffix}"
                    if key not in part.entries:
                        note(f"storage: {name}, {key}")
                    part.get(key, partial(_stored, name, key, bits, share, context))


def _stored(name: str, key: str, bits: int, share: float, context: Context) -> dict[str, Any]:
    job = context.job(name)
    # Thresholds are in units of 2^-40 of a value's power of two (NUMERICS 14.9).
    tau = int(share * 2.0 ** (49 - bits))
    contract = f"replay/1;b={bits};form=published;tau={tau}"
    work = context.work / f"storage-{name}-{key}"
    where = places(job.program)
    found: dict[str, dict[str, float]] = {}
    for line in sections_logged(job, "published", contract, work, STEPS, context.threads):
        row = found.setdefault(where[line["node"]][line["output"]], {"packed": 0.0, "zstd": 0.0})
        row["packed"] += line["payload"]
        row["zstd"] += line["stored"]
    return found
