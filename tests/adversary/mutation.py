"""Disable one check of referee or judge at a time: some test must fail each time.

    python tests/adversary/mutation.py [--jobs 2] [--only TEXT] [--known PAGE] [--out PAGE]

PAGE is docs/proofs/mutation.md. With `--known`, the test that failed for a check when PAGE was
written runs first, alone.

A check is an `if` that convicts or refuses (each alternative of its condition by itself), a filter
of a comprehension that says who is guilty, a call that raises for what does not verify, or a part
of a truth value that says who is wrong or what holds. Each is taken out of a copy of the package,
and the tests of protocol and adversary run until one fails.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import tallystick._core

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "protocol/phase1.py", "protocol/phase2.py", "protocol/phase3.py",
    "protocol/tensors.py", "protocol/game.py", "protocol/results.py", "protocol/referee.py",
    "protocol/element.py",
    "protocol/messages.py", "protocol/judge.py",
    "protocol/evidence.py", "protocol/forfeit.py", "protocol/phase_log.py",
    "protocol/sizes.py", "protocol/queries.py",
    "protocol/queries_step.py", "protocol/facts.py",
    "protocol/statement.py", "protocol/verdict.py", "opening/parts.py", "opening/places.py",
    "opening/rules.py",
    "contracts/exact/opening.py", "contracts/replay/opening.py",
    "contracts/rounded/opening.py",
    "numerics/grid.py", "commit/members.py",
)  # fmt: skip
TESTS = (
    "tests/unit/protocol/test_protocol_lies.py",
    "tests/unit/protocol/test_queries.py",
    "tests/unit/protocol/test_protocol_referee.py",
    "tests/unit/protocol/test_protocol_element.py",
    "tests/unit/protocol/test_protocol_sweeps.py",
    "tests/unit/protocol/test_judge.py",
    "tests/unit/protocol/test_protocol_logs.py",
    "tests/unit/protocol/test_sizes.py",
    "tests/unit/protocol/test_show.py",
    "tests/unit/protocol/test_format_two.py",
    "tests/unit/protocol/test_handover.py",
    "tests/unit/numerics/test_grid.py",
    "tests/unit/commit/test_commit_members.py",
    "tests/unit/opening",
    "tests/adversary/test_evidence_flips.py",
    "tests/adversary/test_game_machine.py",
    "tests/vectors/test_evidence_vectors.py",
)
# It compares the source with the tests' names, so it would notice any change at all.
READS_SOURCE = (
    "tests/unit/protocol/test_protocol_referee.py::test_every_clause_that_convicts_is_tested"
)
# Names that hold who is guilty, and calls that raise for what does not verify.
GUILT = {"guilt", "false", "odd", "lost", "wrong", "why"}
_NO_SUCH_TEST = 4  # pytest's exit code, for a name that it does not find
# Processor seconds, also where this script is stopped itself: some mutants never end.
MOST_SECONDS = 300
# Truth values on which a conviction rests: each part, as if nobody were wrong or it did hold.
NOBODY = {"wrong", "outside", "false", "forged"}
HOLDS = {"fits", "given", "known"}
PROVES = {"node_proved", "_forged", "forged"}  # functions that return one
VERIFIERS = {"verify", "check_canonical", "end", "expect", "verify_envelope", "convict", "only"}


@dataclass(frozen=True)
class Mutant:
    """One disabled check."""

    module: str
    line: int
    function: str
    clause: str
    check: str
    source: str


def _convicts(body: list[ast.stmt]) -> bool:
    """True if the statements raise, end in a verdict or a refusal, or name a guilty party."""
    for statement in body:
        if isinstance(statement, ast.Raise):
            return True
        if isinstance(statement, ast.Return):
            value = ast.unparse(statement.value) if statement.value is not None else "None"
            if value.startswith(("Outcome", "f'", 'f"', "'", '"', "None", "False")):
                return True
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
            if isinstance(target, ast.Subscript) and ast.unparse(target.value) in GUILT:
                return True
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            name = ast.unparse(statement.value.func)
            if name.split(".")[-1] in {"convict", "_convict", "fail"}:
                return True
    return False


def _alternatives(test: ast.expr) -> list[ast.expr]:
    return list(test.values) if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else []


class _Sites(ast.NodeVisitor):
    """Finds (function, node, how) of every check."""

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.found: list[tuple[str, ast.AST, int]] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.stack.append(node.name)
        self.generic_visit(node)
        self.stack.pop()

    def add(self, node: ast.AST, how: int) -> None:
        self.found.append((".".join(self.stack), node, how))

    def visit_If(self, node: ast.If) -> None:
        if _convicts(node.body):
            parts = _alternatives(node.test)
            for how in range(len(parts)) if parts else [-1]:
                self.add(node, how)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for how in range(len(node.ifs)):
            self.add(node, how)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        name = target.id if isinstance(target, ast.Name) else ""
        if name in NOBODY | HOLDS:
            for how in range(len(_parts(node.value))):
                self.add(node, how)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        already = isinstance(node.value, ast.Constant) and node.value.value is True
        if self.stack[-1:] and self.stack[-1] in PROVES and not already:
            self.add(node, 0)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] in VERIFIERS:
            self.add(node, -2)
        self.generic_visit(node)


def _parts(value: ast.expr) -> list[tuple[ast.AST, str, int | None]]:
    """Where the parts of a truth value are: holder, field, index in the field."""
    if isinstance(value, ast.Tuple):
        return [(value, "elts", k) for k in range(len(value.elts))]
    if isinstance(value, ast.BoolOp):
        return [(value, "values", k) for k in range(len(value.values))]
    if isinstance(value, ast.IfExp):
        return [(value, "body", None), (value, "orelse", None)]
    if isinstance(value, ast.Call) and any(isinstance(a, ast.GeneratorExp) for a in value.args[:1]):
        return [(value.args[0], "elt", None)]
    return []


def _set_part(node: ast.Assign, how: int) -> str:
    """Replace a part of a truth value; what it was."""
    holder, field, index = _parts(node.value)[how]
    assert isinstance(node.targets[0], ast.Name)
    constant = ast.Constant(node.targets[0].id in HOLDS)
    if index is None:
        before = getattr(holder, field)
        setattr(holder, field, constant)
    else:
        before = getattr(holder, field)[index]
        getattr(holder, field)[index] = constant
    return f"{node.targets[0].id}: {ast.unparse(before)}"


def mutants(module: str) -> Iterator[Mutant]:
    """Every mutant of a module."""
    text = (ROOT / "src/tallystick" / module).read_text()
    count = len(_sites(ast.parse(text)))
    for number in range(count):
        tree = ast.parse(text)
        function, node, how = _sites(tree)[number]
        before = copy.deepcopy(node)
        check, line = "", getattr(node, "lineno", 0)
        if isinstance(node, ast.If):
            if how < 0:
                check, node.test = ast.unparse(node.test), ast.Constant(False)
            else:
                assert isinstance(node.test, ast.BoolOp)
                check = ast.unparse(node.test.values[how])
                node.test.values[how] = ast.Constant(False)
        elif isinstance(node, ast.comprehension):
            check, line = ast.unparse(node.ifs[how]), node.target.lineno
            node.ifs[how] = ast.Constant(False)
        elif isinstance(node, ast.Assign):
            check = _set_part(node, how)
        else:
            assert isinstance(node, ast.Expr | ast.Return) and node.value is not None
            constant = ast.Constant(True if isinstance(node, ast.Return) else None)
            check, node.value = ast.unparse(node.value), constant
        clause = re.search(r"['\"](\d+\.\d+(?:\.\d+)?)['\"]", ast.unparse(before))
        source = ast.unparse(ast.fix_missing_locations(tree))
        yield Mutant(module, line, function, clause.group(1) if clause else "", check, source)


def _sites(tree: ast.AST) -> list[tuple[str, ast.AST, int]]:
    visitor = _Sites()
    visitor.visit(tree)
    return visitor.found


def killed_by(mutant: Mutant, package: Path, first: str | None = None) -> str:
    """The first test that fails with the check disabled; empty if none does. `first` runs alone
    before all."""
    target = package / "tallystick" / mutant.module
    original = target.read_text()
    target.write_text(mutant.source)
    try:
        return (_failing(package, [first]) if first else "") or _failing(package, TESTS)
    finally:
        target.write_text(original)


def _pytest(package: Path, tests: Sequence[str], *options: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{package}{os.pathsep}{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests]
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS,) * 2),
    )  # fmt: skip


def _failing(package: Path, tests: Sequence[str]) -> str:
    done = _pytest(package, tests, "-x", "--deselect", READS_SOURCE)
    if done.returncode < 0:
        return "they do not end"
    if done.returncode == 0 or done.returncode == _NO_SUCH_TEST:
        return ""
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.M)
    return failed.group(1).replace("tests/", "", 1) if failed else "collection"


def _passing(package: Path, known: dict[str, str], keys: Sequence[str]) -> dict[str, str]:
    """Those of `known` for `keys` whose test still exists, and passes with every check in place."""
    mine = {key: known[key] for key in keys if key in known}
    left = set(mine.values())
    while left:
        done = _pytest(package, sorted(left))
        if done.returncode == 0:
            break
        said = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.M)
        said += re.findall(r"^ERROR: .*?(tests/[^\n]+)$", done.stderr, re.M)
        # Of a file that is gone or broken no test is known.
        bad = {t for t in left for name in said if t == name or t.startswith(f"{name}::")}
        if not bad:
            raise SystemExit(
                f"pytest ends with {done.returncode}, and names no test: {done.stderr}"
            )
        left -= bad
    return {key: test for key, test in mine.items() if test in left}


def _copy_of_the_package(package: Path) -> Path:
    """A copy that Python imports from `package`, with the installed core.

    An editable installation finds `tallystick` before any directory on the path: without its
    finder taken away, every test would read the sources that no check was taken out of."""
    shutil.copytree(ROOT / "src/tallystick", package / "tallystick")
    core = Path(tallystick._core.__file__)
    (package / "tallystick" / core.name).symlink_to(core)
    (package / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.meta_path[:] = [f for f in sys.meta_path\n"
        "                    if type(f).__module__ != '_editable_skbc_tallystick']\n"
    )
    env = {**os.environ, "PYTHONPATH": str(package)}
    show = "import tallystick.protocol.judge as j; print(j.__file__)"
    seen = subprocess.run(
        [sys.executable, "-c", show], env=env, capture_output=True, text=True, check=True
    )
    if not Path(seen.stdout.strip()).is_relative_to(package):
        raise SystemExit(f"Python imports {seen.stdout.strip()}, not the copy in {package}.")
    return package


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="checks whose text or module has this")
    parser.add_argument("--known", type=Path, help="a page of an earlier run")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    every = [m for module in MODULES for m in mutants(module)]
    chosen = [m for m in every if given.only in m.module + ":" + m.check]
    if given.list:
        for m in chosen:
            print(f"{m.module}:{m.line} {m.function} [{m.clause}] {m.check}")
        return
    known = _known(given.known) if given.known else {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        packages = []
        for number in range(given.jobs):
            packages.append(_copy_of_the_package(Path(scratch) / str(number)))
        first = _passing(packages[0], known, [_key(m) for m in chosen])

        def run(number: int) -> list[tuple[Mutant, str]]:
            mine = []
            for mutant in chosen[number :: given.jobs]:
                mine.append((mutant, killed_by(mutant, packages[number], first.get(_key(mutant)))))
                print(f"{mutant.module}:{mutant.line} {mine[-1][1] or 'SURVIVED'}", flush=True)
            return mine

        with ThreadPoolExecutor(given.jobs) as pool:
            results = [pair for part in pool.map(run, range(given.jobs)) for pair in part]
    results.sort(key=lambda pair: (MODULES.index(pair[0].module), pair[0].line))
    survivors = [m for m, test in results if not test]
    minutes = (time.monotonic() - began) / 60
    print(f"{len(results)} checks, {len(survivors)} survive, {minutes:.0f} minutes")
    if given.out:
        given.out.write_text(_page(results, minutes))
    sys.exit(1 if survivors else 0)


def _key(m: Mutant) -> str:
    """What a row of the page says of a check, but for its clause."""
    check = m.check[:110].replace("|", "/")
    return f"{m.module.removeprefix('protocol/')} | `{m.function}` | `{check}`"


def _known(page: Path) -> dict[str, str]:
    """The test that failed for each check, by its key."""
    found = {}
    for line in page.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if len(cells) == 5 and "::" in cells[4]:
            found[f"{cells[0]} | {cells[1]} | {cells[3]}"] = f"tests/{cells[4]}"
    return found


def _page(results: list[tuple[Mutant, str]], minutes: float) -> str:
    survivors = sum(not test for _, test in results)
    rows = [
        "| {} | {} | {clause} | {} | {test} |".format(
            *_key(m).split(" | "), clause=m.clause, test=test or "**none**"
        )
        for m, test in results
    ]
    return (
        "# Every check of referee and judge, disabled one at a time\n\n"
        "`python tests/adversary/mutation.py --out docs/proofs/mutation.md` "
        f"({time.strftime('%Y-%m-%d')}, {minutes:.0f} minutes on two cores): each row's check was "
        "taken out of a copy of the package and the tests of protocol and adversary run until one "
        f"failed. {len(results)} checks, {survivors} that no test misses.\n\n"
        "| module | in | clause | check that was disabled | first test that fails |\n"
        "|---|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )


if __name__ == "__main__":
    main()
