"""Losses drawn as SVG: axes, training, validation, checkpoints; for wide and small screens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystick.report.html import Safe, count, el, join, number

if TYPE_CHECKING:
    from tallystick.report.facts import Curve

_LEFT, _RIGHT, _TOP, _STRIP, _BELOW = 62, 14, 10, 22, 38
_TIGHT = 3.0  # pixels: checkpoints nearer than this are drawn as a band
_SHAPES = ("train", "train one")
LOSS = "loss"
_SMOOTHED_FROM = 150  # steps; a shorter curve is read as it is


@dataclass(frozen=True)
class CheckpointMarks:
    """The steps with a hashed state, and those with a stored state as well."""

    hashed: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()


def ticks(low: float, high: float, wanted: int, whole: bool = False) -> list[float]:
    """Round numbers from low to high, about `wanted` of them; integers under `whole`."""
    if not high > low:
        return [low]
    rough = (high - low) / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
    if whole:
        step = max(1.0, round(step))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [min(max(k * step, low), high) for k in range(first, last + 1)]


def window_of(steps: int) -> int:
    """The steps that a smoothed loss is taken over: a fiftieth of the run; 1 is none."""
    return max(1, steps // 50) if steps >= _SMOOTHED_FROM else 1


def smoothed(losses: Sequence[float], window: int) -> list[float]:
    """The mean of the last `window` losses at each step, of those that are finite."""
    found, total, held = [], 0.0, 0
    for step, loss in enumerate(losses):
        if math.isfinite(loss):
            total, held = total + loss, held + 1
        if step >= window and math.isfinite(losses[step - window]):
            total, held = total - losses[step - window], held - 1
        found.append(total / held if held else math.nan)
    return found


def thinned(losses: Sequence[float], columns: int) -> list[tuple[int, float]]:
    """(step, loss), at most two of each column's steps: its least and its greatest loss.

    A non-finite loss breaks the line and is kept.
    """
    if len(losses) <= 2 * columns:
        return list(enumerate(losses))
    kept: set[int] = {0, len(losses) - 1}
    for k in range(columns):
        part = range(k * len(losses) // columns, (k + 1) * len(losses) // columns)
        finite = [i for i in part if math.isfinite(losses[i])]
        kept.update(i for i in part if not math.isfinite(losses[i]))
        if finite:
            kept.add(min(finite, key=losses.__getitem__))
            kept.add(max(finite, key=losses.__getitem__))
    return [(i, losses[i]) for i in sorted(kept)]


class _Frame:
    """The positions of steps and losses in a drawing of some width."""

    def __init__(self, curves: Sequence[Curve], width: int, height: int, strip: bool) -> None:
        self.width, self.height = width, height
        self.bottom = height - _BELOW - (_STRIP if strip else 0)
        self.steps = max([1, *(len(c.training) for c in curves)])
        values = [v for c in curves for v in c.training if math.isfinite(v)]
        values += [v for c in curves for _, v in c.validation if math.isfinite(v)]
        low, high = (min(values), max(values)) if values else (0.0, 1.0)
        pad = 0.04 * (high - low) or 0.5 * abs(high) or 0.5
        self.low, self.high = low - pad, high + pad

    def x(self, step: float) -> float:
        return round(_LEFT + (self.width - _LEFT - _RIGHT) * step / self.steps, 1)

    def y(self, loss: float) -> float:
        part = (loss - self.low) / (self.high - self.low)
        return round(self.bottom - (self.bottom - _TOP) * part, 1)


def _axes(f: _Frame, quantity: str) -> Safe:
    parts = []
    for loss in ticks(f.low, f.high, 5):
        y = f.y(loss)
        parts.append(el("line", x1=_LEFT, x2=f.width - _RIGHT, y1=y, y2=y, class_="grid"))
        parts.append(el("text", f"{loss:.4g}", x=_LEFT - 6, y=y + 4, text_anchor="end"))
    for step in ticks(0, f.steps, f.width // 90, whole=True):
        x = f.x(step)
        end = f.height - _BELOW
        parts.append(el("line", x1=x, x2=x, y1=end, y2=end + 4, class_="axis"))
        anchor = "end" if x > f.width - 30 else "middle"
        parts.append(el("text", count(int(step)), x=x, y=end + 17, text_anchor=anchor))
    middle = (_LEFT + f.width - _RIGHT) / 2
    parts.append(el("text", "training step", x=middle, y=f.height - 4, text_anchor="middle"))
    turned = f"rotate(-90 11 {(_TOP + f.bottom) / 2:.0f})"
    parts.append(el("text", quantity, x=11, y=round((_TOP + f.bottom) / 2), text_anchor="middle",
                    transform=turned))  # fmt: skip
    parts.append(el("path", d=f"M{_LEFT} {_TOP}V{f.bottom}H{f.width - _RIGHT}", class_="axis",
                    fill="none"))  # fmt: skip
    return join(*parts)


def _line(f: _Frame, points: Sequence[tuple[float, float]], class_: str) -> Safe:
    path, pen = [], "M"
    for step, loss in points:
        if math.isfinite(loss):
            path.append(f"{pen}{f.x(step)} {f.y(loss)}")
            pen = "L"
        else:
            pen = "M"
    return el("path", d="".join(path), class_=class_)


def _strip(f: _Frame, marks: CheckpointMarks) -> Safe:
    """Checkpoints below the curve.

    Each has a tick, or a band where they are dense, and a diamond where the state was stored.
    """
    middle = f.bottom + _STRIP / 2 + 2
    apart = (f.x(f.steps) - f.x(0)) / max(1, len(marks.hashed) - 1)
    parts = []
    if len(marks.hashed) > 1 and apart < _TIGHT:
        first, last = f.x(marks.hashed[0]), f.x(marks.hashed[-1])
        parts.append(el("rect", x=first, y=middle - 5, width=round(last - first, 1), height=10,
                        class_="band"))  # fmt: skip
    else:
        parts += [
            el("line", x1=f.x(s), x2=f.x(s), y1=middle - 5, y2=middle + 5, class_="hashed")
            for s in marks.hashed
        ]
    for step in marks.stored:
        x = f.x(step)
        d = f"M{x} {middle - 6}l5 6l-5 6l-5 -6z"
        parts.append(el("path", el("title", f"state {step:,} stored"), d=d, class_="stored"))
    return join(*parts)


def _drawing(
    curves: Sequence[tuple[int, Curve]],
    marks: CheckpointMarks,
    event: int | None,
    width: int,
    height: int,
    class_: str,
    label: str,
) -> Safe:
    f = _Frame([c for _, c in curves], width, height, bool(marks.hashed))
    parts = [_axes(f, curves[0][1].quantity)]
    if marks.hashed:
        parts.append(_strip(f, marks))
    for party, curve in curves:
        points = [(i + 0.0, v) for i, v in thinned(curve.training, width - _LEFT - _RIGHT)]
        window = window_of(len(curve.training))
        parts.append(_line(f, points, _SHAPES[party] + (" raw" if window > 1 else "")))
        if window > 1:
            means = smoothed(curve.training, window)
            drawn = thinned(means, width - _LEFT - _RIGHT)
            parts.append(_line(f, [(i + 0.0, v) for i, v in drawn], _SHAPES[party]))
    for party, curve in curves:
        finite = [(s, v) for s, v in curve.validation if math.isfinite(v)]
        parts.append(_line(f, curve.validation, "valid"))
        dot = "dot one" if party else "dot"
        parts += [el("circle", cx=f.x(s), cy=f.y(v), r=3, class_=dot) for s, v in finite[-400:]]
    if event is not None:
        x = f.x(event)
        parts.append(el("line", x1=x, x2=x, y1=_TOP, y2=f.bottom, class_="event"))
        anchor, dx = ("end", -6) if x > width / 2 else ("start", 6)
        parts.append(el("text", f"step {event:,}", x=x + dx, y=_TOP + 11, text_anchor=anchor))
    return el("svg", *parts, viewBox=f"0 0 {width} {height}", class_=class_, role="img",
              aria_label=label)  # fmt: skip


def _key(shape: Safe, name: str) -> Safe:
    return el("li", el("svg", shape, viewBox="0 0 30 12", aria_hidden="true"), name)


def _legend(curves: Sequence[tuple[int, Curve]], marks: CheckpointMarks, event: int | None) -> Safe:
    keys = []
    for party, curve in curves:
        kind = "training" if curve.quantity == LOSS else curve.quantity
        name = f"{kind}, {curve.name}" if len(curves) > 1 else kind
        window = window_of(len(curve.training))
        if window > 1:
            name += f" (mean of {window:,} steps; each step in light)"
        keys.append(_key(el("path", d="M0 6H30", class_=_SHAPES[party]), name))
    for party, curve in curves:
        if curve.validation:
            name = f"validation, {curve.name}" if len(curves) > 1 else "validation"
            dot = "dot one" if party else "dot"
            line = el("path", d="M0 6H30", class_="valid")
            keys.append(_key(join(line, el("circle", cx=15, cy=6, r=3, class_=dot)), name))
    if marks.hashed:
        keys.append(_key(el("path", d="M8 1V11M15 1V11M22 1V11", class_="hashed"), "state hashed"))
    if marks.stored:
        keys.append(_key(el("path", d="M15 0l5 6l-5 6l-5 -6z", class_="stored"), "hashed, stored"))
    if event is not None:
        keys.append(_key(el("path", d="M15 0V12", class_="event"), "where they part"))
    return el("ul", *keys, class_="legend")


def figure(
    curves: Sequence[tuple[int, Curve]],
    marks: CheckpointMarks | None = None,
    event: int | None = None,
    caption: object = None,
    heights: tuple[int, int] = (340, 270),
) -> Safe:
    """Curves (each with its party, 0 or 1, which chooses the stroke) as a figure with a legend.

    `event` is a step to be marked. `heights` are those of the wide and the narrow drawing, in
    pixels.
    """
    shown = marks or CheckpointMarks()
    ends = [
        f"{c.name}: {len(c.training):,} steps, {c.quantity} {number(c.training[0])} to "
        f"{number(c.training[-1])}"
        for _, c in curves
        if c.training
    ]
    label = f"{curves[0][1].quantity.capitalize()} by step. " + "; ".join(ends)
    return el(
        "figure",
        _drawing(curves, shown, event, 860, heights[0], "wide", label),
        _drawing(curves, shown, event, 350, heights[1], "narrow", label),
        _legend(curves, shown, event),
        None if caption is None else el("figcaption", caption),
    )
