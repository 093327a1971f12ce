"""Change one operation of `exact/1` at a time: some test must fail each time.

    PYTHONPATH=src:tests:tests/unit/opening:tests/vectors \\
        python tests/adversary/mutation_exact.py [--only TEXT] [--list] [--out FILE]

The kernels and the opening rule of `exact/1` refuse little; they compute. So a mutant here is a
changed operation: another comparison, operator, number or condition, or a statement left out. It is
put into the functions that are loaded already, and the vectors and tests of `exact/1` are called
until one fails. Changes of native code are in mutation_exact_native.py.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import resource
import signal
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import test_exact_vectors as vectors
from unit.numerics import test_exact_operators as kernels
from unit.opening import test_opening_exact as opening

from tallystick.contracts.exact import BLOCK_LENGTHS
from tallystick.contracts.exact.cpu import operators

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "contracts/exact/opening.py",
    "contracts/exact/cpu/integers.py", "contracts/exact/cpu/operators.py",
    "products/following.py",
)  # fmt: skip
MOST_SECONDS = 60
MOST_BYTES = 12 << 30  # of addresses: a wrong size ends the test and not the machine

_COMPARE = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_BINARY = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.Pow: ast.Mult, ast.Div: ast.Mult,
}  # fmt: skip
_CALLS = {"max": "min", "min": "max", "minimum": "maximum", "maximum": "minimum"}


@dataclass(frozen=True)
class Mutant:
    """One changed operation: `was` became `now`. `nth` counts equal ones of a function."""

    module: str
    line: int
    function: str
    was: str
    now: str
    nth: int
    source: str

    @property
    def explained(self) -> str:
        """Why no test sees it; empty where one has to."""
        key = self.function, self.was, self.now
        return EXPLAINED.get(key) or EXPLAINED.get((*key, self.nth), "")


Change = Callable[[], None]
_WORK = "saves work where nothing is there to do: no bit"
_ROOM = "how much memory a tile takes at most: no bit"
_MEAN = "only a mean has an output without axes"
_MORE = "more groups of no members than are read"
# What survives, and why no test can see it: by function, `was`, `now`, and which of several it is.
EXPLAINED: dict[tuple[str, str, str] | tuple[str, str, str, int], str] = {
    ("_exponent", "23", "24", 0): "both branches give e of the least normal numbers",
    ("using", "40", "41"): "the length of a name in an error's sentence",
    ("canonical", "out.ndim == 0", "always False"): _MEAN,
    ("canonical", "0", "1"): _MEAN,
    ("canonical", "1", "2"): _MEAN,
    ("canonical", "bad.any()", "always True"): _WORK,
    ("scale_and_add", "alpha != 1", "always True"): "a product with 1 is exact",
    ("scale_and_add", "beta == 1", "always False"): "a product with 1 is exact",
    ("_batched", "rows.any() or columns.any()", "always True"): _WORK,
    ("_not_finite", "planes.any()", "always True"): _WORK,
    ("_by_channel", "-images // count", "-images * count"): _MORE,
    ("_images", "-window.channels // count", "-window.channels * count"): _MORE,
    ("_images", "window.columns.places * (window.taps + conv.rows) * groups",
     "window.columns.places * (window.taps + conv.rows) + groups"): _ROOM,
    ("_images", "window.columns.places * (window.taps + conv.rows)",
     "window.columns.places + (window.taps + conv.rows)"): _ROOM,
    ("_images", "window.taps + conv.rows", "window.taps - conv.rows"): _ROOM,
    ("_weight_gradient", "1", "2", 2): _ROOM,
    ("_weight_gradient", "1", "2", 3): _ROOM,
    ("_weight_gradient", "max", "min", 1): _ROOM,
    ("_weight_gradient", "BUDGET // max(1, window.kernel * count * window.plane)",
     "BUDGET * max(1, window.kernel * count * window.plane)"): _ROOM,
    ("_weight_gradient", "window.kernel * count * window.plane",
     "window.kernel * count + window.plane"): _ROOM,
    ("_weight_gradient", "window.kernel * count", "window.kernel + count"): _ROOM,
    ("_tap_dots.parts", "s not in laid", "always True"): _WORK,
    ("_tap_dots.parts", "laid.clear()", "left out"): _ROOM,
    ("_tap_dots.parts", "min", "max"): "the view ends with the images, and so does a block",
    ("_wrapped", "n + (1 << 63)", "n - (1 << 63)"): "the same modulo 2^64",
    ("ExactRecord.end_block", "math.ldexp(float(_wrapped(self.sum)), shift) + 0.0",
     "math.ldexp(float(_wrapped(self.sum)), shift) - 0.0"): "an integer's product is no -0",
    ("_Plan.count", "rest", "always True"): "a segment of no outer values has no links",
}  # fmt: skip


class _Sites(ast.NodeVisitor):
    """Every change inside of functions: where, the node shown, and what makes it."""

    def __init__(self) -> None:
        self.stack: list[str] = []
        self.functions = 0  # of the stack
        self.found: list[tuple[str, ast.AST, Change, str]] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.functions += 1
        self._inside(node)
        self.functions -= 1

    def _inside(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        self.stack.append(node.name)
        for number, statement in enumerate(node.body):
            self.visit(statement)
            self._left_out(node.body, number)
        self.stack.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def add(self, shown: ast.AST, change: Change, told: str = "") -> None:
        # Class bodies and defaults are no code of a function that is loaded.
        if self.functions:
            self.found.append((".".join(self.stack), shown, change, told))

    def generic_visit(self, node: ast.AST) -> None:
        for field in ("body", "orelse"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                for number in range(len(block)):
                    self._left_out(block, number)
        super().generic_visit(node)

    def _left_out(self, block: list[ast.stmt], number: int) -> None:
        node = block[number]
        targets = node.targets if isinstance(node, ast.Assign) else []
        stores = any(
            isinstance(part, ast.Attribute | ast.Subscript)
            for target in targets
            for part in ast.walk(target)
            if isinstance(getattr(part, "ctx", None), ast.Store)
        )
        calls = isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant)
        if stores or calls:
            self.add(node, lambda: block.__setitem__(number, ast.Pass()), "left out")

    def visit_Compare(self, node: ast.Compare) -> None:
        for k, op in enumerate(node.ops):
            other = _COMPARE[type(op)]
            self.add(node, partial(node.ops.__setitem__, k, other()))
        self.generic_visit(node)

    def _operator(self, node: ast.BinOp | ast.AugAssign) -> None:
        other = _BINARY.get(type(node.op))
        if other is not None:
            self.add(node, partial(setattr, node, "op", other()))
        self.generic_visit(node)

    visit_BinOp = visit_AugAssign = _operator  # noqa: N815

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add(node, partial(setattr, node, "op", other))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            self.add(node, partial(setattr, node, "op", ast.UAdd()))
        if not isinstance(node.operand, ast.Constant):  # of a reshape: any negative number does
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, int | float):  # a truth value too
            other = not node.value if isinstance(node.value, bool) else node.value + 1
            self.add(node, partial(setattr, node, "value", other))

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in _CALLS:
            self.add(node, partial(setattr, node, "id", _CALLS[node.id]))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in _CALLS:
            self.add(node, partial(setattr, node, "attr", _CALLS[node.attr]))
        self.generic_visit(node)

    def _condition(self, node: ast.If | ast.IfExp | ast.While) -> None:
        for value in (False,) if isinstance(node, ast.While) else (True, False):
            change = partial(setattr, node, "test", ast.Constant(value))
            self.add(node.test, change, f"always {value}")
        self.generic_visit(node)

    visit_If = visit_IfExp = visit_While = _condition  # noqa: N815


def _sites(tree: ast.AST) -> list[tuple[str, ast.AST, Change, str]]:
    visitor = _Sites()
    visitor.visit(tree)
    return visitor.found


def mutants(module: str) -> Iterator[Mutant]:
    """Every mutant of a module."""
    text = (ROOT / "src/tallystick" / module).read_text()
    equal: Counter[tuple[str, str, str]] = Counter()
    for number in range(len(_sites(ast.parse(text)))):
        tree = ast.parse(text)
        function, shown, change, told = _sites(tree)[number]
        line, was = getattr(shown, "lineno", 0), ast.unparse(shown)
        change()
        source = ast.unparse(ast.fix_missing_locations(tree))
        now = told or ast.unparse(shown)
        yield Mutant(module, line, function, was, now, equal[function, was, now], source)
        equal[function, was, now] += 1


# --- into the loaded functions --------------------------------------------------------------------
def loaded(module: types.ModuleType) -> dict[tuple[str, ...], types.FunctionType]:
    """Functions and methods that a module defines, by the names on the way to them."""
    found: dict[tuple[str, ...], types.FunctionType] = {}

    def take(path: tuple[str, ...], value: Any) -> None:
        value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        value = getattr(value, "__wrapped__", value)
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            found[path] = value

    for name, value in vars(module).items():
        if isinstance(value, type) and value.__module__ == module.__name__:
            for inner, method in vars(value).items():
                take((name, inner), method)
        else:
            take((name,), value)
    return found


def codes(source: str) -> dict[tuple[str, ...], types.CodeType]:
    """The code of every function and method of a module's source."""
    found: dict[tuple[str, ...], types.CodeType] = {}

    def walk(code: types.CodeType, path: tuple[str, ...]) -> None:
        for part in code.co_consts:
            if isinstance(part, types.CodeType):
                found[(*path, part.co_name)] = part
                walk(part, (*path, part.co_name))

    walk(compile(source, "mutant", "exec"), ())
    return found


