"""`report --with-judge`, `judge PAGE`, `inspect PAGE` (PROTOCOL 8.6), from the command line."""

from __future__ import annotations

import base64
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import Run, as_json
from unit.report.carried_pages import SCRIPT, STYLE, Files, page_of, put_judge, small_cases
from unit.report.pages import Page

from tallystick import judge, judge_page
from tallystick.commit.encoding import sha256
from tallystick.commit.signing import Envelope, PrivateKey, verify_run
from tallystick.disk.keys import load_public_key, save_private_key
from tallystick.errors import TallystickError
from tallystick.job.carried import OPENING, read_page
from tallystick.job.job_file import load_terms
from tallystick.protocol.evidence import Evidence
from tallystick.report import built_judge
from tallystick.report.with_judge import differing, embedded_judge

CASES = ("convicted", "agreement", "silence", "undecided", "programs")


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Files]:
    return small_cases(tmp_path_factory.mktemp("cases"))


@pytest.fixture(autouse=True)
def a_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(built_judge, "PLACE", put_judge(tmp_path / "built"))


def written(ts: Run, files: Files, page: Path, *more: object) -> bytes:
    """The page of a case."""
    done = ts("report", files.evidence, "--job", files.job, *files.believing, "--with-judge",
              "-o", page, *more)  # fmt: skip
    assert done[0] == 0, done
    return page.read_bytes()


def signer(files: Files, party: int = 0) -> str:
    """A party's public key in hexadecimal."""
    commitment = Evidence.from_bytes(files.evidence.read_bytes()).commitments[party]
    return verify_run(Envelope.from_bytes(commitment))[0].signer.raw.hex()


def less(found: dict[str, Any]) -> dict[str, Any]:
    """A verdict as `judge --json` says it of the evidence itself."""
    return {k: v for k, v in found.items() if k not in ("page", "names", "evidence")}


@pytest.mark.parametrize("name", CASES)
def test_a_page_is_judged_as_its_evidence_is(
    ts: Run, cases: dict[str, Files], tmp_path: Path, name: str
) -> None:
    files, page = cases[name], tmp_path / "p.html"
    data = written(ts, files, page)
    code = files.case.code
    plain = as_json(
        ts("judge", files.evidence, "--job", files.job, *files.believing, "--json"), code
    )
    alone = as_json(ts("judge", page, *files.believing, "--json"), code)
    own = as_json(ts("judge", page, "--job", files.job, *files.believing, "--json"), code)
    assert less(alone) == less(own) == less(plain)
    digest = load_terms(files.job).digest.hex()
    listed = {"listed": True, "version": "9.9", "script": sha256(SCRIPT).hex(),
              "style": sha256(STYLE).hex()}  # fmt: skip
    for found, job in ((alone, "page"), (own, "yours")):
        assert found["page"] == {
            "job": job, "job_digest": digest, "carried_job_digest": digest, "judge": listed,
            "differs": [],
        }  # fmt: skip
    code, text, noise = ts("judge", page, *files.believing)
    assert f"came with the page: {digest}" in text and noise == "" and code == files.case.code
    assert "byte for byte what this version writes" in text
    text = ts("judge", page, "--job", files.job, *files.believing)[1]
    assert f"your own copy, {digest}" in text and "came with" not in text
    # The page does not depend on its name, nor on who looks.
    assert written(ts, files, tmp_path / "other.html") == data
    assert data.count(OPENING) == 1 and read_page(data).evidence == files.case.evidence


def test_a_silence_needs_its_referee_in_a_page_too(
    ts: Run, cases: dict[str, Files], tmp_path: Path
) -> None:
    written(ts, cases["silence"], tmp_path / "p.html")
    refused = as_json(ts("judge", tmp_path / "p.html", "--json"), 2)
    assert refused["kind"] == "CannotCheckError" and "--trust-referee" in refused["next_action"]


