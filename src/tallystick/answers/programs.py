"""The programs of a model, captured from its transformers module.

The answer program takes a whole text, and has logits for the rows of the answer alone. In the
engine program each row is a text of one token with its own place; the engine puts the kept keys and
values into its attention. So the two differ in shapes and in attention only, and a row's numbers
are the same bits in both (spec/ANSWERS.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tallystick.errors import UsageError
from tallystick.numerics.contracts import find_contract
from tallystick.program.canonical import canonicalize
from tallystick.program.check import check_program
from tallystick.program.ir import Program
from tallystick.program.order import in_order_of_need

if TYPE_CHECKING:
    from tallystick.answers.model import Model


def _captured(
    model: Model, batch: Mapping[str, Any], forward: Callable[..., Any], contract: str
) -> Program:
    from tallystick.answers.modules import empty_module
    from tallystick.program.capture.api import capture_forward

    program = capture_forward(empty_module(model.config), batch, forward, contract)
    return _checked(in_order_of_need(program))


def _checked(program: Program) -> Program:
    program = canonicalize(program)
    check_program(program)
    find_contract(program.contract).check_program(program)
    return program


def engine_program(model: Model, rows: int, contract: str) -> Program:
    """Inputs `token` and `place`, i64[rows, 1]; output `logits`, f32[rows, V].

    Raises RefusedModelError, UsageError.
    """
    from tallystick.answers.modules import token_logits

    if rows < 1:
        raise UsageError(f"An engine of {rows} rows computes nothing.", "Give 1 or more.")
    shape = ((rows, 1), "i64")
    return _captured(model, {"token": shape, "place": shape}, token_logits, contract)


def forward_program(model: Model, length: int, rows: int, contract: str) -> Program:
    """Inputs `text`, i64[length], and `place`, i64[rows]; output `logits`, f32[rows, V], of the
    tokens after these places.

    Raises RefusedModelError, UsageError.
    """
    from tallystick.answers.modules import text_logits

    if rows < 1 or not 1 <= length <= model.longest:
        raise UsageError(
            f"A text of {length} places with {rows} rows is none of this model's.",
            f"Give 1 to {model.longest} places, and 1 row or more.",
        )
    batch = {"text": ((length,), "i64"), "place": ((rows,), "i64")}
    return _captured(model, batch, text_logits, contract)