# --- the tests ------------------------------------------------------------------------------------
Test = tuple[str, Callable[[], object]]


def _conv(kind: str, budget: int) -> None:
    before, operators.BUDGET = operators.BUDGET, budget
    try:
        kernels.test_convolutions(kind, "")
    finally:
        operators.BUDGET = before


def tests() -> list[Test]:
    """Name and call of every test, the quick ones first."""
    found: list[Test] = []

    def add(test: Callable[..., None], *arguments: Any) -> None:
        name = f"{test.__name__}{list(arguments) if arguments else ''}"
        found.append((name, partial(test, *arguments)))

    for width in BLOCK_LENGTHS:
        add(vectors.test_exact_operators, f"b-{width}")
        add(opening.test_values_of_several_segments, width)
        add(opening.test_integers_by_fractions, width)
    for test in (
        opening.test_the_shapes_of_the_rules,
        opening.test_states_do_not_depend_on_where_a_prover_stops,
        opening.test_a_member_that_no_tap_reads_counts,
        opening.test_integers_beyond_the_range_are_cut,
        opening.test_the_sum_is_rounded_once_where_it_is_too_long,
        opening.test_an_element_of_no_terms_is_plus_zero,
        opening.test_values_of_convolutions_of_several_segments,
        opening.test_the_groups_of_every_element,
        opening.test_links_in_any_pieces,
        opening.test_a_segment_of_several_blocks,
        opening.test_a_group_of_zeros_has_no_magnitude,
        opening.test_a_nan_in_an_agreed_record_becomes_the_canonical_one,
        opening.test_a_sum_wraps_modulo_2_64,
        kernels.test_a_result_that_is_no_number_is_the_canonical_one,
        kernels.test_images_of_one_place,
        kernels.test_what_the_core_says_of_zeros,
        kernels.test_tiles_cover_everything_once_within_the_budget,
        kernels.test_nothing_to_add_and_nothing_to_make,
        kernels.test_ties_and_the_largest_integer,
        kernels.test_the_largest_sums_stay_exact,
        kernels.test_one_element_that_is_not_finite_sends_its_row_and_column,
        kernels.test_an_engine_that_is_not_there,
    ):
        add(test)
    for total, mu in ((0.0, 0), (1e308, 0x7F800000), (float("nan"), 0x3F800000), (-0.0, 1),
                      (0.0, 1), (1e308, 0x3F800000)):  # fmt: skip
        add(opening.test_any_record_goes_on, total, mu)
    for maker, width, k in (
        ("wide", 15, 150),
        ("wide", 8, 150),
        ("mixed", 22, 150),
        ("tiny", 15, 0),
        ("tiny", 22, 1),
    ):
        add(opening.test_values, maker, width, k)
    add(opening.test_a_lie_in_one_link_is_found_in_it)
    for maker, width in (("floats", 8), ("mixed", 22)):
        add(opening.test_games, maker, width)
    for kind, width in (("special", 8), ("scales", 15), ("ties", 22)):
        add(kernels.test_products, kind, width)
    found += [(f"test_convolutions[{b}]", partial(_conv, "special", b)) for b in (500, 1 << 24)]
    for kind in ("scales", "special"):
        add(kernels.test_convolutions_of_several_segments, kind)
    with_probe = kernels.test_the_binary64_engine_is_probed

    def probed() -> None:
        with pytest.MonkeyPatch.context() as patch:
            with_probe(patch)

    found.append((with_probe.__name__, probed))
    return found