def test_the_page_runs_one_script_and_loads_nothing(
    ts: Run, cases: dict[str, Files], tmp_path: Path
) -> None:
    text = written(ts, cases["convicted"], tmp_path / "p.html").decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    styles = re.findall(r"<style[^>]*>(.*?)</style>", text, re.DOTALL)
    hashes = [base64.b64encode(sha256(s.encode())).decode() for s in (SCRIPT.decode(), *styles)]
    assert len(styles) == 2 and styles[1] == STYLE.decode()
    assert policy[1] == (
        "default-src 'none'; form-action 'none'; base-uri 'none'; "
        f"script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}' 'sha256-{hashes[2]}'"
    )
    assert re.findall(r"<script ([^>]*)>", text) == [
        'type="application/vnd.tallystick.carried+json" id="tallystick-carried"',
        'id="tallystick-judge-script"',
    ]
    assert f'<script id="tallystick-judge-script">{SCRIPT.decode()}</script>' in text
    assert text.count('id="tallystick-judge"') == 1 and " style=" not in text
    for words in ("your own copy of the judge", "came with the page", "tallystick judge FILE"):
        assert words in text


def test_without_the_option_a_page_has_no_script(
    ts: Run, cases: dict[str, Files], tmp_path: Path
) -> None:
    files, page = cases["convicted"], tmp_path / "p.html"
    assert ts("report", files.evidence, "--job", files.job, "-o", page)[0] == 0
    Page(page.read_text())  # which takes no script
    refused = as_json(ts("judge", page, "--json"), 2)
    assert refused["error"] == "This page is refused: it carries no evidence."


def test_names_say_who_gave_them(ts: Run, cases: dict[str, Files], tmp_path: Path) -> None:
    files, page = cases["convicted"], tmp_path / "p.html"
    a, b = signer(files), signer(files, 1)
    text = written(ts, files, page, "--name", f"{a}=Ann & Söhne", "--name", f"{b}=Bo").decode()
    assert "Nobody has checked them" in text and "“Ann &amp; Söhne”" in text
    ids = [sha256(bytes.fromhex(key)).hex() for key in (a, b)]
    code, said, _ = ts("judge", page, "--name", f"{ids[1]}=My Bo")
    assert code == files.case.code
    assert "A: Ann & Söhne (by the page's maker; nobody has checked it)" in said
    assert "B: My Bo (by your --name)" in said
    found = as_json(ts("judge", page, "--name", f"{b}=My Bo", "--json"), code)
    assert found["names"] == [
        {"key_id": ids[0], "name": "Ann & Söhne", "given_by": "page"},
        {"key_id": ids[1], "name": "My Bo", "given_by": "you"},
        {"key_id": ids[1], "name": "Bo", "given_by": "page"},
    ]
    assert found["page"]["differs"] == []
    plain = ts("judge", files.evidence, "--job", files.job, "--name", f"{a}=Ann")[1]
    assert "A: Ann (by your --name)" in plain


def test_names_that_name_nobody(ts: Run, cases: dict[str, Files], tmp_path: Path) -> None:
    files, page = cases["convicted"], tmp_path / "p.html"
    report = ("report", files.evidence, "--job", files.job, "-o", page, "--with-judge", "--name")
    key = tmp_path / "stranger"
    save_private_key(PrivateKey.generate(), key)
    for name, why in (
        (f"{key}=Eve", "No party in this evidence has the key"),
        (f"{signer(files)}=<b>", "This page is refused"),
        (f"{signer(files)}=" + "x" * 1025, "too long a name"),
        ("Eve", "is not KEY=NAME"),
    ):
        refused = as_json(ts(*report, name, "--json"), 3)
        assert why in refused["error"], refused
    assert ts(*report[:-2], "--name", f"{signer(files)}=A")[0] == 3  # without --with-judge
    assert not page.exists()
    assert load_public_key(key).key_id  # a file, not digits


