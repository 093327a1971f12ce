"""A training step's time, operator by operator, beside torch's.

    python benchmarks/profile_step.py [--threads 2] [--steps 3] [--isa avx2] [--torch]
                                      [--set n_layer=12 ...]

Our side times every prepared call of the executor; `copies` are operands made contiguous.
GFLOP/s counts 2·M·K·N of products; GB/s counts every operand and output once.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tallystick import _core
from tallystick.contracts.ordered.cpu import kernel
from tallystick.devices.context import ExecutionContext
from tallystick.job.recipes.gpt2 import Gpt2Settings, build
from tallystick.program.executor import Executor
from tallystick.program.ir import op_spec
from tallystick_bench.step import MODELS, tokens
from tallystick_bench.step_side import TorchStep

Array = np.ndarray


class ProfiledExecutor(Executor):
    """Executes like its parent and notes the seconds and size of each call."""

    def profile(self, steps: int, run: Callable[[], object]) -> dict[str, tuple[float, ...]]:
        """Medians over `steps` of seconds, with calls, bytes and flops, by operator."""
        run()
        assert self._bound is not None
        original = self._bound.calls
        seconds: dict[str, list[float]] = defaultdict(list)
        self._bound.calls = [self._timed(call, seconds) for call in original]
        totals: dict[str, list[float]] = defaultdict(list)
        for _ in range(steps):
            seconds.clear()
            run()
            for name, values in seconds.items():
                totals[name].append(sum(values))
        self._bound.calls = original
        size: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for call in original:
            _, _, inputs, outputs, _ = call
            entry = size[self._name(call)]
            entry[0] += 1
            entry[1] += sum(a.nbytes for a in (*inputs, *outputs) if a is not None)
            entry[2] += self._flops(call)
        return {name: (statistics.median(v), *size[name]) for name, v in totals.items()}

    def _name(self, call: Any) -> str:
        run, _, _, _, index = call
        node = self.program.nodes[index]
        own = node.op in kernel and run is kernel[node.op].run
        return node.op if own else f"copies for {node.op}"

    def _flops(self, call: Any) -> float:
        _, _, inputs, outputs, index = call
        if op_spec(self.program.nodes[index].op).op_class != "dot":
            return 0.0
        return float(2.0 * outputs[0].size * inputs[-1].shape[-2])

    def _timed(self, call: Any, seconds: dict[str, list[float]]) -> Any:
        run, attrs, inputs, outputs, index = call
        name = self._name(call)

        def timed(attrs: Any, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> None:
            start = time.perf_counter()
            run(attrs, inputs, outputs)
            seconds[name].append(time.perf_counter() - start)

        return timed, attrs, inputs, outputs, index


def report(found: dict[str, tuple[float, ...]]) -> str:
    """A table, the slowest operator first."""
    total = sum(entry[0] for entry in found.values())
    lines = [f"{'ms':>9}  share  calls   GB/s  GFLOP/s  operator"]
    for name, (seconds, calls, moved, flops) in sorted(found.items(), key=lambda e: -e[1][0]):
        rate = f"{flops / seconds / 1e9:8.0f}" if flops else " " * 8
        lines.append(
            f"{seconds * 1e3:9.1f} {seconds / total:6.1%} {calls:6.0f} "
            f"{moved / max(seconds, 1e-9) / 1e9:6.1f} {rate}  {name}"
        )
    return "\n".join([*lines, f"{total * 1e3:9.1f}  in all"])


def torch_report(settings: Gpt2Settings, threads: int, weights: dict[str, Array]) -> str:
    """torch's own profile of the same step, fused AdamW."""
    from torch.profiler import profile

    step = TorchStep(settings, threads, weights)
    step.use("fused")
    step()
    with profile() as profiled:
        step()
    averages = profiled.key_averages()
    return str(averages.table(sort_by="self_cpu_time_total", row_limit=25))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--isa", default=str(_core.isa()), choices=list(_core.supported_isas()))
    parser.add_argument("--torch", action="store_true", help="torch's profile too")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="gpt2 settings")
    given = parser.parse_args()
    _core.set_isa(given.isa)
    values = dict(vars(MODELS["gpt2-124m"].settings))
    for item in given.set:
        key, _, value = item.partition("=")
        values[key] = type(values[key])(float(value))
    settings = Gpt2Settings(**values)
    built = build(settings, {}, 1, 0)
    weights = {name: array.copy() for name, array in built.initial_state.items()}
    batch = {"tokens": tokens(settings, settings.batch_size)}
    executor = ProfiledExecutor(built.captured.program, ExecutionContext(given.threads))

    def run() -> None:
        executor.run_step(built.initial_state, batch, {"lr": settings.lr}, (0, 0))

    print(f"{given.isa}, {given.threads} threads")
    print(report(executor.profile(given.steps, run)))
    if given.torch:
        print(torch_report(settings, given.threads, weights))


if __name__ == "__main__":
    main()
