"""The way from two runs to one number, as a drawing.

Each stage is a bar. Its disputed part becomes the whole of the next bar. Below each bar stand the
statements of both parties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.numerics.types import TensorType
from tallystick.program.expand import micro_batch_of
from tallystick.program.ir import COMMIT, Program, Value
from tallystick.protocol.verdict import Event, Place
from tallystick.report.facts import DisputeFacts
from tallystick.report.first import steps_within
from tallystick.report.html import PARTIES, Safe, code, count, el, join, stated
from tallystick.report.layers import layer_of
from tallystick.report.page import section

_THINNEST = 6.0  # thousandths of a bar: a part is never drawn thinner
_SHAPED = 8  # operands of a node whose types are listed


@dataclass(frozen=True)
class Stage:
    """A stage of `whole` equal parts; `length` of them, from `first` on, are disputed."""

    title: str
    scale: str
    clauses: tuple[str, ...]
    whole: int = 0
    first: int | None = None
    length: int = 1
    words: object = None


def operand_type(program: Program, place: Place) -> TensorType | None:
    """The type of the disputed input or output, None where the program does not list it."""
    if place.node is None or place.operand is None:
        return None
    node = program.nodes[place.node]
    if place.side == "output":
        types = node.out_types
        return types[place.operand] if place.operand < len(types) else None
    value = node.inputs[place.operand] if place.operand < len(node.inputs) else None
    return None if value is None else program.type_of(value)


def shape_of(type_: TensorType) -> str:
    """A type as people write it: f32 [2, 700]."""
    return f"{type_.dtype} [{', '.join(str(n) for n in type_.shape)}]"


def _origin(program: Program, value: Value | None) -> str:
    if value is None:
        return "absent"
    if value.is_input:
        return f"{program.inputs[value.out].name}, {shape_of(program.type_of(value))}"
    made = f"operation {value.node}"
    if value.out:
        made = f"output {value.out} of {made}"
    return f"{made} ({program.nodes[value.node].op}), {shape_of(program.type_of(value))}"


def _operator(program: Program, number: int) -> Safe:
    """The node, as the job's program describes it."""
    node = program.nodes[number]
    shown = list(node.inputs[:_SHAPED])
    entries = [
        el("li", f"input {k}: ", code(_origin(program, value))) for k, value in enumerate(shown)
    ]
    if len(node.inputs) > _SHAPED:
        entries.append(el("li", f"and {count(len(node.inputs) - _SHAPED, 'more input')}"))
    entries += [
        el("li", f"output {k}: ", code(shape_of(type_)))
        for k, type_ in enumerate(node.out_types[:_SHAPED])
    ]
    if node.op == COMMIT:
        entries.append(el("li", "outputs: the chains and the root of the state after the step"))
    return el("ul", *entries, class_="small")


def stages(facts: DisputeFacts) -> list[Stage]:
    """The stages that the dispute reached, widest first."""
    place, job = facts.verdict.place, facts.terms.commitment
    program = facts.terms.program_at(place.step or 0)
    last = max(run.final_step for run in facts.runs)
    low, high = place.interval or (place.step, None)
    span = (high - low) if low is not None and high is not None else 1
    found = [
        Stage(
            "The runs",
            f"{count(last, 'step')}, state signed every {count(job.checkpoint_interval, 'step')}",
            ("3.", "4.1", "4.2", "4.3", "4.7"),
            last,
            low,
            span,
        )
    ]
    if place.interval is not None:
        inside = f"{steps_within(place.interval)}, between two signed states"
        first = None if place.step is None or low is None else place.step - low
        found.append(Stage("The interval", inside, ("4.4", "4.5"), span, first))
    if place.step is not None:
        nodes = len(program.nodes)
        total = count(nodes, "operation")
        found.append(
            Stage(f"Step {place.step:,}", total, ("5.1", "5.2", "5.3", "5.4"), nodes, place.node)
        )
    if place.node is not None:
        found.append(_node_stage(program, place))
    type_ = operand_type(program, place)
    if place.element is not None and type_ is not None:
        name = f"{(place.side or 'operand').capitalize()} {place.operand} of that operation"
        index = _index(place.element, type_)
        words = el("p", "Place ", code(index)) if index else None
        scale = f"{shape_of(type_)}: {count(type_.numel, 'place')}"
        found.append(
            Stage(name, scale, ("6.1", "6.10", "6.12"), type_.numel, place.element, words=words)
        )
    return found


def _node_stage(program: Program, place: Place) -> Stage:
    assert place.node is not None
    node = program.nodes[place.node]
    extra = 3 if node.op == COMMIT else 0
    inputs = len(node.inputs) + extra
    outputs = len(node.out_types) + extra
    first = None
    if place.operand is not None:
        first = place.operand + (inputs if place.side == "output" else 0)
    found = micro_batch_of(program, place.node)
    of = "" if found is None else f", operation {found[1]:,} of micro-batch {found[0]:,}"
    layer = layer_of(program, place.node)
    return Stage(
        f"Operation {place.node:,}: {node.op}{of}{f' of layer {layer}' if layer else ''}",
        f"{count(inputs, 'input')}, {count(outputs, 'output')}",
        ("5.5", "5.6", "5.7", "5.8", "6.13"),
        inputs + outputs,
        first,
        words=_operator(program, place.node),
    )


