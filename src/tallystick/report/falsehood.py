"""The number that is false: both values and the computed one as decimals, and how far apart."""

from __future__ import annotations

import re
from decimal import Context, Decimal, InvalidOperation, Overflow

from tallystick.program.ir import BATCH_PREFIX, RNG_INPUT, SCALAR_PREFIX
from tallystick.protocol.facts import Facts
from tallystick.protocol.phase2 import wanted_record
from tallystick.report.answer_meanings import Work
from tallystick.report.facts import DisputeFacts
from tallystick.report.html import PARTIES, Safe, bits_of, code, el, join
from tallystick.report.layers import in_words, layer_of
from tallystick.report.page import paragraph, section, table

_STATE_KINDS = {"param": "a weight of the model", "buffer": "a stored number of the model",
                "opt": "a memory of the training", "ema": "an average of the weights"}  # fmt: skip
# Settings that nearly every job has, for those who do not know their names.
_SETTINGS = {"lr": "the learning rate (lr): how far each step changes the model"}


def input_name(facts: DisputeFacts) -> str:
    """The step's input that is disputed, by its name in the program; empty where it is none."""
    place, program = facts.verdict.place, facts.program
    if place.node is None or place.side != "input" or place.operand is None:
        return ""
    if place.node >= len(program.nodes):
        return ""
    inputs = program.nodes[place.node].inputs
    value = inputs[place.operand] if place.operand < len(inputs) else None
    return program.inputs[value.out].name if value is not None and value.is_input else ""


def source_of(facts: DisputeFacts) -> str | None:
    """What the disputed input is, in words; None where it is no input of the step."""
    name = input_name(facts)
    if not name:
        return None
    if name == RNG_INPUT:
        return "the source of the step's random numbers"
    if name.startswith(BATCH_PREFIX):
        field = name[len(BATCH_PREFIX) :]
        if facts.work is not Work.TRAINING:
            return f"the job's “{field}”, a part of its text and settings"
        return f"the data's field “{field}”"
    if name.startswith(SCALAR_PREFIX):
        setting = name[len(SCALAR_PREFIX) :]
        return _SETTINGS.get(setting, f"the setting “{setting}”")
    kind, _, rest = name.partition(".")
    return f"{_STATE_KINDS.get(kind, 'a stored number')}, “{rest or name}”"


def setting_of(facts: DisputeFacts) -> float | None:
    """The job's number where a setting is disputed, such as the learning rate."""
    name, step = input_name(facts), facts.verdict.place.step
    if facts.verdict.case != "2d" or step is None or not name.startswith(SCALAR_PREFIX):
        return None
    return float(facts.terms.scalar(name[len(SCALAR_PREFIX) :], step))


def record_of(facts: DisputeFacts) -> tuple[str, int] | None:
    """The field and the record of a disputed value of the data (PROTOCOL 5.6.3)."""
    name, place = input_name(facts), facts.verdict.place
    if facts.verdict.case != "2c" or place.step is None or place.element is None:
        return None
    if not name.startswith(BATCH_PREFIX):
        return None
    wanted = wanted_record(Facts(facts.terms).at(place.step), place.step, name, place.element)
    return wanted.field.name, wanted.index


_DIGEST = re.compile(r"[0-9a-f]{16}")
_DIGITS = Context(prec=40, traps=[InvalidOperation, Overflow])


def decimal_of(shown: str) -> Decimal | None:
    """The number in a text of protocol.game.show; None where it is not one finite number."""
    try:
        found = Decimal(bits_of(shown)[0])
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _difference(stated: str, true: str) -> Decimal | None:
    a, b = decimal_of(stated), decimal_of(true)
    return None if a is None or b is None else _DIGITS.subtract(a, b)


def apart(stated: str, true: str) -> str:
    """How far a stated number is from the true one: "lower by 3"; empty where no number says it."""
    difference = _difference(stated, true)
    if not difference:
        return ""
    return f"{'higher' if difference > 0 else 'lower'} by {_size(difference)}"


def _size(difference: Decimal) -> str:
    digits = f"{abs(difference):.6g}"
    return re.sub(r"\.?0+(?=e|$)", "", digits) if "." in digits else digits


def is_digest(shown: str) -> bool:
    """Whether a statement is a fingerprint of many numbers, and no number."""
    return bool(_DIGEST.fullmatch(shown))


def where(facts: DisputeFacts) -> str:
    """Where in the step the disputed number stands, in words; empty outside of a step."""
    place, program = facts.verdict.place, facts.program
    if place.node is None or place.step is None or place.node >= len(program.nodes):
        return ""
    layer = layer_of(program, place.node)
    inside = f", in layer {layer}" if layer else ""
    said = in_words(place.operator or "")
    if facts.work is not Work.TRAINING:
        said = said.removesuffix(" of the step")
    operation = f"operation {place.node:,} ({said}{inside})"
    source = source_of(facts)
    of_step = f" of step {place.step:,}" if facts.work is Work.TRAINING else ""
    if source:
        return f"{source}. It goes into {operation}{of_step}"
    side = {"input": "a number that goes into ", "output": "a result of "}.get(place.side or "", "")
    return f"{side}{operation}{of_step}"


