"""`tallystick job new`, `job verify`, `job show`, `job recipes`; and a job in words, on a terminal
and in JSON, as `inspect` says it too.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tallystick.cli.output import json_option, overwrite_option, print_json, say
from tallystick.cli.places import PLACE
from tallystick.errors import UsageError
from tallystick.job.job import DEFAULT_INTERVAL
from tallystick.job.job_file import load_job
from tallystick.job.recipes import DEFAULT_STEPS, RECIPES, find_recipe, new_job, verify_job
from tallystick.job.recipes.base import Sources
from tallystick.job.recipes.settings import describe, parse_pairs
from tallystick.job.recipes.starting import CHECKPOINT
from tallystick.job.words import JobInWords, against, beside, sentences, words_of
from tallystick.program.validation import StopRule
from tallystick.run.show.inspect import inspect_job
from tallystick.run.store.continuing import continue_run
from tallystick.run.store.directory import RunStore


def say_words(words: JobInWords) -> None:
    """What the job digest covers, and apart from it what it does not."""
    say("The job digest covers:")
    for sentence in sentences(words):
        say(f"  {sentence}")
    uncommitted = beside(words)
    if uncommitted:
        say("Not committed (its author's word, which no digest covers):")
        for line in uncommitted:
            say(f"  {line}")


def words_json(words: JobInWords) -> dict[str, Any]:
    """The parts and the sentences; what is not committed stands in `not_committed` alone."""
    parts = asdict(words)
    return {
        "digest": parts.pop("digest"),
        "not_committed": dict(parts.pop("beside")),
        "sentences": sentences(words),
        "covered": parts,
    }


def say_against(first: JobInWords, second: JobInWords, names: tuple[str, str]) -> None:
    """What differs between two jobs: a line of each."""
    apart = against(first, second)
    if not apart:
        say("The two have one job digest: they are one job.")
    for label, ours, theirs in apart:
        say(label)
        for name, sentence in zip(names, (ours, theirs), strict=True):
            say(f"  {name}  {sentence or '(nothing)'}")
    if first.beside != second.beside:
        say("Beside the job digests, not committed:")
        for name, own, other in ((names[0], first, second), (names[1], second, first)):
            for line in beside(own):
                if line not in beside(other):
                    say(f"  {name}  {line}")


def against_json(first: JobInWords, second: JobInWords) -> dict[str, Any]:
    """What differs between two jobs."""
    return {
        "same": first.digest == second.digest,
        "job_digests": [first.digest, second.digest],
        "apart": [entry._asdict() for entry in against(first, second)],
    }


def _listing(name: str) -> list[str]:
    """The settings of a recipe as lines of a table."""
    recipe = RECIPES[name]
    rows = describe(recipe.settings)
    if recipe.presets:
        sizes = ", ".join(recipe.presets)
        rows = [("size", "preset", "-", f"{sizes}; other keys override it"), *rows]
    widths = [max(len(row[place]) for row in rows) + 2 for place in range(3)]
    lines = [f"{name}: {recipe.summary}"]
    for *cells, text in rows:
        cut = "".join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True))
        lines.append(f"  {cut}{text}")
    return lines


class _NewCommand(click.Command):
    """`job new`: `--help` ends with the settings of the recipe named beside it, or of all."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["tallystick.recipes"] = [a for a in args if a in RECIPES]
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for name in ctx.meta.get("tallystick.recipes") or list(RECIPES):
            formatter.write("\n" + "\n".join(_listing(name)) + "\n")


@click.group()
def job() -> None:
    """Make, check and show jobs."""


@job.command(cls=_NewCommand)
@click.argument("recipe")
@click.option("--out", required=True, type=click.Path(), help="Directory for the job.")
@click.option("--text", type=click.Path(), help="Train on this text file (gpt2, llama …).")
@click.option(
    "--tokenizer",
    type=click.Path(),
    help="tokenizer.json that splits the text. Default: bytes are the tokens.",
)
@click.option(
    "--checkpoint", type=click.Path(), help="Start from this Hugging Face directory (safetensors)."
)
@click.option("--cifar10", type=click.Path(), help="Directory with the binary version of CIFAR-10.")
@click.option("--data", type=PLACE, help="Frozen data set, or an .npz file with x and y.")
@click.option(
    "--contract",
    default="ordered/1",
    show_default=True,
    help="Contract that defines the arithmetic.",
)
@click.option(
    "--steps", type=int, default=DEFAULT_STEPS, show_default=True, help="Number of training steps."
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Seed of everything random in the job.",
)
@click.option(
    "--checkpoint-interval",
    type=click.IntRange(1, 1 << 32),
    default=None,
    help=f"Steps between committed states; part of the job [default: {DEFAULT_INTERVAL}, or what "
    "divides training and validation].",
)
@click.option(
    "--evaluate-every",
    type=click.IntRange(0),
    default=None,
    help="Steps between validation losses; 0 means never. Default: ten validations in a run.",
)
@click.option(
    "--micro-batches",
    type=click.IntRange(1, 1 << 16),
    default=None,
    help="Split each batch into this many parts and compute them one after another, in the "
    "memory that one part needs.",
)
@click.option(
    "--commit-validation",
    is_flag=True,
    help="Make the validation losses part of the run, so that they are committed, audited "
    "and open to dispute.",
)
@click.option(
    "--patience",
    type=click.IntRange(1, 1 << 20),
    default=None,
    help="Stop after this many committed validation losses in a row without improvement.",
)
@click.option(
    "--min-delta",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Smallest decrease of the validation loss that counts as an improvement.",
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change a setting of the recipe (repeatable). The settings are listed below and by"
    " `job recipes`.",
)
@overwrite_option
@json_option
def new(
    recipe: str,
    out: str,
    text: str | None,
    tokenizer: str | None,
    checkpoint: str | None,
    cifar10: str | None,
    data: str | None,
    contract: str,
    steps: int,
    seed: int,
    checkpoint_interval: int | None,
    evaluate_every: int | None,
    micro_batches: int | None,
    commit_validation: bool,
    patience: int | None,
    min_delta: float,
    pairs: tuple[str, ...],
    overwrite: bool,
    as_json: bool,
) -> None:
    """Make a job from a RECIPE, which `tallystick job recipes` lists. Needs PyTorch."""
    sources = Sources(
        *(Path(p) if p else None for p in (text, cifar10, data, tokenizer, checkpoint))
    )
    rule = None
    if commit_validation or patience is not None:
        rule = StopRule(patience, min_delta)
    elif min_delta:
        raise UsageError(
            "--min-delta needs --patience.", "Add --patience N, or leave --min-delta out."
        )
    settings = parse_pairs(list(pairs))
    if micro_batches is not None:
        settings["micro_batches"] = str(micro_batches)
    made = new_job(
        recipe,
        Path(out),
        settings,
        sources,
        steps=steps,
        seed=seed,
        contract=contract,
        checkpoint_interval=checkpoint_interval,
        evaluate_every=evaluate_every,
        stop_rule=rule,
        overwrite=overwrite,
    )
    found = inspect_job(made.directory)
    if as_json:
        print_json({"job": made.directory, **found})
        return
    say(f"job         {made.directory}")
    say(f"job digest  {made.digest.hex()}")
    say(
        f"model       {found['parameters']:,} parameters, {found['nodes']} operators a step, "
        f"contract {found['contract']}"
    )
    say(f"data        {found['records']:,} records ({made.about.get('source', '')})")
    if CHECKPOINT in made.about:
        say(f"checkpoint  {made.about[CHECKPOINT]}")
    if "validation" in made.about:
        say(f"validation  {made.about['validation']}")
    say(f"next        tallystick train {made.directory} --out RUN")


