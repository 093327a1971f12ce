"""The page of a dispute: facts of the verdict, escaping, and what happens to bad evidence."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from unit.protocol.scenarios import Lie
from unit.protocol.simulator import Party
from unit.report.conftest import ELEMENT, OPERATOR, STEP, wrong_node
from unit.report.pages import Page

from tallystick.cli import main
from tallystick.commit.encoding import sha256
from tallystick.commit.signing import PrivateKey
from tallystick.disk.keys import save_private_key
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.job import Job
from tallystick.protocol.verdict import Conviction, Event, Place, Verdict
from tallystick.prover.local import play
from tallystick.report.clauses import apart
from tallystick.report.dispute_page import dispute_page, headline
from tallystick.report.facts import DisputeFacts, read_dispute, read_run
from tallystick.report.meanings import meaning_of
from tallystick.run.execute.trainer import RunSummary

EVIL = "</p><script>alert(1)</script>"
Evidence = Callable[..., Path]


def shown(facts: DisputeFacts) -> Page:
    return Page(dispute_page(facts))


def test_one_wrong_bit(logreg_job: Job, upright: Party, evidence: Evidence) -> None:
    path = evidence(node=wrong_node)
    facts = read_dispute(path, logreg_job.terms, trust=[upright.key.public])
    verdict = facts.verdict
    assert verdict.place.step == STEP and verdict.place.operator == OPERATOR
    assert verdict.place.element == ELEMENT and verdict.accepted == 0 and verdict.terms > 0
    (conviction,) = verdict.convicted
    page = shown(facts)
    number = float(verdict.value.split(" ")[0])
    for fact in (
        f"Party B {meaning_of('6.5').did}, in step {STEP}.",
        "The run of Party B is not accepted.",
        "Party A was not shown wrong here",
        f"PROTOCOL {conviction.clause}Execution. The part that remains has at most 256 terms.",
        str(np.float32(number)),
        "0x" + verdict.value.split("0x")[1].rstrip(")"),
        "1,048,576 binary32 numbers away",
        *(run.run_root.hex() for run in facts.runs),
        *(run.signer.key_id for run in facts.runs),
        "✓ trusted signer",
        "owner not named",
        f"{verdict.received:,} bytes of answers",
        f"{len(path.read_bytes()):,} bytes of evidence",
        f"{verdict.rounds} rounds of questions",
        f"{verdict.terms} terms computed by the judge",
        "tallystick judge case.evidence --job JOB",
        sha256(path.read_bytes()).hex(),
        logreg_job.digest.hex(),
    ):
        assert fact in page.text, fact
    for event in verdict.story[:-1]:
        assert event.sentence in page.text
    # Every stage from run to element is drawn, and differences are told in words.
    assert sum("is disputed" in label for label in page.labels) == 5
    assert "≠different" in page.text and "=equal" in page.text
    assert page.seen >= {"mark", "blockquote", "table", "ol"}


@pytest.mark.parametrize("field", ["job", "name", "story", "quantity", "conviction"])
def test_texts_from_outside_stay_texts(logreg_job: Job, evidence: Evidence, field: str) -> None:
    facts = read_dispute(evidence(node=wrong_node), logreg_job.terms)
    verdict = facts.verdict
    changed = {
        "job": replace(facts, terms=replace(logreg_job.terms, commitment=replace(
            logreg_job.commitment, contract=EVIL))),
        "name": replace(facts, name=EVIL),
        "story": replace(facts, verdict=replace(verdict, story=(
            Event(2, "5.4", EVIL, (EVIL, "x")), *verdict.story))),
        "quantity": replace(facts, verdict=replace(
            verdict, place=replace(verdict.place, quantity=EVIL))),
        "conviction": replace(facts, verdict=replace(
            verdict, convicted=(Conviction(1, "6.5", EVIL),), value=EVIL, claimed=(EVIL, EVIL))),
    }  # fmt: skip
    page = shown(changed[field])
    assert "script" not in page.seen and EVIL in page.text


def test_losses_of_runs_at_hand(logreg_job: Job, logreg_run: RunSummary, jobs: Path,
                                evidence: Evidence) -> None:  # fmt: skip
    run = read_run(jobs / "logreg-run")
    facts = read_dispute(evidence(node=wrong_node), logreg_job.terms, runs=[run])
    assert facts.curves == (run.curve, None)
    page = shown(facts)
    assert "training" in page.text and f"step {STEP}" in page.text
    stranger = replace(run, found={**run.found, "run_root": b"x" * 32})
    with pytest.raises(UsageError):
        read_dispute(evidence(node=wrong_node), logreg_job.terms, runs=[stranger])


def test_agreement(logreg_job: Job, upright: Party, logreg_run: RunSummary, jobs: Path,
                   tmp_path: Path) -> None:  # fmt: skip
    run = read_run(jobs / "logreg-run")
    other = Party(logreg_job, Lie())  # who has hooks has another key
    path = tmp_path / "case.evidence"
    path.write_bytes(play(logreg_job.terms, (upright, other)).evidence.to_bytes())
    mine = replace(run, found={**run.found, "signer": upright.key.public.key_id})
    theirs = replace(run, name="theirs", found={**run.found, "signer": other.key.public.key_id})
    facts = read_dispute(path, logreg_job.terms, runs=[mine, theirs])
    assert facts.curves == (mine.curve, theirs.curve)
    page = shown(facts)
    assert "The parties agree" in page.text and "two liars may agree" in page.text
    assert "Where they part" not in page.text
    assert "one and the same key" not in page.text
    alone = replace(facts, runs=(facts.runs[0], facts.runs[0]))
    assert "both parties have one and the same key" in shown(alone).text


def test_silence(logreg_job: Job, evidence: Evidence, tmp_path: Path) -> None:
    path = evidence(silent=True, node=wrong_node)
    with pytest.raises(CannotCheckError):
        read_dispute(path, logreg_job.terms)
    facts = read_dispute(evidence(node=wrong_node), logreg_job.terms)
    lost = replace(
        facts,
        verdict=Verdict(False, (Conviction(1, "2.10", EVIL),), 0, 0, "", Place(), forfeit=True),
        referee="ab" * 32,
    )
    page = shown(lost)
    assert headline(lost).startswith("A referee says that Party B ")
    assert "silence, and not a lie" in page.text and "ab" * 32 in page.text
    before = page.text.partition("How to check it yourself")[0]
    assert "false" not in re.sub("shown false|is false", "", before)
    assert "✗" not in before and "✓" not in before


def test_nobody_is_left(logreg_job: Job, evidence: Evidence) -> None:
    facts = read_dispute(evidence(node=wrong_node), logreg_job.terms)
    both = (Conviction(0, "6.5", "x"), Conviction(1, "6.6", "y"))
    lost = replace(facts, verdict=replace(facts.verdict, convicted=both, accepted=None))
    assert headline(lost).endswith("; no run is accepted.")
    text = shown(lost).text
    assert "PROTOCOL 6.5" in text and "PROTOCOL 6.6" in text


@pytest.mark.parametrize("node", [0, 4, 11])
@pytest.mark.parametrize("side", ["input", "output", None])
def test_every_place_can_be_drawn(logreg_job: Job, evidence: Evidence, node: int,
                                  side: str | None) -> None:  # fmt: skip
    """Also the COMMIT node's operands beyond the program's, and places found in part."""
    facts = read_dispute(evidence(node=wrong_node), logreg_job.terms)
    last = len(logreg_job.program.nodes[node].inputs) + 2 if side == "input" else 2
    for interval in (None, (2, 4)):
        for operand in (None,) if side is None else (0, last):
            place = Place(interval, 3, node, logreg_job.program.nodes[node].op, side, operand, 0)
            shown(replace(facts, verdict=replace(facts.verdict, place=place)))
    for place in (Place(), Place((2, 4)), Place(step=3)):
        shown(replace(facts, verdict=replace(facts.verdict, place=place, case="0", phase=1)))


def test_distance_between_numbers() -> None:
    assert apart("3f800000", "3f800001") == 1 and apart("80000001", "00000001") == 2
    assert apart("80000000", "00000000") == 0
    assert apart("7f800000", "3f800000") is None and apart("3f80", "3f81") is None


# -- the command ---------------------------------------------------------------------------------


def test_command(logreg_job: Job, logreg_run: RunSummary, jobs: Path, evidence: Evidence,
                 tmp_path: Path, copied: Callable[[Path], Path],
                 capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    path, out = evidence(node=wrong_node), tmp_path / "page.html"
    given = ["report", str(path), "-o", str(out)]
    job = ["--job", str(logreg_job.directory)]
    assert main.run(given) == 3
    assert not out.exists()
    assert main.run([*given, *job, "--run", str(jobs / "logreg-run"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["kind"] == "evidence" and said["checked"] and "Party B signed" in said["sentence"]
    assert said["sentence"] in Page(out.read_text("utf-8")).text
    assert main.run(["report", str(path), "-o", str(path), *job]) == 3
    torn = copied(jobs / "logreg-run")
    (torn / "journal").write_bytes((torn / "journal").read_bytes()[:-3])
    out.unlink()
    assert main.run([*given, *job, "--run", str(torn)]) == 1
    assert not out.exists()


def test_evidence_that_does_not_judge(logreg_job: Job, mlp_job: Job, evidence: Evidence,
                                      tmp_path: Path) -> None:  # fmt: skip
    path, out = evidence(node=wrong_node), tmp_path / "page.html"
    roots = [run.run_root.hex() for run in read_dispute(path, logreg_job.terms).runs]
    whole = path.read_bytes()
    for data, job in (
        (whole[:-1], logreg_job),
        (whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], logreg_job),
        (b"", logreg_job),
        (whole, mlp_job),
    ):
        path.write_bytes(data)
        out.unlink(missing_ok=True)
        given = ["report", str(path), "-o", str(out), "--job", str(job.directory)]
        assert main.run(given) == 2
        text = Page(out.read_text("utf-8")).text
        assert "Nothing is shown, and nobody is accused: this evidence does not" in text
        assert "convicts nobody" in text and not any(root in text for root in roots)


def test_a_forfeit_of_an_unknown_referee(logreg_job: Job, evidence: Evidence,
                                         tmp_path: Path) -> None:  # fmt: skip
    path, out = evidence(silent=True, node=wrong_node), tmp_path / "page.html"
    given = ["report", str(path), "-o", str(out), "--job", str(logreg_job.directory)]
    assert main.run(given) == 2
    text = Page(out.read_text("utf-8")).text
    assert "word of referee" in text and "--trust-referee" in text


def test_a_page_says_that_it_rests_on_a_referee(logreg_job: Job, upright: Party, evidence: Evidence,
                                                tmp_path: Path) -> None:  # fmt: skip
    """PROTOCOL 2.10: `--trust` makes nobody a referee; who is believed as one is named as one."""
    key, file = PrivateKey(bytes([3]) * 32), tmp_path / "referee.pem"
    save_private_key(key, file)
    path, out = evidence(silent=True, key=key, node=wrong_node), tmp_path / "page.html"
    given = ["report", str(path), "-o", str(out), "--job", str(logreg_job.directory)]
    assert main.run([*given, "--trust", str(file)]) == 2
    assert main.run([*given, "--trust-referee", str(file)]) == 0
    text = Page(out.read_text("utf-8")).text
    assert "A referee says that Party B" in text and "rests on the word of one referee" in text
    assert key.public.key_id in text and "--trust-referee REFEREE" in text
    assert "✓ trusted signer" not in text


def test_terms_are_enough_and_torch_is_not_needed(logreg_job: Job, evidence: Evidence,
                                                  tmp_path: Path) -> None:  # fmt: skip
    terms, out = tmp_path / "terms", tmp_path / "page.html"
    terms.mkdir()
    for name in ("job.json", "program.txt"):
        shutil.copy(logreg_job.directory / name, terms / name)
    given = ["report", str(evidence(node=wrong_node)), "-o", str(out), "--job", str(terms)]
    code = (
        "import sys; from tallystick.cli import main; "
        f"code = main.run({given!r}); sys.exit(9 if 'torch' in sys.modules else code)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert f"Party B {meaning_of('6.5').did}" in Page(out.read_text("utf-8")).text
