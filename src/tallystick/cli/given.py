"""Which options a person gave on the command line, and which of them do not go together."""

from __future__ import annotations

from collections.abc import Collection

import click
from click.core import ParameterSource

from tallystick.errors import UsageError


def given_options() -> dict[str, str]:
    """The options of the running command that were given: parameter name to its spelling."""
    context = click.get_current_context()
    return {
        param.name: param.opts[0]
        for param in context.command.params
        if isinstance(param, click.Option)
        and param.name is not None
        and context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
    }


def refuse_options(names: Collection[str], why: str) -> None:
    """Raise UsageError if an option of one of these parameter names was given. `why` ends the
    sentence that the options begin."""
    if found := [option for name, option in given_options().items() if name in names]:
        raise UsageError(f"{', '.join(found)} {why}", f"Leave {_them(found)} out.")


def refuse_others(names: Collection[str], why: str) -> None:
    """Raise UsageError if an option was given whose parameter name is not among these."""
    refuse_options(given_options().keys() - set(names), why)


def _them(found: list[str]) -> str:
    return "it" if len(found) == 1 else "them"
