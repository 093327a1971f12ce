"""`bench paper`, verde: a step or a forward pass over PyTorch's (Verde's Tables 1 and 2).

Ours and plain PyTorch float32 (eager) take turns in one process, on the same threads; medians.
Verde's overhead is the ratio of times less one.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tallystick.cli.output import note
from tallystick.devices.context import ExecutionContext
from tallystick.numerics.contracts import resolve_contract
from tallystick.program.capture import capture_forward
from tallystick.program.executor import Executor
from tallystick.program.tables import number_at
from tallystick_bench.machine import machine
from tallystick_bench.memory import peak_bytes
from tallystick_bench.ovt.results.store import part_file
from tallystick_bench.paper import nets
from tallystick_bench.paper.context import Context
from tallystick_bench.step_models import Net
from tallystick_bench.step_nets import TorchNet, captured
from tallystick_bench.step_time import in_turns, load

CONTRACTS = {"ordered": "ordered/1", "exact-b22": "exact/1;b=22", "rounded": "rounded/1"}
REPEATS, QUICK_REPEATS = 7, 2


def measure(out: Path, context: Context) -> None:
    """One file a model and task, one entry a piece and contract."""
    for (model, task), pieces in (nets.QUICK if context.quick else nets.TASKS).items():
        if context.models and model not in context.models:
            continue
        repeats = QUICK_REPEATS if context.quick else REPEATS
        about = {
            "machine": machine() | {"threads": context.threads},
            "pieces": {name: f"{p.times:g} × {p.what}" for name, p in pieces.items()},
            "batch": "{} of {} tokens".format(*next(iter(pieces.values())).batch),
            "optimizer": "none" if task == "inference" else "Adam",
            "repeats": repeats,
            "weights": "random",
        }
        with part_file(out, "verde", f"{model}.{task}", about, "paper") as part:
            for name, piece in pieces.items():
                for contract, full in CONTRACTS.items():
                    key = f"{name}.{contract}"
                    if key not in part.entries:
                        note(f"verde: {model} {task}, {name} under {full}")
                    run = partial(_measured, piece, task, full, context.threads, repeats)
                    part.get(key, run)
                    gc.collect()


def _measured(
    piece: nets.Piece, task: str, contract: str, threads: int, repeats: int
) -> dict[str, Any]:
    """Seconds of every turn of both sides."""
    torch.set_num_threads(threads)
    net, before = piece.net(), load()
    make = _inference if task == "inference" else _training
    calls = make(net, contract, threads)
    seconds = in_turns(calls, repeats)
    return {
        "seconds": seconds,
        "ratio": statistics.median(seconds["ours"]) / statistics.median(seconds["plain"]),
        "parameters": sum(p.numel() for p in net.module.parameters()),
        "trained": sum(p.numel() for p in net.module.parameters() if p.requires_grad),
        "peak_bytes": peak_bytes(),
        "load": [before, load()],
    }


def _inference(net: Net, contract: str, threads: int) -> dict[str, Callable[[], object]]:
    """Both sides of a forward pass, over one copy of the weights."""
    net.module.eval()
    tokens = {"tokens": net.batch["tokens"]}
    program = capture_forward(net.module, tokens, nets.forward, resolve_contract(contract))
    tensors: dict[str, torch.Tensor] = {f"param.{n}": t for n, t in net.module.named_parameters()}
    tensors |= {f"buffer.{n}": t for n, t in net.module.named_buffers()}
    state = {name: tensors[name].detach().numpy() for name in program.state_types}
    executor = Executor(program, ExecutionContext(threads))
    batch = {name: tensor.numpy() for name, tensor in tokens.items()}

    def plain() -> None:
        with torch.no_grad():
            nets.forward(net.module, tokens)

    return {"plain": plain, "ours": lambda: executor.run_step(state, batch)}


def _training(net: Net, contract: str, threads: int) -> dict[str, Callable[[], object]]:
    """Both sides of a training step: forward, loss, backward, Adam."""
    step = captured(net)
    program = replace(step.program, contract=resolve_contract(contract))
    executor = Executor(program, ExecutionContext(threads))
    assert step.initial_state is not None
    state = {name: array.copy() for name, array in step.initial_state.items()}
    step.initial_state.clear()
    batch = {name: tensor.numpy() for name, tensor in net.batch.items()}
    rates = {name: number_at(value, 1) for name, value in step.scalars.items()}
    count = iter(range(1 << 40))
    plain = TorchNet(net, threads)
    plain.use("fused")
    return {
        "plain": plain,
        "ours": lambda: executor.run_step(state, batch, rates, (0, next(count))),
    }
