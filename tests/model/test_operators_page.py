"""docs/OPERATORS.md says what the code does, and each refusal on it is met.

After a change of operators, rules or refusals, run
`PYTHONPATH=src python tests/model/operators_page.py`.
"""

from __future__ import annotations

import re

import pytest

pytest.importorskip("torch", reason="capture needs torch")

from model import operators_page as made
from model.refusals import EXPRESSIONS, STATEMENTS, listed, refusals, refused

TEXT = made.PAGE.read_text("utf-8")
_BY_TORCH = r"(?s)(?<=the part is refused by name\.\n\n)[^\n]*"


def test_the_page_is_up_to_date() -> None:
    """All but what torch's own table has, which is another one in each release of torch."""
    for text in (made._HEAD, made.contract_operators(), made.lowered([]), made.refused_calls(),
                 made.onnx_operators()):  # fmt: skip
        found = re.sub(_BY_TORCH, "", TEXT, count=1)
        assert re.sub(r"With torch \S+,", "", text) in re.sub(r"With torch \S+,", "", found)


def test_torchs_decompositions_are_those_of_the_page(is_exhaustive: bool) -> None:
    """Operators that the page has become programs, and others do not: a sample of both."""
    shown = re.search(r"With torch (\S+),", TEXT)
    assert shown is not None
    if shown[1] != made.TORCH:
        pytest.skip(f"the page is of torch {shown[1]}; this is torch {made.TORCH}")
    by_torch = re.search(_BY_TORCH, TEXT)
    assert by_torch is not None
    named = set(re.findall(r"`(\S+)`", by_torch[0]))
    known = made.candidates()
    assert {"aten.elu", "aten.hardswish", "aten.lerp.Tensor"} <= named <= set(known)
    sample = sorted(known)[:: 1 if is_exhaustive else 16]
    found = {name for name in sample if made.is_captured(known[name])}
    assert found == named & set(sample)


@pytest.mark.parametrize("example", [*EXPRESSIONS, *STATEMENTS])
def test_an_example_is_refused_as_the_page_says(example: str) -> None:
    error = refused(example)
    assert error is not None
    refusal = listed(error)
    assert refusal is not None, error.message
    row = next(row for row in TEXT.splitlines() if f"`{example}`" in row.replace("\\|", "|"))
    assert made.cell(refusal.message) in row and made.cell(refusal.action) in row


def test_every_refusal_tells_the_next_action() -> None:
    assert [r.where for r in refusals() if not r.action] == []


def test_no_refusal_of_an_operator_is_missing_from_the_collection() -> None:
    """An operator whose rule only refuses is on the page by its name."""
    assert {"aten.nonzero", "aten.embedding_renorm", "aten.randperm"} <= made.refusing()
    shown = TEXT.partition("## 3. ")[2]
    assert [name for name in made.refusing() if f"`{name}`" not in shown] == []
