"""A picture of the dispute: from a whole run to one number, each bar a part of the one above it."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.report.facts import DisputeFacts
from tallystick.report.first import steps_within
from tallystick.report.html import FINGERPRINT, Safe, count, el
from tallystick.report.layers import in_words
from tallystick.report.page import section
from tallystick.report.path import operand_type

_WIDTH, _ROW, _BAR, _LEFT, _MOST = 360, 58, 22, 118, 104
_LEAST = 12


@dataclass(frozen=True)
class Level:
    """A line of the picture: what remains, of how much."""

    what: str
    of: str


def levels(facts: DisputeFacts) -> list[Level]:
    """What the dispute narrowed to, from the run on, as far as it came."""
    place, commitment = facts.verdict.place, facts.terms.commitment
    ends = [run.final_step for run in facts.runs]
    whole = f"{min(ends):,} and {max(ends):,} steps" if ends[0] != ends[1] else count(
        ends[0], "step"
    )  # fmt: skip
    found = [Level("The whole run", whole)]
    if place.interval is not None:
        low, high = place.interval
        every = count(commitment.checkpoint_interval, "step")
        found.append(
            Level(steps_within(place.interval).capitalize(),
                  f"{count(high - low, 'step')}, between two signed states (one every {every})")
        )  # fmt: skip
    if place.step is None:
        return found
    program = facts.program
    nodes = len(program.nodes)
    found.append(Level(f"Step {place.step:,}", f"one step, of {count(nodes, 'operation')}"))
    if not facts.verdict.case and any(c.clause == "5.3" for c in facts.verdict.convicted):
        found.append(
            Level(f"The signed result of step {place.step:,}", "the fingerprint of its state")
        )
    if place.node is None:
        return found
    known = in_words(place.operator or "")
    found.append(Level(f"Operation {place.node:,}", f"one of {nodes:,}: {known}"))
    type_ = operand_type(program, place)
    elements = None if type_ is None else type_.numel
    if place.element is not None and elements is not None:
        side = "input" if place.side == "input" else "result"
        found.append(
            Level(f"One number of its {side}", f"one of {elements:,}, at place {place.element:,}")
        )
    elif place.side is not None:
        side = "Input" if place.side == "input" else "Result"
        of = (
            "its fingerprint" if elements is None else f"fingerprint of {count(elements, 'number')}"
        )
        found.append(Level(f"{side} {place.operand} of it", of))
    return found


def _picture(shown: list[Level], end: str) -> Safe:
    """`end` is the kind of the last bar: what is false in red, what was not answered in another
    colour."""
    height = _ROW * len(shown) - (_ROW - _BAR) + 18
    middle, marks = 4 + _MOST / 2, []
    step = (_MOST - _LEAST) / max(1, len(shown) - 1)
    for k, level in enumerate(shown):
        width, y = _MOST - step * k, 2 + _ROW * k
        last = k + 1 == len(shown)
        if not last:
            below = width - step
            marks.append(
                el("path", class_="fan", d=f"M{middle - width / 2:.1f} {y + _BAR}h{width:.1f}"
                   f"L{middle + below / 2:.1f} {y + _ROW}h{-below:.1f}z")
            )  # fmt: skip
        marks.append(
            el("rect", x=f"{middle - width / 2:.1f}", y=y, width=f"{width:.1f}", height=_BAR, rx=3,
               class_=end if last else "whole")
        )  # fmt: skip
        marks.append(el("text", level.what, x=_LEFT, y=y + 11, class_="what"))
        for n, line in enumerate(_lines(level.of)):
            marks.append(el("text", line, x=_LEFT, y=y + 26 + 14 * n))
    return el(
        "svg", *marks, viewBox=f"0 0 {_WIDTH} {height + 12}", role="img",
        aria_label=f"How the dispute was narrowed down: {told(shown)}", class_="narrowing",
    )  # fmt: skip


def _lines(words: str, most: int = 38) -> list[str]:
    """At most two lines of a picture, cut at a space."""
    if len(words) <= most:
        return [words]
    at = words.rfind(" ", 0, most + 1)
    if at <= 0:
        return [words[: most - 1] + "…"]
    rest = words[at + 1 :]
    return [words[:at], rest if len(rest) <= most else rest[: most - 1] + "…"]


def told(shown: list[Level]) -> str:
    """The picture as a sentence."""
    return "; then ".join(f"{level.what} ({level.of})" for level in shown) + "."


def _end(facts: DisputeFacts) -> str:
    """Why the dispute went no further."""
    verdict = facts.verdict
    if verdict.forfeit:
        return "It ended here because a question was not answered."
    if verdict.undecided:
        return "It ended here because neither value is shown wrong."
    if verdict.terms:
        return "It ended here because the rest is small enough for the judge to compute."
    return "It ended here because comparing the signed answers was enough."


def narrowing_section(facts: DisputeFacts, explained: bool = False) -> Safe | None:
    """The picture with its text; none where the dispute ended before a search. `explained` says
    that the page has said what a fingerprint is."""
    shown = levels(facts)
    if len(shown) < 2:
        return None
    verdict = facts.verdict
    if verdict.forfeit:
        last = shown[-1]
        shown[-1] = Level(f"{last.what}: not answered", last.of)
    caption = (
        "Each bar is a part of the one above. A referee asks both parties the same questions. They "
        "answer with signed fingerprints, and the next question is about the part where these "
        f"differ. {'' if explained else f'{FINGERPRINT} '}{_end(facts)} Steps, operations, inputs "
        "and places count from 0."
    )
    end = "unanswered" if verdict.forfeit else "open" if verdict.undecided else "part"
    return section(
        "How the dispute was narrowed down",
        el("figure", _picture(shown, end), el("figcaption", caption), class_="narrowed"),
    )
