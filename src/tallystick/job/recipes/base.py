"""The recipe: it makes a module, its loss, its data and its optimizer from a few settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.commit.encoding import JsonValue, Writer, tag
from tallystick.commit.tensor import Array
from tallystick.contracts.ordered.cpu import run_of
from tallystick.data.frozen import Frozen
from tallystick.data.sources.tokenizer import TokenizerFile, load_tokenizer
from tallystick.errors import CorruptFileError, DigestMismatchError, UsageError
from tallystick.job.job import TOKENIZER_DIGEST
from tallystick.job.reading import Data
from tallystick.numerics.types import Attrs, TensorType
from tallystick.program.ir import Program

_INIT_TAG = tag("recipe-init/1")


@dataclass(frozen=True)
class Sources:
    """The source of a recipe's data (`text`, `cifar10`, `data`: the caller gives at most one), the
    tokenizer file of its text, and the checkpoint whose weights it starts from."""

    text: Path | None = None
    cifar10: Path | None = None
    data: Path | None = None
    tokenizer: Path | TokenizerFile | None = None
    checkpoint: Path | None = None

    def opened(self) -> Sources:
        """The same with its tokenizer read. Raises the errors of `load_tokenizer`."""
        return replace(self, tokenizer=opened_tokenizer(self))


def opened_tokenizer(sources: Sources) -> TokenizerFile | None:
    """The tokenizer, read if it is not yet. Raises the errors of `load_tokenizer`."""
    given = sources.tokenizer
    return load_tokenizer(given) if isinstance(given, Path) else given


@dataclass(frozen=True)
class RecipeData:
    """Training and validation columns, and their origin."""

    train: dict[str, Array]
    validation: dict[str, Array]
    about: dict[str, str]
    frozen: Frozen | None = None

    @property
    def records(self) -> tuple[Data, Data | None]:
        """The records to train on and those held out, as `save_job` takes them."""
        if self.frozen is None:
            return self.train, self.validation
        return self.frozen, self.frozen.validation


@dataclass(frozen=True)
class Built:
    """All parts that `save_job` needs, made from settings (and the shapes of the data) alone.

    `captured` is a CapturedStep. `make_state` gives the weights, which are the recipe's own, from
    our Philox generator: they are made when they are asked for, since the settings of a job from
    elsewhere may be those of any size.
    """

    captured: Any
    make_state: Callable[[], dict[str, Array]]
    schedules: dict[str, float | list[float]]
    eval_program: Program
    forward_program: Program | None

    @cached_property
    def initial_state(self) -> dict[str, Array]:
        """state[0] of what the recipe trains."""
        return self.make_state()


def under(contract: str, built: Built) -> Built:
    """`built` with its programs under `contract`, a full identifier.

    Capture gives the same nodes under every contract: the contract says what they mean.
    """
    captured, forward = built.captured, built.forward_program
    return replace(
        built,
        captured=replace(captured, program=replace(captured.program, contract=contract)),
        eval_program=replace(built.eval_program, contract=contract),
        forward_program=None if forward is None else replace(forward, contract=contract),
    )


@dataclass(frozen=True)
class StartingPoint:
    """How a recipe reads a checkpoint.

    `sizes(config)` gives settings, and raises UsageError for another kind of model. `names(name)`
    are the names that a checkpoint may have for a parameter, the likeliest first. `is_new(name)` is
    True for a parameter that a checkpoint may lack, because the task brings it.
    """

    sizes: Callable[[Mapping[str, Any]], dict[str, str]]
    names: Callable[[str], tuple[str, ...]]
    is_new: Callable[[str], bool]


@dataclass(frozen=True)
class Recipe:
    """A named recipe. `data(settings, sources, seed)` needs no torch, `build` does."""

    name: str
    summary: str
    settings: type
    sources: tuple[str, ...]
    load_data: Callable[[Any, Sources, int], RecipeData]
    build: Callable[[Any, Mapping[str, TensorType], int, int], Built]
    presets: dict[str, dict[str, str]] = field(default_factory=dict)
    # Raises UsageError unless a frozen data set has the records that the settings ask for.
    check_frozen: Callable[[Any, Frozen], None] | None = None
    # `derive(given, sources)`: settings that follow from the sources where `--set` gives no others.
    derive: Callable[[Mapping[str, str], Sources], dict[str, str]] | None = None
    takes: tuple[str, ...] = ()  # of the sources that are no data: tokenizer, checkpoint
    starting: StartingPoint | None = None  # how a checkpoint's weights become its own


def about_tokenizer(tokenizer: TokenizerFile) -> dict[str, str]:
    """What a job says about the tokenizer of its records."""
    return {
        "tokenizer": tokenizer.name,
        TOKENIZER_DIGEST: tokenizer.digest,
        "tokenizers": tokenizer.version,
    }


def about_frozen(source: Mapping[str, JsonValue]) -> dict[str, str]:
    """The same about a frozen data set, from its manifest's words about its source."""
    names = (TOKENIZER_DIGEST, "tokenizers")
    return {name: str(source[name]) for name in names if source.get(name) is not None}