class EndlessError(BaseException):
    """A test took too long."""


def _end(*_: object) -> None:
    raise EndlessError


def killed_by(mutant: Mutant, every: list[Test]) -> str:
    """The first test that fails with the change, "" if none does."""
    name = "tallystick." + mutant.module.removesuffix(".py").replace("/", ".")
    functions, changed = loaded(importlib.import_module(name)), codes(mutant.source)
    before = {path: function.__code__ for path, function in functions.items()}
    try:
        for path, function in functions.items():
            if path in changed:
                function.__code__ = changed[path]
        for test, call in every:
            signal.setitimer(signal.ITIMER_REAL, MOST_SECONDS)
            try:
                call()
            except EndlessError:
                return "they do not end"
            except (Exception, pytest.fail.Exception) as error:
                return f"{test} ({type(error).__name__})"
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        for path, function in functions.items():
            function.__code__ = before[path]
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutants whose module, line or text has this")
    parser.add_argument("--numbers", type=int, nargs="*", help="of the list that --only gives")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chosen = [
        m for module in MODULES for m in mutants(module)
        if given.only in f"{m.module}:{m.line}: {m.was}"
    ]  # fmt: skip
    numbered = list(enumerate(chosen))
    if given.numbers:
        numbered = [numbered[number] for number in given.numbers]
    if given.list:
        for number, m in numbered:
            print(f"{number} {m.module}:{m.line} {m.function}: {m.was} -> {m.now}")
        return
    signal.signal(signal.SIGALRM, _end)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES,) * 2)
    every, rows, began = tests(), [], time.monotonic()
    for name, call in every:
        start = time.monotonic()
        call()  # nothing is changed: everything holds
        print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
    for number, mutant in numbered:
        why = mutant.explained
        killer = f"none: {why}" if why else killed_by(mutant, every)
        print(f"{number} {mutant.module}:{mutant.line} {killer or 'SURVIVED'}"
              f"{'' if killer else f': {mutant.was} -> {mutant.now}'}", flush=True)  # fmt: skip
        text = [part[:90].replace("|", "/").replace("\n", " ") for part in (mutant.was, mutant.now)]
        rows.append(
            f"| {mutant.module.removeprefix('kernels/')} | `{mutant.function}` | `{text[0]}` | "
            f"`{text[1]}` | {killer or '**none**'} |"
        )
    survivors = sum(row.endswith("**none** |") for row in rows)
    print(
        f"{len(rows)} changes, {survivors} survive, {(time.monotonic() - began) / 60:.0f} minutes"
    )
    if given.out:
        given.out.write_text("\n".join(rows) + "\n")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
