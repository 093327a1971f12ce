"""A job's terms in words: what its digest covers, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from tallystick.commit.job import CONTINUES_NONE, JobCommitment
from tallystick.commit.stream import DROP, RUN_ON, SHORT, Stream
from tallystick.devices.environment import exact_environment
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.numbers import decimal
from tallystick.job.words.layers import BUFFER, PARAMETER, changed_slots, layers_of, tensors_of
from tallystick.job.words.losses import draws_of, loss_of
from tallystick.job.words.parts import (
    DataWords,
    FieldWords,
    JobInWords,
    ParameterWords,
    ProgramWords,
    StopWords,
    TableWords,
)
from tallystick.job.words.updates import averaged, updates_of
from tallystick.program.ir import Program
from tallystick.program.terms import Terms
from tallystick.program.validation import METRIC, StopRule, decision_program, rule_of


@exact_environment()
def job_in_words(terms: Terms) -> JobInWords:
    """What a job trains, from its programs, scalars, schemas and timetable (COMMITMENTS 7)."""
    c = terms.commitment
    first, changed = terms.texts[0], changed_slots(terms.texts)
    return JobInWords(
        digest=terms.digest,
        format_version=c.format_version,
        contract=c.contract,
        layers=layers_of(first, changed),
        buffers=tuple(
            ParameterWords(f"{module}.{p.name}" if module else p.name, p.dtype, p.shape, p.trained)
            for module, p in tensors_of(first, BUFFER, changed)
        ),
        updates=updates_of(terms.texts, c.timetable, changed),
        averaged=averaged(terms.texts),
        tables=tuple(
            TableWords(name, table if isinstance(table, float) else tuple(table))
            for name, table in sorted(terms.scalars.items())
        ),
        programs=tuple(_program(terms, number) for number in range(len(terms.texts))),
        turns=tuple((c.timetable.programs[t.program].name, t.steps) for t in c.timetable.turns),
        data=tuple(_data(terms, number) for number in range(len(terms.schemas))),
        steps=c.steps,
        checkpoint_interval=c.checkpoint_interval,
        stops=_stops(terms),
        continues=None
        if isinstance(c, JobCommitment) or c.continues == CONTINUES_NONE
        else c.continues,
        seed=c.rng_seed,
        genesis_root=c.genesis_root,
        scalars_digest=c.scalars_digest,
    )


def _data(terms: Terms, number: int) -> DataWords:
    data, schema = terms.commitment.timetable.data[number], terms.schemas[number]
    fields = tuple(FieldWords(f.name, f.dtype, f.shape) for f in schema.fields)
    return DataWords(data.name, data.record_count, fields, data.order, data.order_seed, data.root)


def _program(terms: Terms, number: int) -> ProgramWords:
    c, timetable = terms.commitment, terms.commitment.timetable
    entry, text = timetable.programs[number], terms.texts[number]
    stream, steps = entry.stream, timetable.count(number, c.steps)
    data = timetable.data_of(number)
    return ProgramWords(
        name=entry.name,
        digest=entry.digest,
        trains=any(slot.startswith(PARAMETER) for slot in changed_slots([text])),
        by_pass=entry.by_pass,
        steps=steps,
        loss=loss_of(text),
        draws=draws_of(text),
        stream=stream.name,
        stream_batch=stream.batch_size,
        data=None if data is None else data.name,
        batch_size=entry.batch_size,
        micro_batches=entry.micro_batches,
        first=stream.first,
        reads=0 if data is None else steps * entry.batch_size,
        end=None if data is None else _end(stream, data.record_count),
        epoch_records=stream.epoch_records,
    )


def _end(stream: Stream, records: int) -> str:
    """How an epoch of the stream ends (COMMITMENTS 7.7.4)."""
    if stream.epoch_records is None:
        return RUN_ON
    return SHORT if stream.epoch_records == records else DROP


def _stops(terms: Terms) -> StopWords:
    c = terms.commitment
    if not c.stop_on_slot:
        return StopWords(c.stop_on_non_finite, False)
    rule = next(filter(None, map(_decision, terms.texts)), None) or StopRule()
    return StopWords(c.stop_on_non_finite, True, rule.patience, rule.min_delta)


def _decision(text: Program) -> StopRule | None:
    """The rule of a decision program, None for a program that is not one, node for node
    (PROGRAM 7.3)."""
    total = text.output_values["loss"]
    count = None if total.is_input else text.nodes[total.node].attrs.get("other")
    if not isinstance(count, float) or not count.is_integer():
        return None
    rule = rule_of(text)
    metrics = [n.removeprefix(METRIC) for n in text.state_types if n.startswith(METRIC)]
    try:
        written = decision_program(text.contract, text.state_types, metrics, int(count), rule)
    except (KeyError, UsageError):
        return None
    return rule if written == text else None


@exact_environment()
def words_of(job: Job) -> JobInWords:
    """A job in words, with what its manifest says beside the digest (`beside`)."""
    said = [("recipe", job.recipe["name"])] if job.recipe else []
    said += [(f"setting {k}", str(v)) for k, v in (job.recipe or {}).get("settings", {}).items()]
    said += list(job.about.items())
    e = job.evaluation
    if e is not None:
        said.append(("validation", f"{e.record_count:,} records every {decimal(e.every)} steps"))
    return replace(job_in_words(job.terms), beside=tuple((k, str(v)) for k, v in said))
