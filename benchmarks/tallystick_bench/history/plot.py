"""A plot of figures over time, as SVG: text that is equal wherever it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 64, 84
# Colours that stay apart for most colour-blind readers (Okabe and Ito), and a shape for each.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#7b3294", "#7a5c00", "#56606b")
# The least distance of two lines' names.
APART = 18.0
# The most times below the axis that have a text.
TEXTS = 6


def draw(
    title: str,
    axis: str,
    times: Sequence[tuple[str, str]],
    lines: Mapping[str, Sequence[float | None]],
    mark: float | None = None,
) -> str:
    """An SVG with a line for each of `lines`, whose values stand for `times` in turn.

    A time is two short texts, one below the other. A value of None leaves a gap. The axis of values
    begins at 0. `mark` draws a dashed line at a value.
    """
    values = [value for line in lines.values() for value in line if value is not None]
    step = _step(max([*values, mark or 0.0]))
    top = step * -(-max([*values, mark or 0.0]) // step)
    right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM

    def x(place: int) -> float:
        room = right - LEFT
        return LEFT + room * (place + 0.5) / len(times)

    def y(value: float) -> float:
        return floor - (floor - TOP) * value / top

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t" '
        'font-family="system-ui, sans-serif" font-size="14" fill="#1f2430">',
        f'<title id="t">{escape(title)}</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fbfaf7"/>',
        f'<text x="{LEFT}" y="34" font-size="17" font-weight="600">{escape(title)}</text>',
        f'<text transform="translate(20 {(TOP + floor) / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle">{escape(axis)}</text>',
    ]
    for number in range(round(top / step) + 1):
        at = y(number * step)
        out.append(f'<path d="M{LEFT} {at:.1f}H{right}" stroke="#dcdad4"/>')
        out.append(
            f'<text x="{LEFT - 8}" y="{at + 5:.1f}" text-anchor="end">{number * step:g}</text>'
        )
    if mark is not None:
        out.append(
            f'<path d="M{LEFT} {y(mark):.1f}H{right}" stroke="#1f2430" stroke-dasharray="6 4"/>'
        )
    # So many texts fit beside each other; the last time always has its own.
    thinned = -(-len(times) // TEXTS)
    for place, (above, below) in enumerate(times):
        if (len(times) - 1 - place) % thinned:
            continue
        for text, at in ((above, floor + 22), (below, floor + 40)):
            out.append(
                f'<text x="{x(place):.1f}" y="{at}" text-anchor="middle">{escape(text)}</text>'
            )
    out.append(
        f'<text x="{(LEFT + right) / 2:.0f}" y="{floor + 66}" text-anchor="middle">'
        "date of the result, and the commit below it</text>"
    )
    ends: list[tuple[float, str, str]] = []
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = [(x(i), y(value)) for i, value in enumerate(line) if value is not None]
        if not points:
            continue
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}"/>' for a, b in points]
        last = [value for value in line if value is not None][-1]
        ends.append((points[-1][1], f"{name}: {last:.2f}", colour))
    at = -APART
    for wanted, name, colour in sorted(ends):
        at = max(wanted, at + APART)
        out.append(f'<text x="{right + 8}" y="{at + 5:.1f}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*out, "</svg>", ""])


def _step(top: float) -> float:
    """The distance of two lines of the grid: 1, 2 or 5 of a power of ten, at most eight of them."""
    power = 1e-6
    while True:
        for digit in (1, 2, 5):
            if top <= 8 * digit * power:
                return digit * power
        power *= 10
