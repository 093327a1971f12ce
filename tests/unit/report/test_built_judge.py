"""The judge that lies in the package is one that it lists, and one that a page can hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.report.carried_pages import SCRIPT, STYLE, page_of, put_judge

from tallystick.cli.main import run
from tallystick.commit.encoding import sha256
from tallystick.errors import CannotCheckError
from tallystick.report import built_judge
from tallystick.report.built_judge import PLACE, BuiltJudge, version_of
from tallystick.report.built_judge import built_judge as found_judge


def stale(place: Path) -> str | None:
    """Why the files at `place` do not belong together; None where they do."""
    builds = json.loads((place / "builds.json").read_text())
    if not (place / "judge.html").exists():
        return "builds are listed, and none is there"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(built_judge, "PLACE", place)
        judge = found_judge()
    if not builds or version_of(judge.script, judge.style) != builds[-1]["version"]:
        return "the checked-in judge is not the last one that builds.json lists"
    return None


def test_the_checked_in_judge_is_listed() -> None:
    assert stale(PLACE) is None
    for build in json.loads((PLACE / "builds.json").read_text()):
        assert set(build) == {"version", "script", "style"}
        assert all(len(bytes.fromhex(build[part])) == 32 for part in ("script", "style"))


def test_the_check_sees_stale_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = put_judge(tmp_path / "judge")
    monkeypatch.setattr(built_judge, "PLACE", place)
    assert stale(place) is None and found_judge() == BuiltJudge(SCRIPT, STYLE)
    (place / "judge.html").write_bytes(page_of(SCRIPT + b";", STYLE))
    assert "not the last one" in str(stale(place))
    (place / "judge.html").write_bytes(SCRIPT)
    with pytest.raises(CannotCheckError, match="not a page that a report can take it from"):
        found_judge()
    (place / "judge.html").unlink()
    assert "none is there" in str(stale(place))
    with pytest.raises(CannotCheckError, match="no judge for browsers"):
        found_judge()


@pytest.mark.parametrize(
    "bad",
    [b"</SCRIPT >", b"<!--", b"a\r\n",
     b'<script type="application/vnd.tallystick.carried+json" id="tallystick-carried">'],
)  # fmt: skip
def test_a_judge_that_no_page_can_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: bytes
) -> None:
    place = put_judge(tmp_path / "judge")
    monkeypatch.setattr(built_judge, "PLACE", place)
    (place / "judge.html").write_bytes(page_of(SCRIPT + bad, STYLE))
    with pytest.raises(CannotCheckError, match="would end its element"):
        found_judge()


def test_judge_page_writes_the_packages_page_and_replaces_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, page = tmp_path / "judge.html", (PLACE / "judge.html").read_bytes()
    out.write_text("an old one")
    assert run(["judge-page", "-o", str(out)]) == 0
    assert out.read_bytes() == page and sha256(page).hex() in capsys.readouterr().out
    assert run(["judge-page", "-o", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == {"page": str(out), "bytes": len(page), "sha256": sha256(page).hex()}
    for place in (tmp_path, tmp_path / "missing" / "judge.html"):
        assert run(["judge-page", "-o", str(place)]) == 3
        assert "cannot be written" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == [out]
