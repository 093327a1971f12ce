"""Loss curves over five seeds: the contract's, torch float32's and torch float64's.

    python benchmarks/loss_curves.py [--steps 150] [--json] [--plot loss-curves.png]

For each seed a GPT-2 of the recipe starts from the same weights and sees the same batches in all
three. Dropout is off, so that no generator enters. The script answers two questions. Is the
distance of our curve from float64's no more than torch float32's own? Does our curve stay inside
the band that torch float32 spans over the seeds?
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import torch

from tallystick.commit.data import batch_indices
from tallystick.job.recipes import find_recipe, settings_for
from tallystick.job.recipes.base import Sources
from tallystick.job.recipes.gpt2 import make_module
from tallystick.numerics.types import TensorType
from tallystick.program.executor import Executor

SETTINGS = {"size": "small", "dropout": "0.0", "batch_size": "8", "text_bytes": "200000"}


def curves(seed: int, steps: int) -> dict[str, np.ndarray]:
    """The three loss curves of one seed."""
    recipe = find_recipe("gpt2")
    settings = settings_for(recipe, SETTINGS)
    tokens = recipe.load_data(settings, Sources(), seed).train["tokens"]
    fields = {"tokens": TensorType("i64", tokens.shape[1:])}
    built = recipe.build(settings, fields, steps, seed)
    table: Any = built.schedules["lr"]
    batches = [
        tokens[batch_indices(seed, len(tokens), step, settings.batch_size)] for step in range(steps)
    ]
    return {
        "ours": ours(built, batches, table),
        "torch32": eager(settings, built, batches, table, torch.float32),
        "torch64": eager(settings, built, batches, table, torch.float64),
    }


def ours(built: Any, batches: list[np.ndarray], table: Any) -> np.ndarray:
    executor = Executor(built.captured.program)
    state = {name: array.copy() for name, array in built.initial_state.items()}
    losses = []
    for step, tokens in enumerate(batches):
        result = executor.run_step(state, {"tokens": tokens}, {"lr": table[step]}, (0, step))
        assert result.loss is not None
        losses.append(float(result.loss))
    return np.array(losses)


def eager(
    settings: Any, built: Any, batches: list[np.ndarray], table: Any, dtype: Any
) -> np.ndarray:
    module = make_module(settings).to(dtype)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(built.initial_state[f"param.{name}"]).to(dtype))
    matrices = [p for p in module.parameters() if p.dim() >= 2]
    vectors = [p for p in module.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": settings.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=(settings.beta1, settings.beta2),
    )
    losses = []
    for step, tokens in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = table[step]
        batch = torch.from_numpy(tokens)
        logits = module(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, settings.vocab_size), batch[:, 1:].reshape(-1)
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(module.parameters(), settings.clip_norm)
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(x * x)))


def measure(seeds: int, steps: int) -> tuple[list[dict[str, Any]], list[dict[str, np.ndarray]]]:
    every = [curves(seed, steps) for seed in range(seeds)]
    rows: list[dict[str, Any]] = []
    for seed, c in enumerate(every):
        mine, theirs = rms(c["ours"] - c["torch64"]), rms(c["torch32"] - c["torch64"])
        rows.append({
            "name": f"loss/gpt2/seed{seed}/rms_from_float64",
            "value": mine, "unit": "nat", "target": None, "anchor": theirs,
        })  # fmt: skip
    band = np.stack([c["torch32"] for c in every])
    low, high = band.min(0), band.max(0)
    mean = np.stack([c["ours"] for c in every]).mean(0)
    inside = float(np.mean((mean >= low) & (mean <= high)))
    gap = max(rms(c["ours"] - c["torch32"]) for c in every)
    spread = float(np.mean(band.std(0, ddof=1)))
    rows += [
        {"name": "loss/gpt2/mean_inside_band_share", "value": inside, "unit": "share",
         "target": 1.0, "anchor": "torch float32 min..max over seeds"},
        {"name": "loss/gpt2/worst_gap_to_spread_ratio", "value": gap / spread, "unit": "ratio",
         "target": 1.0, "anchor": "mean standard deviation of torch float32 over seeds"},
    ]  # fmt: skip
    return rows, every


def plot(every: list[dict[str, np.ndarray]], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for seed, c in enumerate(every):
        left.plot(c["ours"], color=f"C{seed}", lw=1, label=f"seed {seed}")
        left.plot(c["torch32"], color=f"C{seed}", lw=1, ls=":")
        right.plot(np.abs(c["ours"] - c["torch64"]) + 1e-12, color="C0", lw=0.8, alpha=0.7)
        right.plot(np.abs(c["torch32"] - c["torch64"]) + 1e-12, color="C1", lw=0.8, alpha=0.7)
    left.set(xlabel="step", ylabel="loss", title="ordered/1 (solid), torch float32 (dotted)")
    left.legend()
    right.set(xlabel="step", yscale="log", title="distance from float64: ours blue, torch orange")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--plot")
    given = parser.parse_args()
    rows, every = measure(given.seeds, given.steps)
    if given.plot:
        plot(every, given.plot)
    if given.json:
        print(json.dumps({"bench": "loss-curves", "rows": rows}))
        return
    for row in rows:
        print(f"{row['name']:45} {row['value']:.3e}   anchor {row['anchor']}")


if __name__ == "__main__":
    main()
