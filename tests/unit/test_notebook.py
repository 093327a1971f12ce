"""Objects of the Python interface in a line, and as a table in a notebook."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tallystick import api
from tallystick.job.job import Job
from tallystick.protocol.verdict import Conviction, Place, Verdict
from tallystick.run.show.summary import RunSummary
from tallystick.visible import Tabled


class Hostile(Tabled):
    def facts_for_people(self) -> tuple[str, dict[str, object]]:
        return "<b>", {"<i>": '<script>"&', "turned\u202e": "\u202eabc", "long": "x" * 5000}


def test_texts_of_others_are_escaped_and_cut() -> None:
    table = Hostile()._repr_html_()
    assert "<script>" not in table and "<i>" not in table and "<b>" not in table
    assert "&lt;script&gt;&quot;&amp;" in table
    assert "\u202e" not in table + repr(Hostile())
    assert len(table) < 1000 and len(repr(Hostile())) < 1000


def test_a_job_is_one_line(gpt2_job: Job) -> None:
    line = repr(gpt2_job)
    assert len(line) < 400 and "\n" not in line
    assert gpt2_job.digest.hex()[:12] in line and "steps 8" in line
    assert f"<td>{gpt2_job.digest.hex()}</td>" in gpt2_job._repr_html_()
    constant = replace(gpt2_job, scalars={"lr": 0.02})
    assert "lr 0.02" in repr(constant)


def test_a_run_an_audit_and_a_dispute(logreg_run: RunSummary) -> None:
    run = logreg_run.directory
    audited, played = api.audit(run, progress=False), api.dispute(run, run, run / "job")
    for found, title in (
        (logreg_run, "Run, finished"),
        (audited, "Audit: accepted"),
        (played, "Dispute: both runs are the same"),
        (played.verdict, "Verdict: both runs are the same"),
        (api.judge(played.evidence, Path(run / "job")), "Judgement: both runs are the same"),
    ):
        assert repr(found).startswith(f"<{title}") and len(repr(found)) < 700
        assert f"<caption>{title}</caption>" in found._repr_html_()


def test_a_conviction_says_who_and_where() -> None:
    verdict = Verdict(
        False,
        (Conviction(1, "5.3", "It lied."),),
        0,
        3,
        "3",
        Place(step=4, node=5, operator="aten.mm"),
    )
    assert repr(verdict) == (
        "<Verdict: B convicted: accepted A, phase 3, case 3, step 4, node 5, operator aten.mm, "
        "why B It lied.>"
    )
