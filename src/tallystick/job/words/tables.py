"""A table of per-step numbers in words: its shape, and the numbers at which that turns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tallystick.job.numbers import count, decimal
from tallystick.job.words.parts import TableWords

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
