"""What importing the package does to the process: nothing."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tallystick
from tallystick import api

_IMPORT = """
import os, sys
before = dict(os.environ), set(sys.modules), os.listdir('/proc/self/task')
import tallystick
assert dict(os.environ) == before[0]
assert not {'numpy', 'torch', 'tallystick._core', 'tallystick.api'} & set(sys.modules)
assert os.listdir('/proc/self/task') == before[2]
"""
_COMMAND_LINE = """
import os, sys
import tallystick.cli
assert 'numpy' not in sys.modules and 'torch' not in sys.modules
print(os.environ['OPENBLAS_THREAD_TIMEOUT'])
"""


def in_a_new_process(code: str, given: str | None = None) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_THREAD_TIMEOUT"}
    environment |= {"OPENBLAS_THREAD_TIMEOUT": given} if given else {}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_an_import_changes_nothing() -> None:
    in_a_new_process(_IMPORT)


@pytest.mark.parametrize("given", (None, "20"))
def test_openblas_is_told_not_to_spin_before_numpy_loads(given: str | None) -> None:
    """By the command line, whose process it is; a person's own setting is left alone."""
    assert in_a_new_process(_COMMAND_LINE, given).split() == [given or "4"]


def test_every_public_name_stands_in_one_file() -> None:
    for name in tallystick.__all__:
        assert getattr(tallystick, name) is getattr(api, name)
    assert set(tallystick.__all__) < set(dir(tallystick))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tallystick.no_such_name


def test_a_judge_never_meets_torch() -> None:
    in_a_new_process(
        "import sys; sys.modules['torch'] = None\n"
        "from tallystick import judge, dispute, audit, train, evaluate, Verdict\n"
        "import tallystick\n"
        "try: tallystick.reproducible()\n"
        "except tallystick.errors.CannotCheckError as error: assert 'PyTorch' in str(error)\n"
        "else: raise SystemExit(1)\n"
    )
