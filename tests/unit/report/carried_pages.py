"""Pages that carry evidence, for tests: a stand-in for the judge, cases of vectors/protocol."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from evidence_format import Bundle, Case, load

from tallystick.commit.encoding import sha256

# A stand-in for the built judge, of which the package knows nothing but its bytes.
SCRIPT, STYLE = b'document.title="judged"', b"#tallystick-judge{color:red}"


def page_of(script: bytes, style: bytes) -> bytes:
    """A judge's page, from which reports take script and style."""
    return b"<title>Judge</title><style>" + style + b"</style><script>" + script + b"</script>"


def put_judge(place: Path, version: str = "9.9") -> Path:
    """A directory like `report/judge`, with the stand-in and the list that names it."""
    place.mkdir()
    (place / "judge.html").write_bytes(page_of(SCRIPT, STYLE))
    build = {
        "version": version,
        "script": sha256(SCRIPT).hex(),
        "style": sha256(STYLE).hex(),
    }
    (place / "builds.json").write_text(json.dumps([build]))
    return place


@dataclass(frozen=True)
class Files:
    """A case as files: its evidence, the terms of its job, keys of its referees."""

    case: Case
    evidence: Path
    job: Path
    referees: tuple[Path, ...]

    @property
    def believing(self) -> list[object]:
        """The options that name the referees."""
        return [word for key in self.referees for word in ("--trust-referee", key)]


def find(bundle: Bundle, wanted: object) -> Case:
    """The first case of a bundle that `wanted` takes."""
    return next(case for case in bundle.cases if wanted(case))  # type: ignore[operator]


def lay_out(bundle: Bundle, case: Case, at: Path) -> Files:
    """A case as files in a new directory."""
    job = bundle.write_job(case.job, at / "job")
    evidence = at / "case.evidence"
    evidence.write_bytes(case.evidence)
    keys = []
    for number, pem in enumerate(case.referees):
        keys.append(at / f"referee{number}.pub")
        keys[-1].write_text(pem)
    return Files(case, evidence, job, tuple(keys))


def small_cases(at: Path) -> dict[str, Files]:
    """A conviction, an agreement, a silence, an undecided game, and a job of several programs."""
    clauses, logs, later = load("clauses"), load("logs"), load("format-two")
    chosen = {
        "convicted": (clauses, find(clauses, lambda c: c.code == 1 and not c.referees)),
        "agreement": (clauses, find(clauses, lambda c: c.found.get("agreement"))),
        "silence": (clauses, find(clauses, lambda c: c.code == 1 and c.referees)),
        "undecided": (logs, find(logs, lambda c: c.found.get("undecided"))),
        "programs": (
            later,
            find(later, lambda c: c.code == 1 and len(later.jobs[c.job]) > 2),
        ),
    }
    return {name: lay_out(b, c, at / name) for name, (b, c) in chosen.items()}
