"""Evidence that an earlier version left is judged as that version judged it (PROTOCOL 8)."""

from __future__ import annotations

from pathlib import Path

import make_evidence_vectors
import pytest
from evidence_format import bundles, load
from judged import judged

from tallystick.numerics.registry import all_ops

LARGE = 100  # cases
# Every clause by which a party is convicted; 2.10 rests on a referee's word.
CLAUSES = {
    "2.7", "2.8", "2.9", "2.10", "3.2", "3.3", "3.4", "3.5", "4.8", "4.9", "4.10", "4.11", "5.2",
    "5.3", "5.4", "5.5", "5.6.1", "5.6.2", "5.6.3", "5.6.4", "5.6.6", "5.8", "6.1", "6.5", "6.6",
    "6.8", "6.9", "6.10", "6.11", "6.13", "6.14",
}  # fmt: skip


@pytest.mark.parametrize("name", bundles())
def test_the_verdict_is_the_same(name: str, tmp_path: Path, is_exhaustive: bool) -> None:
    """By default every third case of the large bundles: many of theirs differ in one number."""
    bundle = load(name)
    sampled = len(bundle.cases) > LARGE and not is_exhaustive
    jobs = [bundle.write_job(k, tmp_path / f"job{k}") for k in range(len(bundle.jobs))]
    wrong = []
    for case in bundle.cases[:: 3 if sampled else 1]:
        found = judged(case.evidence, jobs[case.job], tmp_path / "judge", case.referees)
        if found != (case.code, case.found):
            wrong.append(f"{name}, {case.name}: {found}, not {(case.code, case.found)}")
    assert not wrong, "\n".join(wrong[:5])


def test_a_bundle_is_made_again_to_the_same_bytes(tmp_path: Path) -> None:
    """The maker works, of which the others are the results."""
    name = "operators-whole-narrow"
    maker = make_evidence_vectors.Maker(tmp_path)
    make_evidence_vectors.MAKERS[name](maker)
    text, data = make_evidence_vectors.encode(maker.bundle, name)
    assert text == (make_evidence_vectors.ROOT / f"{name}.json").read_text()
    assert data == (make_evidence_vectors.ROOT / f"{name}.bin").read_bytes()


def test_every_convicting_clause_and_operator_is_there() -> None:
    cases = {name: load(name).cases for name in bundles()}
    found = {c["clause"] for some in cases.values() for k in some for c in convicted(k.found)}
    assert found == CLAUSES
    ops = {name: {case.name.split(",")[0] for case in some} for name, some in cases.items()}
    assert set().union(*(ops[n] for n in ops if n.startswith("operators-"))) == set(all_ops())
    assert ops["operators-published"] < set(all_ops())
    # Of data movement, comparisons, masks and f64 outputs nothing is stated below the element.
    assert len(ops["parts-published"] & set(all_ops())) >= 81


def convicted(found: dict) -> list[dict]:
    """The convictions of a verdict; none of a refusal."""
    return list(found.get("convicted", []))