def load_frozen_data(recipe: Recipe, settings: Any, frozen: Frozen) -> RecipeData:
    """A frozen data set as a recipe's data. Raises UsageError where its records do not fit."""
    if recipe.check_frozen is None:
        raise UsageError(
            f"The recipe {recipe.name} takes no frozen data set.", "Use tallystick.capture."
        )
    recipe.check_frozen(settings, frozen)
    about = {"source": f"frozen data {frozen.directory.name}", **about_frozen(frozen.source)}
    return RecipeData(frozen.columns, {}, about, frozen)


def require_fields(frozen: Frozen, wanted: Mapping[str, tuple[str, int]], classes: str) -> None:
    """Raise UsageError unless the fields are exactly `wanted`: dtype and number of axes by name,
    and no value of the field `classes` is negative."""
    found = {f.name: (f.dtype, len(f.shape)) for f in frozen.schema.fields}
    if found != wanted:
        raise UsageError(
            f"The records of {frozen.directory} have the fields {_fields(frozen)}.",
            "The recipe needs "
            + " and ".join(f"{n} {dtype} of {axes} axes" for n, (dtype, axes) in wanted.items())
            + ": freeze them so (fields=, dtype=).",
        )
    for each in (frozen, frozen.validation):
        if each is not None and _range(each, classes)[0] < 0:
            raise UsageError(f"{each.directory} contains a negative {classes}.", "Count from 0.")


def _fields(frozen: Frozen) -> str:
    return ", ".join(f"{f.name} {f.dtype}{list(f.shape)}" for f in frozen.schema.fields)


def greatest(frozen: Frozen, name: str) -> int:
    """The greatest value of an integer field, held-out records included."""
    held = frozen.validation
    return max(_range(each, name)[1] for each in (frozen, held) if each is not None)


def _range(frozen: Frozen, name: str) -> tuple[int, int]:
    if name not in frozen.ranges:
        raise CorruptFileError(
            f"The manifest of {frozen.directory} gives no range for the field {name}.",
            "Freeze the data again.",
        )
    return frozen.ranges[name]


def draw(op: str, seed: int, draw_id: int, shape: tuple[int, ...], **attrs: float) -> Array:
    """A tensor from our own generator (NUMERICS 8.6, 8.7), with key and stream from `seed`.

    Weights and synthetic data come from here, so that every torch version makes the same job.
    """
    word = Writer(_INIT_TAG).u64(seed).digest()
    key = int.from_bytes(word[:8], "little") >> 1
    rng = np.array([key, 0], dtype=np.int64)
    out = np.empty(shape, dtype=np.float32)
    every: Attrs = {"draw": draw_id, "shape": tuple(shape), **attrs}
    run_of(op)(every, [rng], [out])
    return out


def normal(seed: int, draw_id: int, shape: tuple[int, ...], std: float) -> Array:
    """Normal numbers of mean 0."""
    return draw("tallystick.normal", seed, draw_id, shape, mean=0.0, std=float(std))


def uniform(seed: int, draw_id: int, shape: tuple[int, ...], bound: float) -> Array:
    """Uniform numbers in [-bound, bound)."""
    return draw("tallystick.uniform", seed, draw_id, shape, low=-float(bound), high=float(bound))


def record_shape(fields: Mapping[str, TensorType], name: str, axes: int) -> tuple[int, ...]:
    """The shape of a record's field `name`. Raises DigestMismatchError where a job that names the
    recipe has no such records."""
    found = fields.get(name)
    if found is None or len(found.shape) != axes:
        raise DigestMismatchError(
            f"The job's records have no field {name} of rank {axes}, which its recipe reads.",
            "Do not use the job unless its author can explain the difference.",
        )
    return found.shape


def is_weight(slot: str) -> bool:
    """True for a slot of the module itself, whose first value a recipe gives."""
    return slot.startswith(("param.", "buffer."))


def split(columns: dict[str, Array], held_out: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """Split the columns: all records but the last `held_out`, and these."""
    return (
        {name: column[:-held_out] for name, column in columns.items()},
        {name: column[-held_out:] for name, column in columns.items()},
    )
