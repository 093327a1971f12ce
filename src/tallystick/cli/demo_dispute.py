"""The demo's disputes: a cheating run against the honest one, judged without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick.api.disputes import Disputing, playing
from tallystick.cli.output import say
from tallystick.disk.files import write_file
from tallystick.job.job_file import load_terms
from tallystick.report.dispute_page import dispute_page
from tallystick.report.facts import read_dispute, read_run

# The judge is a process of its own in which importing torch fails.
_JUDGE = (
    "import sys; sys.modules['torch'] = None\n"
    "from tallystick.cli.main import run\n"
    "sys.exit(run(['judge', *sys.argv[1:], '--json']))"
)


@dataclass(frozen=True)
class DemoSettled:
    """The end of a dispute of the demo, in the judge's own words."""

    case: str
    convicted: list[str]
    accepted: str | None
    sentence: str


def settle(job: Path, honest: Path, cheat: Path, out: Path, name: str) -> DemoSettled:
    """Let `honest` (A) and `cheat` (B) answer a referee; write evidence and page; judge offline."""
    terms = load_terms(job)
    with playing(Disputing(as_attack=("B",)), (honest, cheat), terms) as (played, parties):
        again = sum(party.executed_steps for party in parties)
    evidence, page = out / f"{name}.evidence", out / f"{name}.html"
    write_file(evidence, [played.evidence.to_bytes()])
    found = _judged(evidence, job)
    v = played.verdict
    place = v.place
    say(
        f"    step {place.step}, node {place.node} ({place.operator}), {place.side} "
        f"{place.operand}, element {place.element}"
    )
    for party, text in zip("AB", v.claimed, strict=True):
        say(f"    {party} claims {text}")
    say(f"    it is    {v.value}")
    for convicted in found["convicted"]:
        say(f"    CONVICTED {convicted['party']}, case {found['case']}: {convicted['sentence']}")
        say(f"      (PROTOCOL {convicted['clause']}; confirmed offline by a judge without torch)")
    say(
        f"    {v.rounds} rounds, {v.received:,} bytes; the referee executed {v.terms} terms, both "
        f"runs together {again} steps again"
    )
    dispute = read_dispute(evidence, terms, None, [read_run(honest), read_run(cheat)])
    write_file(page, [dispute_page(dispute).encode("utf-8")])
    say(f"    report: {page}")
    return DemoSettled(
        found["case"],
        [one["party"] for one in found["convicted"]],
        found["accepted_party"],
        "; ".join(one["sentence"] for one in found["convicted"]),
    )


def _judged(evidence: Path, job: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _JUDGE, str(evidence), "--job", str(job)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        say(f"    the judge could not check: {done.stderr.strip()}")
        return {"case": "", "convicted": [], "accepted_party": None}
    found: dict[str, Any] = json.loads(done.stdout)
    return found