def _index(element: int, type_: TensorType) -> str:
    """A flat position as a position per axis."""
    at = []
    for extent in reversed(type_.shape):
        element, k = divmod(element, extent)
        at.append(str(k))
    return f"[{', '.join(reversed(at))}]" if at else ""


def _drawing(stage: Stage, fans: bool) -> Safe | None:
    """The bar of a stage, and the lines from its disputed part to the next stage's bar."""
    if not stage.whole or stage.first is None:
        return None
    begin = 1000 * min(stage.first, stage.whole) / stage.whole
    width = max(_THINNEST, 1000 * stage.length / stage.whole)
    begin = round(min(begin, 1000 - min(width, 1000)), 2)
    end = round(min(1000.0, begin + width), 2)
    label = f"{stage.title}: part {stage.first:,} of {stage.whole:,} is disputed"
    bar = el(
        "svg",
        el("rect", x=0, y=0, width=1000, height=26, class_="whole"),
        el("rect", x=begin, y=0, width=round(end - begin, 2), height=26, class_="part"),
        viewBox="0 0 1000 26",
        preserveAspectRatio="none",
        class_="bar",
        role="img",
        aria_label=label,
    )
    if not fans:
        return bar
    fan = el(
        "svg",
        el("path", d=f"M{begin} 0L{end} 0L1000 30L0 30z"),
        viewBox="0 0 1000 30",
        preserveAspectRatio="none",
        class_="fan",
        aria_hidden="true",
    )
    return join(bar, fan)


def sign(equal: bool) -> Safe:
    """Equal or different, as a sign and a word."""
    mark, word = ("=", "equal") if equal else ("≠", "different")
    tone = "good" if equal else "bad"
    return el("div", el("span", mark, class_="big"), el("span", word), class_=f"sign {tone}")


def claims(what: object, pair: Sequence[str], equal: bool) -> Safe:
    """Both parties' statements about one fact, side by side."""
    boxes = [
        el(
            "div",
            el("div", PARTIES[p], class_="who"),
            stated(pair[p]),
            class_="claim one" if p else "claim",
        )
        for p in (0, 1)
    ]
    return el("div", el("div", what, class_="what"), boxes[0], sign(equal), boxes[1],
              class_="claims")  # fmt: skip


def _told(event: Event) -> Safe:
    cited = join(event.sentence, " ", el("span", f"({event.clause})", class_="soft small"))
    if event.stated == ("", ""):
        return el("p", cited, class_="small")
    return claims(cited, event.stated, event.stated[0] == event.stated[1])


def _belongs(clause: str, stage: Sequence[str]) -> bool:
    """True if an event of `clause` belongs to a stage; "6.1" is not the beginning of "6.10"."""
    return any(clause == c or clause.startswith(c if c.endswith(".") else f"{c}.") for c in stage)


_SILENT = el("p", "The question here was not answered.", class_="small")


def path_section(facts: DisputeFacts) -> Safe:
    """All stages with their claims."""
    verdict = facts.verdict
    told = list(verdict.story[: len(verdict.story) - len(verdict.convicted)])
    shown = stages(facts)
    entries = []
    for k, stage in enumerate(shown):
        mine = [e for e in told if _belongs(e.clause, stage.clauses)]
        drawing = _drawing(stage, fans=k + 1 < len(shown) or verdict.place.quantity is not None)
        head = el(
            "div",
            el("h3", f"{k + 1}. {stage.title}"),
            el("span", stage.scale, class_="soft"),
            class_="stage",
        )
        silent = verdict.forfeit and k + 1 == len(shown)
        told_of = [*map(_told, mine), _SILENT if silent else None]
        entries.append(el("li", head, stage.words, *told_of, drawing))
    if verdict.place.quantity is not None:
        quantity = verdict.place.quantity
        title = f"{len(shown) + 1}. The value it was decided on: {quantity}"
        scale = f"{count(verdict.terms, 'term')} computed by the judge"
        head = el("div", el("h3", title), el("span", scale, class_="soft"), class_="stage")
        a, b = verdict.claimed
        last = claims("the disputed value", (a, b), a == b) if a or b else None
        entries.append(el("li", head, last))
    words = (
        "Each bar is the whole remaining range. Where a part of it is marked, the parties differ "
        "in that part, and it is the next bar. Fingerprints are cut to their first 16 digits."
    )
    return section("Where they part", el("p", words, class_="soft small"),
                   el("ol", *entries, class_="path"))  # fmt: skip
