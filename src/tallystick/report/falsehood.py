"""The number that is false: both values and the computed one as decimals, and how far apart."""

from __future__ import annotations

import re
from decimal import Context, Decimal, InvalidOperation, Overflow

from tallystick.program.ir import BATCH_PREFIX, RNG_INPUT, SCALAR_PREFIX, Program
from tallystick.protocol.verdict import Place
from tallystick.report.facts import DisputeFacts
from tallystick.report.html import Safe, el, join
from tallystick.report.layers import layer_of
from tallystick.report.page import paragraph, section, table
from tallystick.report.words import PARTIES, bits_of, code

_DIGEST = re.compile(r"[0-9a-f]{16}")
_DIGITS = Context(prec=40, traps=[InvalidOperation, Overflow])
_STATE_KINDS = {"param": "a weight of the model", "buffer": "a stored number of the model",
                "opt": "a memory of the training", "ema": "an average of the weights"}  # fmt: skip
# What the operations do that people meet most; of another one the page gives the name alone.
_OPERATIONS = {
    "aten.mm": "multiplies two tables of numbers",
    "aten.addmm": "multiplies two tables of numbers and adds a third",
    "aten.bmm": "multiplies tables of numbers",
    "aten.convolution": "slides a filter over its input",
    "aten.convolution_backward": "passes the error back through a filter",
    "tallystick.cross_entropy": "measures the error of the model's answers",
    "tallystick.cross_entropy_backward": "passes the error back to the model's answers",
    "tallystick.adam_step": "updates the model's weights",
    "tallystick.adamw_step": "updates the model's weights",
    "tallystick.sgd_step": "updates the model's weights",
    "tallystick.clip_coef": "limits the size of an update",
    "tallystick.commit": "closes the step and records its loss and the new model",
}


def decimal_of(shown: str) -> Decimal | None:
    """The number in a text of protocol.game.show; None where it is not one finite number."""
    try:
        found = Decimal(bits_of(shown)[0])
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def apart(stated: str, true: str) -> str:
    """How far a stated number is from the true one, as a decimal with a sign; else empty."""
    a, b = decimal_of(stated), decimal_of(true)
    if a is None or b is None:
        return ""
    difference = _DIGITS.subtract(a, b)
    return "0" if not difference else f"{difference:+.6g}".replace("-", "−")


def is_digest(shown: str) -> bool:
    """Whether a statement is a fingerprint of many numbers, and no number."""
    return bool(_DIGEST.fullmatch(shown))


def source_of(program: Program, place: Place) -> str | None:
    """What the disputed input is by the job, in words; None where it is no input of the step."""
    if place.node is None or place.side != "input" or place.operand is None:
        return None
    inputs = program.nodes[place.node].inputs
    value = inputs[place.operand] if place.operand < len(inputs) else None
    if value is None or not value.is_input:
        return None
    name = program.inputs[value.out].name
    if name == RNG_INPUT:
        return "the source of the step's random numbers"
    for prefix, what in ((BATCH_PREFIX, "the data's field"), (SCALAR_PREFIX, "the setting")):
        if name.startswith(prefix):
            return f"{what} “{name[len(prefix) :]}”"
    kind, _, rest = name.partition(".")
    return f"{_STATE_KINDS.get(kind, 'a stored number of the training')}, “{rest or name}”"


def setting_of(facts: DisputeFacts) -> float | None:
    """The job's number where a setting is disputed, such as the learning rate."""
    place, program = facts.verdict.place, facts.program
    if facts.verdict.case != "2d" or place.node is None or place.operand is None:
        return None
    value = program.nodes[place.node].inputs[place.operand]
    name = "" if value is None or not value.is_input else program.inputs[value.out].name
    if place.step is None or not name.startswith(SCALAR_PREFIX):
        return None
    return float(facts.terms.scalar(name[len(SCALAR_PREFIX) :], place.step))


def where(facts: DisputeFacts) -> str:
    """Where in the step the disputed number stands, in words; empty outside of a step."""
    place = facts.verdict.place
    if place.node is None or place.step is None:
        return ""
    program = facts.program
    if place.node >= len(program.nodes):
        return ""
    source = source_of(program, place)
    layer = layer_of(program, place.node)
    known = _OPERATIONS.get(place.operator or "")
    inside = [
        place.operator,
        f"which {known}" if known else "",
        f"in layer {layer}" if layer else "",
    ]
    operator = f"operation {place.node:,} ({', '.join(filter(None, inside))})"
    if source:
        return f"{source}, where it enters {operator} of step {place.step:,}"
    side = {"input": "an input of ", "output": "a result of "}.get(place.side or "", "")
    return f"{side}{operator} of step {place.step:,}"


def _shown(value: str) -> object:
    return code(bits_of(value)[0])


def _true_name(facts: DisputeFacts) -> str:
    """Where the true value comes from."""
    case = facts.verdict.case
    known = {"0": "Proved from the runs", "2c": "The job's data say", "2d": "The job says"}
    return known.get(case, "Computed by the judge")


