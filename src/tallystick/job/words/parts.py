"""The parts of a job in words: plain data, each derived from what the job digest covers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tallystick.commit.job import ScalarTable


@dataclass(frozen=True)
class ParameterWords:
    """A parameter of the model, without the module's path. It is frozen where every program of the
    job passes it through."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    trained: bool

    @property
    def numel(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class LayerWords:
    """A module by its path, "" for the model itself, and the parameters that are its own."""

    module: str
    parameters: tuple[ParameterWords, ...]


@dataclass(frozen=True)
class UpdateWords:
    """The rule that changes some parameters.

    `kind` is None for a rule that these words do not know: `operator` then is the one that makes
    the parameters, `slots` are the kinds of what is kept beside them. `options` are the numbers of
    the rule as the program has them, `scalars` the per-step numbers that it reads. `clip_norm` and
    `clip_value` bound the gradients before it. `programs` are the names of those that follow it.
    """

    programs: tuple[str, ...]
    kind: str | None
    options: tuple[tuple[str, float | bool], ...]
    scalars: tuple[str, ...]
    parameters: tuple[str, ...]
    clip_norm: float | None = None
    clip_value: float | None = None
    operator: str | None = None
    slots: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableWords:
    """A per-step scalar: a number, or a table with one number for each step that reads it."""

    name: str
    values: ScalarTable

    def at(self, row: int) -> float:
        return self.values if isinstance(self.values, float) else self.values[row]


@dataclass(frozen=True)
class DrawWords:
    """A random operator with its numbers, and how often a micro-batch executes it."""

    operator: str
    numbers: tuple[tuple[str, float], ...]
    times: int


@dataclass(frozen=True)
class FieldWords:
    """A field of every record."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class DataWords:
    """A data set: its records, their order, and the seed of that where it is shuffled."""

    name: str
    records: int
    fields: tuple[FieldWords, ...]
    order: str
    order_seed: int
    root: bytes


@dataclass(frozen=True)
class ProgramWords:
    """A program of the job: the steps of a whole run that execute it, and what they read and make.

    `trains` says that it changes a parameter. `reads` are all records that these steps read, with
    repetitions. `end` says how an epoch ends, None without records.
    """

    name: str
    digest: bytes
    trains: bool
    by_pass: bool
    steps: int
    loss: str
    draws: tuple[DrawWords, ...]
    stream: str
    stream_batch: int
    data: str | None
    batch_size: int
    micro_batches: int
    first: int
    reads: int
    end: str | None
    epoch_records: int | None


@dataclass(frozen=True)
class StopWords:
    """What ends a run early. `patience` and `min_delta` are those of the decision program, None and
    0 where these words do not know its rule."""

    not_finite: bool
    by_slot: bool
    patience: int | None = None
    min_delta: float = 0.0


@dataclass(frozen=True)
class JobInWords:
    """A job: what it trains, with what, on what, for how long.

    `beside` is what stands in the manifest and not in the job digest: its author may write there
    what it likes. Everything else follows from the digest.
    """

    digest: bytes
    format_version: int
    contract: str
    layers: tuple[LayerWords, ...]
    buffers: tuple[ParameterWords, ...]
    updates: tuple[UpdateWords, ...]
    averaged: tuple[str, ...]
    tables: tuple[TableWords, ...]
    programs: tuple[ProgramWords, ...]
    turns: tuple[tuple[str, int], ...]
    data: tuple[DataWords, ...]
    steps: int
    checkpoint_interval: int
    stops: StopWords
    continues: bytes | None
    seed: int
    genesis_root: bytes
    scalars_digest: bytes
    beside: tuple[tuple[str, str], ...] = ()

    @property
    def parameters(self) -> Sequence[ParameterWords]:
        return [p for layer in self.layers for p in layer.parameters]

    @property
    def trained(self) -> int:
        """The numbers that training changes."""
        return sum(p.numel for p in self.parameters if p.trained)

    @property
    def frozen(self) -> int:
        """The numbers of the model that stay what they are."""
        return sum(p.numel for p in self.parameters if not p.trained)
