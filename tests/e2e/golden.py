"""The golden jobs: corpora made here from fixed rules, the same on every machine and version.

    python tests/e2e/golden.py --write      after a deliberate change of bits (a new draft)
    python tests/e2e/golden.py --rounded    the same for rounded/1
    python tests/e2e/golden.py --exact      the same for exact/1
    PYTHONPATH=tests python tests/e2e/golden.py --format-two    the same for jobs of formats 2 and 3
    python tests/e2e/golden.py --recipes    the same for the recipes that came later

Writes vectors/runs/roots.json and the small old run vectors/runs/logreg-run, which every later
version must still read; vectors/runs/rounded-roots.json; vectors/runs/exact-roots.json;
vectors/runs/format-two-roots.json; vectors/runs/recipe-roots.json.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

from tallystick.commit.signing import PrivateKey
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.program.validation import StopRule
from tallystick.run.execute.trainer import Options, RunSummary, train_job

RUNS = Path(__file__).parents[2] / "vectors" / "runs"
ROOTS = RUNS / "roots.json"
ROUNDED_ROOTS = RUNS / "rounded-roots.json"
EXACT_ROOTS = RUNS / "exact-roots.json"
FORMAT_TWO_ROOTS = RUNS / "format-two-roots.json"
RECIPE_ROOTS = RUNS / "recipe-roots.json"
OLD_RUN = RUNS / "logreg-run"
NAMES = ("logreg", "mlp", "gpt2", "resnet50")
# Runs under rounded/1 and one of its other grids.
ROUNDED = (
    ("logreg", "rounded/1"),
    ("mlp", "rounded/1"),
    ("mlp", "rounded/1;b=28"),
    ("gpt2", "rounded/1"),
    ("resnet50", "rounded/1"),
)
# Runs under exact/1, of 200 steps.
EXACT = (
    *((name, f"exact/1;b={b}") for name in ("mlp", "gpt2") for b in (8, 15, 22)),
    ("resnet50", "exact/1;b=22"),
)
EXACT_STEPS = {"mlp": 200, "gpt2": 200, "resnet50": 100}
# Jobs of format 2: validation whose run stops by its slot, micro-batches. Of the first one the run
# ends before the job does. Then jobs of format 3, whose passes read every held-out record.
FORMAT_TWO = (
    ("validated", "ordered/1"),
    ("validated", "rounded/1"),
    ("validated", "exact/1;b=15"),
    ("micro", "ordered/1"),
    ("micro", "rounded/1"),
    ("micro", "exact/1;b=15"),
    ("many-micro", "ordered/1"),
    ("shuffled-short", "ordered/1"),
    ("shuffled-short", "exact/1;b=15"),
    ("sequential-short", "ordered/1"),
    ("sequential-short", "rounded/1"),
    ("shuffled-drop", "ordered/1"),
)
WORDS = "the tally stick was split in two so neither side could change what both had seen".split()

SETTINGS = {
    "logreg": {"features": "6", "classes": "3", "records": "64", "batch_size": "4"},
    "mlp": {
        "features": "12", "classes": "4", "records": "256", "hidden": "24", "batch_size": "16",
        "dropout": "0.2", "activation": "gelu", "optimizer": "adam", "weight_decay": "0.01",
        "clip_norm": "1.0",
    },
    "gpt2": {
        "n_layer": "2", "n_head": "2", "n_embd": "32", "block_size": "16", "batch_size": "4",
        "warmup": "10", "dropout": "0.1",
    },
    "resnet50": {
        "size": "tiny", "stem": "imagenet", "image": "24", "warmup": "10", "lr": "0.01",
        "clip_norm": "1.0",
    },
}  # fmt: skip
# Runs under ordered/1 of the larger recipes at tiny sizes: name, recipe and settings.
RECIPES = {
    "vgg11": ("vgg11", {"size": "tiny", "clip_norm": "1.0"}),
    "vgg11 batch_norm": ("vgg11", {"size": "tiny", "batch_norm": "true"}),
    "distilbert": ("distilbert", {"size": "tiny"}),
    "distilbert mlm": ("distilbert", {"size": "tiny", "task": "mlm"}),
    "llama": (
        "llama",
        {"size": "tiny", "rope_factor": "8", "rope_original": "64", "attention_dropout": "0.1"},
    ),
    "llama-lora": ("llama-lora", {"size": "tiny", "target_modules": "all", "lr": "0.01"}),
}
RECIPE_STEPS = 100
STEPS = {"logreg": 100, "mlp": 120, "gpt2": 120, "resnet50": 100}


def corpus() -> bytes:
    """20,000 bytes of words chosen by a linear congruential generator."""
    state, text = 12345, []
    while len(text) < 5000:
        state = (state * 1103515245 + 12345) % 2**31
        text.append(WORDS[(state >> 16) % len(WORDS)])
    return " ".join(text).encode()[:20000]


def golden_job(
    name: str,
    directory: Path,
    contract: str = "ordered/1",
    evaluate_every: int = 50,
    steps: int | None = None,
) -> Job:
    """The golden job `name` (of `NAMES`) in `directory`/`name`."""
    directory.mkdir(parents=True, exist_ok=True)
    sources = Sources()
    if name == "gpt2":
        text = directory / "corpus.txt"
        text.write_bytes(corpus())
        sources = Sources(text=text)
    return new_job(
        name, directory / name, SETTINGS[name], sources, steps=steps or STEPS[name], seed=11,
        evaluate_every=evaluate_every, contract=contract,
    )  # fmt: skip


def recipe_job(name: str, directory: Path) -> Job:
    """The golden job `name` (of `RECIPES`) in `directory`/`job`."""
    recipe, settings = RECIPES[name]
    sources = Sources()
    if recipe.startswith("llama") or settings.get("task") == "mlm":
        text = directory / "corpus.txt"
        text.write_bytes(corpus())
        sources = Sources(text=text)
    return new_job(
        recipe, directory / "job", settings, sources, steps=RECIPE_STEPS, seed=11, evaluate_every=50
    )


def format_two_job(name: str, directory: Path, contract: str) -> Job:
    """The golden job `name` (of `FORMAT_TWO`) in `directory`/`name`."""
    from format_three import make_stream_job
    from format_two import make_micro_job

    path = directory / name
    order, _, end = name.partition("-")
    if order in ("shuffled", "sequential"):
        return make_stream_job(
            path, 11 if end == "short" else 8, order, contract, steps=120, interval=14,
            validates=True,
        )  # fmt: skip
    if name == "validated":
        settings = {**SETTINGS["mlp"], "validation": "0.25", "dropout": "0.2", "lr": "0.02"}
        return new_job(
            "mlp", path, settings, steps=400, seed=11, evaluate_every=20, contract=contract,
            stop_rule=StopRule(3),
        )  # fmt: skip
    v, rows, rate = (4, 3, 0.05) if name == "micro" else (300, 1, 0.0005)
    return make_micro_job(
        path, v, contract, rows=rows, steps=120, interval=20, width=17, records=50, rate=rate
    )


def entry_two(job: Job, run: RunSummary) -> dict[str, object]:
    """What is golden about a run of format 2."""
    digests = [p.digest.hex() for p in job.commitment.timetable.programs]
    return {
        "contract": run.contract,
        "program_digests": digests,
        "job_digest": job.digest.hex(),
        "run_root": run.run_root.hex(),
        "final_step": run.steps,
        "final_loss": run.losses[-1].hex(),
    }


def entry(job: Job, run: RunSummary) -> dict[str, object]:
    """What is golden about a run."""
    return {
        "contract": run.contract,
        "program_digest": job.commitment.program_digest.hex(),
        "job_digest": job.digest.hex(),
        "run_root": run.run_root.hex(),
        "final_loss": run.losses[-1].hex(),
    }


def write() -> None:
    """Make the golden files anew."""
    RUNS.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(OLD_RUN, ignore_errors=True)
    roots = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in NAMES:
            job = golden_job(name, Path(scratch))
            out = OLD_RUN if name == "logreg" else Path(scratch) / f"{name}-run"
            options = Options(key=PrivateKey.generate(), trace=(20, 21))
            roots[name] = entry(job, train_job(job, out, options))
    ROOTS.write_text(json.dumps(roots, indent=2, sort_keys=True) + "\n")


def write_rounded() -> None:
    """Make the golden roots of rounded/1 anew."""
    roots = {}
    for name, contract in ROUNDED:
        with tempfile.TemporaryDirectory() as scratch:
            job = golden_job(name, Path(scratch), contract)
            run = train_job(job, Path(scratch) / "run", Options())
            roots[f"{name} {contract}"] = entry(job, run)
    ROUNDED_ROOTS.write_text(json.dumps(roots, indent=2, sort_keys=True) + "\n")


def write_exact() -> None:
    """Make the golden roots of exact/1 anew."""
    roots = {}
    for name, contract in EXACT:
        with tempfile.TemporaryDirectory() as scratch:
            job = golden_job(name, Path(scratch), contract, steps=EXACT_STEPS[name])
            run = train_job(job, Path(scratch) / "run", Options())
            roots[f"{name} {contract}"] = entry(job, run)
            print(name, contract, run.losses[0], run.losses[-1], flush=True)
    EXACT_ROOTS.write_text(json.dumps(roots, indent=2, sort_keys=True) + "\n")


def write_format_two() -> None:
    """Make the golden roots of jobs of format 2 anew."""
    roots = {}
    for name, contract in FORMAT_TWO:
        with tempfile.TemporaryDirectory() as scratch:
            job = format_two_job(name, Path(scratch), contract)
            run = train_job(job, Path(scratch) / "run", Options())
            roots[f"{name} {contract}"] = entry_two(job, run)
            print(name, contract, run.steps, run.losses[0], run.losses[-1], flush=True)
    FORMAT_TWO_ROOTS.write_text(json.dumps(roots, indent=2, sort_keys=True) + "\n")


def write_recipes() -> None:
    """Make the golden roots of the larger recipes anew."""
    roots = {}
    for name in RECIPES:
        with tempfile.TemporaryDirectory() as scratch:
            job = recipe_job(name, Path(scratch))
            run = train_job(job, Path(scratch) / "run", Options())
            roots[name] = entry(job, run)
            print(name, run.losses[0], run.losses[-1], flush=True)
    RECIPE_ROOTS.write_text(json.dumps(roots, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    actions = {"--write": write, "--rounded": write_rounded, "--exact": write_exact}
    actions |= {"--format-two": write_format_two, "--recipes": write_recipes}
    if len(sys.argv) != 2 or sys.argv[1] not in actions:
        raise SystemExit(__doc__)
    actions[sys.argv[1]]()
