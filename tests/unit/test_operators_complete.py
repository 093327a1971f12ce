"""Each operator is declared once, and every layer has what it needs for it (DESIGN 3).

`pytest tests/unit/test_operators_complete.py -rP` prints the table.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.ops import REFERENCE
from vectors.kernel_format import Case, groups, load

from tallystick.contracts.ordered.cpu import kernel
from tallystick.contracts.rounded.cpu import rounded_kernel
from tallystick.errors import UsageError
from tallystick.kernels.evaluate import view
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.registry import OpSpec, all_ops, check_attrs, complete_attrs, lookup
from tallystick.numerics.types import type_of
from tallystick.opening.quantity import opening
from tallystick.opening.real_pointwise import real_graph
from tallystick.program.ir import COMMIT

torch = pytest.importorskip("torch", reason="capture and stock kernels are torch's")

PROGRAM = Path(__file__).resolve().parents[2] / "src" / "tallystick" / "program"
COLUMNS = ("kernel", "opening rule", "rounded", "stock form", "exact torch kernel",
           "lowering", "reference", "golden vectors")  # fmt: skip


def attachments() -> list[Attachments[Any]]:
    from tallystick.contracts.ordered.torch import exact
    from tallystick.contracts.replay.stock.stock import stock_form

    return [kernel, opening, rounded_kernel, real_graph, exact, stock_form]


@cache
def golden() -> dict[str, list[Case]]:
    kinds = {name: {a: rule.kind for a, rule in s.attrs.items()} for name, s in all_ops().items()}
    found: dict[str, list[Case]] = defaultdict(list)
    for group in groups():
        for case in load(group, kinds):
            found[case.op].append(case)
    return found


@cache
def emitted() -> frozenset[str]:
    """Operators that a lowering rule, or the optimizer's update, writes into a program by name."""
    names = set()
    for path in (*sorted((PROGRAM / "capture").glob("*.py")), PROGRAM / "update.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and node.args:
                called = getattr(node.func, "attr", "")
                first = node.args[0]
                if called in ("emit", "emit_all", "one") and isinstance(first, ast.Constant):
                    names.add(str(first.value))
    return frozenset(names)


def passes_by_its_own_name(spec: OpSpec) -> bool:
    """Whether torch has this operator with these operands and attributes: capture takes it as it
    is (PROGRAM 5.2)."""
    # tallystick's own, for tracing

    room, base, *overload = spec.name.split(".")
    packet = getattr(getattr(torch.ops, room), base, None)
    found = getattr(packet, overload[0] if overload else "default", None)
    if found is None:
        return False
    tensors = [a for a in found._schema.arguments if "Tensor" in str(a.type)]
    others = {a.name for a in found._schema.arguments} - {a.name for a in tensors}
    needed = {name for name, rule in spec.attrs.items() if rule.required}
    return len(tensors) == len(spec.operands) and needed <= others


def how_captured(spec: OpSpec) -> str:
    from tallystick.program.capture.lower import lowering

    if spec.uncaptured:
        return f"not captured: {spec.uncaptured}"
    if spec.name in lowering:
        return "a rule"
    if spec.name in emitted():
        return "another operator's rule"
    return "its own name" if passes_by_its_own_name(spec) else ""


def has_f32(spec: OpSpec) -> bool:
    return any(y.dtype == np.float32 for case in golden()[spec.name] for y in case.outputs)


def needed_exactly(spec: OpSpec) -> bool:
    """Whether a torch device needs an exact kernel: for a golden call that no form computes."""
    from tallystick.contracts.replay.stock.stock import stock_form

    calls = golden()[spec.name]
    formed = [any(y.dtype == np.float32 for y in case.outputs) for case in calls]
    return spec.name not in view and not (spec.name in stock_form and all(formed))


def row(spec: OpSpec) -> dict[str, str]:
    """What each column holds for an operator: empty is a gap."""
    from tallystick.contracts.ordered.torch import exact
    from tallystick.contracts.replay.stock.stock import stock_form

    name = spec.name
    unlogged = spec.is_unlogged or not has_f32(spec) or not spec.is_under("replay/1")
    return {
        "kernel": "view" if name in view else "yes" * (name in kernel),
        "opening rule": "yes" * (name in opening),
        "rounded": "yes" * (name in rounded_kernel) if spec.rounded else "not rounded",
        "stock form": "never logged" if unlogged else "exact" if spec.is_exact
        else "yes" * (name in stock_form),
        # Torch's devices compute under replay/1 alone.
        "exact torch kernel": "yes" * (name in exact)
        if needed_exactly(spec) and spec.is_under("replay/1") else "not needed",
        "lowering": how_captured(spec),
        "reference": "yes" * (name in REFERENCE),
        "golden vectors": str(len(golden()[name]) or ""),
    }  # fmt: skip


def gaps() -> dict[str, list[str]]:
    """The columns in which an operator has nothing, and no reason."""
    found = {name: [k for k, held in row(spec).items() if not held]
             for name, spec in sorted(all_ops().items())}  # fmt: skip
    return {name: missing for name, missing in found.items() if missing}


def test_no_operator_lacks_anything() -> None:
    for name, spec in sorted(all_ops().items()):
        held = row(spec)
        print(f"{name} ({spec.clause}): " + "; ".join(f"{k}: {held[k] or '-'}" for k in COLUMNS))
    assert gaps() == {}


@pytest.mark.parametrize("column", COLUMNS)
def test_the_table_sees_a_gap(column: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tallystick.contracts.ordered.torch import exact
    from tallystick.contracts.replay.stock.stock import stock_form

    name = {"lowering": "tallystick.sum_squares", "exact torch kernel": "aten.relu"}.get(
        column, "aten.mm"
    )
    tables: dict[str, dict[str, Any]] = {
        "kernel": kernel.load(), "opening rule": opening.load(), "rounded": rounded_kernel.load(),
        "stock form": stock_form.load(), "reference": REFERENCE,
        "exact torch kernel": exact.load(), "golden vectors": golden(),
    }  # fmt: skip
    if column == "lowering":
        monkeypatch.setattr(__import__(__name__, fromlist=["_"]), "emitted", frozenset)
    elif column == "golden vectors":
        monkeypatch.setitem(tables[column], name, [])
    else:
        monkeypatch.delitem(tables[column], name)
    assert column in gaps()[name]


def test_nothing_is_attached_to_what_is_not_declared() -> None:
    for table in attachments():
        assert set(table) - set(all_ops()) <= {COMMIT}, table.what
    only_rounded = {name for name, spec in all_ops().items() if spec.rounded}
    assert set(rounded_kernel) == only_rounded
    unlogged = [name for name, spec in all_ops().items() if row(spec)["stock form"] != "yes"]
    assert not set(unlogged) & set(attachments()[-1])


def test_what_is_not_captured_is_no_operator_of_torchs() -> None:
    from tallystick.program.capture.lower import lowering

    for name, spec in all_ops().items():
        if spec.uncaptured:
            assert name not in lowering and not passes_by_its_own_name(spec)


def test_rounded_operators_are_those_of_the_clause() -> None:
    """NUMERICS 13.1: the one list that is written out, so that a declaration cannot extend it."""
    sums = {"aten.sum", "aten.sum.dim_IntList"}
    means = {"aten.mean", "aten.mean.dim"}
    dots = {"aten.mm", "aten.bmm", "aten.addmm", "aten.convolution", "aten.convolution_backward"}
    by_kind: dict[str, set[str]] = defaultdict(set)
    for name, spec in all_ops().items():
        by_kind[spec.rounded].add(name)
    assert by_kind["sum"] == dots | sums and by_kind["divided"] == means
    assert set(by_kind) == {"", "sum", "divided"}


def test_the_gap_of_a_second_declaration_or_attachment() -> None:
    with pytest.raises(ValueError, match=r"aten\.mm has a second kernel"):
        kernel("aten.mm")(lambda attrs, inputs, outputs: None)
    from tallystick.numerics.registry import operator

    with pytest.raises(ValueError, match=r"aten\.mm has a second declaration"):
        operator("aten.mm", clause="2.4", operands=(), op_class="dot")(lambda op, a, t: ())


# -- declarations against the golden calls ---------------------------------------------------------


@pytest.mark.parametrize("name", sorted(all_ops()))
def test_operands_are_those_of_the_golden_calls(name: str) -> None:
    spec, most = lookup(name), 0
    for case in golden()[name]:
        types = tuple(None if x is None else type_of(x) for x in case.inputs)
        assert len(spec.infer(dict(case.attrs), types)) == len(case.outputs)
        most = max([most, *(i + 1 for i, x in enumerate(case.inputs) if x is not None)])
    if spec.operands and spec.operands[-1].endswith("*"):
        assert most >= len(spec.operands)
    else:
        assert most == len(spec.operands), "a declared operand is in no golden call"


def changed(spec: OpSpec, types: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Operand lists that the declaration refuses: one too many, and each needed one left out."""
    if not spec.operands or not spec.operands[-1].endswith("*"):
        yield (*types, *[types[0] if types else None] * (len(spec.operands) + 1 - len(types)))
    for i, operand in enumerate(spec.operands):
        if operand[-1] not in "?*":
            yield (*types[:i], None, *types[i + 1 :])


@pytest.mark.parametrize("name", sorted(all_ops()))
def test_operands_that_are_not_declared_are_refused(name: str) -> None:
    spec, case = lookup(name), golden()[name][0]
    types = tuple(None if x is None else type_of(x) for x in case.inputs)
    for wrong in changed(spec, types):
        with pytest.raises(UsageError, match=name.replace(".", r"\.")):
            spec.infer(dict(case.attrs), wrong)


@pytest.mark.parametrize("name", sorted(all_ops()))
def test_defaults_are_of_their_kinds(name: str) -> None:
    """NUMERICS 1.9: what `evaluate` fills in is what a program may hold."""
    spec, case = lookup(name), golden()[name][0]
    types = tuple(None if x is None else type_of(x) for x in case.inputs)
    needed = {k: v for k, v in case.attrs.items() if spec.attrs[k].default is None}
    check_attrs(spec, complete_attrs(spec, needed, types))
