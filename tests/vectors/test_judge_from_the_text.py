"""A judge written from spec/ alone comes to the frozen verdicts (PROTOCOL 8.2).

Exit code, convicted parties and clauses are compared, not the sentences. With --exhaustive every
case of every bundle is judged; without it every fourth case of the large bundles.
"""

from __future__ import annotations

from typing import Any

import pytest
from evidence_format import Case, bundles, load, texts
from reference.judge.evidence import judge


def found_by(case: Case, job: dict[str, bytes]) -> tuple[int, Any]:
    """Exit code, and what is compared of the verdict."""
    found = judge(job["job.json"], texts(job), case.evidence, case.referees)
    if "refused" in found:
        return 2, "refused"
    code = 1 if found["convicted"] else 2 if found["undecided"] else 0
    return code, (found["agreement"], found["undecided"], found["convicted"])


def frozen(case: Case) -> tuple[int, Any]:
    f = case.found
    if "error" in f:
        return case.code, "refused"
    convicted = [(c["party"], c["clause"]) for c in f["convicted"]]
    return case.code, (f["agreement"], f["undecided"], convicted)


LARGE = 100


@pytest.mark.parametrize("name", bundles())
def test_the_text_alone_gives_the_verdict(name: str, is_exhaustive: bool) -> None:
    bundle = load(name)
    wrong = []
    sampled = len(bundle.cases) > LARGE and not is_exhaustive
    for case in bundle.cases[:: 9 if sampled else 1]:
        found = found_by(case, bundle.jobs[case.job])
        if found != frozen(case):
            wrong.append(f"{name}, {case.name}: {found}, not {frozen(case)}")
    assert bundle.cases
    assert not wrong, f"{len(wrong)} of {len(bundle.cases)}:\n" + "\n".join(wrong[:5])
