"""A job's terms in words: what its digest covers, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from tallystick.commit.job import CONTINUES_NONE, JobCommitment
from tallystick.commit.stream import DROP, RUN_ON, SHORT, Stream
from tallystick.devices.environment import exact_environment
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.numbers import decimal
from tallystick.job.words.layers import BUFFER, PARAMETER, changed_slots, layers_of, tensors_of
from tallystick.job.words.parts import (
    DataWords,
    DrawWords,
    FieldWords,
    JobInWords,
    ParameterWords,
    ProgramWords,
    StopWords,
    TableWords,
)
from tallystick.job.words.updates import averaged, updates_of
from tallystick.numerics.operators.reduction import FOLD
from tallystick.program.ir import Node, Program, Value, op_spec
from tallystick.program.terms import Terms
from tallystick.program.validation import METRIC, StopRule, decision_program, rule_of

# A loss is followed so far through sums, factors and means of micro-batches.
_MOST = 8


def loss_of(program: Program) -> str:
    """The program's output `loss` in words: a known loss, or the operator that makes it."""
    return _Loss(program).words(program.output_values["loss"], _MOST)


class _Loss:
    def __init__(self, program: Program) -> None:
        self.program = program

    def _node(self, value: Value | None) -> Node | None:
        if value is None or value.is_input:
            return None
        return self.program.nodes[value.node]

    def words(self, value: Value | None, depth: int) -> str:
        node = self._node(value)
        if value is None or node is None:
            return "a value that the step is given"
        known = _KNOWN.get(node.op)
        found = known(self, node, depth) if known and depth and value.out == 0 else None
        return found or f"what {node.op} makes"

    # -- known losses ------------------------------------------------------------------------------
    def entropy(self, node: Node, _: int) -> str:
        left = node.attrs.get("ignore_index")
        return f"cross entropy ({node.attrs['reduction']}, without the label {left})"

    def likelihood(self, node: Node, _: int) -> str:
        source = self._node(node.inputs[0])
        if source is None or source.op != "aten._log_softmax":
            return "negative log likelihood"
        return "negative log likelihood of a log softmax: cross entropy"

    def squares(self, node: Node, _: int) -> str:
        return f"squared error ({node.attrs['reduction']})"

    def mean(self, node: Node, _: int) -> str | None:
        """The mean of the squares of a difference."""
        squared = self._node(node.inputs[0])
        if squared is None:
            return None
        is_square = (
            squared.op == "aten.square"
            or (squared.op == "aten.pow.Tensor_Scalar" and squared.attrs["exponent"] == 2.0)
            or (squared.op == "aten.mul.Tensor" and squared.inputs[0] == squared.inputs[1])
        )
        what = self._node(squared.inputs[0]) if is_square else None
        if what is None or what.op != "aten.sub.Tensor" or what.attrs["alpha"] != 1.0:
            return None
        return "mean squared error"

    # -- what is made of losses --------------------------------------------------------------------
    def fold(self, node: Node, depth: int) -> str:
        how = "mean" if node.attrs["mean"] else "sum"
        return f"{self.words(node.inputs[0], depth - 1)}; the {how} over micro-batches"

    def total(self, node: Node, depth: int) -> str:
        factor = float(node.attrs["alpha"])  # type: ignore[arg-type]
        times = "" if factor == 1.0 else f"{decimal(factor)} times "
        first, second = (self.words(v, depth - 1) for v in node.inputs)
        return f"{first}, plus {times}{second}"

    def times(self, node: Node, depth: int) -> str:
        factor = float(node.attrs["other"])  # type: ignore[arg-type]
        return f"{decimal(factor)} times {self.words(node.inputs[0], depth - 1)}"

    def over(self, node: Node, depth: int) -> str:
        divisor = float(node.attrs["other"])  # type: ignore[arg-type]
        inner = node.inputs[0]
        if inner is not None and inner.is_input:
            return f"{self.program.inputs[inner.out].name} divided by {decimal(divisor)}"
        return f"{self.words(inner, depth - 1)}, divided by {decimal(divisor)}"


_KNOWN: dict[str, Callable[[_Loss, Node, int], str | None]] = {
    "tallystick.cross_entropy": _Loss.entropy,
    "aten.nll_loss_forward": _Loss.likelihood,
    "aten.mse_loss": _Loss.squares,
    "aten.mean": _Loss.mean,
    FOLD: _Loss.fold,
    "aten.add.Tensor": _Loss.total,
    "aten.mul.Scalar": _Loss.times,
    "aten.div.Scalar": _Loss.over,
}


# -- random operators ------------------------------------------------------------------------------
def draws_of(program: Program) -> tuple[DrawWords, ...]:
    """The program's random operators, with the numbers of their distributions."""
    found = Counter[tuple[str, tuple[tuple[str, float], ...]]]()
    for node in program.nodes:
        if op_spec(node.op, program.contract).is_random:
            numbers = ((k, v) for k, v in sorted(node.attrs.items()) if isinstance(v, float))
            found[node.op, tuple(numbers)] += 1
    return tuple(DrawWords(*draw, times) for draw, times in sorted(found.items()))


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
