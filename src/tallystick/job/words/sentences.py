"""A job in words, as sentences: each under a label, so that two jobs are compared by label.

A table of per-step numbers has the words of its shape, and the numbers at which that turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from tallystick.commit.stream import DROP, SHORT, SHUFFLED
from tallystick.devices.environment import exact_environment
from tallystick.job.numbers import count, decimal, listed, shape_of
from tallystick.job.words.layers import layer_lines
from tallystick.job.words.parts import (
    DataWords,
    DrawWords,
    JobInWords,
    ProgramWords,
    TableWords,
    UpdateWords,
)

# A table of more parts than this is said by its bounds.
_MOST = 5
# A part is straight where its steps differ by less than this share: binary64 rounds each.
_STRAIGHT = 1e-6


def table_words(table: TableWords) -> str:
    """As "0.01 in every step", or "rises over 20 steps from … to …, falls over …"."""
    values = table.values
    if isinstance(values, float):
        return f"{decimal(values)} in every step"
    if len(set(values)) < 2:
        return f"{decimal(values[0])} in every step" if values else "no number"
    parts = _parts(values)
    first = f"{decimal(values[0])} in its first step"
    if len(parts) > _MOST:
        least, most = decimal(min(values)), decimal(max(values))
        return (
            f"{first}, {decimal(values[-1])} in its last, {least} to {most} over "
            f"{count(len(values), 'step')}, with {count(len(parts) - 1, 'turn')}"
        )
    # A single repeated number between two parts is a turn, and no part for people.
    told = [(b, e) for b, e in parts if e - b > 1 or values[b] != values[e]]
    return ", then ".join((first, *(_part(values, begin, end) for begin, end in told)))


def _parts(values: Sequence[float]) -> list[tuple[int, int]]:
    """The longest parts in which the numbers rise, fall or stay, as their first and last rows."""
    signs = [(b > a) - (b < a) for a, b in pairwise(values)]
    ends = [row for row in range(1, len(signs)) if signs[row] != signs[row - 1]]
    bounds = [0, *ends, len(signs)]
    return list(pairwise(bounds))


def _part(values: Sequence[float], begin: int, end: int) -> str:
    over = count(end - begin, "step")
    if values[begin] == values[end]:
        return f"stays so over {over}"
    verb = "rises" if values[end] > values[begin] else "falls"
    line = " in a straight line" if end - begin > 1 and _straight(values, begin, end) else ""
    return f"{verb}{line} over {over} to {decimal(values[end])}"


def _straight(values: Sequence[float], begin: int, end: int) -> bool:
    mean = (values[end] - values[begin]) / (end - begin)
    return all(
        abs(values[row + 1] - values[row] - mean) <= _STRAIGHT * abs(mean)
        for row in range(begin, end)
    )


def sentences(words: JobInWords) -> list[str]:
    """What the job trains, with what, on what and for how long. All of it follows from the job
    digest: what stands beside that is `beside`."""
    return [sentence for _, sentence in rows(words)]


def beside(words: JobInWords) -> list[str]:
    """What the manifest says beside the job digest: its author's word, which nothing checks."""
    return [f"{name}: {value}" for name, value in words.beside]


def rows(words: JobInWords) -> list[tuple[str, str]]:
    """The sentences with their labels, each of which is there once."""
    return [
        ("model", _model(words)),
        *layer_rows(layer_lines(words.layers)),
        *_buffers(words),
        *((_numbered("optimizer", n), _update(words, u)) for n, u in enumerate(words.updates)),
        *_average(words),
        *((f"rate {t.name}", f"{t.name} is {table_words(t)}.") for t in words.tables),
        *(row for program in words.programs for row in _program(words, program)),
        *((f"data {data.name}", _data(words, data)) for data in words.data),
        *_length(words),
        (
            "contract",
            f"Its arithmetic is that of {words.contract}, job format {words.format_version}.",
        ),
        ("seed", f"Random numbers follow from the seed {words.seed}."),
        *_digests(words),
    ]


