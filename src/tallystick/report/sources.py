"""What a disputed input is by the job: a field of its data, a setting, a part of the state."""

from __future__ import annotations

from tallystick.program.ir import BATCH_PREFIX, RNG_INPUT, SCALAR_PREFIX
from tallystick.protocol.facts import Facts
from tallystick.protocol.records import wanted_record
from tallystick.report.facts import DisputeFacts
from tallystick.report.work import Work

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
