"""The first sentences of pages: one for each clause that convicts, and each kind of ending."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from evidence_format import Bundle, bundles, load
from test_evidence_vectors import CLAUSES
from unit.report.pages import Page

from tallystick.cli.main import run
from tallystick.commit.signing import PublicKey
from tallystick.disk.keys import load_public_key
from tallystick.job.job_file import load_job
from tallystick.protocol.verdict import CASES, Conviction, Place, Verdict
from tallystick.report.clauses import clause_text
from tallystick.report.dispute_page import dispute_page, headline
from tallystick.report.facts import DisputeFacts, read_dispute
from tallystick.report.falsehood import apart
from tallystick.report.first import first_sentence
from tallystick.report.meanings import MEANINGS, OUTSIDE, Kind, meaning_of

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "tallystick"
# Words of insiders, and of a verdict's own text, that no first sentence has.
INSIDERS = re.compile(r"clause|PROTOCOL|[Cc]onvict|node|root|tensor|digest|\d\.\d")


def test_every_clause_that_convicts_has_a_meaning() -> None:
    assert {clause for clause, _ in MEANINGS} == CLAUSES
    for clause, case in MEANINGS:
        assert clause_text(clause) is not None and case in {"", *CASES}
    deviations = set()
    for path in (SOURCE / "delegation").glob("*.py"):
        deviations |= set(re.findall(r'DeviationError\([^"]*"(12\.[\d.]+)"', path.read_text()))
    assert deviations and deviations <= set(OUTSIDE)


def test_every_stored_verdict_has_a_meaning() -> None:
    seen = {
        (one["clause"], case.found["case"])
        for name in bundles()
        for case in load(name).cases
        for one in case.found.get("convicted", ())
    }
    assert len(seen) > 30
    unknown = meaning_of("99.9")
    assert not [pair for pair in seen if meaning_of(*pair) == unknown]


@pytest.mark.parametrize("pair", MEANINGS, ids=str)
def test_a_first_sentence_is_for_everyone(pair: tuple[str, str]) -> None:
    clause, case = pair
    convicted = (Conviction(1, clause, "its node 0 is not"),)
    place = Place((16, 24), 20)
    said = first_sentence(Verdict(False, convicted, 0, 2, case, place, forfeit=clause == "2.10"))
    assert said.startswith("Party B ") and said.endswith(".") and not INSIDERS.search(said)
    found = meaning_of(clause, case)
    assert ("step 20" in said) == (found.kind is not Kind.WHOLE)
    assert found.means.endswith(".") and not INSIDERS.search(found.means)
    assert (found.kind is Kind.SILENCE) == (clause == "2.10")


# bundle, part of the case's name, the first sentence
ENDINGS = [
    ("attacks-exact", "backdoor-label-flip, party 0",
     "Party A trained on other data than the job's, in step 0."),
    ("attacks-exact", "wrong-learning-rate, party 1",
     "Party B trained with another setting than the job's, in step 4."),
    ("attacks-exact", "lie-optimizer-state, party 0",
     "Party A signed a falsely computed number, in step 4."),
    ("attacks-exact", "lie-genesis, party 0", "Party A started from another model than the job's."),
    ("attacks-exact", "fewer-steps, party 0",
     "Party A stopped before the job's end, after step 3."),
    ("attacks-exact", "lie-node-count, party 0",
     "Party A ran another program than the job's, in step 4."),
    ("attacks-exact", "padded-steps, party 0",
     "Party A cannot show how it came to the state that it signed, in step 4."),
    ("attacks-exact", "refuses, party 0",
     "Party A signed that it cannot answer a question about its own run, when asked about step 4."),
    ("attacks-exact", "silent, party 0",
     "Party A did not answer in time, by a referee's word, when asked about step 4."),
    ("attacks", "extra-entry, party 0",
     "Party A wrote a false entry into its log of roundings, in step 4."),
    ("clauses", "two answers to one query",
     "Party B signed two different answers to one question."),
    ("clauses", "another state goes in, party 0",
     "Party A changed the model between two steps, in step 6."),
    ("clauses", "both have another structure",
     "Party A and Party B both ran another program than the job's, in step 6; no run is "
     "accepted."),
    ("clauses", "agreement", "The parties agree: both have signed the same run."),
    ("logs", "bounded: an entry that says nothing, party 0",
     "It could not be decided: the runs differ, and neither party is shown wrong."),
]  # fmt: skip
LOADED: dict[str, Bundle] = {}


def facts_of(name: str, part: str, tmp_path: Path) -> DisputeFacts:
    if name not in LOADED:
        LOADED[name] = load(name)
    bundle = LOADED[name]
    case = next(c for c in bundle.cases if part in c.name)
    job = load_job(bundle.write_job(case.job, tmp_path / "job"))
    path = tmp_path / "case.evidence"
    path.write_bytes(case.evidence)
    keys: list[PublicKey] = []
    for k, pem in enumerate(case.referees):
        (tmp_path / f"key{k}").write_text(pem)
        keys.append(load_public_key(tmp_path / f"key{k}"))
    return read_dispute(path, job.terms, trust_referees=keys)


@pytest.mark.parametrize(("bundle", "part", "sentence"), ENDINGS, ids=[e[2] for e in ENDINGS])
def test_the_first_sentence_of_an_ending(
    bundle: str, part: str, sentence: str, tmp_path: Path
) -> None:
    facts = facts_of(bundle, part, tmp_path)
    assert headline(facts) == sentence
    source = dispute_page(facts)
    page = Page(source)
    before, fold, behind = source.partition("For experts:")
    assert "script" not in page.seen and fold
    # Clauses stand behind the fold only, and what a person asks first stands before it.
    assert not re.search(r"clause \d|PROTOCOL \d|NUMERICS \d", Page(before + "</summary></details>"
                         "</main></body></html>").text)  # fmt: skip
    for heading in ("What this proves", "What it does not", "What the job trains"):
        assert heading in before
    if facts.verdict.convicted and not facts.verdict.forfeit:
        for conviction in facts.verdict.convicted:
            assert f"PROTOCOL {conviction.clause}" in behind
    headings = [int(n) for n in re.findall(r"<h(\d)", source)]
    assert headings[0] == 1 and headings.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(headings))
    for table in re.findall(r"<table.*?</table>", source, re.DOTALL):
        assert "<caption>" in table
        assert all("scope=" in th for th in re.findall(r"<th\b[^>]*>", table))


def test_the_false_number_and_its_distance(tmp_path: Path) -> None:
    facts = facts_of("attacks-exact", "lie-optimizer-state, party 0", tmp_path)
    text = Page(dispute_page(facts)).text
    said = (
        "Party A stated 0.00044308347. Computed by the judge: 0.00022154173, so it is off by "
        "+0.000221542"
    )
    assert said in text
    assert apart("1", "4") == "−3" and apart("True", "False") == ""
    assert apart("2.0 (0x40000000)", "2") == "0"


def test_a_verdict_on_a_terminal_has_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = facts_of("attacks-exact", "backdoor-label-flip, party 0", tmp_path)
    assert run(["judge", str(tmp_path / "case.evidence"), "--job", str(tmp_path / "job")]) == 1
    assert f"in words    {headline(facts)}" in capsys.readouterr().out


def test_two_states_of_one_party_are_named(tmp_path: Path) -> None:
    """The page reads both fingerprints from the conviction's sentence: it must find them there."""
    facts = facts_of("attacks", "ordered/1: unreproducible-root, party 0", tmp_path)
    told = Page(dispute_page(facts)).text
    assert re.search(r"Party A signed the state with the fingerprint [0-9a-f]{16}", told)
    assert re.search(r"the operations of the step, and they end in [0-9a-f]{16}", told)


