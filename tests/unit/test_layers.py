"""Imports point downwards only (DESIGN 3), and torch stays where it belongs (DESIGN 9)."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tallystick"
PACKAGE = "tallystick"

# Lower numbers may not import higher ones. Within a level anything goes.
LEVELS = {
    "errors": 0,
    "limits": 0,
    "installed": 0,
    "started": 0,
    "visible": 0,
    "closing": 0,
    "_core": 0,
    "commit": 1,
    "disk": 2,
    "data": 3,
    "augment": 3,
    "numerics": 3,
    "devices": 3,
    "kernels": 4,
    "products": 4,
    "opening": 5,
    "contracts": 6,
    "program": 7,
    "contracts.replay": 8,  # a step's log knows the nodes of a program
    "protocol": 9,
    "delegation": 10,
    "job": 11,
    "run": 12,
    "prover": 13,
    "answers": 13,  # what an answer of a model means: its job, its receipt, and a check
    "comparing": 14,  # two jobs, runs or traces, and where they first differ
    "generation": 14,  # the engine that gives answers
    "claims": 14,  # what runs, audits and answers say in the forms of other tools
    "terminal": 14,  # how progress is drawn, for whoever hands it to a verb (docs/adr/0036)
    "trackers": 14,  # other tools' curves, for whoever hands them to a verb
    "api": 15,  # the verbs: each is put together here, once
    "service": 16,  # the faces, which call the verbs
    "serving": 16,  # a model server
    "report": 16,
    "trainer": 16,  # other libraries' loops, as runs
    "cli": 17,
    "__main__": 18,
}
# The pure game may be moved to a browser or a server, and the kernels of logs to a device: their
# rooms take nothing from the disk.
SANS_IO = ("protocol", "delegation", "contracts")
# Modules whose task is torch: capture of a module, eager mode, recipes' modules, stock kernels.
TORCH_ALLOWED = (
    "answers/encoder_modules.py",
    "answers/modules.py",
    "comparing/recorded_tensors.py",
    "comparing/recording.py",
    "augment.py",
    "program/capture/",
    "job/recipes/",
    "devices/torch.py",
    "contracts/ordered/torch/",
    "contracts/replay/stock/",
    "contracts/replay/published/resident.py",
    "run/distributed/transport.py",
    "trainer/",
)
# What stands above the whole package: it imports us, and never the other way (docs/adr/0008).
ABOVE = ("tallystick_bench",)


def modules() -> list[Path]:
    return sorted(p for p in SOURCE.rglob("*.py") if "__pycache__" not in p.parts)


def is_for_types(node: ast.AST) -> bool:
    """Whether node is `if TYPE_CHECKING:`, which never runs."""
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return getattr(test, "id", getattr(test, "attr", None)) == "TYPE_CHECKING"


def imports(path: Path, tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Full names of what a module imports, wherever in it, with line numbers."""
    here = (PACKAGE, *path.relative_to(SOURCE).with_suffix("").parts)

    def visit(node: ast.AST) -> Iterator[tuple[str, int]]:
        if is_for_types(node):
            for child in getattr(node, "orelse", []):
                yield from visit(child)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = list(here[: len(here) - node.level]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield module, node.lineno
            for alias in node.names:
                yield f"{module}.{alias.name}", node.lineno
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    yield from visit(tree)


# Several checks look at one module, then at the next one.
parsed = lru_cache(maxsize=1)(ast.parse)


@lru_cache(maxsize=1)
def imported(path: Path, text: str) -> tuple[tuple[str, int], ...]:
    return tuple(imports(path, parsed(text)))


def level_of(name: str) -> int | None:
    """The level of a full module name; None for what is not the package's, or is its root."""
    parts = name.split(".")
    if parts[0] != PACKAGE or len(parts) < 2:
        return None
    return LEVELS.get(".".join(parts[1:3]), LEVELS.get(parts[1]))


def violations(path: Path, text: str) -> list[str]:
    relative = path.relative_to(SOURCE)
    own = level_of(".".join([PACKAGE, *relative.with_suffix("").parts]))
    found = []
    for name, line in imported(path, text):
        level = level_of(name)
        if own is not None and level is not None and level > own:
            found.append(f"{relative}:{line} imports {name}, which lies above it")
        if relative.parts[0] in SANS_IO and name.split(".")[:2] == [PACKAGE, "disk"]:
            found.append(f"{relative}:{line} imports {name}, and its room does no I/O")
        if name.split(".")[0] in ABOVE:
            found.append(f"{relative}:{line} imports {name}, which is no part of the package")
        allowed = any(relative.as_posix().startswith(p) for p in TORCH_ALLOWED)
        if name.split(".")[0] == "torch" and not allowed:
            found.append(f"{relative}:{line} imports torch")
    return found


# What a run holds is read without executing anything (docs/ARCHITECTURE.md).
HOLDING, EXECUTING = ("run/store/", "run/logs/"), ("execute", "show", "cheats")


def executing(path: Path, text: str) -> list[str]:
    """What a module of a run's files imports of those that execute or show."""
    rooms = tuple(f"{PACKAGE}.run.{room}" for room in EXECUTING)
    return sorted(name for name, _ in imported(path, text) if name.startswith(rooms))


def test_a_runs_files_need_no_engine() -> None:
    holding = [p for p in modules() if p.relative_to(SOURCE).as_posix().startswith(HOLDING)]
    assert len(holding) > 15
    for path in holding:
        assert executing(path, path.read_text()) == [], path.relative_to(SOURCE)
    assert executing(holding[0], "from tallystick.run.execute.engine import Engine")


def in_every_module(check: Callable[[Path, str], list[str]]) -> list[str]:
    """What one of CHECKS finds in all modules."""
    return _found()[check.__name__]


@cache
def _found() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {check.__name__: [] for check in CHECKS}
    for path in modules():
        text = path.read_text()
        for check in CHECKS:
            found[check.__name__] += check(path, text)
    return found


def test_imports_point_down() -> None:
    assert in_every_module(violations) == []


def mocks(path: Path, text: str) -> list[str]:
    """Where a module takes from a library for tests; what capture replaces is a table of its own
    (program/capture/replaced.py)."""
    names = {name for name, _ in imported(path, text)}
    return [
        f"{path} imports {name}" for name in names if name.split(".")[0] in ("unittest", "mock")
    ]


def test_the_product_mocks_nothing() -> None:
    assert in_every_module(mocks) == []
    assert mocks(SOURCE / "x.py", "def f():\n    from unittest import mock")


# What an operator means knows nothing of what computes it (DESIGN 3).
MEANING = ("numerics/operators/", "numerics/registry.py", "numerics/attachments.py")
COMPUTING = tuple(f"{PACKAGE}.{room}" for room in (
    "_core", "kernels", "opening", "contracts", "devices",
))  # fmt: skip


def computing(path: Path, text: str) -> list[str]:
    """What a declaration's module imports of modules that compute."""
    names = {name for name, _ in imported(path, text)}
    return sorted(n for n in names if any(n == c or n.startswith(f"{c}.") for c in COMPUTING))


def test_declarations_import_no_kernel() -> None:
    meaning = [p for p in modules() if p.relative_to(SOURCE).as_posix().startswith(MEANING)]
    assert len(meaning) > 10
    for path in meaning:
        assert computing(path, path.read_text()) == [], path.relative_to(SOURCE)
    made = "from tallystick import _core\nfrom tallystick.devices.device import Kernel"
    assert computing(meaning[0], made) == ["tallystick._core", "tallystick.devices.device",
                                           "tallystick.devices.device.Kernel"]  # fmt: skip


# A contract is asked what it means, never who it is (numerics/contracts.py, docs/adr/0035).
CONTRACT_NAME = re.compile(r"(ordered|rounded|exact|replay)/[0-9]")


def names_asked(path: Path, text: str) -> list[str]:
    """Where a module outside of `contracts` compares a text with a contract's name, or chooses by
    it."""
    relative, found = path.relative_to(SOURCE).as_posix(), list[str]()
    if relative.startswith("contracts/"):
        return found
    for node in ast.walk(parsed(text)):
        asked: list[ast.AST | None] = []
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            asked = [*node.keys]
        elif isinstance(node, ast.MatchValue):
            asked = [node.value]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "startswith":
            asked = [*node.args]
        for part in asked:
            for inner in ast.walk(part) if part is not None else ():
                value = getattr(inner, "value", None)
                if isinstance(value, str) and CONTRACT_NAME.search(value):
                    found.append(f"{relative}:{node.lineno} asks for {value!r}")
    return found


def test_no_one_asks_a_contract_for_its_name() -> None:
    assert in_every_module(names_asked) == []


def test_the_check_of_names_sees_violations() -> None:
    path = SOURCE / "program" / "x.py"
    assert names_asked(path, 'if contract.name == "rounded/1": pass')
    assert names_asked(path, 'if contract.text in ("ordered/1-draft.1", x): pass')
    assert names_asked(path, 'table = {"exact/1": 3}')
    assert names_asked(path, 'if text.startswith("replay/1"): pass')
    assert not names_asked(path, 'def capture(contract="ordered/1"): return find(contract)')


# Cheats stay out of honest code: who may import which of their rooms (DESIGN 7).
CHEATS = f"{PACKAGE}.run.cheats", f"{PACKAGE}.prover.cheating"
MAY_CHEAT = {
    "run/cheats/": CHEATS[:1],
    "prover/cheating.py": CHEATS[:1],
    "prover/lying_worker.py": CHEATS,  # a worker of a run, started by tests and proofs only
    "cli/attack.py": CHEATS[:1],  # trains with a cheat, for itself and the demo; says what they are
    "cli/serve.py": CHEATS[1:],  # --as-attack
    "api/disputes.py": CHEATS[1:],  # as_attack; the prover says which cheat is declared
    "api/diffs.py": CHEATS[1:],  # as_attack
}


def cheats(path: Path, text: str) -> list[str]:
    """What a module imports of the rooms of cheats without being allowed to, and where an honest
    module names an override."""
    relative = path.relative_to(SOURCE).as_posix()
    allowed = next((may for at, may in MAY_CHEAT.items() if relative.startswith(at)), ())
    found = []
    for name, line in imported(path, text):
        room = next((c for c in CHEATS if name == c or name.startswith(f"{c}.")), None)
        if room is not None and room not in allowed:
            found.append(f"{relative}:{line} imports {name}")
    if CHEATS[0] not in allowed:
        names = (getattr(node, "id", getattr(node, "arg", "")) for node in ast.walk(parsed(text)))
        found += [f"{relative} names {n}" for n in names if n in ("Override", "override", "lie")]
    return found


def test_honest_code_knows_no_cheat() -> None:
    assert in_every_module(cheats) == []


def test_the_check_of_cheats_sees_violations() -> None:
    engine, prover = SOURCE / "run" / "execute" / "x.py", SOURCE / "prover" / "x.py"
    assert cheats(engine, "from tallystick.run.cheats.override import Override")
    assert cheats(engine, "def f():\n    from tallystick.run import cheats")
    assert cheats(engine, "from ..cheats.engine import CheatingEngine")
    assert cheats(engine, "def f(override=None):\n    return override or 1")
    assert cheats(prover, "from tallystick.prover.cheating import party_of")
    assert cheats(prover, "import tallystick.prover.cheating as honest")
    assert cheats(SOURCE / "api" / "disputes.py", "import tallystick.run.cheats.attacks")
    assert not cheats(SOURCE / "api" / "disputes.py", "import tallystick.prover.cheating")
    assert not cheats(prover, "from tallystick.run.store.unsigned import Declaration")
    assert all((SOURCE / at).exists() for at in MAY_CHEAT)


# Verbs are put together in `api` alone (docs/adr/0036): what a face may call below it.
FACES = ("cli/", "trainer/", "service/", "serving/", "report/")
PUT_TOGETHER = {"train_job", "train_by", "train_with", "audit_run", "audit_in_parallel", "play"}
MAY_CALL = {
    "cli/demo.py": {"audit_run"},  # on an instruction set that it chooses
    "cli/attack.py": {"train_job"},  # with the hooks of a cheat
}


def put_together(path: Path, text: str) -> list[str]:
    """What a module of a face calls itself, in the place of a verb of `api`."""
    relative = path.relative_to(SOURCE).as_posix()
    if not relative.startswith(FACES):
        return []
    names = {name.rpartition(".")[2] for name, _ in imported(path, text)}
    return sorted(names & PUT_TOGETHER - MAY_CALL.get(relative, set()))


CHECKS = violations, mocks, names_asked, cheats, put_together


def test_faces_call_the_verbs() -> None:
    assert in_every_module(put_together) == []
    engine = "from tallystick.run.execute.trainer import train_job"
    assert put_together(SOURCE / "cli" / "x.py", engine) == ["train_job"]
    for face in ("cli", "trainer", "service", "serving", "report"):
        assert violations(SOURCE / "api" / "x.py", f"import tallystick.{face}.x")
    assert violations(SOURCE / "trainer" / "x.py", "from tallystick.cli.output import note")


def test_every_room_has_a_level() -> None:
    rooms = {p.relative_to(SOURCE).with_suffix("").parts[0] for p in modules()} - {"__init__"}
    assert rooms <= set(LEVELS)


def test_no_benchmark_lives_in_the_package() -> None:
    """They are `benchmarks/tallystick_bench`; the command that finds them is all that is here."""
    named = [p.relative_to(SOURCE).as_posix() for p in modules() if "bench" in p.stem]
    assert named == ["cli/bench.py"]


def test_the_check_sees_violations() -> None:
    path = SOURCE / "commit" / "x.py"
    assert violations(path, "from tallystick.numerics import registry")
    assert violations(path, "def f():\n    import tallystick.run.execute.trainer")
    assert violations(path, "from ..numerics.types import TensorType")
    assert violations(path, "from tallystick import program")
    assert violations(SOURCE / "numerics" / "x.py", "import torch.nn as nn")
    assert violations(SOURCE / "protocol" / "x.py", "from torch import Tensor")
    assert violations(SOURCE / "protocol" / "x.py", "from tallystick.job.job import Job")
    assert violations(SOURCE / "protocol" / "x.py", "from tallystick.disk.files import free_bytes")
    assert violations(SOURCE / "contracts" / "x.py", "import tallystick.disk.regular")
    replay = "from tallystick.contracts.replay.steps import LoggedSteps"
    assert violations(SOURCE / "contracts" / "x.py", replay)
    assert not violations(SOURCE / "protocol" / "x.py", replay)
    assert violations(SOURCE / "job" / "x.py", "from tallystick.run.store.journal import Journal")
    assert violations(SOURCE / "cli" / "x.py", "import torch")
    assert violations(SOURCE / "cli" / "x.py", "from tallystick_bench.machine import machine")
    assert not violations(path, "from tallystick.errors import UsageError\nimport numpy")
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"
    assert not violations(path, typed)


def test_the_game_is_pure() -> None:
    """DESIGN 3: whoever referees or judges loads no trainer, no disk and no torch."""
    import subprocess
    import sys

    game = [p.stem for p in modules() if p.parent.name == "protocol" and p.stem != "__init__"]
    code = "import sys, " + ", ".join(f"tallystick.protocol.{name}" for name in game)
    code += "\nfound = [m for m in sys.modules if m.startswith(('tallystick.run', "
    code += "'tallystick.job', 'tallystick.disk', 'torch'))]\nsys.exit(', '.join(found) or 0)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "module", ["tallystick", "tallystick.kernels.evaluate", "tallystick.commit", "tallystick.run"]
)
def test_importing_does_not_load_torch(module: str) -> None:
    import subprocess
    import sys

    code = f"import {module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
