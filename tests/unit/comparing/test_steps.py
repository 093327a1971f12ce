"""Operators of two executions find their partners by structure, whatever their numbers are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tallystick.comparing.steps import (
    ABSENT,
    ATTRIBUTES,
    INPUT,
    OUTPUT,
    ExecutedOperator,
    OperandRecord,
    align,
    compare_step,
)
from tallystick.errors import CannotCheckError

OPERATORS = ("aten.mm", "aten.add", "aten.relu", "aten.mul")


@st.composite
def programs(draw: st.DrawFn) -> list[ExecutedOperator]:
    """A list of operators, each of which reads what was made before, or the step's own inputs."""
    entries: list[ExecutedOperator] = []
    for number in range(draw(st.integers(1, 12))):
        inputs = []
        for _ in range(draw(st.integers(1, 2))):
            source = draw(st.integers(-2, number - 1))
            if source < 0:
                name = f"state {source}"
                inputs.append(OperandRecord(f"value of {name}", "f32[2]", "state", name))
            else:
                made = entries[source].outputs[0]
                inputs.append(replace(made, name=f"node {source}", source=source))
        operator = draw(st.sampled_from(OPERATORS))
        value = f"{operator}({','.join(i.digest for i in inputs)})"
        out = OperandRecord(value, "f32[2]")
        entries.append(ExecutedOperator(operator, "", tuple(inputs), (out,), number=number))
    return entries


def moved(entries: list[ExecutedOperator], order: list[int]) -> list[ExecutedOperator]:
    """The same operators in another order, which must be a topological one."""
    place = {old: new for new, old in enumerate(order)}
    return [
        replace(
            entries[old],
            inputs=tuple(
                i if i.source is None else replace(i, source=place[i.source])
                for i in entries[old].inputs
            ),
        )
        for old in order
    ]


@given(programs())
def test_one_execution_is_equal_to_itself(entries: list[ExecutedOperator]) -> None:
    assert compare_step(entries, list(entries)) is None
    assert align(entries, entries) == [(n, n) for n in range(len(entries))]


@given(programs(), st.randoms(use_true_random=False))
def test_an_order_that_gives_the_same_values_is_no_difference(
    entries: list[ExecutedOperator], random: object
) -> None:
    order: list[int] = []
    left = set(range(len(entries)))
    while left:
        ready = [
            n
            for n in sorted(left)
            if all(i.source is None or i.source in order for i in entries[n].inputs)
        ]
        chosen = random.choice(ready)  # type: ignore[attr-defined]
        order.append(chosen)
        left.remove(chosen)
    assert compare_step(entries, moved(entries, order)) is None


@given(programs(), st.data())
def test_a_false_output_is_found_at_its_operator(
    entries: list[ExecutedOperator], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(entries) - 1))
    wrong = replace(entries[at].outputs[0], digest="wrong")
    other = [*entries]
    other[at] = replace(entries[at], outputs=(wrong,))
    found = compare_step(entries, other)
    assert found is not None
    assert (found.pair, found.side, found.inputs) == ((at, at), OUTPUT, ())


@given(programs(), st.data())
def test_an_inserted_operator_costs_no_other_its_partner(
    entries: list[ExecutedOperator], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(entries)))
    alone = ExecutedOperator("aten.tanh", "", (), (OperandRecord("new", "f32[2]"),))
    later = [
        replace(
            entry,
            inputs=tuple(
                replace(i, source=i.source + 1) if i.source is not None and i.source >= at else i
                for i in entry.inputs
            ),
        )
        for entry in entries[at:]
    ]
    other = [*entries[:at], alone, *later]
    found = compare_step(entries, other)
    assert found is not None and found.side == ABSENT
    assert found.gaps == ((None, at),) and found.pair == (None, at)
    assert sorted(p for p in found.pairs if p[0] is not None) == [
        (n, n + (n >= at)) for n in range(len(entries))
    ]


@given(programs(), st.data())
def test_an_inserted_operator_that_changes_values_is_named(
    entries: list[ExecutedOperator], data: st.DataObject
) -> None:
    """Everything behind it has other ancestors, and keeps its partner by its place in the order."""
    # Of several equal operators in A any may stand for the one in B whose input is another.
    digests = [entry.outputs[0].digest for entry in entries]
    assume(len(set(digests)) == len(digests))
    alone = ExecutedOperator(
        "aten.tanh", "", entries[0].inputs[:1], (OperandRecord("new", "f32[2]"),)
    )
    first = replace(
        entries[0],
        inputs=(OperandRecord("new", "f32[2]", source=0), *entries[0].inputs[1:]),
        outputs=(OperandRecord("other", "f32[2]"),),
    )
    rest = [
        replace(
            entry,
            inputs=tuple(
                i if i.source is None else replace(i, source=i.source + 1) for i in entry.inputs
            ),
        )
        for entry in entries[1:]
    ]
    found = compare_step(entries, [alone, first, *rest])
    assert found is not None and found.gaps == ((None, 0),)
    assert (found.pair, found.side, found.operand) == ((0, 1), INPUT, 0)


def test_other_attributes_without_another_value() -> None:
    made = (OperandRecord("x", "f32[2]"),)
    ours, theirs = (
        ExecutedOperator("aten.add", "alpha=1", (), made),
        ExecutedOperator("aten.add", "alpha=2", (), made),
    )
    found = compare_step([ours], [theirs])
    assert found is not None and (found.side, found.changed) == (ATTRIBUTES, ((0, 0),))


X, Y = OperandRecord("x", "f32[2]", "state", "x"), OperandRecord("y", "f32[2]")


@pytest.mark.parametrize(
    ("ours", "theirs", "side", "operand", "inputs"),
    [
        (((X,), (Y,)), ((), ()), INPUT, 0, (0,)),
        (((), (Y,)), ((), ()), OUTPUT, 0, ()),
        (((X,), (Y,)), ((X, X), (Y,)), INPUT, 1, (1,)),
        (((X,), (Y,)), ((Y, X), (Y,)), INPUT, 0, (0, 1)),
    ],
)
def test_a_missing_operand_is_a_difference(
    ours: tuple[tuple[OperandRecord, ...], ...],
    theirs: tuple[tuple[OperandRecord, ...], ...],
    side: str,
    operand: int,
    inputs: tuple[int, ...],
) -> None:
    a, b = (ExecutedOperator("aten.mm", "", *both) for both in (ours, theirs))
    for one, other in ((a, b), (b, a)):
        found = compare_step([one], [other])
        assert found is not None
        assert (found.side, found.operand, found.inputs) == (side, operand, inputs)


def test_an_alignment_is_bounded() -> None:
    """Operators that are all alike cost the square of their number, and an answer has a bound."""
    step = [ExecutedOperator("aten.mm", "", (), ()) for _ in range(12_000)]
    other = [replace(entry, attributes="2") for entry in step]
    with pytest.raises(CannotCheckError, match=r"\.next_step\(\)"):
        align(step, other)
    few = align(step[:500], other[:500])
    assert few == [(n, n) for n in range(500)]
