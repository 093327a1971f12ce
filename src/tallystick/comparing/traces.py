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
from tallystick.comparing.programs import ProgramLines
from tallystick.comparing.steps import (
    ABSENT,
    INPUT,
    OUTPUT,
    OperandRecord,
    StepApart,
    compare_step,
    inputs_said,
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
from tallystick.comparing.tracefile import (
    COMPLETE,
    FULL,
    UNREADABLE,
    UNWRITTEN,
    TracedStep,
    TraceReader,
    is_readable,
)
from tallystick.comparing.values import ElementApart, elements_apart
from tallystick.errors import CannotCheckError
from tallystick.job.numbers import count
from tallystick.protocol.verdict import PARTIES

_UNREAD = "{:,} inputs and results (sparse, quantized, or of meta) had no bytes to compare."


def compare_traces(first: TraceReader, second: TraceReader) -> Comparison:
    """Compare two traces. Raises CorruptFileError, StorageError, and CannotCheckError where no
    tensor differs as far as both go and one has no end, and where one has no operator."""
    both = (first, second)
    steps = operators = unread = 0
    pair = TracedPair(both)
    lines = ProgramLines()
    idle: list[tuple[int, Idle]] = []
    by_optimizer = False
    for ours, theirs in zip_longest(_filled(first), _filled(second)):
        if ours is None or theirs is None:
            without = _idle_alone(ours, theirs)
            if without is not None:
                idle.append(((ours or theirs or TracedStep(0)).number, without))
                continue
            _refuse_unfinished(both, steps, operators)
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
            lines.add(ours.number, found, ours.operators, theirs.operators)
            if found.side in (INPUT, OUTPUT):
                return _different(pair, found, lines, operators)
        # Where optimizers end the steps, what a loop does after the last of them is none.
        by_optimizer = by_optimizer or bool(ours.settings)
        steps += ours.ended or not by_optimizer
        operators += len(ours.operators)
        unread += ours.unread
    _refuse_unfinished(both, steps, operators)
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


def _refuse_unfinished(both: Sequence[TraceReader], steps: int, operators: int) -> None:
    """Refuse a comparison in which no tensor has differed and of which one trace says too little.
    How the longer one ends makes no difference: it is not read so far."""
    for name, reader in zip(PARTIES, both, strict=True):
        if not reader.is_read or (reader.end == COMPLETE and operators):
            continue
        equal = f"No tensor differs as far as both traces go ({count(steps, 'step')})"
        if reader.end == FULL:
            raise CannotCheckError(
                f"{equal}; then {name} had used up its log_bytes.",
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


def _different(
    pair: TracedPair, found: StepApart, lines: ProgramLines, operators: int
) -> Comparison:
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
        tuple(
            InputApart(n, inputs_said(operand_at(ours, INPUT, n), operand_at(theirs, INPUT, n)))
            for n in found.inputs
        ),
    )
    return Comparison(
        TRACES,
        False,
        tuple(causes),
        first,
        programs=lines.said(),
        notices=tuple(_notices(pair.readers)),
        compared=_compared(pair.steps[0].number, operators),
    )


def _elements(
    values: tuple[Array | None, Array | None], operands: Sequence[OperandRecord], step: int
) -> tuple[ElementApart | None, str]:
    ours, theirs = values
    if operands[0].type != operands[1].type:
        return None, f"the tensor is {operands[0].type} in A and {operands[1].type} in B"
    if ours is None or theirs is None:
        return None, _why_unknown(operands, step)
    return elements_apart(ours, theirs), ""


def _why_unknown(operands: Sequence[OperandRecord], step: int) -> str:
    """Why no values of two tensors of one type are known, and what to do about it."""
    for name, operand in zip(PARTIES, operands, strict=True):
        if operand.digest == UNWRITTEN:
            return f"nothing has written this memory in {name} before it is read"
        if operand.digest == UNREADABLE:
            return f"the tensor of {name} had no bytes to read (sparse, quantized, or of meta)"
    if not is_readable(operands[0].type):
        return f"a comparison shows no values of {operands[0].type}"
    return (
        f"a trace has not kept them. Record both loops again with tallystick.trace(…, step={step}),"
        " and with a larger keep_bytes if you have done so already"
    )


def _left(pair: TracedPair, lines: ProgramLines, operators: int) -> Comparison:
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
        programs=lines.said(),
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
    lines: ProgramLines,
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
        programs=lines.said(),
        notices=tuple(_notices(pair.readers)),
        compared=_compared(steps, operators),
    )
