"""Loss curves under `exact/1` for each b beside `ordered/1`: a small GPT-2, some seeds.

    python benchmarks/exact_curves.py [--steps 150] [--seeds 2] [--json FILE]

Weights, batches and the schedule are equal for all contracts of a seed. Printed for each contract:
the mean loss of the last tenth of the steps, and the mean and largest distance of the curve from
that of `ordered/1`; beside them the distance between two seeds, which is what luck makes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.run.execute.trainer import Options, train_job

CONTRACTS = ("ordered/1", "exact/1;b=22", "exact/1;b=15", "exact/1;b=8")
SIZES = {
    "n_layer": "2", "n_head": "4", "n_embd": "64", "block_size": "32", "batch_size": "8",
    "warmup": "10", "dropout": "0.0",
}  # fmt: skip
TEXT = Path(__file__).resolve().parents[1] / "spec" / "NUMERICS.md"


def curve(contract: str, steps: int, seed: int) -> np.ndarray:
    """The losses of one run."""
    with tempfile.TemporaryDirectory() as scratch:
        job = new_job(
            "gpt2", Path(scratch) / "job", SIZES, Sources(text=TEXT), steps=steps, seed=seed,
            evaluate_every=0, contract=contract,
        )  # fmt: skip
        run = train_job(job, Path(scratch) / "run", Options())
        return np.array([float(x) for x in run.losses])


def main() -> None:
    """Train, print, and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    curves = {c: [curve(c, given.steps, s) for s in range(given.seeds)] for c in CONTRACTS}
    last = max(1, given.steps // 10)
    rows: dict[str, Any] = {}
    for name, found in curves.items():
        apart = np.abs(np.array(found) - np.array(curves["ordered/1"]))
        rows[name] = {
            "last losses": [round(float(f[-last:].mean()), 4) for f in found],
            "mean distance": float(apart.mean()),
            "largest distance": float(apart.max()),
        }
        print(name, rows[name], flush=True)
    if given.seeds > 1:
        two = curves["ordered/1"][:2]
        rows["two seeds of ordered/1"] = {"mean distance": float(np.abs(two[0] - two[1]).mean())}
        print(rows["two seeds of ordered/1"])
    if given.json is not None:
        stored = {name: [f.tolist() for f in found] for name, found in curves.items()}
        given.json.write_text(json.dumps({"rows": rows, "curves": stored}, indent=1) + "\n")


if __name__ == "__main__":
    main()