def test_where_a_run_ends_is_said_with_its_reason(tmp_path: Path) -> None:
    text = Page(dispute_page(facts_of("attacks-exact", "fewer-steps, party 0", tmp_path))).text
    assert "ends after 4 steps and the run of Party B ends after 9 steps" in text
    assert "after step 3 the loss is 2.2313225, a number, so the job goes on." in text


def test_the_picture_has_the_true_counts(tmp_path: Path) -> None:
    facts = facts_of("attacks-exact", "lie-optimizer-state, party 0", tmp_path)
    (label,) = (x for x in Page(dispute_page(facts)).labels if x.startswith("How the game"))
    nodes = len(facts.program.nodes)
    for part in ("The whole run (9 steps)", "Steps 4 to 5 (2 steps", f"of {nodes} operations",
                 f"Operation 40 (one of {nodes}", "one of 160, at place 1"):  # fmt: skip
        assert part in label


# -- colours ---------------------------------------------------------------------------------------
STYLE = (SOURCE / "report" / "page.css").read_text()
PALETTES = [
    dict(re.findall(r"--(\w+):(#[0-9a-f]+)", block))
    for block in re.findall(r":root\{([^}]*)\}", STYLE)
]


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(c + c for c in colour[1:])
    parts = [int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("palette", PALETTES, ids=["light", "dark", "print"])
@pytest.mark.parametrize("ink", ["ink", "soft", "a", "b", "good", "bad"])
@pytest.mark.parametrize("ground", ["paper", "card", "tint"])
def test_text_has_contrast(palette: dict[str, str], ink: str, ground: str) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1."""
    bright, dim = sorted((luminance(palette[ink]), luminance(palette[ground])), reverse=True)
    assert (bright + 0.05) / (dim + 0.05) >= 4.5
