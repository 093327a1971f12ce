"""The section of a program with micro-batches, and its tail (PROGRAM 6)."""

from __future__ import annotations

from tallystick.errors import UsageError
from tallystick.numerics.operators.fold import FOLD
from tallystick.program.ir import COMMIT, Node, Program, Value, op_spec


def check_section(program: Program) -> None:
    """Check what a text 2 has beyond a text 1 (PROGRAM 6.2 to 6.6). A text 1 has nothing of it.

    Raises UsageError, which names the first fault.
    """
    if not program.section:
        if program.carried:
            raise UsageError("Only a program with micro-batches carries a slot (PROGRAM 6.4).")
        return
    if not 1 <= program.section <= len(program.nodes):
        raise UsageError("The section has more nodes than the program (PROGRAM 6.2).")
    _check_carried(program)
    for index, node in enumerate(program.nodes):
        try:
            if index >= program.section:
                _check_tail_node(program, node)
            elif node.op in (FOLD, COMMIT):
                raise UsageError(f"{node.op} stands in the tail (PROGRAM 6.5, 6.6).")
        except UsageError as error:
            raise UsageError(f"Node {index}: {error.message}", error.next_action) from error
    for name, value in program.outputs:
        if in_section(program, value) and value not in carried_values(program):
            raise UsageError(
                f"Output {name} is a value of one micro-batch, which is not carried (PROGRAM 6.6)."
            )


def in_section(program: Program, value: Value | None) -> bool:
    """True for a value that each micro-batch makes."""
    return value is not None and not value.is_input and value.node < program.section


def carried_values(program: Program) -> set[Value]:
    """The values that take the place of a slot in the next micro-batch."""
    return {value for _, value in program.carried}


def reads_carried(program: Program, index: int) -> bool:
    """True if node `index` of the section depends on what the micro-batch before has made."""
    carried = {name for name, _ in program.carried}
    waiting, seen = [index], {index}
    while waiting:
        for value in program.nodes[waiting.pop()].inputs:
            if value is None:
                continue
            if value.is_input:
                if program.inputs[value.out].name in carried:
                    return True
            elif value.node not in seen:
                seen.add(value.node)
                waiting.append(value.node)
    return False


def draws_of(section: Program) -> int:
    """R: one more than the largest draw id of the section's random nodes (PROGRAM 6.7)."""
    nodes = (section.nodes[i] for i in range(section.section))
    draws = [node.attrs["draw"] for node in nodes if op_spec(node.op).is_random]
    return 1 + max((d for d in draws if isinstance(d, int)), default=-1)


def _check_carried(program: Program) -> None:
    names = [name for name, _ in program.carried]
    if names != sorted(set(names)):
        raise UsageError("Carried slots are not in bytewise name order, each once (PROGRAM 6.4).")
    for name, value in program.carried:
        if name not in program.state_types:
            raise UsageError(f"The carried {name[:80]!r} is no state slot (PROGRAM 6.4).")
        if not in_section(program, value):
            raise UsageError(f"Slot {name} carries a value that is not the section's.")
        if value.out >= len(program.nodes[value.node].out_types):
            raise UsageError(f"Slot {name} carries a value that does not exist.")
        if program.type_of(value) != program.state_types[name]:
            raise UsageError(
                f"Slot {name} is {program.state_types[name]} and carries a value of type "
                f"{program.type_of(value)}."
            )


def _check_tail_node(program: Program, node: Node) -> None:
    """PROGRAM 6.5."""
    if op_spec(node.op, program.contract).is_random:
        raise UsageError(f"{node.op} draws random values in the tail (PROGRAM 6.5).")
    if node.op == FOLD:
        if len(node.inputs) != 1 or not in_section(program, node.inputs[0]):
            raise UsageError(f"{FOLD} folds one value of the section (PROGRAM 6.5).")
        if "count" in node.attrs:
            raise UsageError(f"{FOLD} has no count before it is expanded (PROGRAM 6.5).")
        return
    carried = carried_values(program)
    for value in node.inputs:
        if value is None:
            continue
        if value.is_input and program.inputs[value.out].kind not in ("state", "scalar"):
            raise UsageError(
                f"The tail reads input {program.inputs[value.out].name} (PROGRAM 6.5)."
            )
        if in_section(program, value) and value not in carried:
            raise UsageError(
                f"The tail reads %{value.node}, a value of one micro-batch that is neither folded "
                "nor carried (PROGRAM 6.5)."
            )
