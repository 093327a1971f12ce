"""Checks that a program is well formed: names, order, attributes, re-inferred types (PROGRAM 3)."""

from __future__ import annotations

import re

from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.contracts import is_contract, parse_contract
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.registry import InTypes, OpSpec, check_attrs
from tallystick.numerics.types import DTYPES, STORED, Attrs, AttrValue, TensorType
from tallystick.program.ir import (
    BATCH_PREFIX,
    COMMIT,
    INPUT_KINDS,
    RNG_INPUT,
    RNG_TYPE,
    SCALAR_PREFIX,
    Input,
    Node,
    Program,
    Value,
    op_spec,
)

_NAME = re.compile(r"[A-Za-z0-9_.:/\-]+", re.ASCII)
_STRING = re.compile(r"[A-Za-z0-9_.:/\-]*", re.ASCII)
_INT64 = 1 << 63
# The contracts whose programs may have slots of bf16 and f16 (NUMERICS 1.14).
_WITH_STORED = ("ordered/1", "rounded/1")
_INFER_FAILURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def check_name(name: str) -> None:
    """A name of an input or output (PROGRAM 2.3). Raises UsageError."""
    if not _NAME.fullmatch(name) or len(name) > LIMITS.name_bytes:
        raise UsageError(
            f"{name[:80]!r} cannot name a program value.",
            "Use letters, digits and _ . : / - only.",
        )


def check_type(type_: TensorType) -> None:
    """dtype known, rank, sizes and bytes within limits (COMMITMENTS 11.1). Raises UsageError."""
    if type_.dtype not in DTYPES:
        raise UsageError(f"dtype {type_.dtype!r} is not one of {', '.join(DTYPES)}.")
    if len(type_.shape) > LIMITS.tensor_rank:
        raise UsageError(f"A tensor of rank {len(type_.shape)} exceeds {LIMITS.tensor_rank}.")
    # This holds for an empty tensor too: no header can carry a larger size, so no commitment could.
    sizes_fit = all(0 <= n <= LIMITS.tensor_bytes for n in type_.shape)
    if not sizes_fit or type_.nbytes > LIMITS.tensor_bytes:
        raise UsageError(f"A tensor of type {str(type_)[:80]} exceeds {LIMITS.tensor_bytes} bytes.")


def _check_attr_value(op: str, name: str, value: AttrValue) -> None:
    if isinstance(value, str) and not _STRING.fullmatch(value):
        raise UsageError(f"{op}: attribute {name!r} has characters that cannot be written.")
    items = value if isinstance(value, tuple) else (value,)
    if any(isinstance(v, int) and not -_INT64 <= v < _INT64 for v in items):
        raise UsageError(f"{op}: attribute {name!r} does not fit 64 bits.")


# What a call of an operator gives, by operator, attributes (the object) and operands' types.
_Inferred = dict[tuple[str, int, InTypes], tuple[TensorType, ...]]


def _infer(spec: OpSpec, attrs: Attrs, types: InTypes) -> tuple[TensorType, ...]:
    """The types of a call with these attributes, which are valid. Raises UsageError."""
    op = spec.name
    check_attrs(spec, attrs)
    for name, attr in attrs.items():
        _check_attr_value(op, name, attr)
    try:
        inferred = spec.infer(attrs, types)
    except _INFER_FAILURES as error:
        # A shape rule met senseless operands. They may come from a counterparty.
        raise UsageError(f"{op}: operands do not fit the operator ({error}).") from error
    for type_ in inferred:
        check_type(type_)
    return inferred


def _check_node(program: Program, index: int, node: Node, known: _Inferred) -> None:
    """Node `index`: known operator, valid attributes, earlier operands, types as inferred. Equal
    layers have equal calls: `known` has those of the nodes before."""
    spec = op_spec(node.op, program.contract)
    if len(node.inputs) > LIMITS.node_inputs:
        raise UsageError(f"{node.op}: {len(node.inputs)} inputs exceed the limit.")
    types = tuple(None if v is None else _type_before(program, index, v) for v in node.inputs)
    # The program holds the attributes, so no other ones get their number.
    call = node.op, id(node.attrs), types
    inferred = known.get(call)
    if inferred is None:
        inferred = known[call] = _infer(spec, node.attrs, types)
    if inferred != node.out_types:
        raise UsageError(
            f"{node.op}: stated types {', '.join(map(str, node.out_types))} are not the "
            f"inferred {', '.join(map(str, inferred))}."
        )


def _type_before(program: Program, limit: int, value: Value) -> TensorType:
    """Type of a value that must exist before node `limit`. Raises UsageError."""
    if value.is_input:
        if not 0 <= value.out < len(program.inputs):
            raise UsageError(f"There is no program input {value.out}.")
    elif value.node >= limit or not 0 <= value.out < len(program.nodes[value.node].out_types):
        raise UsageError(f"Value %{value.node}.{value.out} does not exist where it is read.")
    return program.type_of(value)


def _check_input(spec: Input) -> None:
    check_name(spec.name)
    check_type(spec.type)
    if spec.kind not in INPUT_KINDS:
        raise UsageError(f"Input {spec.name}: kind {spec.kind!r} is unknown.")
    is_batch, is_scalar = spec.name.startswith(BATCH_PREFIX), spec.name.startswith(SCALAR_PREFIX)
    is_rng = spec.name == RNG_INPUT
    expected = {"batch": is_batch, "scalar": is_scalar, "rng": is_rng}.get(
        spec.kind, not (is_batch or is_scalar or is_rng)
    )
    if not expected:
        raise UsageError(f"Input {spec.name} is not named as kind {spec.kind} is (PROGRAM 1.2).")
    if spec.type.dtype in STORED and spec.kind != "state":
        raise UsageError(f"Input {spec.name} is {spec.type}, which a weight alone may be (1.14).")
    if spec.kind == "scalar" and spec.type != TensorType("f64", ()):
        raise UsageError(f"Scalar input {spec.name} must be f64[].")
    if spec.kind == "rng" and spec.type != RNG_TYPE:
        raise UsageError(f"Input {RNG_INPUT} must be {RNG_TYPE} (NUMERICS 8.3).")


