"""Every operator has an opening rule, and every golden kernel call is reproduced through it."""

from __future__ import annotations

from collections import Counter

import pytest
from disputes import check_lies, check_values, some_elements
from vectors.kernel_format import Case, groups, load

from tallystick.numerics.registry import all_ops, rounded_operators
from tallystick.opening.quantity import rules

KINDS = {name: {a: rule.kind for a, rule in spec.attrs.items()} for name, spec in all_ops().items()}
CASES = {group: load(group, KINDS) for group in groups()}


def test_every_operator_has_an_opening_rule() -> None:
    assert set(rules()) == set(all_ops())


@pytest.mark.parametrize("group", groups())
def test_golden_calls_through_the_rules(group: str) -> None:
    checked: Counter[str] = Counter()
    for case in CASES[group]:
        check_values(case.op, dict(case.attrs), *case.inputs, most=6)
        checked[case.op] += 1
    assert checked


ROUNDED = "rounded/1-draft.1;b=27"


def test_golden_operands_under_a_rounded_contract() -> None:
    """NUMERICS 13: the rounded operators' rules against their kernels, on the golden operands."""
    checked: Counter[str] = Counter()
    for case in [case for group in CASES.values() for case in group]:
        if case.op in rounded_operators() and small(case):
            check_values(case.op, dict(case.attrs), *case.inputs, most=6, contract=ROUNDED)
            checked[case.op] += 1
    assert set(checked) == rounded_operators()


def small(case: Case) -> bool:
    return sum(x.size for x in case.inputs if x is not None) <= 4000


@pytest.mark.parametrize("op", sorted(all_ops()))
def test_a_lie_about_each_operator_convicts_the_liar(op: str) -> None:
    cases = [
        case
        for group in CASES.values()
        for case in group
        if case.op == op and small(case) and any(y.size for y in case.outputs)
    ]
    assert cases
    for case in [cases[k] for k in some_elements(len(cases), 3)]:
        if all(y.size for y in case.outputs):
            check_lies(op, dict(case.attrs), *case.inputs, most=2)