def _about(facts: DisputeFacts) -> Safe | None:
    """What the dispute came down to."""
    record, place = record_of(facts), where(facts)
    if record is not None:
        field, index = record
        guilty = " and ".join(PARTIES[c.party] for c in facts.verdict.convicted)
        if facts.work is not Work.TRAINING:
            return paragraph(
                f"{guilty} signed a false value for “{field}”, which is a part of what the job "
                "says: the text, and the settings."
            )
        return paragraph(
            f"{guilty} signed a false value for the field “{field}” of record {index:,} of the "
            "data (records count from 0)."
        )
    return paragraph(f"It is about {place}.") if place else None


def _shown(value: str) -> object:
    return code(bits_of(value)[0])


def true_name(facts: DisputeFacts) -> str:
    """Where the true value comes from."""
    case = facts.verdict.case
    if facts.work is not Work.TRAINING and case in ("2a", "2c"):
        case = "2d"  # the one step starts from the job's model, and reads the job's text
    known = {
        "0": "The runs prove",
        "2a": "The step before gave",
        "2b": "The earlier operation gave",
        "2c": "The job's data say",
        "2d": "The job says",
    }
    return known.get(case, "The judge computed")


def _false_value(facts: DisputeFacts, party: int) -> Safe:
    verdict = facts.verdict
    stated, true = verdict.claimed[party], verdict.value
    name = PARTIES[party]
    if is_digest(stated):
        setting = setting_of(facts)
        if setting is None:
            return paragraph(
                f"{name} signed the fingerprint ", code(stated), ", and ", code(true), " is the "
                "true one. So the numbers differ; by how much, a fingerprint does not show.",
            )  # fmt: skip
        return paragraph(
            "The job says ", code(repr(setting)), f". {name} signed the fingerprint of another "
            "number: not that of ", code(repr(setting)), ". It signed no more than the "
            "fingerprint, so this page cannot show its number.",
        )  # fmt: skip
    by = apart(stated, true)
    return paragraph(
        el("strong", f"{name} signed "), _shown(stated), ". ",
        el("strong", f"{true_name(facts)} "), _shown(true),
        f". What {name} signed is {by}." if by else ".",
    )  # fmt: skip


def _against_the_other(facts: DisputeFacts, party: int) -> Safe | None:
    """Both statements where no third value was computed: the party's own parts showed it false."""
    stated, other = (facts.verdict.claimed[p] for p in (party, 1 - party))
    difference = _difference(stated, other)
    if difference is None:
        return None
    return paragraph(
        el("strong", f"{PARTIES[party]} signed "), _shown(stated), ", which is shown false. ",
        f"{PARTIES[1 - party]} signed ", _shown(other), ". They are ",
        code(_size(difference)), " apart.",
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
    if not guilty or verdict.forfeit or verdict.claimed == ("", ""):
        return None
    if verdict.case == "0":
        return _end_of_run(facts)
    if not verdict.value:
        other = _against_the_other(facts, guilty[0]) if len(guilty) == 1 else None
        return join(_about(facts), other)
    return join(_about(facts), *(_false_value(facts, p) for p in guilty))


def has_digests(facts: DisputeFacts) -> bool:
    """Whether the parties' statements are fingerprints."""
    return any(map(is_digest, facts.verdict.claimed))


def _finding(facts: DisputeFacts, party: int) -> object:
    """What a party's statement turned out to be."""
    verdict = facts.verdict
    stated, true = verdict.claimed[party], verdict.value
    if verdict.undecided or party not in {c.party for c in verdict.convicted}:
        source = true_name(facts)
        as_it_is = f"as {source[:1].lower()}{source[1:]}"
        return as_it_is if true and stated == true else "not shown wrong"
    how = "" if verdict.case == "0" else apart(stated, true)
    setting = setting_of(facts)
    if setting is not None:
        how = f"not the fingerprint of {setting!r}"
    return el("span", f"✗ false{': ' if how else ''}{how}", class_="bad")


def _title(facts: DisputeFacts) -> str:
    verdict = facts.verdict
    if verdict.undecided or verdict.case == "0":
        return "The two values"
    if has_digests(facts):
        return "The false fingerprint"
    return "The false log entry" if _is_entry(facts) else "The false number"


def _is_entry(facts: DisputeFacts) -> bool:
    return any("entry" in stated for stated in facts.verdict.claimed)


def _true_row(facts: DisputeFacts) -> list[object]:
    true, setting = facts.verdict.value, setting_of(facts)
    what, _, bare = true.partition(" ")
    if setting is not None:
        shown: object = join(code(repr(setting)), " (fingerprint ", code(true), ")")
    elif what in ("loss", "control.stop"):
        shown = code(f"{what} {bits_of(bare)[0]}")
    else:
        shown = _shown(true)
    return [true_name(facts), shown, ""]


def number_section(facts: DisputeFacts) -> Safe | None:
    """The two statements beside the computed value, as a table."""
    verdict = facts.verdict
    if verdict.claimed == ("", ""):
        return None
    rows = [
        [f"{PARTIES[party]} signed", _shown(verdict.claimed[party]), _finding(facts, party)]
        for party in (0, 1)
    ]
    if verdict.value:
        rows.append(_true_row(facts))
    caption = "What each party signed" + (", and what is true" if verdict.value else "")
    note = None
    if _is_entry(facts):
        note = paragraph(
            "An entry of a log of roundings says which way a doubtful number was rounded; without "
            "one it was rounded as usual.", class_="soft small",
        )  # fmt: skip
    return section(_title(facts), table(caption, ["who", "value", "finding"], rows), note)
