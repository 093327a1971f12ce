"""The estimate of a step's work, which a referee's clocks begin with (PROTOCOL 11.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.delegation.rules import TERMS_OF, step_milliseconds, step_terms
from tallystick.job.recipes import new_job
from tallystick.numerics.registry import all_ops


def test_every_operator_of_products_has_its_terms() -> None:
    """An operator of class dot whose terms were not counted would be taken for a cheap one."""
    assert {op for op, spec in all_ops().items() if spec.op_class == "dot"} == set(TERMS_OF)


@pytest.mark.parametrize(
    ("recipe", "pairs", "products"),
    [
        # forward, weight gradient: [8, 64] @ [64, 4] twice
        ("logreg", {"features": "64", "classes": "4", "records": "16", "batch_size": "8"},
         2 * 8 * 64 * 4),
    ],
)  # fmt: skip
def test_the_terms_of_products_are_counted(
    recipe: str, pairs: dict[str, str], products: int, tmp_path: Path
) -> None:
    program = new_job(recipe, tmp_path / "job", pairs, steps=2, checkpoint_interval=1).program
    elements = sum(
        program.type_of(v).numel for n in program.nodes for v in n.inputs if v is not None
    ) + sum(t.numel for n in program.nodes for t in n.out_types)
    assert step_terms(program) == elements + products
    assert step_milliseconds(program) >= 50
