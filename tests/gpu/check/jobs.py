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
_GPT2_SMALL = {**SETTINGS["gpt2"], "n_embd": "64", "n_head": "4", "block_size": "32"}
# Name: recipe, settings, steps, contract.
JOBS: dict[str, tuple[str, dict[str, str], int, str]] = {
    "mlp": ("mlp", SETTINGS["mlp"], 200, "ordered/1"),
    "gpt2-small": ("gpt2", _GPT2_SMALL, 200, "ordered/1"),
    "resnet-tiny": ("resnet50", SETTINGS["resnet50"], 200, "ordered/1"),
    "gpt2-124m": ("gpt2", _GPT2_124M, 20, "ordered/1"),
    "logreg": ("logreg", SETTINGS["logreg"], 20, "ordered/1"),
    "mlp-rounded": ("mlp", SETTINGS["mlp"], 200, "rounded/1"),
    **{f"gpt2-small-exact-{b}": ("gpt2", _GPT2_SMALL, 200, f"exact/1;b={b}") for b in (8, 15, 22)},
    "resnet-tiny-exact-22": ("resnet50", SETTINGS["resnet50"], 200, "exact/1;b=22"),
    "logreg-exact-15": ("logreg", SETTINGS["logreg"], 20, "exact/1;b=15"),
}
# Those whose roots no processor has made yet (make_expected.py NAME makes them).
NOT_YET: set[str] = set()
# Those that an emulated device computes in seconds.
SMALL = ("logreg", "logreg-exact-15")


def make(name: str, directory: Path, under: str | None = None, steps: int | None = None) -> Job:
    """The job `name` in `directory`/`name`: under its own contract or `under`, of its own number of
    steps or of `steps`."""
    recipe, settings, own_steps, own = JOBS[name]
    steps, contract = own_steps if steps is None else steps, own if under is None else under
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
