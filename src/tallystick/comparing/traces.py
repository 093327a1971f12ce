"""Two traces of a PyTorch loop: the first step, operator and element that differ.

Both are read step by step together. Of each step the operators are aligned by structure, as the
nodes of two runs are. Values are known where both traces have kept them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from tallystick.commit.tensor import Array
from tallystick.comparing.causes import NO_SUCH, cause_of_missing
from tallystick.comparing.found import TRACES, Cause, Comparison, FirstApart, InputApart
from tallystick.comparing.programs import program_lines
from tallystick.comparing.steps import (
    ABSENT,
    INPUT,
    OUTPUT,
    ExecutedOperator,
    OperandRecord,
    StepApart,
    compare_step,
    operand_at,
)
from tallystick.comparing.trace_arguments import of_arguments
from tallystick.comparing.trace_batches import batch_size, cause_of_batches, causes_of_end
from tallystick.comparing.trace_causes import causes_in_trace
from tallystick.comparing.trace_loading import (
    Idle,
    idle_alone,
    notices,
    shuffle_said,
    with_effect,
)
from tallystick.comparing.trace_structure import gap_entry, only_said
from tallystick.comparing.trace_updates import rates
from tallystick.comparing.traced_pair import TracedPair
from tallystick.comparing.tracefile import COMPLETE, FULL, TracedStep, TraceReader
from tallystick.comparing.values import ElementApart, elements_apart
from tallystick.errors import CannotCheckError
from tallystick.protocol.verdict import PARTIES

_MOST_LINES = 12
_UNREAD = "{:,} inputs and results (sparse, quantized, or of meta) had no bytes to compare."


def compare_traces(first: TraceReader, second: TraceReader) -> Comparison:
    """Compare two traces. Raises CorruptFileError, StorageError, and CannotCheckError where no
    tensor differs as far as both go and one has no end, and where one has no operator."""
    both = (first, second)
    steps = operators = unread = 0
    pair = TracedPair(both)
    lines: list[str] = []
    idle: list[tuple[int, Idle]] = []
    for ours, theirs in zip_longest(_filled(first), _filled(second)):
        if ours is None or theirs is None:
            without = _idle_alone(ours, theirs)
            if without is not None:
                idle.append(((ours or theirs or TracedStep(0)).number, without))
                continue
            _refuse_unfinished(both, steps)
            return _ended(pair, ours, theirs, lines, steps, operators)
        found = compare_step(ours.operators, theirs.operators)
        found, without = with_effect(found, (ours, theirs))
        if without != Idle():
            idle.append((ours.number, without))
        pair.enter(ours, theirs, found)
        if pair.usual is None:
            pair.usual = batch_size(ours)
        pair.shuffled = pair.shuffled or shuffle_said(idle)
        if found is not None:
            more = program_lines(found, ours.operators, theirs.operators)
            lines += [f"step {ours.number}: {line}" for line in more]
            if found.side in (INPUT, OUTPUT):
                return _different(pair, found, lines, operators)
        steps, operators = steps + 1, operators + len(ours.operators)
        unread += ours.unread
    _refuse_unfinished(both, steps)
    if pair.absent is not None:
        return _left(pair, lines, operators)
    said = [*([_UNREAD.format(unread)] if unread else []), *notices(idle)]
    return Comparison(TRACES, True, notices=tuple(said), compared=_compared(steps, operators))


def _idle_alone(ours: TracedStep | None, theirs: TracedStep | None) -> Idle | None:
    """What only one loop does behind the last step of the other, where it has no effect."""
    longer = ours or theirs
    return None if longer is None else idle_alone(longer, PARTIES[0 if theirs is None else 1])


def _filled(reader: TraceReader) -> Iterator[TracedStep]:
    """The steps that have operators."""
    return (step for step in reader.steps() if step.operators)


def _refuse_unfinished(both: Sequence[TraceReader], steps: int) -> None:
    """Refuse a comparison in which no tensor has differed and of which one trace says too little.
    How the longer one ends makes no difference: it is not read so far."""
    for name, reader in zip(PARTIES, both, strict=True):
        if not reader.is_read or (reader.end == COMPLETE and steps):
            continue
        equal = f"No tensor differs as far as both traces go ({steps:,} steps)"
        if reader.end == FULL:
            raise CannotCheckError(
                f"{equal}; then the budget of {name} was used up.",
                "Record both loops again with a larger log_bytes.",
            )
        if reader.end != COMPLETE:
            raise CannotCheckError(
                f"{equal}; then the loop of {name} was stopped.",
                "Record the loop again, and let it end.",
            )
        raise CannotCheckError(
            f"The trace {name} contains no operators.",
            "Run the loop inside the block of tallystick.trace(…), in the same thread and without "
            "torch.compile.",
        )


def _compared(steps: int, operators: int) -> dict[str, object]:
    return {"equal steps": steps, "operators in them": operators}


def _notices(both: Sequence[TraceReader]) -> list[str]:
    return [
        f"The trace {name} has no end: its loop was stopped."
        for name, reader in zip(PARTIES, both, strict=True)
        if reader.is_read and reader.end not in (COMPLETE, FULL)
    ]


def _different(pair: TracedPair, found: StepApart, lines: list[str], operators: int) -> Comparison:
    a, b = found.pair
    assert a is not None and b is not None
    ours, theirs = pair.steps[0].operators[a], pair.steps[1].operators[b]
    mine, other = (operand_at(entry, found.side, found.operand) for entry in (ours, theirs))
    if mine is not None and other is not None:
        values = pair.values((mine, other))
        elements, unknown = _elements(values, (mine, other), pair.steps[0].number)
        causes = causes_in_trace(pair, found, values)
    else:
        elements, unknown = None, NO_SUCH
        causes = [cause_of_batches(pair) or cause_of_missing(ours, found, mine)]
    name = (mine or other or OperandRecord("", "")).name
    first = FirstApart(
        pair.steps[0].number,
        (ours.operator, theirs.operator),
        (a, b),
        (ours.place, theirs.place),
        f"{found.side} {found.operand}{f' ({name})' if name else ''}",
        elements,
        unknown,
        tuple(InputApart(n, _both_said(ours, theirs, n)) for n in found.inputs),
    )
    return Comparison(
        TRACES,
        False,
        tuple(causes),
        first,
        programs=tuple(lines[:_MOST_LINES]),
        notices=tuple(_notices(pair.readers)),
        compared=_compared(pair.steps[0].number, operators),
    )


def _both_said(ours: ExecutedOperator, theirs: ExecutedOperator, number: int) -> str:
    """Where an input comes from, in both loops if from elsewhere."""
    said = [_said(e.inputs[number]) for e in (ours, theirs) if number < len(e.inputs)]
    made = all(said) and all("made by operator" in one for one in said)
    if len(said) == 1 or said[0] == said[1] or made:
        return said[0]
    return f"{said[0]} in A, {said[1]} in B"


def _said(operand: OperandRecord) -> str:
    if operand.source is not None:
        return f"made by operator {operand.source} of the step"
    return f"{operand.kind} {operand.name or operand.type}"


def _elements(
    values: tuple[Array | None, Array | None], operands: Sequence[OperandRecord], step: int
) -> tuple[ElementApart | None, str]:
    ours, theirs = values
    if operands[0].type != operands[1].type:
        return None, f"the types are {operands[0].type} and {operands[1].type}"
    if ours is None or theirs is None:
        return None, (
            f"a trace has not kept them; record both loops again with tallystick.trace(…, "
            f"step={step})"
        )
    return elements_apart(ours, theirs), ""


def _left(pair: TracedPair, lines: list[str], operators: int) -> Comparison:
    """No common tensor differs, but one loop has operators that the other has not."""
    assert pair.absent is not None
    step, found, entries = pair.absent
    a, b = found.pair
    first = FirstApart(
        step,
        (
            None if a is None else entries[0][a].operator,
            None if b is None else entries[1][b].operator,
        ),
        found.pair,
        operand="its presence" if found.side == ABSENT else "its arguments",
    )
    return Comparison(
        TRACES,
        False,
        tuple(_causes_left(pair)),
        first,
        programs=tuple(lines[:_MOST_LINES]),
        notices=tuple(_notices(pair.readers)),
        compared=_compared(step, operators),
    )


def _causes_left(pair: TracedPair) -> Iterator[Cause]:
    """The causes where no common tensor differs."""
    assert pair.absent is not None
    step, found, entries = pair.absent
    a, b = found.pair
    if a is not None and b is not None:
        cause = of_arguments(pair, entries[0], entries[0][a], entries[1][b])
    else:
        entry, name = gap_entry(found.pair, entries)
        cause = Cause("program", only_said(pair, entry, name, step, "calls "))
    yield Cause(cause.kind, f"Every tensor that both have is equal. {cause.sentence}")
    setting = next(rates(pair), None)
    if setting is not None and setting.kind != cause.kind:
        yield setting


def _ended(
    pair: TracedPair,
    ours: TracedStep | None,
    theirs: TracedStep | None,
    lines: list[str],
    steps: int,
    operators: int,
) -> Comparison:
    """One loop has gone on."""
    longer, name = (ours, "A") if ours is not None else (theirs, "B")
    assert longer is not None
    operator = longer.operators[0].operator
    first = FirstApart(
        longer.number,
        (operator, None) if name == "A" else (None, operator),
        (0, None) if name == "A" else (None, 0),
        operand="end",
    )
    return Comparison(
        TRACES,
        False,
        tuple(causes_of_end(pair, longer, name)),
        first,
        programs=tuple(lines[:_MOST_LINES]),
        notices=tuple(_notices(pair.readers)),
        compared=_compared(steps, operators),
    )
