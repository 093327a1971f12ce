"""Root-mean-square error of every float operator against binary64, as a ratio to torch float32's.

    python benchmarks/accuracy.py [--json] [--seeds 20] [--only aten.gelu]

A row's value is RMSE(ours) / RMSE(torch float32), both against torch's binary64 result on the same
binary32 inputs, over all elements of all seeds. Where both are exact the ratio is 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parent))
from accuracy_cases import Case, basic_cases, excluded
from accuracy_cases_attention import attention_cases
from accuracy_cases_image import image_cases
from accuracy_cases_nn import composite_cases
from tallystick import _core
from tallystick.contracts.ordered.cpu import run_of
from tallystick.numerics.registry import all_ops, check_attrs, lookup
from tallystick.numerics.types import DTYPES, type_of

TARGET = 1.05


def evaluate(op: str, attrs: dict[str, Any], inputs: list[np.ndarray | None]) -> list[np.ndarray]:
    """Our operator, as the executor runs it; None is an absent operand."""
    spec = lookup(op)
    check_attrs(spec, attrs)
    dense = [None if x is None else np.ascontiguousarray(x).reshape(x.shape) for x in inputs]
    types = spec.infer(attrs, tuple(None if x is None else type_of(x) for x in dense))
    outputs = [np.empty(t.shape, DTYPES[t.dtype]) for t in types]
    run_of(op)(attrs, dense, outputs)
    return outputs


def ours(case: Case, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The outputs of our operator; a loss's backward follows its own forward."""
    if case.op == "tallystick.cross_entropy_backward":
        forward = evaluate("tallystick.cross_entropy", case.attrs, [*inputs[1:]])
        inputs = [*inputs, *forward[1:]]
    if case.op == "aten.native_batch_norm_backward" and case.attrs["train"]:
        return evaluate(case.op, case.attrs, [*inputs[:3], None, None, *inputs[3:]])
    return evaluate(case.op, case.attrs, [*inputs])


def torchs(case: Case, inputs: list[np.ndarray], dtype: torch.dtype) -> list[np.ndarray]:
    """torch's outputs with float inputs in `dtype` (0-d binary64 scalars stay)."""
    tensors = [torch.from_numpy(np.asarray(x).copy()) for x in inputs]
    tensors = [t.to(dtype) if t.dtype == torch.float32 else t for t in tensors]
    result = case.torch_fn(*tensors)
    many = result if isinstance(result, (tuple, list)) else [result]
    return [t.detach().numpy() for t in many]


def measure(case: Case, seeds: int) -> list[dict[str, Any]]:
    """One row per named output."""
    count = len(case.outputs)
    squares, elements = np.zeros((2, count)), np.zeros(count)
    for seed, draw in itertools.product(range(seeds), range(case.draws)):
        inputs = [np.asarray(x) for x in case.make(np.random.default_rng([seed, draw]))]
        truth = torchs(case, inputs, torch.float64)
        mine, theirs = ours(case, inputs), torchs(case, inputs, torch.float32)
        for i in range(count):
            elements[i] += truth[i].size
            for which, got in enumerate((mine[i], theirs[i])):
                assert got.dtype == np.float32, (case.op, got.dtype)
                error = got.astype(np.float64).reshape(-1) - truth[i].reshape(-1)
                squares[which, i] += float(np.dot(error, error))
    rows = []
    for i, output in enumerate(case.outputs):
        mine_rms, their_rms = (math.sqrt(s / elements[i]) for s in squares[:, i])
        row = {"name": case.row_name(output), "unit": "ratio", "target": TARGET}
        row["anchor"] = f"torch {torch.__version__} float32"
        row["rmse"], row["torch_rmse"] = mine_rms, their_rms
        if mine_rms == their_rms:
            row["value"] = 1.0
        else:
            row["value"] = mine_rms / their_rms if their_rms else math.inf
        if mine_rms == 0 and their_rms == 0:
            row["note"] = "both exact"
        rows.append(row)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """One line per row: ratio, our error, torch's."""
    for row in rows:
        over = " OVER" if row["value"] > TARGET else ""
        errors = f"{row['rmse']:.3e} {row['torch_rmse']:.3e} {row.get('note', '')}"
        print(f"{row['name']:62s} {row['value']:8.4f}  {errors}{over}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", default="", help="operators whose name contains this")
    args = parser.parse_args()
    known = [*basic_cases(), *composite_cases(), *attention_cases(), *image_cases()]
    cases = [c for c in known if args.only in c.row_name("")]
    missing = set(all_ops()) - {c.op for c in known} - excluded()
    if missing:
        print(f"No case and no reason for {', '.join(sorted(missing))}.", file=sys.stderr)
    torch.set_num_threads(1)
    rows = []
    for case in cases:
        found = measure(case, args.seeds)
        rows += found
        if not args.json:
            show(found)
    if args.json:
        machine = {
            "platform": f"{platform.system()} {platform.machine()}",
            "isa": _core.isa(),
            "torch": torch.__version__,
            "torch_isa": torch.backends.cpu.get_cpu_capability(),
        }
        finite = [{**r, "value": r["value"] if math.isfinite(r["value"]) else "inf"} for r in rows]
        print(json.dumps({"bench": "accuracy", "machine": machine, "rows": finite}))
    return 1 if missing or any(not row["value"] <= TARGET for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
