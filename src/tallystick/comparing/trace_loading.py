"""What a loop does before its first module without an effect on any number.

A loader draws the order of its records, and gathers them. Where two loops read equal batches, it
makes no difference in which process, or how often, they have drawn and gathered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tallystick.comparing.steps import (
    ABSENT,
    ATTRIBUTES,
    INPUT,
    OUTPUT,
    ExecutedOperator,
    Pair,
    StepApart,
    compare_step,
    only_one,
    operand_at,
)
from tallystick.comparing.tracefile import TracedStep
from tallystick.protocol.verdict import PARTIES

# Operators that move records and compute nothing.
_MOVES = re.compile(
    r"aten\.(select|slice|index|index_select|gather|narrow|take|take_along_dim|split|unbind|chunk|"
    r"split_with_sizes|stack|cat|empty|empty_strided|new_empty|set_|view|_unsafe_view|reshape|"
    r"_reshape_alias|as_strided|permute|transpose|t|unsqueeze|squeeze|expand|clone|copy_|_to_copy|"
    r"lift_fresh|lift|detach|alias|contiguous|resize_|_pin_memory|_local_scalar_dense|"
    r"_resize_output_)\."
)
_READS_ONE = "aten._local_scalar_dense"


class Idle(NamedTuple):
    """Differences of a step without an effect: draws of a shuffle, each with the name of the loop
    that alone has made it ("" where both have made another one), and how many operators of A alone
    and of B alone only move records."""

    draws: tuple[tuple[str, str], ...] = ()
    moves: tuple[int, int] = (0, 0)


def is_shuffle(entry: ExecutedOperator) -> bool:
    """A permutation, or one whole number that seeds one."""
    whole = all(made.type == "i64[]" for made in entry.outputs)
    return "randperm" in entry.operator or (entry.operator.startswith("aten.random_") and whole)


class LoaderDraws:
    """The shuffles of one step of both loops, and which of them no other operator reads."""

    def __init__(self, steps: tuple[TracedStep, TracedStep]) -> None:
        self._steps = steps
        self._read = [_read(step.operators) for step in steps]
        self._there = [
            Counter((entry.operator, step.draws.get(entry.number, "")) for entry in step.operators
                    if entry.number in step.draws)
            for step in steps
        ]  # fmt: skip

    def is_idle(self, side: int, number: int) -> bool:
        """True for a shuffle outside of modules whose result no operator computes with."""
        entry = self._steps[side].operators[number]
        return not entry.place and is_shuffle(entry) and number not in self._read[side]

    def is_other(self, pair: Pair) -> bool:
        """True for two idle shuffles that differ, each with the generator's state of its own."""
        a, b = pair
        return a is not None and b is not None and self.is_idle(0, a) and self.is_idle(1, b)

    def is_of_other(self, pair: Pair) -> bool:
        """True for two such shuffles, and for where Python reads their numbers."""
        a, b = pair
        if a is None or b is None:
            return False
        read = (self._steps[0].operators[a], self._steps[1].operators[b])
        of_one = all(_of_a_shuffle(self, side, entry) for side, entry in enumerate(read))
        return of_one or self.is_other(pair)

    def is_twin(self, pair: Pair) -> bool:
        """True where the other loop has made one of the two draws elsewhere in the step: the two
        do not belong together."""
        a, b = pair
        assert a is not None and b is not None
        keys = [
            (step.operators[number].operator, step.draws.get(number, ""))
            for step, number in zip(self._steps, (a, b), strict=True)
        ]
        return keys[0] != keys[1] and any(
            key[1] and self._there[1 - side][key] for side, key in enumerate(keys)
        )


def with_effect(
    found: StepApart | None, steps: tuple[TracedStep, TracedStep]
) -> tuple[StepApart | None, Idle]:
    """The first difference of a step that is not only of how the records were drawn and
    gathered, and what was left out."""
    if found is None:
        return None, Idle()
    draws, drawn = LoaderDraws(steps), []
    if found.side == OUTPUT and draws.is_other(found.pair):
        entries = steps[0].operators, steps[1].operators
        later = compare_step(*entries, found.pairs, draws.is_of_other)
        if later is not None and later.side in (INPUT, OUTPUT):
            mixed = not draws.is_twin(found.pair) and _is_of_records(later, steps)
            return (found if mixed else later), Idle()
        drawn = [
            ("", entries[0][a or 0].operator)
            for a, b in found.pairs
            if draws.is_other((a, b)) and _differ(entries, a, b) and not draws.is_twin((a, b))
        ]
        found = later
    if found is None or found.side in (INPUT, OUTPUT):
        return found, Idle(tuple(drawn))
    return _without_idle(found, steps, draws, drawn)


