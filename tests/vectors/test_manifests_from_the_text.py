"""job.json, read from the text alone (COMMITMENTS 1.8 to 1.11, 7; vectors/program)."""

from __future__ import annotations

from reference.judge.encoding import MalformedError, RefusedError
from reference.judge.terms import Terms
from test_program_vectors import INDEX, Case, bytes_of


def found(case: Case) -> str:
    """The job digest, or `refused`."""
    texts = case.get("programs", [case.get("program", INDEX["programs"][0]["text"])])
    try:
        return Terms(bytes_of(case), [text.encode() for text in texts]).digest.hex()
    except (MalformedError, RefusedError):
        return "refused"


def test_every_manifest_is_read_or_refused_as_stored() -> None:
    cases = INDEX["jobs"] + INDEX["jobs_2"] + INDEX["jobs_3"]
    wrong = [
        f"{case['name']} ({case['clause']}): {found(case)}"
        for case in cases
        if found(case) != ("refused" if case.get("refused") else case["digest"])
    ]
    assert len(INDEX["jobs"]) > 100 and len(INDEX["jobs_2"]) > 80
    assert len(INDEX["jobs_3"]) > 60
    assert not wrong, "\n".join(wrong)
