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
from tallystick.report.answer_meanings import MEANINGS_OF_ANSWERS, MEANINGS_OF_ENCODINGS
from tallystick.report.clauses import clause_text
from tallystick.report.dispute_page import dispute_page, headline
from tallystick.report.facts import DisputeFacts, read_dispute
from tallystick.report.falsehood import apart, record_of, setting_of
from tallystick.report.first import AGREE, BY_WORD, UNDECIDED, first_sentence, meaning
from tallystick.report.html import FINGERPRINT, nth
from tallystick.report.meanings import MEANINGS, OUTSIDE, Kind, meaning_of
from tallystick.report.proved import LEAVES_OPEN, PROVES

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
    # A silence is a referee's word from the first word on.
    who = BY_WORD if clause == "2.10" else ""
    assert said.startswith(f"{who}Party B ") and said.endswith(".") and not INSIDERS.search(said)
    found = meaning_of(clause, case)
    assert ("step 20" in said) == (found.kind is not Kind.WHOLE)
    assert found.means.endswith(".") and not INSIDERS.search(found.means)
    assert (found.kind is Kind.SILENCE) == (clause == "2.10")


# Where the part for experts begins.
FOLD = "For experts: every signed statement"
# bundle, part of the case's name, who did something, and where
ENDINGS = [
    ("attacks-exact", "backdoor-label-flip, party 0", "Party A", ", in step 0."),
    ("attacks-exact", "wrong-learning-rate, party 1", "Party B", ", in step 4."),
    ("attacks-exact", "lie-optimizer-state, party 0", "Party A", ", in step 4."),
    ("attacks-exact", "lie-genesis, party 0", "Party A", "."),
    ("attacks-exact", "fewer-steps, party 0", "Party A", ", after step 3."),
    ("attacks-exact", "lie-node-count, party 0", "Party A", ", in step 4."),
    ("attacks-exact", "padded-steps, party 0", "Party A", ", in step 4."),
    ("attacks-exact", "refuses, party 0", "Party A", ", when asked about step 4."),
    ("attacks-exact", "silent, party 0", f"{BY_WORD}Party A", " when asked about step 4."),
    ("attacks", "extra-entry, party 0", "Party A", ", in step 4."),
    ("clauses", "two answers to one query", "Party B", "."),
    ("clauses", "another state goes in, party 0", "Party A", ", in step 6."),
    ("clauses", "both have another structure", "Party A and Party B both", ", in step 6; no run "
     "is accepted."),
    ("clauses", "agreement", AGREE, ""),
    ("logs", "bounded: an entry that says nothing, party 0", UNDECIDED, ""),
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


@pytest.mark.parametrize(("bundle", "part", "who", "where"), ENDINGS, ids=[e[1] for e in ENDINGS])
def test_the_first_sentence_of_an_ending(
    bundle: str, part: str, who: str, where: str, tmp_path: Path
) -> None:
    facts = facts_of(bundle, part, tmp_path)
    did = {meaning(facts.verdict, c).did for c in facts.verdict.convicted}
    assert len(did) <= 1 and headline(facts) == " ".join((who, *did)) + where
    source = dispute_page(facts)
    page = Page(source)
    before, fold, behind = source.partition(FOLD)
    assert "script" not in page.seen and fold
    # Clauses stand behind the fold only, and what a person asks first stands before it.
    assert not re.search(r"clause \d|PROTOCOL \d|NUMERICS \d", Page(before + "</summary></details>"
                         "</main></body></html>").text)  # fmt: skip
    for heading in (PROVES, LEAVES_OPEN, "What the job trains"):
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
    for said in ("0.00044308347", "0.00022154173", "higher by 0.000221542"):
        assert said in text
    assert apart("1", "4") == "lower by 3" and apart("True", "False") == ""
    assert apart("2.0 (0x40000000)", "2") == ""
    assert apart("1.0000001", "0") == "higher by 1" and apart("0", "20") == "lower by 20"
    assert apart("-0.9", "-0.6") == "lower by 0.3"


def test_a_false_value_of_the_data_has_its_field_and_record(tmp_path: Path) -> None:
    facts = facts_of("attacks", "ordered/1: data-poisoning, party 1", tmp_path)
    (conviction,) = facts.verdict.convicted
    record = re.search(r"\(record (\d+), field (\w+)\)", conviction.sentence)
    assert record is not None and record_of(facts) == (record[2], int(record[1]))
    text = Page(dispute_page(facts)).text
    assert f"the field “{record[2]}” of record {record[1]}" in text


def test_a_false_setting_stands_beside_the_job_s_own(tmp_path: Path) -> None:
    facts = facts_of("attacks", "ordered/1: wrong-learning-rate, party 0", tmp_path)
    setting = facts.terms.scalar("lr", facts.verdict.place.step or 0)
    assert setting_of(facts) == setting
    source = dispute_page(facts).partition(FOLD)[0]
    text = Page(source + "</summary></details></main></body></html>").text
    assert f"The job says{setting!r} (fingerprint {facts.verdict.value})" in text
    assert facts.verdict.claimed[0] in text


def test_what_a_fingerprint_is_stands_before_the_first_one(tmp_path: Path) -> None:
    for part in ("wrong-learning-rate, party 0", "swapped-frozen-weight, party 0"):
        at = tmp_path / part
        at.mkdir()
        facts = facts_of("attacks", f"ordered/1: {part}", at)
        lead = dispute_page(facts).partition("</h1>")[2]
        assert lead.count(FINGERPRINT) > 0
        assert not re.search(r"[0-9a-f]{16}", lead.partition(FINGERPRINT)[0])


def test_the_judge_in_a_page_says_the_same_deeds() -> None:
    """It compares its verdict with the page's first sentence."""
    acts = (ROOT / "judge" / "src" / "face" / "acts.ts").read_text("utf-8")
    for pair, found in MEANINGS.items():
        assert f'"{found.did}"' in acts, pair
    own = (ROOT / "judge" / "src" / "face" / "answers.ts").read_text("utf-8")
    for table in (MEANINGS_OF_ANSWERS, MEANINGS_OF_ENCODINGS):
        for pair, found in table.items():
            assert f'"{found.did}"' in own, pair


@pytest.mark.parametrize(
    ("place", "said"), [(0, "first"), (4, "fifth"), (10, "11th"), (20, "21st"), (1111, "1,112th")]
)
def test_ordinals(place: int, said: str) -> None:
    assert nth(place) == said


def test_a_verdict_on_a_terminal_has_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = facts_of("attacks-exact", "backdoor-label-flip, party 0", tmp_path)
    assert run(["judge", str(tmp_path / "case.evidence"), "--job", str(tmp_path / "job")]) == 1
    assert f"in words    {headline(facts)}" in capsys.readouterr().out


def test_two_states_of_one_party_are_named(tmp_path: Path) -> None:
    """The page reads both fingerprints from the conviction's sentence: it must find them there."""
    facts = facts_of("attacks", "ordered/1: unreproducible-root, party 0", tmp_path)
    lead = dispute_page(facts).partition("</h1>")[2].partition("<section>")[0]
    (conviction,) = facts.verdict.convicted
    roots = re.findall(r"[0-9a-f]{16}", conviction.sentence)
    assert len(roots) == 2 and all(root in lead for root in roots)


def test_where_a_run_ends_is_said_with_its_reason(tmp_path: Path) -> None:
    text = Page(dispute_page(facts_of("attacks-exact", "fewer-steps, party 0", tmp_path))).text
    assert "ends after 4 steps and the run of Party B ends after 9 steps" in text
    assert "after step 3 the loss is 2.2313225, a number, so the job goes on." in text


def test_the_picture_has_the_true_counts(tmp_path: Path) -> None:
    facts = facts_of("attacks-exact", "lie-optimizer-state, party 0", tmp_path)
    (label,) = (x for x in Page(dispute_page(facts)).labels if x.startswith("How the dispute"))
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
@pytest.mark.parametrize("ink", ["ink", "soft", "a", "b", "good", "bad", "open"])
@pytest.mark.parametrize("ground", ["paper", "card", "tint"])
def test_text_has_contrast(palette: dict[str, str], ink: str, ground: str) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1."""
    bright, dim = sorted((luminance(palette[ink]), luminance(palette[ground])), reverse=True)
    assert (bright + 0.05) / (dim + 0.05) >= 4.5