@job.command("continue")
@click.argument("run", type=PLACE)
@click.option("--out", required=True, type=click.Path(), help="Directory for the new job.")
@click.option(
    "--steps", required=True, type=click.IntRange(1, (1 << 32) - 1), help="Number of further steps."
)
@click.option(
    "--scalar",
    "pairs",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Set a scalar for the further steps, such as lr=1e-4 (repeatable). Every other "
    "scalar keeps its last value.",
)
@overwrite_option
@json_option
def continue_(
    run: str, out: str, steps: int, pairs: tuple[str, ...], overwrite: bool, as_json: bool
) -> None:
    """Make a job that continues where the finished RUN ended, with its optimizer's moments."""
    given = {name: _number(name, text) for name, text in parse_pairs(list(pairs)).items()}
    made = continue_run(Path(run), Path(out), steps, given, overwrite=overwrite)
    if as_json:
        print_json({"job": made.directory, **inspect_job(made.directory)})
        return
    say(f"job         {made.directory}")
    say(f"job digest  {made.digest.hex()}")
    for name, table in made.scalars.items():
        say(f"{name:<12}{table if isinstance(table, float) else f'{len(table)} values'}")
    if RunStore(Path(run)).job().commitment.stop_on_slot and not made.commitment.stop_on_slot:
        say("stop rule   none: it has stopped the run, and the job trains to its end")
    say(f"next        tallystick train {made.directory} --out RUN")


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            f"{name}={text[:40]} is not a number.", "Write NAME=NUMBER, such as --scalar lr=1e-4."
        ) from None


@job.command()
@click.argument("path", metavar="JOB", type=PLACE)
@click.option(
    "--checkpoint", type=click.Path(), help="Hugging Face directory that the job started from."
)
@json_option
def verify(path: str, checkpoint: str | None, as_json: bool) -> None:
    """Check every byte of JOB, derive it again from its recipe and compare. Needs PyTorch."""
    loaded = load_job(Path(path))
    compared = verify_job(loaded, Path(checkpoint) if checkpoint else None)
    if as_json:
        print_json({"accepted": True, "job_digest": loaded.digest, "compared": compared})
    else:
        say(f"MATCH       {', '.join(compared)}: the recipe gives the same")
        say(f"job digest  {loaded.digest.hex()}")


@job.command()
@click.argument("path", metavar="JOB", type=PLACE)
@click.option(
    "--against",
    "other",
    type=PLACE,
    metavar="JOB",
    help="List the differences between JOB and this job.",
)
@json_option
def show(path: str, other: str | None, as_json: bool) -> None:
    """Describe in words what JOB trains, and which of it the job digest covers.

    With --against, list the differences between JOB, called A, and another job, called B.
    """
    words = words_of(load_job(Path(path)))
    if other is not None:
        second = words_of(load_job(Path(other)))
        if as_json:
            print_json(against_json(words, second))
        else:
            say_against(words, second, ("A", "B"))
        return
    if as_json:
        print_json({**inspect_job(Path(path)), "words": words_json(words)})
        return
    say(f"job digest  {words.digest.hex()}")
    say_words(words)


@job.command()
@click.argument("recipe", required=False)
@json_option
def recipes(recipe: str | None, as_json: bool) -> None:
    """List the recipes, or the settings of RECIPE with their types and defaults (for --set)."""
    names = [find_recipe(recipe).name] if recipe is not None else list(RECIPES)
    table = {
        name: [
            {"key": key, "type": kind, "default": default, "help": text}
            for key, kind, default, text in describe(RECIPES[name].settings)
        ]
        for name in names
    }
    if as_json:
        print_json(table)
        return
    for name in names:
        for line in _listing(name):
            say(line)
