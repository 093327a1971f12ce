"""Facts about a job's steps that follow from its terms alone: slots, nodes, operands, log sections.

Referee, sizes and provers all take them from here, so that they cannot differ about them. What
depends on the program that a step executes is asked of `Facts.at(step)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from tallystick.commit.data import DataSchema
from tallystick.commit.job import Commitment
from tallystick.commit.log import Section
from tallystick.commit.state import (
    CHAIN_SLOTS,
    COMMIT_OPERATOR,
    commit_attributes,
    slot_order,
)
from tallystick.commit.tensor import TensorHeader
from tallystick.contracts.replay.sections import sections_of
from tallystick.errors import UsageError
from tallystick.numerics.contracts import Contract, parse_contract
from tallystick.numerics.types import TensorType
from tallystick.opening.quantity import Site
from tallystick.program.ir import COMMIT, Node, Program, Value
from tallystick.program.terms import Terms
from tallystick.program.text import attribute_text

INPUT, OUTPUT = 0, 1  # a side of a node (PROTOCOL 2.2)
CHAIN = TensorType("u8", (32,))
LOSS = TensorType("f32", ())
# The number of an operand, its source (a value or the name of a slot), and its type.
Operand = tuple[int, Value | str, TensorType]


def header_of_type(type_: TensorType) -> TensorHeader:
    """The header of a tensor of a program's type (COMMITMENTS 3.1)."""
    return TensorHeader(type_.dtype, type_.shape)


def _operands_of(program: Program, node: Node) -> list[Operand]:
    """The present inputs of a node."""
    return [
        (number, value, program.type_of(value))
        for number, value in enumerate(node.inputs)
        if value is not None
    ]


@dataclass(frozen=True)
class Facts:
    """The facts of a job that follow from its terms, for steps that execute program `number`."""

    terms: Terms
    number: int = 0

    @property
    def job(self) -> Commitment:
        """The fields that the job digest covers."""
        return self.terms.commitment

    @property
    def all(self) -> tuple[Facts, ...]:
        """These facts for each of the job's programs."""
        numbers = range(len(self.terms.programs))
        return tuple(self if n == self.number else self._others[n] for n in numbers)

    @cached_property
    def _others(self) -> dict[int, Facts]:
        """By number those for the other programs: a cache that held `self` would be a cycle."""
        numbers = range(len(self.terms.programs))
        return {n: replace(self, number=n) for n in numbers if n != self.number}

    def at(self, step: int) -> Facts:
        """These facts for the program that `step` executes."""
        number = self.job.timetable.at(step).program
        return self if number == self.number else self._others[number]

    @property
    def program(self) -> Program:
        """The program of these steps."""
        return self.terms.programs[self.number]

    @property
    def program_digest(self) -> bytes:
        """The digest of the program's text, which the node digests cover (COMMITMENTS 4.1)."""
        return self.job.timetable.programs[self.number].digest

    @property
    def schema(self) -> DataSchema | None:
        """The fields of the records that these steps read."""
        return self.terms.schema_of(self.number)

    # -- the state (COMMITMENTS 5) -------------------------------------------------------------

    @cached_property
    def slots(self) -> list[str]:
        """All slots of a state in their order, chains included."""
        return slot_order([*self.program.state_types, *CHAIN_SLOTS])

    # -- rounding logs (COMMITMENTS 10) ---------------------------------------------------------

    @cached_property
    def contract(self) -> Contract:
        """The job's numeric contract."""
        return parse_contract(self.job.contract)

    @property
    def log_form(self) -> str | None:
        """ "bounded" or "published" under a contract with logs, else None."""
        return self.contract.form or None

    @property
    def rounds_exactly(self) -> bool:
        """True if parties state records of sums in a game about this job (OPENING 1.3)."""
        return bool(self.contract.own_operators)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """The sections of every step's log."""
        return sections_of(self.program, self.contract) if self.contract.keeps_log else ()

    def section_of(self, node: int, output: int) -> int | None:
        """The number of an output's section, None where it has none."""
        for number, section in enumerate(self.sections):
            if (section.node, section.output) == (node, output):
                return number
        return None

    # -- nodes as the program has them (COMMITMENTS 4.1, 5.7) ----------------------------------

    @property
    def last_node(self) -> int:
        """The COMMIT node."""
        return len(self.program.nodes) - 1

    def operands(self, node: int) -> Sequence[Operand]:
        """The present operands of a node."""
        given = self.program.nodes[node]
        return self._commit_operands if given.op == COMMIT else _operands_of(self.program, given)

    @cached_property
    def _commit_operands(self) -> tuple[Operand, ...]:
        """Those of the COMMIT node: its inputs, then the loss and the chains (PROTOCOL 5.6.5). It
        may have 100,000, and every round asks for them."""
        program, given = self.program, self.program.nodes[self.last_node]
        at = len(given.inputs)
        return (
            *_operands_of(program, given),
            (at, program.output_values["loss"], LOSS),
            (at + 1, "chain.loss", CHAIN),
            (at + 2, "chain.log", CHAIN),
        )

    @cached_property
    def _commit_attributes(self) -> bytes:
        return commit_attributes(list(self.program.state_types))

    def type_at(self, node: int, side: int, number: int) -> TensorType:
        """The type of an operand or an output of a node (PROTOCOL 2.2, 5.6.5).

        Raises UsageError where there is none.
        """
        given = self.program.nodes[node]
        if side == OUTPUT and number < len(given.out_types):
            return given.out_types[number]
        if side == INPUT:
            for there, _, type_ in self.operands(node):
                if there == number:
                    return type_
        raise UsageError(f"Node {node} has no operand {number} on side {side}.", "See the program.")

    def header_at(self, node: int, side: int, number: int) -> TensorHeader:
        """The header of an operand or an output of a node. Raises UsageError as `type_at`."""
        return header_of_type(self.type_at(node, side, number))

    def structure(self, node: int) -> tuple[str, bytes, int]:
        """Operator, attributes and number of outputs of a node, by the program."""
        given = self.program.nodes[node]
        if given.op == COMMIT:
            return COMMIT_OPERATOR, self._commit_attributes, 3
        return given.op, attribute_text(given.attrs).encode("ascii"), len(given.out_types)

    def site(self, node: int, output: int, element: int) -> Site:
        """The place of an output element, for the operator's opening rule (PROTOCOL 6.2)."""
        given, program = self.program.nodes[node], self.program
        types = tuple(None if v is None else program.type_of(v) for v in given.inputs)
        contract = self.job.contract
        return Site(given.op, given.attrs, types, given.out_types, output, element, contract)
