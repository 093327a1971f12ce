"""A small model of each family, trained in many ways: the state roots must be the same.

    python benchmarks/same_bits_families.py [--steps 200] [--threads 1 2 3] [--only TEXT]
        [--eager-step 0.2] [--every-row] [--rows FILE] [--json]

Each member is captured once and trained on every instruction set of this machine and with each
number of threads. Its state roots after a tenth, a quarter, a half, three quarters and all of the
steps are compared; they cover every slot and all losses. Then the same steps run in eager PyTorch
code within `tallystick.reproducible`, with torch.optim's own optimizers: roots over parameters,
buffers and losses. Where such a step takes more than `--eager-step` seconds of processor time, only
the first tenth of the steps. A model has at most 0.5M parameters; they are listed in
`tallystick_bench/families/table.py`.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick.errors import TallystickError
from tallystick_bench.apart import in_a_process, load_first
from tallystick_bench.families.member import Member
from tallystick_bench.families.table import members
from tallystick_bench.families.train import Subject, captured_run, eager_run
from tallystick_bench.machine import machine

LIMIT_S = 1200.0
MOST_PARAMETERS = 500_000


def measure(member: Member, steps: int, threads: list[int], eager_step: float) -> dict[str, Any]:
    """The row: `status` is same, DIFFERENT, refused, or odd (nothing was learnt from it)."""
    torch.set_num_threads(1)
    row: dict[str, Any] = {"family": member.family, "name": member.name}
    tenth = max(1, steps // 10)
    marks = tuple(sorted({tenth, *(max(1, steps * i // 4) for i in (1, 2, 3, 4))}))
    try:
        subject = Subject.of(member, steps)
    except TallystickError as error:
        return row | {"status": "refused", "why": str(error)}
    row |= {"parameters": subject.parameters, "nodes": len(subject.captured.program.nodes)}
    row |= {"steps": steps, "optimizer": _rule(member)}
    if subject.parameters > MOST_PARAMETERS:
        return row | {"status": "odd", "why": f"more than {MOST_PARAMETERS} parameters"}
    runs = {}
    for isa in _core.supported_isas():
        for count in threads:
            name = f"{isa}, {count} thread{'s' if count > 1 else ''}"
            runs[name] = captured_run(subject, ExecutionContext(count, isa), marks)
    first = next(iter(runs.values()))
    eager = eager_run(subject, marks, eager_step)
    eager_steps = len(eager.losses)
    different = [
        f"{name} after {mark} steps"
        for name, run in runs.items()
        for mark in run.roots
        if run.roots[mark] != first.roots[mark]
    ]
    different += [
        f"eager after {mark} steps"
        for mark in eager.weights
        if eager.weights[mark] != first.weights[mark]
    ]
    row |= {
        "eager_steps": eager_steps,
        "root": first.roots[steps],
        "weights_root": first.weights[eager_steps],
        "loss_first": first.losses[0],
        "loss_last": first.losses[-1],
        "seconds": {name: run.seconds for name, run in runs.items()} | {"eager": eager.seconds},
        "different": different,
    }
    if different:
        return row | {"status": "DIFFERENT", "why": "; ".join(different)}
    moved = len(set(first.roots.values())) == len(marks) and len(set(first.losses)) > 1
    if not moved or not all(map(math.isfinite, first.losses)):
        return row | {"status": "odd", "why": "the losses do not move, or are not finite"}
    return row | {"status": "same"}


def _rule(member: Member) -> str:
    rules = member.optimizer
    found = list(rules.values()) if isinstance(rules, Mapping) else [rules]
    return ", ".join(type(rule).__name__ for rule in found)


def show(rows: list[dict[str, Any]]) -> None:
    """The table, as docs/proofs/families.md has it."""
    print("| family | model | optimizer | parameters | nodes | eager steps | first and last loss "
          "| root | |\n|---|---|---|--:|--:|--:|---|---|---|")  # fmt: skip
    for row in rows:
        if "root" not in row:
            print(
                f"| {row['family']} | {row['name']} | | | | | | | {row['status']}: {row['why']} |"
            )
            continue
        print(f"| {row['family']} | {row['name']} | {row['optimizer']} | {row['parameters']:,} "
              f"| {row['nodes']} | {row['eager_steps']} | {row['loss_first']:.4g}, "
              f"{row['loss_last']:.4g} | `{row['root'][:16]}` | {row['status']} |")  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--eager-step", type=float, default=0.2)
    parser.add_argument("--only", default="", help="members whose family or name contains this")
    parser.add_argument("--every-row", action="store_true", help="coverage's other rows too")
    parser.add_argument("--rows", type=Path, help="each row is added to this file, as JSON")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    chosen, absent = members(args.every_row)
    chosen = [m for m in chosen if args.only in m.title]
    torch.set_num_threads(1)
    load_first({m.needs for m in chosen})
    rows: list[dict[str, Any]] = []
    started = time.perf_counter()
    for member in chosen:
        start = {"family": member.family, "name": member.name}
        run = functools.partial(measure, member, args.steps, args.threads, args.eager_step)
        row = in_a_process(run, start, LIMIT_S)
        rows.append(row)
        if args.rows:
            with args.rows.open("a") as file:
                file.write(json.dumps(row) + "\n")
        print(f"{len(rows)}/{len(chosen)} {member.title}: {row['status']} "
              f"({row['total_s']:.1f} s) {row.get('why', '')}",
              file=sys.stderr, flush=True)  # fmt: skip
    totals = Counter(row["status"] for row in rows)
    if args.json:
        print(json.dumps({"bench": "same-bits-families", "torch": torch.__version__,
                          "machine": machine(), "paths": _core.supported_isas(),
                          "threads": args.threads, "totals": totals, "absent": absent,
                          "seconds": time.perf_counter() - started, "rows": rows},
                         indent=1))  # fmt: skip
    else:
        show(rows)
        print(f"\n{len(rows)} members: " + ", ".join(f"{n} {s}" for s, n in totals.most_common()))
    return 0 if set(totals) <= {"same"} else 1


if __name__ == "__main__":
    raise SystemExit(main())
