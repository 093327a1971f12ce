"""The judge that lies in the package is one that it lists, and one that a page can hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from unit.report.carried_pages import SCRIPT, STYLE, put_judge

from tallystick.errors import CannotCheckError
from tallystick.report import built_judge
from tallystick.report.built_judge import PLACE, BuiltJudge, version_of
from tallystick.report.built_judge import built_judge as found_judge


def stale(place: Path) -> str | None:
    """Why the files at `place` do not belong together; None where they do."""
    builds = json.loads((place / "builds.json").read_text())
    there = [(place / name).exists() for name in ("judge.js", "judge.css")]
    if not any(there):
        return "builds are listed, and none is there" if builds else None
    if not all(there):
        return "one of the two files is missing"
    judge = BuiltJudge((place / "judge.js").read_bytes(), (place / "judge.css").read_bytes())
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
    (place / "judge.js").write_bytes(SCRIPT + b";")
    assert "not the last one" in str(stale(place))
    (place / "judge.js").unlink()
    assert "missing" in str(stale(place))
    (place / "judge.css").unlink()
    assert "none is there" in str(stale(place))
    with pytest.raises(CannotCheckError, match="no judge for browsers"):
        found_judge()


@pytest.mark.parametrize(
    "bad",
    [b"</SCRIPT>", b"<!--", b"a\r\n",
     b'<script type="application/vnd.tallystick.carried+json" id="tallystick-carried">'],
)  # fmt: skip
def test_a_judge_that_no_page_can_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bad: bytes
) -> None:
    place = put_judge(tmp_path / "judge")
    monkeypatch.setattr(built_judge, "PLACE", place)
    (place / "judge.js").write_bytes(SCRIPT + bad)
    with pytest.raises(CannotCheckError, match="would end its element"):
        found_judge()
