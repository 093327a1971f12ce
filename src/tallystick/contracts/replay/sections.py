"""The outputs of a program that have sections in a step's rounding log (COMMITMENTS 10.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.commit.log import FORMS, Section
from tallystick.contracts.replay.contract import find_replay
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import Contract
from tallystick.program.ir import Node, Program, op_spec

if TYPE_CHECKING:
    from tallystick.devices.device import Device


def is_logged(node: Node, output: int, contract: Contract) -> bool:
    """True if output `output` of `node` has a section (COMMITMENTS 10.1, NUMERICS 13.1, 14.9)."""
    if node.out_types[output].dtype != "f32":
        return False
    if contract.form == "bounded":
        return node.op in contract.own_operators
    # Comparisons and masks have bool outputs.
    return not op_spec(node.op).is_unlogged


def sections_of(program: Program, contract: Contract) -> tuple[Section, ...]:
    """The sections of every step's log under `contract`, which keeps logs.

    They are in the order of nodes and of each node's outputs, empty ones included. Raises
    UsageError for more sections than an answer about a log can name (PROTOCOL 2.1): in a game an
    honest party could not open its own log.
    """
    code = FORMS[contract.form]
    sections = tuple(
        Section(index, output, type_.numel, code)
        for index, node in enumerate(program.nodes)
        for output, type_ in enumerate(node.out_types)
        if is_logged(node, output, contract)
    )
    if len(sections) > LIMITS.log_sections:
        raise UsageError(
            f"A step's rounding log would have {len(sections)} sections, more than the limit of "
            f"{LIMITS.log_sections}.",
            "Choose a contract without logs, a smaller program, or fewer micro-batches.",
        )
    return sections


def operators_of(program: Program, sections: tuple[Section, ...]) -> tuple[str, ...]:
    """The operator of each section, for messages."""
    return tuple(program.nodes[section.node].op for section in sections)


class LoggedProgram:
    """A program under a contract that keeps rounding logs, and the sections of its steps."""

    def __init__(self, program: Program) -> None:
        """Raises UsageError for another contract, and as `sections_of`."""
        self.program = program
        self.contract = find_replay(program.contract)
        self.form = FORMS[self.contract.form]
        self.sections = sections_of(program, self.contract)
        self.operators = operators_of(program, self.sections)
        self._numbers = {(s.node, s.output): n for n, s in enumerate(self.sections)}

    def numbers_of(self, index: int, node: Node) -> dict[int, int]:
        """The section of each output of node `index` that has one."""
        found = {out: self._numbers.get((index, out)) for out in range(len(node.out_types))}
        return {out: number for out, number in found.items() if number is not None}


def refused_there(logged: LoggedProgram, device: Device) -> UsageError:
    """Why a step with a log is not executed on `device`."""
    return UsageError(
        f"Steps under {logged.contract} are executed on the processor, not on {device.name}.",
        "Execute them on the processor, or choose a contract without a log.",
    )