def idle_alone(step: TracedStep, name: str) -> Idle | None:
    """What a step does that only one loop has, where it draws shuffles and moves records alone;
    else None."""
    steps = (step, TracedStep(0)) if name == PARTIES[0] else (TracedStep(0), step)
    found = compare_step(steps[0].operators, steps[1].operators)
    left, idle = with_effect(found, steps)
    return idle if left is None else None


def _differ(
    entries: tuple[Sequence[ExecutedOperator], Sequence[ExecutedOperator]],
    a: int | None,
    b: int | None,
) -> bool:
    return [o.digest for o in entries[0][a or 0].outputs] != [
        o.digest for o in entries[1][b or 0].outputs
    ]


def _without_idle(
    found: StepApart,
    steps: tuple[TracedStep, TracedStep],
    draws: LoaderDraws,
    drawn: list[tuple[str, str]],
) -> tuple[StepApart | None, Idle]:
    """Leaves out operators without a partner, or with other arguments, that draw shuffles or move
    records. No tensor that both loops have differs in the step."""
    entries = steps[0].operators, steps[1].operators
    moved = [moves_records(own) for own in entries]
    kept, moves = [], [0, 0]
    for gap in found.gaps:
        entry, number, name = only_one(gap, *entries)
        side = 0 if name == PARTIES[0] else 1
        if draws.is_idle(side, number):
            drawn.append((name, entry.operator))
        elif number in moved[side] or _of_a_shuffle(draws, side, entry):
            moves[side] += 1
        else:
            kept.append(gap)
    changed = tuple((a, b) for a, b in found.changed if a not in moved[0] or b not in moved[1])
    idle = Idle(tuple(drawn), (moves[0], moves[1]))
    if changed:
        return replace(
            found, pair=changed[0], side=ATTRIBUTES, gaps=tuple(kept), changed=changed
        ), idle
    if not kept:
        return None, idle
    return replace(found, pair=kept[0], side=ABSENT, gaps=tuple(kept), changed=()), idle


def _is_of_records(found: StepApart, steps: tuple[TracedStep, TracedStep]) -> bool:
    """True where the first tensor that differs is of the records that a step reads."""
    for number, step in zip(found.pair, steps, strict=True):
        moved = moves_records(step.operators)
        entry = step.operators[number or 0]
        operand = operand_at(entry, found.side, found.operand)
        if found.side == INPUT and operand is not None:
            of_data = (
                operand.source in moved if operand.source is not None else _is_given(operand.kind)
            )
        else:
            of_data = entry.number in moved
        if of_data:
            return True
    return False


def shuffle_said(idle: Sequence[tuple[int, Idle]]) -> str:
    """Says that the loops have shuffled differently, where both have; else empty."""
    for step, one in idle:
        for name, operator in one.draws:
            if not name:
                return f"{operator} draws another order in step {step}."
    return ""


def notices(idle: Sequence[tuple[int, Idle]]) -> Iterator[str]:
    """Says what two equal loops have done differently without an effect; `idle` has the steps."""
    draws: dict[tuple[str, str], list[int]] = {}
    for step, one in idle:
        for key in one.draws:
            draws.setdefault(key, []).append(step)
    for (name, operator), found in draws.items():
        who = f"Only {name} draws" if name else "The loops draw different numbers"
        times = "" if len(found) == 1 else f" and {_more_often(len(found) - 1)}"
        begin = f"{who} by {operator}" if not name else f"{who} {operator}"
        yield f"{begin} in step {found[0]}{times}; no operator computes with it."
    moves = [sum(one.moves[side] for _, one in idle) for side in (0, 1)]
    if any(moves):
        counts = " and ".join(
            f"{name} by {count:,}" for name, count in zip(PARTIES, moves, strict=True)
        )
        yield f"The loops gather the same records by other operators: {counts}."


def _more_often(more: int) -> str:
    return "once more" if more == 1 else f"{more:,} more times"


def _of_a_shuffle(draws: LoaderDraws, side: int, entry: ExecutedOperator) -> bool:
    """The number of a shuffle, as Python reads it."""
    if not entry.operator.startswith(_READS_ONE):
        return False
    return all(i.source is not None and draws.is_idle(side, i.source) for i in entry.inputs)


def moves_records(entries: Sequence[ExecutedOperator]) -> set[int]:
    """The operators outside of modules that move what the loop was given, or memory that has no
    content yet."""
    found = set[int]()
    for entry in entries:
        given = all(
            operand.source in found if operand.source is not None else _is_given(operand.kind)
            for operand in entry.inputs
        )
        if not entry.place and given and _MOVES.match(entry.operator):
            found.add(entry.number)
    return found


def _is_given(kind: str) -> bool:
    return kind in ("data", "carried")


def _read(entries: Sequence[ExecutedOperator]) -> set[int]:
    """The operators with whose results another one computes."""
    return {
        operand.source
        for entry in entries
        if not entry.operator.startswith(_READS_ONE)
        for operand in entry.inputs
        if operand.source is not None
    }
