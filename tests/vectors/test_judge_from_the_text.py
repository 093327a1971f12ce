"""A judge written from spec/ alone comes to the frozen verdicts (PROTOCOL 8.2).

Exit code, convicted parties and clauses are compared, not the sentences. What this judge does not
judge yet is named in `NOT_YET`, by bundle and with the number of its cases: none is skipped unsaid.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from evidence_format import Case, bundles, load
from reference.judge.evidence import judge
from reference.judge.game import NotWrittenError

# bundle -> what the judge says it cannot judge -> how many cases.
LIFTED = "published, lifted quantities (OPENING 9.2, 10)"
NOT_YET: dict[str, dict[str, int]] = {
    "logs": {LIFTED: 10},
    "operators-published": {LIFTED: 185},
}


def found_by(case: Case, job: dict[str, bytes]) -> tuple[int, Any]:
    """Exit code, and what is compared of the verdict."""
    found = judge(job["job.json"], job["program.txt"], case.evidence, case.referees)
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


@pytest.mark.parametrize("name", bundles())
def test_the_text_alone_gives_the_verdict(name: str) -> None:
    bundle = load(name)
    unjudged: Counter[str] = Counter()
    judged, wrong = 0, []
    for case in bundle.cases:
        try:
            found = found_by(case, bundle.jobs[case.job])
        except NotWrittenError as why:
            unjudged[str(why)] += 1
            continue
        judged += 1
        if found != frozen(case):
            wrong.append(f"{name}, {case.name}: {found}, not {frozen(case)}")
    print(f"{name}: {judged} of {len(bundle.cases)} judged")
    assert not wrong, "\n".join(wrong[:5])
    assert dict(unjudged) == NOT_YET.get(name, {}), "the table names what is not judged"
    assert judged + sum(unjudged.values()) == len(bundle.cases)
