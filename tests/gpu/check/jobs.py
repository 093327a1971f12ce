"""The runs whose roots the processor made beforehand."""

from __future__ import annotations

from pathlib import Path

from e2e.golden import SETTINGS, corpus, entry

from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources

__all__ = ["JOBS", "NOT_YET", "SMALL", "entry", "make"]

_GPT2_124M = {
    "n_layer": "12", "n_head": "12", "n_embd": "768", "vocab_size": "50257", "block_size": "64",
    "batch_size": "8", "warmup": "5",
}  # fmt: skip
# Name: recipe, settings, steps.
JOBS: dict[str, tuple[str, dict[str, str], int]] = {
    "mlp": ("mlp", SETTINGS["mlp"], 200),
    "gpt2-small": (
        "gpt2",
        {**SETTINGS["gpt2"], "n_embd": "64", "n_head": "4", "block_size": "32"},
        200,
    ),
    "resnet-tiny": ("resnet50", SETTINGS["resnet50"], 200),
    "gpt2-124m": ("gpt2", _GPT2_124M, 20),
    "logreg": ("logreg", SETTINGS["logreg"], 20),
}
# Those whose roots no processor has made yet (make_expected.py NAME makes them).
NOT_YET: set[str] = set()
# Those that an emulated device computes in seconds.
SMALL = ("logreg",)


def make(name: str, directory: Path, contract: str = "ordered/1", steps: int | None = None) -> Job:
    """The job `name` in `directory`/`name`, of its own number of steps or of `steps`."""
    recipe, settings, own = JOBS[name]
    steps = own if steps is None else steps
    directory.mkdir(parents=True, exist_ok=True)
    sources = Sources()
    if recipe == "gpt2":
        text = directory / "corpus.txt"
        text.write_bytes(corpus())
        sources = Sources(text=text)
    return new_job(
        recipe, directory / name, settings, sources, steps=steps, seed=14, evaluate_every=steps,
        contract=contract,
    )  # fmt: skip
