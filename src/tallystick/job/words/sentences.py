"""A job in words, as sentences: each under a label, so that two jobs are compared by label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tallystick.commit.stream import DROP, SHORT, SHUFFLED
from tallystick.job.numbers import count, decimal, listed, shape_of
from tallystick.job.words.layers import layer_lines
from tallystick.job.words.parts import (
    DataWords,
    DrawWords,
    JobInWords,
    ProgramWords,
    UpdateWords,
)
from tallystick.job.words.tables import table_words


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
