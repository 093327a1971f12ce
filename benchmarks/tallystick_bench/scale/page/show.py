"""Numbers for people, and tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_SIZES = (
    (1e18, "EB"), (1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB"),
)  # fmt: skip


def shown(number: float, unit: str) -> str:
    """`number` of `unit`, to three digits."""
    if unit == "B":
        for size, name in _SIZES:
            if number >= size:
                return f"{_three(number / size)} {name}"
        return f"{number:.0f} B"
    if unit == "B/s":
        return f"{shown(number, 'B')}/s"
    if unit == "FLOP/s":
        return f"{_three(number / 1e12)} TFLOP/s"
    if unit == "share":
        return f"{_three(100 * number)} %"
    if unit == "count":
        return f"{number:,.0f}" if number == int(number) and number < 1e7 else _three(number)
    if unit == "s":
        return _seconds(number)
    return f"{_three(number)} {unit}".strip()


def _seconds(number: float) -> str:
    for size, name in ((86400.0, "days"), (3600.0, "h"), (120.0, "min")):
        if number >= 2 * size:
            return f"{_three(number / (60 if name == 'min' else size))} {name}"
    if number >= 0.1 or number == 0:
        return f"{_three(number)} s"
    return f"{_three(1e3 * number)} ms" if number >= 1e-4 else f"{_three(1e6 * number)} µs"


def _three(number: float) -> str:
    for size, name in ((1e9, " billion"), (1e6, " million")):
        if number >= size:
            return f"{number / size:.3g}{name}"
    if number >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}" if number >= 1e-3 or not number else f"{number:.1g}".replace("e-0", "e-")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, its first column words and the others figures."""
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
