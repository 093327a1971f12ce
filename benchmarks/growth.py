"""How a step's time and memory grow with layers, width, length and batch, beside torch's.

    python benchmarks/growth.py [--threads 2] [--repeats 5] [--json] [--plot docs/images/growth.png]

A GPT-2 of the recipe (2 layers, width 64, 64 tokens, batch 4, vocabulary 256, no dropout) is varied
in one of the four at a time. Ours executes the captured step; torch runs the same module in eager
float32 with its foreach AdamW and clipping. Time is the fastest of `--repeats` steps, taken in
turns, in processor seconds of all threads, so that other work on the machine counts little. Memory
is the peak of each side's tensors: for ours the planned memory and the state; for torch what its
allocator held at most, parameters, gradients and moments included, as its profiler sees it.
`exponent` is the slope of log(time) over log(size) at the two largest points.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick.job.recipes.gpt2 import Gpt2Settings, build
from tallystick.program.executor import Executor
from tallystick_bench.machine import machine
from tallystick_bench.step import tokens
from tallystick_bench.step_side import TorchStep

SIZES = {
    "layers": ("n_layer", (1, 2, 4, 8)),
    "width": ("n_embd", (64, 128, 256, 512)),
    "length": ("block_size", (32, 64, 128, 256)),
    "batch": ("batch_size", (2, 4, 8, 16)),
}


def settings(**changed: int) -> Gpt2Settings:
    """The middle of all series, with some of its sizes changed."""
    middle: dict[str, Any] = {"n_layer": 2, "n_embd": 64, "block_size": 64, "batch_size": 4}
    return Gpt2Settings(n_head=4, dropout=0.0, schedule="constant", warmup=0, **(middle | changed))


def _processor_seconds(call: Callable[[], object]) -> float:
    before = time.process_time()
    call()
    return time.process_time() - before


def _torchs_peak(step: TorchStep) -> int:
    """Bytes of the parameters and the moments, and of what one more step allocates at most."""
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    held, most = 0, 0
    events = seen.profiler.kineto_results.events()
    for event in sorted(events, key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    kept = sum(p.nbytes for p in step.parameters)
    moments = sum(
        v.nbytes for s in step.optimizer.state.values() for v in s.values() if v.numel() > 1
    )
    # The gradients are among what the step allocates: it begins by dropping the old ones.
    return int(kept + moments + most)


def point(s: Gpt2Settings, threads: int, repeats: int) -> dict[str, float]:
    """Seconds and bytes of both sides for one size."""
    built = build(s, {}, 1, 0)
    state = {name: array.copy() for name, array in built.initial_state.items()}
    executor = Executor(built.captured.program, ExecutionContext(threads))
    theirs = TorchStep(s, threads, built.initial_state)
    theirs.use("foreach")
    batch = tokens(s, s.batch_size)

    def ours() -> None:
        executor.run_step(state, {"tokens": batch}, {"lr": s.lr}, (0, 0))

    ours()
    theirs()
    mine, other = [], []
    for _ in range(repeats):
        mine.append(_processor_seconds(ours))
        other.append(_processor_seconds(theirs))
    memory = executor.arena_bytes + sum(a.nbytes for a in state.values())
    return {"seconds": min(mine), "torch_seconds": min(other),
            "bytes": memory, "torch_bytes": _torchs_peak(theirs)}  # fmt: skip


def _slope(sizes: tuple[int, ...], values: list[float]) -> float:
    return math.log(values[-1] / values[-2]) / math.log(sizes[-1] / sizes[-2])


def measure(threads: int, repeats: int) -> list[dict[str, Any]]:
    """A row for each of the four, with its points."""
    rows: list[dict[str, Any]] = []
    for name, (key, sizes) in SIZES.items():
        points = [point(settings(**{key: size}), threads, repeats) for size in sizes]
        series = {k: [p[k] for p in points] for k in points[0]}
        exponents = {k: _slope(sizes, values) for k, values in series.items()}
        rows.append({"name": f"growth/{name}/time_ratio", "unit": "ratio", "sizes": sizes,
                     "value": series["seconds"][-1] / series["torch_seconds"][-1],
                     "series": series, "exponents": exponents})  # fmt: skip
    return rows


def plot(rows: list[dict[str, Any]], path: str) -> None:
    """Time above, memory below, a column for each of the four, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator

    figure, axes = plt.subplots(2, len(rows), figsize=(12, 5.5), sharex="col")
    for column, row in enumerate(rows):
        name = row["name"].split("/")[1]
        for line, (key, scale, label) in enumerate(
            (("seconds", 1e3, "processor ms a step"), ("bytes", 2.0**-20, "memory, MiB"))
        ):
            axis = axes[line][column]
            for side, prefix, style in (
                ("ordered/1", "", "C0o-"),
                ("torch eager", "torch_", "C1s--"),
            ):
                values = [v * scale for v in row["series"][prefix + key]]
                slope = row["exponents"][prefix + key]
                axis.plot(row["sizes"], values, style, ms=4, label=f"{side}, slope {slope:.2f}")
            axis.set(xscale="log", yscale="log")
            axis.set_xticks(row["sizes"], [str(s) for s in row["sizes"]])
            axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
            axis.minorticks_off()
            axis.grid(alpha=0.3)
            axis.legend(fontsize=8)
            if column == 0:
                axis.set_ylabel(label)
        axes[1][column].set_xlabel(name)
    figure.suptitle("A training step of a small GPT-2 (2 layers, width 64, 64 tokens, batch 4)")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=int(_core.threads()))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--plot", help="a PNG file (needs matplotlib)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = measure(args.threads, args.repeats)
    if args.plot:
        plot(rows, args.plot)
    if args.json:
        print(json.dumps({"bench": "growth", "threads": args.threads, "torch": torch.__version__,
                          "machine": machine(), "rows": rows}, indent=1))  # fmt: skip
        return
    for row in rows:
        print(row["name"], row["sizes"])
        for key, values in row["series"].items():
            print(f"  {key:14}", *(f"{v:10.4g}" for v in values),
                  f"  slope {row['exponents'][key]:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
