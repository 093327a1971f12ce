"""How a command starts an interpreter of its own beside it: a worker."""

from __future__ import annotations

import sys

# `python -m` would look for every module in the current directory first, and that may be a run
# of another party, which must not bring a `json.py` with it.
_BEGIN = (
    "import sys; sys.path[:] = filter(None, sys.path); import runpy; "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)


def command_of(module: str, *arguments: str) -> list[str]:
    """The command that executes `module` with `arguments`, and imports nothing from the current
    directory."""
    return [sys.executable, "-c", _BEGIN, module, *arguments]
