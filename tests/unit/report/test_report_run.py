"""The page of a run, and what pages are made of."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from unit.report.pages import Page

from tallystick.cli import main
from tallystick.commit.signing import PrivateKey
from tallystick.disk.keys import save_private_key
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.program.validation import StopRule
from tallystick.report.clauses import clause_text, clauses_of
from tallystick.report.curve import CheckpointMarks, figure, thinned, ticks
from tallystick.report.facts import Curve, read_run
from tallystick.report.html import MAX_TEXT, binary, bits_of, count, el, join, size, text
from tallystick.report.page import page
from tallystick.report.run_page import run_page
from tallystick.run.execute.trainer import RunSummary, train_job

ROOT = Path(__file__).resolve().parents[3]
EVIL = "</dd><script>alert(1)</script><img src=x onerror='a'>\"\u202e\ud800\x00"


def test_a_run(logreg_run: RunSummary, jobs: Path) -> None:
    facts = read_run(jobs / "logreg-run")
    shown = Page(run_page(facts))
    for fact in (
        facts.job.digest.hex(),
        logreg_run.run_root.hex(),
        facts.found["final_state_root"].hex(),
        facts.found["signer"],
        facts.job.commitment.contract,
        "complete, 6 steps",
        "owner not named",
        "tallystick audit logreg-run --job JOB",
        "4 states hashed",
        "What it does not",
    ):
        assert fact in shown.text, fact
    assert {"svg", "path", "figure", "figcaption"} <= shown.seen
    assert any("6 steps, loss" in label for label in shown.labels)


def test_texts_from_outside_stay_texts(logreg_run: RunSummary, jobs: Path) -> None:
    facts = read_run(jobs / "logreg-run")
    recipe = {"name": EVIL, "settings": {EVIL: EVIL}}
    job = replace(facts.job, about={EVIL: EVIL}, recipe=recipe)
    found = {**facts.found, "recipe": EVIL, "isa": EVIL, "reason": EVIL, "finished": False}
    found["sessions"] = [{"tallystick": EVIL, "compiler": EVIL}]
    source = run_page(replace(facts, name=EVIL, job=job, found=found))
    shown = Page(source)
    assert "script" not in shown.seen and "img" not in shown.seen
    assert shown.text.count("<script>alert(1)</script>") >= 6
    assert "\\u202e\\ud800\\x00" in shown.text
    source.encode("utf-8")


def test_metrics_and_speed_are_shown(
    mlp_run: RunSummary, copied: Callable[[Path], Path], jobs: Path
) -> None:
    out = copied(jobs / "mlp-run")
    facts = read_run(out)
    assert [curve.quantity for curve in facts.metrics] == ["grad_norm"]
    assert len(facts.metrics[0].training) == facts.job.steps
    shown = Page(run_page(facts))
    assert any("Grad_norm by step" in label for label in shown.labels)
    assert re.search(r"[0-9.]+ (ms|s) a step \(", shown.text)
    for line in (
        '{"step": 1, "loss": 2.0, "' + "x" * 2000 + '": 1.0, "</svg>": -1e308, "big": 1e308}',
        '{"step": 1, "a": ' + "9" * 400 + ', "b": null, "loss": 1}',
    ):
        (out / "metrics.jsonl").write_text(line + "\n" + line.replace("1e308", "-1e308") + "\n")
        odd = run_page(read_run(out))
        Page(odd)
        assert "</svg>&quot;" not in odd
        coordinates = re.findall(r'(?:cx|cy|x1|y1|x|y|d)="([^"]*)"', odd)
        assert not [c for c in coordinates if "nan" in c or "inf" in c]
    (out / "metrics.jsonl").unlink()
    (out / "metrics.jsonl").symlink_to(out / "journal")
    assert "Metrics" not in run_page(read_run(out))


def test_markup_helpers() -> None:
    assert el("p", "<b>", el("i", 1), None, class_='"x"', aria_label=None) == (
        '<p class="&quot;x&quot;">&lt;b&gt;<i>1</i></p>'
    )
    assert join("&", text("&")) == "&amp;&amp;"
    assert len(text("x" * 10 * MAX_TEXT)) == MAX_TEXT + 1
    long = "M0 0" * MAX_TEXT
    assert long in el("path", d=long)
    Page(page("t", el("p", "ok")))


@pytest.mark.parametrize(
    "losses",
    [(1.0,), (2.0, 2.0), (3.0, math.nan, 1.0, math.inf), (math.nan,), (0.0, 0.0), (1e30, -1e30)],
)
def test_odd_losses_are_drawn(losses: tuple[float, ...]) -> None:
    drawn = figure([(0, Curve("a", losses, ((1, losses[0]),)))], CheckpointMarks((0, 1), (1,)))
    Page(page("t", drawn))
    coordinates = re.findall(r'(?:cx|cy|x1|y1|x|y|d)="([^"]*)"', drawn)
    assert not [c for c in coordinates if "nan" in c or "inf" in c]


def test_many_steps_give_a_small_page() -> None:
    losses = tuple(5 + math.sin(i) / (1 + i / 1000) for i in range(200_000))
    marks = CheckpointMarks(tuple(range(0, 200_001, 20)), (0, 200_000))
    assert len(figure([(0, Curve("a", losses))], marks)) < 100_000
    kept = thinned(losses, 700)
    assert len(kept) <= 1402 and kept[0][0] == 0 and kept[-1][0] == 199_999
    assert max(v for _, v in kept) == max(losses)


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 300, 6, whole=True) == [0, 50, 100, 150, 200, 250, 300]
    assert ticks(0, 3, 9, whole=True) == [0, 1, 2, 3]
    assert ticks(1, 1, 5) == [1]
    for low, high in ((0.1, 0.13), (-5, 7e6), (1e-30, 3e-30)):
        found = ticks(low, high, 5)
        assert 2 <= len(found) <= 7 and all(low <= t <= high for t in found)


def test_words() -> None:
    assert count(1234567, "byte") == "1,234,567 bytes" and count(1, "loss") == "1 loss"
    assert count(2, "loss") == "2 losses" and size(1) == "1 byte" and "1.0 KiB" in size(1024)
    assert bits_of("0.7843179106712341 (0x3f48c90f)") == ("0.7843179", "3f48c90f")
    assert bits_of("12") == ("12", "")
    marked = binary("3f800001", "3f800000")
    assert marked.count("<mark>") == 1 and marked.endswith("<mark>1</mark></code>")


def test_clauses_are_those_of_the_specification() -> None:
    """On failure: python -m tallystick.report.clauses spec/PROTOCOL.md."""
    specification = (ROOT / "spec" / "PROTOCOL.md").read_text("utf-8")
    data = json.loads((ROOT / "src/tallystick/report/clauses.json").read_text("utf-8"))
    assert data == clauses_of(specification)
    assert len(data) > 50
    assert "<em>Execution.</em>" in str(clause_text("6.5")) and clause_text("99.9") is None


def test_a_clause_of_several_parts_is_whole() -> None:
    """A quoted clause keeps its formulas, lists, tables and later paragraphs, and no more."""
    parts, logs, cases = (str(clause_text(number)) for number in ("2.4", "6.13", "1.6"))
    assert "<pre>parts(first, count)  = cut(first, count, 5)" in parts and "```" not in parts
    assert parts.count("<p>") == 3 and "Signed answer" not in parts
    assert logs.count("<li>") == 6 and "<em>Section</em>" in logs and "\n- " not in logs
    assert "or x* with its bound" in str(clause_text("6.11"))  # written x\\*, no emphasis
    assert (
        cases.count("<table>") == 2
        and "<td>2a</td>" in cases
        and '<th scope="col">case</th>' in cases
    )
    made = clauses_of("1.1 A.\n\n```\n1.2 no clause\n# nor heading\n```\n\n1.3 B.\n\n## 2. C\nD")
    assert made == {"1.1": "A.\n\n```\n1.2 no clause\n# nor heading\n```", "1.3": "B."}


# -- the command ---------------------------------------------------------------------------------


def test_command(logreg_run: RunSummary, logreg_job: Job, jobs: Path, tmp_path: Path,
                 capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    out, run = tmp_path / "run.html", str(jobs / "logreg-run")
    job = str(logreg_job.directory)
    assert main.run(["report", run, "-o", str(out), "--job", job, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {
        "report": str(out),
        "kind": "run",
        "checked": True,
        "sentence": "logreg-run: complete, 6 steps, signed",
        "bytes": len(out.read_bytes()),
    }
    assert logreg_run.run_root.hex() in Page(out.read_text("utf-8")).text
    assert main.run(["report", run, "-o", str(tmp_path)]) == 3
    assert main.run(["report", run, "-o", str(tmp_path / "none" / "x.html")]) == 3
    assert main.run(["report", job, "-o", str(out)]) == 3
    assert main.run(["report", run]) == 3


def test_command_on_what_does_not_check_out(
    logreg_run: RunSummary, mlp_job: Job, jobs: Path, tmp_path: Path,
    copied: Callable[[Path], Path],
) -> None:  # fmt: skip
    run, out = jobs / "logreg-run", tmp_path / "run.html"
    assert main.run(["report", str(run), "-o", str(out), "--job", str(mlp_job.directory)]) == 1
    assert "does not check out" in Page(out.read_text("utf-8")).text
    stranger = tmp_path / "stranger.pem"
    save_private_key(PrivateKey.generate(), stranger)
    assert main.run(["report", str(run), "-o", str(out), "--trust", str(stranger)]) == 1
    shown = Page(out.read_text("utf-8")).text
    assert "not in the trust list" in shown and logreg_run.run_root.hex() not in shown
    torn = copied(run)
    journal = (torn / "journal").read_bytes()
    (torn / "journal").write_bytes(journal[:-3])
    out.unlink()
    assert main.run(["report", str(torn), "-o", str(out)]) == 1
    assert "the journal is damaged" in Page(out.read_text("utf-8")).text


def test_an_unfinished_run(logreg_run: RunSummary, jobs: Path, tmp_path: Path,
                           copied: Callable[[Path], Path]) -> None:  # fmt: skip
    torn = copied(jobs / "logreg-run")
    (torn / "commitment.json").unlink()
    journal = (torn / "journal").read_bytes()
    (torn / "journal").write_bytes(journal[:-3])
    out = tmp_path / "run.html"
    assert main.run(["report", str(torn), "-o", str(out)]) == 0
    shown = Page(out.read_text("utf-8")).text
    assert "not signed" in shown and "an unfinished run is not signed" in shown


def test_the_page_says_whether_validation_is_committed(tmp_path: Path, logreg_job: Job) -> None:
    pairs = {"features": "2", "classes": "2", "records": "40", "batch_size": "4"}
    job = new_job(
        "logreg", tmp_path / "job", pairs, steps=2, evaluate_every=2, stop_rule=StopRule()
    )
    train_job(job, tmp_path / "run")
    assert "No commitment covers validation" not in run_page(read_run(tmp_path / "run"))
    train_job(logreg_job, tmp_path / "plain")
    assert "No commitment covers validation" in run_page(read_run(tmp_path / "plain"))


def test_the_author_s_word_stands_apart_from_what_the_digest_covers(
    logreg_run: RunSummary, jobs: Path
) -> None:
    facts = read_run(jobs / "logreg-run")
    recipe = {"name": "a-recipe", "settings": {f"key{n}": n for n in range(70)}}
    source = run_page(replace(facts, job=replace(facts.job, recipe=recipe, about={"who": "me"})))
    before, _, behind = source.partition("What its author says besides (not committed)")
    assert "Trains " in before and "a-recipe" not in before and "key0" not in before
    word, _, rest = behind.partition("</details>")
    assert "recipe: a-recipe" in word and "setting key0: 0" in word and "more." in word
    assert "a-recipe" not in rest and "key0" not in rest
