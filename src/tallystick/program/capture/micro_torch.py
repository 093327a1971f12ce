"""A step over micro-batches by torch: one pass after the other, added up (PROGRAM 5.9, 6.10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch

from tallystick.program.capture.micro import SUM, MicroBatches, cut
from tallystick.program.capture.torch_step import Array, Inputs, Results, torch_step
from tallystick.program.capture.trace import Request


def torch_micro_steps(
    request: Request,
    modes: Mapping[str, bool],
    dtype: torch.dtype,
    inputs: Inputs,
    shake: int | None,
    micro: MicroBatches,
    draws: int,
) -> Results:
    """`torch_step` of each micro-batch of `inputs`, which has the whole batch.

    Each one begins with the buffers that the one before left, and draws `draws` random numbers of
    its own. Loss and gradients are added up and divided once, in float64; the outputs are those of
    the first.
    """
    state = dict(inputs.state)
    done: list[Results] = []
    for part, batch in enumerate(cut(inputs.batch, micro.parts)):
        here = replace(inputs, state=state, batch=batch, draws=part * draws)
        # The buffers of a later one are torch's already: only weights and batch are shaken.
        found = torch_step(request, modes, dtype, here, shake, micro.collect)
        done.append(found)
        state |= {f"buffer.{k}": _kept(state[f"buffer.{k}"], v, dtype)
                  for k, v in found.buffers.items()}  # fmt: skip
    divisor = sum(r.count for r in done) if micro.loss_over == SUM else float(micro.parts)
    names = sorted({name for r in done for name in r.gradients})
    gradients = {
        name: sum((r.gradients[name] for r in done if name in r.gradients), np.float64(0)) / divisor
        for name in names
    }
    return Results(
        sum(r.loss for r in done) / divisor,
        {name: np.asarray(g) for name, g in gradients.items()},
        done[-1].buffers,
        done[0].outputs,
    )


def _kept(before: Array, after: Array, dtype: torch.dtype) -> Array:
    """A buffer after a pass, in the precision in which the next one reads it."""
    if before.dtype.kind != "f":
        return after.astype(before.dtype)
    return after if dtype == torch.float64 else after.astype(np.float32)