def layer_rows(lines: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The sentences of layers, from their paths and parameters, with their labels."""
    return [(f"layer {name}", f"Layer {name}: {own}.") for name, own in lines]


def _numbered(label: str, number: int) -> str:
    return f"{label} {number + 1}" if number else label


# -- the model -------------------------------------------------------------------------------------
def _model(words: JobInWords) -> str:
    tensors = words.parameters
    frozen = [p for p in tensors if not p.trained]
    sentence = (
        f"Trains {count(words.trained, 'parameter')} in "
        f"{count(len(tensors) - len(frozen), 'tensor')} of {count(len(words.layers), 'layer')}"
    )
    if not frozen:
        return f"{sentence}; none is frozen."
    return f"{sentence}; {count(words.frozen, 'parameter')} in {len(frozen):,} are frozen."


def _buffers(words: JobInWords) -> Iterator[tuple[str, str]]:
    if words.buffers:
        moved = [b.name for b in words.buffers if b.trained]
        sentence = f"Its state has {count(len(words.buffers), 'buffer')} besides"
        tail = f", of which steps change {len(moved):,}." if moved else ", which no step changes."
        yield "buffers", sentence + tail


# -- the optimizer ---------------------------------------------------------------------------------
# Options that are named only where they are not 0.
_USUAL = ("dampening", "nesterov")


def _update(words: JobInWords, update: UpdateWords) -> str:
    every = sum(p.trained for p in words.parameters) == len(update.parameters)
    whose = "all trained tensors" if every else listed(update.parameters)
    several = sum(p.trains for p in words.programs) > 1
    where = f" in the program {listed(update.programs)}" if several else ""
    if update.kind is None:
        made = f", last by {update.operator}" if update.operator else ""
        slots = f", with the slots {listed(update.slots)}" if update.slots else ""
        sentence = f"A rule without a known name changes {whose}{where}{made}{slots}"
    else:
        sentence = f"{update.kind} changes {whose}{where}"
    if update.scalars:
        many = len(update.scalars) > 1
        sentence += f", {'by the scalars' if many else 'at the rate'} {listed(update.scalars)}"
    options = [
        f"{name.replace('_', ' ')} {_option(value)}"
        for name, value in update.options
        if value or name not in _USUAL
    ]
    if options:
        sentence += f", with {', '.join(options)}"
    if update.clip_value is not None:
        sentence += f"; each element of a gradient is clipped to {decimal(update.clip_value)}"
    if update.clip_norm is not None:
        sentence += f"; gradients are clipped to the norm {decimal(update.clip_norm)}"
    return f"{sentence}."


def _option(value: float | bool) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return decimal(value)


def _average(words: JobInWords) -> Iterator[tuple[str, str]]:
    if words.averaged:
        tensors = count(len(words.averaged), "tensor")
        yield "average", f"A moving average of {tensors} moves towards them by the share ema."


# -- programs and data -----------------------------------------------------------------------------
def _program(words: JobInWords, program: ProgramWords) -> Iterator[tuple[str, str]]:
    one = len(words.programs) == 1
    end, of = ("", "") if one else (f" {program.name}", f" of the program {program.name}")
    yield f"loss{end}", f"The loss{of} is {program.loss}."
    if program.draws:
        drawn = "; ".join(map(_draw, program.draws))
        yield f"random{end}", f"Random operators{of}, in each micro-batch: {drawn}."
    yield f"batches{end}", _batches(words, program, of)


def _draw(draw: DrawWords) -> str:
    numbers = ", ".join(f"{name} {decimal(value)}" for name, value in draw.numbers)
    known = {"tallystick.dropout_mask": "dropout"}.get(draw.operator, draw.operator)
    return f"{known}{f' with {numbers}' if numbers else ''}, {count(draw.times, 'time')}"


def _batches(words: JobInWords, program: ProgramWords, of: str) -> str:
    what = "a pass" if program.by_pass else "training" if program.trains else "no training"
    steps = f"{count(program.steps, 'step')}{of} ({what})"
    data = next((d for d in words.data if d.name == program.data), None)
    if data is None:
        return f"{steps}, which read no records."
    sentence = f"{steps} of {count(program.batch_size, 'record')} of {data.name}"
    if program.micro_batches > 1:
        each = program.batch_size // program.micro_batches
        sentence += f", in {count(program.micro_batches, 'micro-batch')} of {each:,}"
    if program.by_pass:
        return f"{sentence}."
    size = program.epoch_records or data.records
    epochs = decimal(float(f"{program.reads / size:.4g}")) if size else "0"
    sentence += (
        f": {program.reads:,} records read, {epochs} {'epoch' if epochs == '1' else 'epochs'}"
    )
    if program.stream != program.name or program.stream_batch != program.batch_size:
        sentence += f", of the stream {program.stream} of batches of {program.stream_batch:,}"
    if program.first:
        sentence += f", from batch {program.first:,} on"
    if program.end == DROP:
        sentence += f"; an epoch has {size:,} records and drops the rest"
    elif program.end == SHORT:
        sentence += "; an epoch ends with a short batch if its records are not whole batches"
    return f"{sentence}."


def _data(words: JobInWords, data: DataWords) -> str:
    fields = ", ".join(f"{f.name} {shape_of(f.dtype, f.shape)}" for f in data.fields)
    shuffled = any(p.data == data.name and not p.by_pass for p in words.programs)
    seed = f"the seed {data.order_seed}"
    if shuffled and data.order == SHUFFLED:
        order = f"shuffled in each epoch by {seed}"
    else:
        order = f"in their own order ({seed} of their {data.order} order is not used)"
    return f"{count(data.records, 'record')} of {fields}, {order}."


# -- the course ------------------------------------------------------------------------------------
def _length(words: JobInWords) -> Iterator[tuple[str, str]]:
    sentence = f"A whole run has {count(words.steps, 'step')}"
    if len(words.turns) > 1:
        turns = [f"{count(n, 'step')} of {name}" for name, n in words.turns]
        sentence += f", in turns of {listed(turns)}"
    yield "steps", f"{sentence}."
    every = count(words.checkpoint_interval, "step")
    yield "checkpoints", f"The state is signed at the start, every {every}, and at the end."
    yield "stop", _stops(words)
    if words.continues is not None:
        yield "continues", f"It goes on from the run {words.continues.hex()}."


def _stops(words: JobInWords) -> str:
    stops, why = words.stops, []
    if stops.not_finite:
        why.append("a loss is not finite")
    if stops.by_slot and stops.patience is not None:
        better = f" by more than {decimal(stops.min_delta)}" if stops.min_delta else ""
        passes = count(stops.patience, "validation pass")
        why.append(f"{passes} in turn have no better loss{better}")
    elif stops.by_slot:
        why.append("its slot control.stop is true")
    return f"The run ends early if {' or if '.join(why)}." if why else "Nothing ends the run early."


# -- what the words leave out ----------------------------------------------------------------------
def _digests(words: JobInWords) -> Iterator[tuple[str, str]]:
    """The digests of all parts: two jobs that differ in what the other sentences leave out differ
    here."""
    for program in words.programs:
        yield f"text {program.name}", f"The program {program.name} is {program.digest.hex()}."
    yield "initial state", f"The initial state is {words.genesis_root.hex()}."
    for data in words.data:
        yield f"records {data.name}", f"The records of {data.name} are {data.root.hex()}."
    yield "scalars", f"The scalars are {words.scalars_digest.hex()}."


class Apart(NamedTuple):
    """A sentence by its label, as each of two jobs has it; None where a job has no such one."""

    label: str
    first: str | None
    second: str | None


@exact_environment()
def against(first: JobInWords, second: JobInWords) -> list[Apart]:
    """What differs between two jobs, in the order of their sentences. Two jobs with one digest are
    one job, and others differ in at least one sentence."""
    ours, theirs = _rows(first, second), _rows(second, first)
    labels = [*ours, *(label for label in theirs if label not in ours)]
    found = [
        Apart(label, ours.get(label), theirs.get(label))
        for label in labels
        if ours.get(label) != theirs.get(label)
    ]
    return [*_tables(first, second), *found]


def _rows(words: JobInWords, other: JobInWords) -> dict[str, str]:
    """The sentences of a job by their labels. Layers share a sentence only where they do in both
    jobs: else a label that one job alone has would say that the other has no such layer."""
    alone, common = (layer_rows(layer_lines(words.layers, o)) for o in ((), other.layers))
    labels = {label for label, _ in alone}
    found = dict[str, str]()
    for label, sentence in rows(words):
        if label not in labels:
            found[label] = sentence
        elif common:
            found |= common
            common = []
    return found


def _tables(first: JobInWords, second: JobInWords) -> list[Apart]:
    """The first row in which two tables of one name differ: their shapes may be said alike."""
    theirs, found = {t.name: t for t in second.tables}, []
    for ours in first.tables:
        other = theirs.get(ours.name)
        row = None if other is None else _first_row(ours, other)
        if other is not None and row is not None:
            where = f"step {row:,} of the steps that read it"
            pair = (f"{decimal(t.at(row))} in {where}" for t in (ours, other))
            found.append(Apart(f"numbers {ours.name}", *pair))
    return found


def _first_row(ours: TableWords, other: TableWords) -> int | None:
    if isinstance(ours.values, float) and isinstance(other.values, float):
        return None
    lengths = [len(t.values) for t in (ours, other) if not isinstance(t.values, float)]
    return next((row for row in range(min(lengths)) if ours.at(row) != other.at(row)), None)
