"""`bench paper`, bits: test loss and a trainer's time by bits kept (OVT's Figure 5 c and d).

One trainer of the published form for each number of bits and plain PyTorch in float32 and float64,
in one process on the same batches. They take their steps in turns, so the times are interleaved.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.cli.output import note
from tallystick.contracts.replay.stock.emulated import kind_named
from tallystick.devices.context import ExecutionContext
from tallystick.job.job import Job
from tallystick.run.execute.evaluation import Evaluator
from tallystick_bench.machine import machine
from tallystick_bench.ovt.models import LONG, MODELS, QUICK
from tallystick_bench.ovt.parties.arms import PLAIN, open_arm
from tallystick_bench.ovt.parties.party import Party, batch_of
from tallystick_bench.ovt.results.paper import BITS
from tallystick_bench.ovt.results.store import part_file
from tallystick_bench.paper.context import Context
from tallystick_bench.step_time import load

STEPS, QUICK_STEPS = 40, 3


def measure(out: Path, context: Context) -> None:
    """One entry a model: losses and seconds of every step of every side, and its test loss."""
    steps = QUICK_STEPS if context.quick else STEPS
    bits = (BITS[0], BITS[-1]) if context.quick else BITS
    for name in QUICK[:1] if context.quick else LONG:
        model = MODELS[name]
        about = {
            "machine": machine() | {"threads": context.threads},
            "recipe": model.recipe,
            "settings": dict(model.pairs),
            "data": context.data(model),
            "steps": steps,
            "contract": "replay/1;form=published, b as named",
        }
        with part_file(out, "bits", name, about, "paper") as part:
            if "sides" not in part.entries:
                note(f"bits: {name}, {steps} steps of {len(bits) + 2} sides")
            part.get("sides", partial(_sides, name, bits, steps, context))


class _Plain:
    """Plain PyTorch training as a side."""

    def __init__(self, job: Job, model: str, dtype: str, threads: int) -> None:
        import torch

        from tallystick_bench.ovt.parties.plain import PlainStep

        self.job, self.number = job, 0
        self.step = PlainStep(MODELS[model], job.genesis().slots, getattr(torch, dtype), threads)

    def advance(self) -> float:
        self.step(batch_of(self.job, self.number))
        self.number += 1
        return self.step.loss

    def slots(self) -> dict[str, Any]:
        """Parameters and buffers as float32, by slot."""
        found = {}
        for prefix, tensors in (
            ("param.", self.step.module.named_parameters()),
            ("buffer.", self.step.module.named_buffers()),
        ):
            for name, tensor in tensors:
                array = tensor.detach().numpy()
                found[prefix + name] = (
                    array.astype(np.float32) if array.dtype == np.float64 else array
                )
        return found


class _Logged:
    """A trainer of the published form at so many bits; its logs are deleted as they come."""

    def __init__(self, job: Job, bits: int, work: Path, threads: int) -> None:
        contract = f"replay/1;b={bits};form=published"
        arm = open_arm("published", contract, job, kind_named(PLAIN), False, work, threads)
        self.party, self.log_bytes = Party(job, arm), 0

    def advance(self) -> float:
        found = self.party.advance(None)
        self.log_bytes = found["log_bytes"]
        Path(found["log"]).unlink()
        return float(found["loss"])

    def slots(self) -> dict[str, Any]:
        return dict(self.party.slots)


def _sides(name: str, bits: tuple[int, ...], steps: int, context: Context) -> dict[str, Any]:
    job = context.job(name)
    sides: dict[str, _Plain | _Logged] = {
        dtype: _Plain(job, name, dtype, context.threads) for dtype in ("float32", "float64")
    }
    for b in bits:
        sides[f"b{b}"] = _Logged(job, b, context.work / f"bits-{name}-{b}", context.threads)
    losses: dict[str, list[float]] = {side: [] for side in sides}
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    before = load()
    for _ in range(steps):
        for side, party in sides.items():
            began = time.perf_counter()
            losses[side].append(party.advance())
            seconds[side].append(time.perf_counter() - began)
    evaluator = Evaluator(job, ExecutionContext(context.threads))
    found = {side: evaluator.loss(party.slots()) for side, party in sides.items()}
    for party in sides.values():
        if isinstance(party, _Logged):
            party.party.arm.close()
    return {
        "losses": losses,
        "seconds": seconds,
        "test_loss": found,
        "test_records": job.evaluation.record_count if job.evaluation else 0,
        "load": [before, load()],
    }