def test_what_a_page_with_the_judge_does_not_hold(
    ts: Run, cases: dict[str, Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, page = cases["convicted"], tmp_path / "p.html"
    report = ("report", files.evidence, "--job", files.job, "-o", page, "--with-judge")
    key = tmp_path / "key"
    save_private_key(PrivateKey.generate(), key)
    assert ts(*report, "--trust", key)[0] == 3
    assert ts(*report, "--run", tmp_path)[0] == 3
    monkeypatch.setattr(built_judge, "PLACE", tmp_path)
    refused = as_json(ts(*report, "--json"), 2)
    assert "no judge for browsers" in refused["error"] and not page.exists()


def test_refused_evidence_gets_a_page_without_a_script(
    ts: Run, cases: dict[str, Files], tmp_path: Path
) -> None:
    files, page, bad = cases["convicted"], tmp_path / "p.html", tmp_path / "bad"
    bad.write_bytes(files.case.evidence[:-1] + b"?")
    code, said, _ = ts("report", bad, "--job", files.job, "--with-judge", "-o", page)
    assert code == 2 and "the page says why" in said
    assert "does not check out" in Page(page.read_text()).text


def test_judging_evidence_loads_nothing_that_runs_a_job() -> None:
    """A judge stands apart from what answers for a run, and from the comparison of pages."""
    rooms = ("api", "job.words", "prover", "report.with_judge", "run.execute", "service", "trainer")
    code = "import sys, tallystick.cli.judge\n"
    code += f"bad = ('torch', *(f'tallystick.{{room}}' for room in {rooms}))\n"
    code += "sys.exit(', '.join(m for m in sys.modules if m.startswith(bad)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_evidence_without_a_job_is_not_judged(ts: Run, cases: dict[str, Files]) -> None:
    refused = as_json(ts("judge", cases["convicted"].evidence, "--json"), 3)
    assert "--job" in refused["next_action"]


def test_a_statement_is_about_a_job_of_ones_own(
    ts: Run, cases: dict[str, Files], tmp_path: Path
) -> None:
    files, page, out = cases["convicted"], tmp_path / "p.html", tmp_path / "statement"
    written(ts, files, page)
    save_private_key(PrivateKey.generate(), tmp_path / "key")
    words = ("--statement", out, "--key", tmp_path / "key")
    assert ts("judge", page, *words)[0] == 3 and not out.exists()
    assert ts("judge", page, "--job", files.job, *words)[0] == 1
    accepted = files.case.found["accepted"] is not None
    assert out.exists() == accepted


def test_a_job_of_ones_own_decides(ts: Run, cases: dict[str, Files], tmp_path: Path) -> None:
    """Another job than the evidence's is refused, and what came with the page changes nothing."""
    files, page = cases["convicted"], tmp_path / "p.html"
    data = written(ts, files, page)
    refused = as_json(ts("judge", page, "--job", cases["programs"].job, "--json"), 2)
    assert "it is about another job" in refused["error"]
    shutil.copytree(cases["programs"].job, tmp_path / "swapped")
    carried = read_page(data)
    theirs = {f.name: f.read_bytes() for f in cases["programs"].job.iterdir()}
    other = type(carried)(carried.evidence, theirs, carried.names)
    page.write_bytes(data.replace(carried.text(), other.text()))
    assert ts("judge", page)[0] == 2
    found = as_json(ts("judge", page, "--job", files.job, "--json"), files.case.code)
    assert found["page"]["carried_job_digest"] == load_terms(cases["programs"].job).digest.hex()
    assert "is not yours" in ts("judge", page, "--job", files.job)[2]


@pytest.mark.parametrize(
    ("old", "new", "differs", "listed"),
    [
        (SCRIPT, b'alert("agreed")', ["script", "text"], False),
        (STYLE, STYLE + b" ", ["style", "text"], False),
        (b"color-scheme:light dark", b"color-scheme:dark light", ["style", "text"], True),
        (b"is convicted", b"is accepted ", ["text"], True),
        (b"default-src 'none'", b"default-src *", ["text"], True),
        (b"</body>", b'<script>alert("agreed")</script></body>', ["text"], True),
        (b"<main>", b"<main>" + STYLE.join((b'<style id="tallystick-judge-style">', b"</style>")),
         ["style", "text"], False),
    ],
)  # fmt: skip
def test_what_differs_is_named(
    ts: Run, cases: dict[str, Files], tmp_path: Path, old: bytes, new: bytes, differs: list[str],
    listed: bool,
) -> None:  # fmt: skip
    files, page = cases["convicted"], tmp_path / "p.html"
    data = written(ts, files, page)
    assert old in data
    page.write_bytes(data.replace(old, new))
    code, _, noise = ts("judge", page)
    found = as_json(ts("judge", page, "--json"), files.case.code)
    assert code == files.case.code
    assert (found["page"]["differs"], found["page"]["judge"]["listed"]) == (differs, listed)
    assert f"What differs: {', '.join(differs)}." in noise
    assert ("does not list the judge in this page" in noise) == (not listed)


def test_a_judge_of_another_version_is_no_change_of_the_text(
    ts: Run, cases: dict[str, Files], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its policy differs too, as its script and style ask for."""
    files, page = cases["convicted"], tmp_path / "p.html"
    written(ts, files, page)
    later = put_judge(tmp_path / "later")
    (later / "judge.html").write_bytes(page_of(b"later()", STYLE))
    monkeypatch.setattr(built_judge, "PLACE", later)
    found = as_json(ts("judge", page, "--json"), files.case.code)
    assert found["page"]["differs"] == ["script"] and found["page"]["judge"]["version"] == "9.9"


def test_inspect_says_what_a_page_carries(ts: Run, cases: dict[str, Files], tmp_path: Path) -> None:
    files, page = cases["programs"], tmp_path / "p.html"
    data = written(ts, files, page, "--name", f"{signer(files)}=Ann")
    found = as_json(ts("inspect", page, "--json"))
    digest = load_terms(files.job).digest.hex()
    assert found["kind"] == "page" and found["page_bytes"] == len(data)
    assert found["job_digest"] == found["evidence_job_digest"] == digest
    assert found["evidence_digest"] == sha256(files.case.evidence).hex()
    assert found["job_files"] == {f.name: f.stat().st_size for f in files.job.iterdir()}
    assert [(n["public_key"], n["name"]) for n in found["names"]] == [(signer(files), "Ann")]
    assert found["judge"]["listed"] is True
    said = ts("inspect", page)[1]
    assert digest in said and "Ann" in said
    (tmp_path / "plain.html").write_text("<!DOCTYPE html>\n<p>Nothing.</p>\n")
    assert (
        as_json(ts("inspect", tmp_path / "plain.html", "--json"), 2)["kind"] == "CorruptFileError"
    )


def test_a_thousand_changed_bytes_make_no_other_verdict(
    ts: Run, cases: dict[str, Files], tmp_path: Path
) -> None:
    """An error of the tree, or the verdict over the same evidence under the same job."""
    files = cases["convicted"]
    data = written(ts, files, tmp_path / "p.html", "--name", f"{signer(files)}=Ann")
    terms, draw = load_terms(files.job), random.Random(8086)
    right, ends = judge(files.evidence, terms), {"refused": 0, "same": 0}
    begin = data.index(OPENING)
    for number in range(1000):
        # Half of them in the element and its tags, the others anywhere.
        at = draw.randrange(begin, len(data)) if number % 2 else draw.randrange(len(data))
        changed = data[:at] + bytes([data[at] ^ draw.randrange(1, 256)]) + data[at + 1 :]
        try:
            found = judge_page(changed)
        except TallystickError:
            ends["refused"] += 1
            continue
        ends["same"] += 1
        assert found.judgement == right and found.terms.digest == terms.digest
        assert found.carried.evidence == files.case.evidence
        if number % 20 == 0:
            embedded_judge(changed)
            assert differing(changed, found.carried, found.terms, found.judgement)
    assert min(ends.values()) > 100, ends
