"""Arguments of commands: those that name a run, a job or a data set by its path or by its URL on an
object store, and which options a person gave that do not go together.

A command that can read from a store says so by the type PLACE. To every other argument that is a
path a URL is refused by name: `Path` would silently make a file's name of it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tallystick.disk.objects.address import is_url
from tallystick.errors import UsageError

if TYPE_CHECKING:
    _Type = click.ParamType[str]
    _AnyType = click.ParamType[Any]
else:
    _Type = _AnyType = click.ParamType  # no generic class before click 8.4


class _Place(_Type):
    """A path as it is; a URL as the directory of its mirror, for as long as the command runs."""

    name = "path"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_url(value) or ctx is None:
            return value
        # Here, since it loads numpy, whose threads must begin within the bracket of cli/main.py.
        from tallystick.disk.objects.opening import opened

        return str(ctx.find_root().with_resource(opened(value)))


class _Target(_Type):
    """A path or a URL, as it is: the command itself looks which."""

    name = "path"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return value


class _Local(_AnyType):
    """A path of this machine, of the type that the command has said."""

    name = "path"

    def __init__(self, said: click.Path) -> None:
        self._said = said

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if is_url(value):
            what = param.get_error_hint(ctx) if param is not None and ctx is not None else "this"
            raise UsageError(
                f"{what} takes a path on this machine, not the URL {value}.",
                "Copy the files to this machine first, and pass their path.",
            )
        return self._said.convert(value, param, ctx)


PLACE, TARGET = _Place(), _Target()


def refuse_addresses(command: click.Command) -> click.Command:
    """`command`, whose plain paths, and those of its subcommands, refuse a URL by name."""
    for param in command.params:
        if type(param.type) is click.Path:
            param.type = _Local(param.type)
    for below in getattr(command, "commands", {}).values():
        refuse_addresses(below)
    return command


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
