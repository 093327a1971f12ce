"""Recipes: jobs from a name and a few settings, and the proof that a job came from one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick.commit.job import ScalarTable
from tallystick.commit.tensor import Array
from tallystick.data.frozen import is_frozen, load_frozen
from tallystick.devices.environment import check_environment, exact_environment
from tallystick.disk.checkpoint import Checkpoint, open_checkpoint
from tallystick.errors import CannotCheckError, DigestMismatchError, UsageError
from tallystick.job.job import Job
from tallystick.job.parts import STEP, Parts, ProgramPart, Records, with_validation
from tallystick.job.reading import held_of
from tallystick.job.recipes.base import Built, Recipe, Sources, load_frozen_data, under
from tallystick.job.recipes.classify import LOGREG, MLP
from tallystick.job.recipes.distilbert import RECIPE as DISTILBERT
from tallystick.job.recipes.gpt2 import RECIPE as GPT2
from tallystick.job.recipes.llama import RECIPE as LLAMA
from tallystick.job.recipes.llama_lora import RECIPE as LLAMA_LORA
from tallystick.job.recipes.resnet50 import RECIPE as RESNET50
from tallystick.job.recipes.settings import as_strings, build
from tallystick.job.recipes.starting import CHECKPOINT, started_from, starting_sizes
from tallystick.job.recipes.vgg11 import RECIPE as VGG11
from tallystick.job.save import save_job
from tallystick.job.scalars import scalar_tables
from tallystick.numerics.contracts import resolve_contract
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program
from tallystick.program.state import State
from tallystick.program.validation import StopRule, rule_of

RECIPES: dict[str, Recipe] = {
    r.name: r for r in (LOGREG, MLP, GPT2, RESNET50, VGG11, DISTILBERT, LLAMA, LLAMA_LORA)
}
DEFAULT_STEPS = 200


def find_recipe(name: str) -> Recipe:
    """The recipe `name`. Raises UsageError, which lists the recipes, where there is none."""
    if name not in RECIPES:
        raise UsageError(
            f"There is no recipe {name!r}.",
            f"Choose one of {', '.join(RECIPES)}. For your own models, use tallystick.capture.",
        )
    return RECIPES[name]


def settings_for(
    recipe: Recipe,
    given: Mapping[str, str],
    sources: Sources | None = None,
    checkpoint: Checkpoint | None = None,
) -> Any:
    """The settings from `--set` pairs. `size=NAME` is a preset, which single keys override. What
    follows from the sources stands behind both."""
    given = dict(given)
    size = given.pop("size", None) if recipe.presets else None
    if size is not None:
        if size not in recipe.presets:
            raise UsageError(
                f"Recipe {recipe.name} has no size {size!r}.",
                f"Choose one of {', '.join(recipe.presets)}.",
            )
        given = {**recipe.presets[size], **given}
    derived = recipe.derive(given, sources) if recipe.derive and sources is not None else {}
    derived |= starting_sizes(recipe, checkpoint)
    return build(recipe.settings, {**derived, **given}, recipe.name)


def _check_sources(recipe: Recipe, sources: Sources) -> None:
    taken = (*recipe.sources, *recipe.takes)
    for field in dataclasses.fields(sources):
        if getattr(sources, field.name) is not None and field.name not in taken:
            raise UsageError(
                f"Recipe {recipe.name} takes no --{field.name}.",
                f"Use {' or '.join('--' + s for s in taken)}.",
            )
    given = [f"--{s}" for s in recipe.sources if getattr(sources, s) is not None]
    if len(given) > 1:
        raise UsageError(
            f"{' and '.join(given)} cannot be used together: each names the data.",
            "Use one of them.",
        )
    if sources.data is not None and sources.tokenizer is not None:
        raise UsageError(
            "--tokenizer is for text, but a frozen data set already consists of tokens.",
            "Leave --tokenizer out, or freeze the text with it: `tallystick data freeze "
            "--tokenizer`.",
        )


def _require_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise CannotCheckError(
            "Making or re-deriving a job needs PyTorch.", "Run pip install 'tallystick[train]'."
        ) from None


@exact_environment()
def new_job(
    recipe_name: str,
    directory: Path,
    settings: Mapping[str, str] | None = None,
    sources: Sources | None = None,
    *,
    steps: int = DEFAULT_STEPS,
    seed: int = 0,
    contract: str = "ordered/1",
    checkpoint_interval: int | None = None,
    evaluate_every: int | None = None,
    stop_rule: StopRule | None = None,
    overwrite: bool = False,
) -> Job:
    """Make a job from a recipe. This needs torch, which only traces: no weight comes from it.

    Raises UsageError for unknown recipes, settings or data, UnsupportedVersionError for an
    unknown contract.
    """
    recipe = find_recipe(recipe_name)
    meaning = resolve_contract(contract)
    if not 1 <= steps < 1 << 32 or not 0 <= seed < 1 << 63:
        raise UsageError(
            "--steps or --seed is out of range.",
            "Choose --steps from 1 to 2^32 - 1, and --seed from 0 to 2^63 - 1.",
        )
    sources = (sources or Sources()).opened()
    _check_sources(recipe, sources)
    checkpoint = None if sources.checkpoint is None else open_checkpoint(sources.checkpoint)
    chosen = settings_for(recipe, settings or {}, sources, checkpoint)
    check_environment()
    _require_torch()
    if sources.data is not None and is_frozen(sources.data):
        for key in ("validation", "text_bytes"):
            if key in (settings or {}):
                raise UsageError(
                    f"{recipe.name}: the setting {key} has no effect on a frozen data set.",
                    "Leave it out, and freeze the records that you want (--hold-out).",
                )
        data = load_frozen_data(recipe, chosen, load_frozen(sources.data))
    else:
        data = recipe.load_data(chosen, sources, seed)
    train, held_out = data.records
    fields = {n: TensorType(_dtype(c), tuple(c.shape[1:])) for n, c in data.train.items()}
    made, start = started_from(recipe, recipe.build(chosen, fields, steps, seed), checkpoint)
    built = under(meaning, made)
    if held_out is None and evaluate_every:
        raise UsageError(
            "Validation needs held-out records, but the frozen data set has none.",
            "Freeze the data with --hold-out, or leave --evaluate-every out.",
        )
    every = max(1, steps // 10) if evaluate_every is None else evaluate_every
    return save_job(
        built.captured,
        directory,
        train,
        steps=steps,
        seed=seed,
        checkpoint_interval=checkpoint_interval,
        schedules=built.schedules,
        initial_state=built.initial_state,
        held=held_of(held_out, built.eval_program, every, stop_rule),
        forward_program=built.forward_program,
        recipe={"name": recipe.name, "settings": as_strings(chosen)},
        about={**data.about, **start},
        overwrite=overwrite,
    )


def _dtype(array: Any) -> str:
    from tallystick.commit.tensor import dtype_name

    return dtype_name(array.dtype)


@exact_environment()
def rederive(job: Job, checkpoint: Checkpoint | None = None) -> Built:
    """Build the parts that the job fixes again, from the recipe and settings in its manifest, and
    the checkpoint that it starts from, if any."""
    if job.recipe is None:
        raise CannotCheckError(
            f"{job.directory} was captured from its author's own module, so no recipe can derive "
            "it.",
            "Run the author's script, and compare the job digests.",
        )
    _require_torch()
    recipe = find_recipe(str(job.recipe["name"]))
    settings: Any = build(recipe.settings, job.recipe["settings"], recipe.name)
    fields = {f.name: TensorType(f.dtype, f.shape) for f in job.schema.fields}
    steps = job.commitment.timetable.count(0, job.steps)
    built = recipe.build(settings, fields, steps, job.commitment.rng_seed)
    built, _ = started_from(recipe, built, checkpoint)
    return under(job.commitment.contract, built)


@exact_environment()
def verify_job(job: Job, checkpoint: Path | None = None) -> list[str]:
    """Check the job's bytes, derive it again from its recipe, and compare. Needs torch.

    Returns the names of the compared parts. Raises DigestMismatchError, which names the first part
    that differs; CannotCheckError where all agree but the initial state, which is a checkpoint's
    that is not given; UsageError for a checkpoint that the job does not name.
    """
    check_environment()
    if checkpoint is not None and CHECKPOINT not in job.about:
        raise UsageError(
            f"{job.directory} does not start from a checkpoint.", "Leave --checkpoint out."
        )
    job.verify()
    built = rederive(job, None if checkpoint is None else open_checkpoint(checkpoint))
    c = job.commitment

    def same(what: str, mine: object, theirs: object) -> str:
        if mine != theirs:
            raise DigestMismatchError(
                f"The {what} of {job.directory} is not the one that its recipe gives.",
                "Do not use the job unless its author can explain the difference.",
            )
        return what

    programs, slots = _programs_of(job, built)
    compared = []
    for entry, mine in zip(c.timetable.programs, programs, strict=True):
        what = "program" if len(programs) == 1 else f"program {entry.name}"
        compared.append(same(what, mine.digest(), entry.digest))
    # The text of a step in micro-batches is the same for any number of them (PROGRAM 6).
    parts, theirs = built.captured.micro_batches or 1, c.timetable.programs[0].micro_batches
    same("number of micro-batches", parts, theirs)
    from_elsewhere = CHECKPOINT in job.about and checkpoint is None
    if not from_elsewhere:
        root = State({**built.initial_state, **slots}).root()
        compared.append(same("initial state", root, c.genesis_root))
    compared.append(same("learning rate", _tables(built, job), dict(job.scalars)))
    if job.evaluation is not None:
        digest = built.eval_program.digest()
        compared.append(same("validation program", digest, job.evaluation.program_digest))
    if built.forward_program is not None:
        digest = built.forward_program.digest()
        compared.append(same("forward program", digest, job.forward_digest))
    if from_elsewhere:
        raise CannotCheckError(
            f"The recipe gives the same {', '.join(compared)}. The weights of {job.directory} "
            f"come from a checkpoint, which was not given: {job.about[CHECKPOINT]}.",
            "Pass it with --checkpoint DIR.",
        )
    return compared


def _programs_of(job: Job, built: Built) -> tuple[list[Program], dict[str, Array]]:
    """The programs that the recipe gives, those of committed validation too, and their slots'
    first values."""
    step, timetable = built.captured.program, job.commitment.timetable
    if len(timetable.programs) == 1:
        return [step], {}
    if len(timetable.data) != 2 or [p.by_pass for p in timetable.programs] != [False, True, True]:
        raise DigestMismatchError(
            f"The programs of {job.directory} are not those of its recipe: a step, and validation.",
            "Do not use the job unless its author can explain the difference.",
        )
    records = [
        Records(data.name, schema, columns, data.order_seed)
        for data, schema, columns in zip(timetable.data, job.schemas, job.columns_of, strict=True)
    ]
    parts = Parts(
        (ProgramPart.alone(STEP, step, 0, timetable.programs[0].batch_size),), (records[0],)
    )
    every, size = timetable.turns[0].steps, timetable.programs[1].batch_size
    rule = rule_of(job.texts[-1])
    parts = with_validation(parts, built.eval_program, records[1], size, every, rule, every)
    return [part.program for part in parts.programs], dict(parts.slots)


def _tables(built: Built, job: Job) -> dict[str, ScalarTable]:
    """The numbers of each step that the recipe gives: its rates, and what follows from them."""
    steps = job.commitment.timetable.count(0, job.steps)
    return scalar_tables(built.captured.scalars, built.schedules, steps)