def _check_outputs(program: Program) -> None:
    names = [name for name, _ in program.outputs]
    if names != sorted(set(names)):
        raise UsageError("Outputs are not in bytewise name order, each once (PROGRAM 1.4).")
    for name, value in program.outputs:
        check_name(name)
        type_ = _type_before(program, len(program.nodes), value)
        if name in program.state_types and type_ != program.state_types[name]:
            raise UsageError(
                f"Next state {name} is {type_}, the state {program.state_types[name]}."
            )


def _check_commit(program: Program) -> None:
    """PROGRAM 3.4: all slots or none are stepped, and the last node commits to all of them."""
    commits = [i for i, node in enumerate(program.nodes) if node.op == COMMIT]
    slots = program.next_state
    if not slots:
        if commits:
            raise UsageError("A program without next state has no commit node (PROGRAM 3.4).")
        return
    if set(slots) != set(program.state_types):
        missing = sorted(set(program.state_types) - set(slots))[0]
        raise UsageError(f"State slot {missing} has no next state (PROGRAM 3.4).")
    if commits != [len(program.nodes) - 1]:
        raise UsageError("The last node, and only it, must be the commit node (PROGRAM 3.4).")
    if program.nodes[-1].inputs != tuple(slots[name] for name in sorted(slots)):
        raise UsageError("The commit node does not read the next state in name order.")


def check_program(program: Program) -> None:
    """Check `program` by PROGRAM 3.

    Raises UsageError, which names the first fault, and UnsupportedOperatorError for an operator
    that the contract does not define.
    """
    if not is_contract(program.contract):
        raise UsageError(f"Contract {program.contract[:80]!r} is unknown.")
    if len(program.inputs) > LIMITS.slots or len(program.outputs) > 2 * LIMITS.slots:
        raise UsageError("The program has more inputs or outputs than the limit.")
    if len(program.nodes) > LIMITS.nodes:
        raise UsageError(f"The program has more than {LIMITS.nodes} nodes.")
    names = [spec.name for spec in program.inputs]
    if names != sorted(set(names)):
        raise UsageError("Inputs are not in bytewise name order, each once (PROGRAM 1.2).")
    for spec in program.inputs:
        _check_input(spec)
    known: _Inferred = {}
    for index, node in enumerate(program.nodes):
        try:
            _check_node(program, index, node, known)
        except UsageError as error:
            raise type(error)(f"Node {index}: {error.message}", error.next_action) from error
    _check_outputs(program)
    _check_commit(program)
    _check_stored(program)
    check_section(program)


def _check_stored(program: Program) -> None:
    """PROGRAM 3.6: which contracts have slots of bf16 and f16, and that they stay what they are."""
    slots = [name for name, type_ in program.state_types.items() if type_.dtype in STORED]
    contract = parse_contract(program.contract).name
    if slots and contract not in _WITH_STORED:
        raise UsageError(
            f"Slot {slots[0]} is {program.state_types[slots[0]]}, which {contract} does not have.",
            f"Use {' or '.join(_WITH_STORED)}.",
        )
    for name in slots:
        if name in program.next_state and name not in program.passed_through:
            raise UsageError(f"The next state of {name} is not the slot itself (PROGRAM 3.6).")


# -- what a text 2 has beyond a text 1 (PROGRAM 6) -------------------------------------------------
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
        if _in_section(program, value) and value not in _carried_values(program):
            raise UsageError(
                f"Output {name} is a value of one micro-batch, which is not carried (PROGRAM 6.6)."
            )


def _in_section(program: Program, value: Value | None) -> bool:
    """True for a value that each micro-batch makes."""
    return value is not None and not value.is_input and value.node < program.section


def _carried_values(program: Program) -> set[Value]:
    """The values that take the place of a slot in the next micro-batch."""
    return {value for _, value in program.carried}


def _check_carried(program: Program) -> None:
    names = [name for name, _ in program.carried]
    if names != sorted(set(names)):
        raise UsageError("Carried slots are not in bytewise name order, each once (PROGRAM 6.4).")
    for name, value in program.carried:
        if name not in program.state_types:
            raise UsageError(f"The carried {name[:80]!r} is not a state slot (PROGRAM 6.4).")
        if not _in_section(program, value):
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
        if len(node.inputs) != 1 or not _in_section(program, node.inputs[0]):
            raise UsageError(f"{FOLD} folds one value of the section (PROGRAM 6.5).")
        if "count" in node.attrs:
            raise UsageError(f"{FOLD} has no count before it is expanded (PROGRAM 6.5).")
        return
    carried = _carried_values(program)
    for value in node.inputs:
        if value is None:
            continue
        if value.is_input and program.inputs[value.out].kind not in ("state", "scalar"):
            raise UsageError(
                f"The tail reads input {program.inputs[value.out].name} (PROGRAM 6.5)."
            )
        if _in_section(program, value) and value not in carried:
            raise UsageError(
                f"The tail reads %{value.node}, a value of one micro-batch that is neither folded "
                "nor carried (PROGRAM 6.5)."
            )
