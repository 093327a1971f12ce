"""What an import does to the process: nothing; what is checked and packed with the package."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tallystick
from tallystick import api

ROOT = Path(__file__).resolve().parents[2]
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


# Of libraries that may be missing.
ADAPTERS = ("Trainer", "fit", "fit_lightning")


def test_every_public_name_stands_in_one_file() -> None:
    for name in set(tallystick.__all__) - set(ADAPTERS):
        assert getattr(tallystick, name) is getattr(api, name)
    for name in ADAPTERS:
        assert getattr(tallystick, name).__name__ == name
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


def test_the_base_install_is_what_is_imported() -> None:
    """No more (docs/adr/0009) and no less: what is imported beside it belongs to an extra."""
    text = (ROOT / "pyproject.toml").read_text()
    base = text.partition("\ndependencies = [")[2].partition("]")[0]
    declared = {line.strip(' ",').partition(">=")[0] for line in base.split("\n") if line.strip()}
    imported = set()
    for path in (ROOT / "src" / "tallystick").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
    extras = {"torch", "safetensors", "zstandard", "transformers", "peft", "tallystick_bench"}
    extras |= {"starlette", "uvicorn", "h11", "httpx2", "cuda", "pyarrow", "PIL", "tokenizers"}
    extras |= {"obstore", "ray", "xxhash", "jinja2"}
    assert imported - set(sys.stdlib_module_names) - extras - {"tallystick"} == declared


def test_mypy_checks_every_script_of_the_benchmarks() -> None:
    """A script is a module without a package: mypy finds none that it is not told of."""
    told = (ROOT / "pyproject.toml").read_text().partition("modules = [")[2].partition("]")[0]
    scripts = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))
    assert scripts == [name.strip().strip('"') for name in told.split(",") if name.strip()]


def test_the_two_distributions_have_one_version() -> None:
    """The benchmarks measure one build, by its inner modules (docs/adr/0008)."""
    ours, theirs = ((ROOT / place / "pyproject.toml").read_text() for place in (".", "benchmarks"))
    version = ours.partition('\nversion = "')[2].partition('"')[0]
    assert version and f'\nversion = "{version}"\n' in theirs
    assert f'"tallystick[train]=={version}"' in theirs


def test_a_wheel_holds_the_package_and_the_cheats_alone() -> None:
    """The benchmarks are no part of it (docs/adr/0008)."""
    packages = (ROOT / "pyproject.toml").read_text().partition("wheel.packages = {")[2]
    named = [entry.partition("=")[2].strip(' "') for entry in packages.partition("}")[0].split(",")]
    assert named == ["src/tallystick", "attacks"]
    assert not [path for path in (ROOT / "attacks").rglob("*") if "bench" in path.name]