def _false_value(facts: DisputeFacts, party: int) -> Safe:
    verdict = facts.verdict
    stated, true = verdict.claimed[party], verdict.value
    name = PARTIES[party]
    if is_digest(stated):
        setting = setting_of(facts)
        own = [] if setting is None else [
            " The job's own number is ", code(repr(setting)), ". The party signed no more than a "
            "fingerprint of its own number, so this page cannot show that number.",
        ]  # fmt: skip
        return paragraph(
            f"{name} signed the fingerprint ", code(stated), " for it, and ", code(true),
            " is the true one. A fingerprint shows that what it stands for differs, and not by "
            "how much.", *own,
        )  # fmt: skip
    by = apart(stated, true)
    off = [", so it is off by ", code(by)] if by else []
    return paragraph(
        el("strong", f"{name} stated "), _shown(stated), ". ",
        el("strong", f"{_true_name(facts)}: "), _shown(true), *off, ".",
    )  # fmt: skip


def _against_the_other(facts: DisputeFacts, party: int) -> Safe | None:
    """Both statements where no third value was computed: the party's own parts showed it false."""
    stated, other = (facts.verdict.claimed[p] for p in (party, 1 - party))
    by = apart(stated, other)
    if not by:
        return None
    return paragraph(
        el("strong", f"{PARTIES[party]} stated "), _shown(stated), ", which is shown false. ",
        f"{PARTIES[1 - party]} stated ", _shown(other), ". They are ", code(by.lstrip("+−")),
        " apart.",
    )  # fmt: skip


def _end_of_run(facts: DisputeFacts) -> Safe | None:
    """Where the runs end, and what the job's own rule says there (PROTOCOL 4.7 to 4.11)."""
    verdict, place = facts.verdict, facts.verdict.place
    what, _, value = verdict.value.partition(" ")
    if not value or place.step is None:
        return None
    ends = " and ".join(f"the run of {PARTIES[p]} {verdict.claimed[p]}" for p in (0, 1))
    told = [
        f"{ends[:1].upper()}{ends[1:]}. Proved from the signed runs: after step {place.step:,} "
    ]
    if what == "loss":
        finite = decimal_of(value) is not None
        follows = "a number, so the job goes on" if finite else "no finite number, so the job ends"
        return paragraph(*told, "the loss is ", _shown(value), f", {follows}.")
    return paragraph(*told, f"the job's own rule says {'stop' if value == 'true' else 'go on'}.")


def the_number(facts: DisputeFacts) -> Safe | None:
    """The sentences about the false number, for below the first one."""
    verdict = facts.verdict
    guilty = [c.party for c in verdict.convicted]
    place = where(facts)
    if not guilty or verdict.forfeit or verdict.claimed == ("", ""):
        return None
    if verdict.case == "0":
        return _end_of_run(facts)
    if not verdict.value:
        about = paragraph(f"It is about {place}.") if place else None
        return join(about, _against_the_other(facts, guilty[0]) if len(guilty) == 1 else None)
    told = paragraph(f"What is false is {place}.") if place else None
    return join(told, *(_false_value(facts, p) for p in guilty))


def number_section(facts: DisputeFacts) -> Safe | None:
    """The two statements beside the computed value, as a table."""
    verdict = facts.verdict
    if verdict.claimed == ("", ""):
        return None
    guilty = {c.party for c in verdict.convicted}
    true = verdict.value
    bare = true.partition(" ")[2] if true.startswith(("loss ", "control.stop ")) else true
    compared = bool(true) and verdict.case != "0" and not any(map(is_digest, verdict.claimed))
    rows: list[list[object]] = []
    for party in (0, 1):
        stated = verdict.claimed[party]
        ruling = "neither shown wrong" if verdict.undecided else (
            el("span", "✗ false", class_="bad") if party in guilty
            else el("span", "✓ stands", class_="good")
        )  # fmt: skip
        row: list[object] = [f"{PARTIES[party]} stated", _shown(stated)]
        rows.append([*row, (apart(stated, true) or "—") if compared else "", ruling])
    if true:
        name = _true_name(facts)
        said = true if bare == true else f"{true.partition(' ')[0]} {bits_of(bare)[0]}"
        rows.append([name, code(said) if bare != true else _shown(true), "", ""])
    heads = ["whose", "value", "off by", "ruling"]
    if not compared:
        heads, rows = [heads[0], heads[1], heads[3]], [[r[0], r[1], r[3]] for r in rows]
    is_entry = any("entry" in stated for stated in verdict.claimed)
    title = "The two values" if verdict.undecided or verdict.case == "0" else (
        "The false log entry" if is_entry else "The false number"
    )  # fmt: skip
    if any(map(is_digest, verdict.claimed)):
        title = "The false fingerprint"
    caption = "What each party stated" + (", and what is true" if true else "")
    note = None
    if is_entry:
        note = paragraph(
            "An entry of a log of roundings says which way a doubtful number was rounded; without "
            "one it was rounded as usual.", class_="soft small",
        )  # fmt: skip
    return section(title, table(caption, heads, rows), note)
