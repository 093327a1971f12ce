"""Published rounding logs (NUMERICS 14.9 to 14.11): an entry for every element.

torch's kernels compute the form. They are loaded where they are needed, and refused with a sentence
where they are not there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.errors import CannotCheckError, UnsupportedOperatorError
from tallystick.program.ir import Program

if TYPE_CHECKING:
    from tallystick.contracts.replay.stock.stock import Stock


def load_stock() -> Stock:
    """torch's kernels on this machine's CPU. Raises CannotCheckError without torch."""
    try:
        from tallystick.contracts.replay.stock.stock import Stock
    except ImportError:
        raise CannotCheckError(
            "The published form runs on PyTorch's kernels, and PyTorch is not installed.",
            "Install it: pip install 'tallystick[train]'; or choose form=bounded.",
        ) from None
    return Stock()


def check_program(program: Program) -> None:
    """Check every logged node of `program`, as `check_sections` does."""
    load_stock()
    check_sections(LoggedProgram(program))


def check_sections(logged: LoggedProgram) -> None:
    """Check that every node with a section can run under the published form.

    Raises UnsupportedOperatorError, naming the operator, and CannotCheckError without torch.
    """
    load_stock()
    from tallystick.contracts.replay.stock.stock import form_of, has_form

    for section, operator in zip(logged.sections, logged.operators, strict=True):
        if not has_form(operator):
            try:
                form_of(operator)
            except UnsupportedOperatorError as error:
                raise UnsupportedOperatorError(
                    f"Node {section.node}: {error.message}", error.next_action
                ) from None
