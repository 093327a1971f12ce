"""Arguments that name a run, a job or a data set by its path or by its URL on an object store.

A command that can read from a store says so by the type PLACE. To every other argument that is a
path a URL is refused by name: `Path` would silently make a file's name of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tallystick.disk.objects.address import is_url
from tallystick.errors import UsageError

if TYPE_CHECKING:
    _Type = click.ParamType[str]
else:
    _Type = click.ParamType  # no generic class before click 8.4


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


class _Local(_Type):
    """A path of this machine."""

    name = "path"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if is_url(value):
            what = param.get_error_hint(ctx) if param is not None and ctx is not None else "this"
            raise UsageError(
                f"{what} takes a path of this machine, not the address {value}.",
                "Copy it here first, or name a directory.",
            )
        return value


PLACE, TARGET, LOCAL = _Place(), _Target(), _Local()


def refuse_addresses(command: click.Command) -> click.Command:
    """`command`, whose plain paths, and those of its subcommands, refuse a URL by name."""
    for param in command.params:
        if type(param.type) is click.Path:
            param.type = LOCAL
    for below in getattr(command, "commands", {}).values():
        refuse_addresses(below)
    return command
