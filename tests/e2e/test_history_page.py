"""docs/HISTORY.md is what benchmarks/history_page.py writes from its history.json."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tallystick.errors import UsageError
from tallystick_bench.history.entries import add_present, from_git, read_entries, write_entries
from tallystick_bench.history.kept import BENCHMARKS
from tallystick_bench.history.page import page, plots
from tallystick_bench.history.plot import draw

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
ENTRIES = read_entries(RESULTS)


def test_page_and_plots_are_written_from_the_history() -> None:
    """Else run `python benchmarks/history_page.py`."""
    assert (ROOT / "docs" / "HISTORY.md").read_text("utf-8") == page(ENTRIES)
    drawn = plots(ENTRIES)
    assert drawn
    for name, svg in drawn.items():
        assert (ROOT / "docs" / "images" / name).read_text("utf-8") == svg
        ET.fromstring(svg)


def test_every_result_of_now_is_in_the_history() -> None:
    """Else run `python benchmarks/history_page.py --add --note TEXT`."""
    assert add_present(RESULTS, ENTRIES, "") == []
    assert {entry.benchmark for entry in ENTRIES} == {benchmark.name for benchmark in BENCHMARKS}


def test_a_changed_result_is_added_once_and_shown(tmp_path: Path) -> None:
    results, docs = _copied(tmp_path)
    coverage = json.loads((results / "coverage.json").read_text("utf-8"))
    captured = next(row for row in coverage if row["status"] == "captured")
    captured["status"] = "wrong"
    (results / "coverage.json").write_text(json.dumps(coverage), "utf-8")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "commit", "-q", "--allow-empty", "-m", "measured")
    command = [sys.executable, str(ROOT / "benchmarks" / "history_page.py")]
    command += ["--add", "--note", "a slow one", "--json"]
    command += ["--results", str(results), "--docs", str(docs)]
    path = os.pathsep.join([str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")])
    said = [
        subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path}, check=True, capture_output=True
        ).stdout
        for _ in range(2)
    ]
    (added,) = json.loads(said[0])
    assert json.loads(said[1]) == []
    head = _git(tmp_path, "rev-parse", "--short=8", "HEAD").strip()
    assert (added["benchmark"], added["commit"], added["note"]) == ("coverage", head, "a slow one")
    assert added["figures"]["wrong"] == 1
    entries = read_entries(results)
    assert [entry for entry in entries if entry not in ENTRIES] == [
        entry for entry in entries if entry.note == "a slow one"
    ]
    row = f"| {added['date']} | {head} | not recorded; a slow one |"
    assert row in (docs / "HISTORY.md").read_text("utf-8")


def test_git_gives_each_committed_version_whose_figures_differ(tmp_path: Path) -> None:
    results, _ = _copied(tmp_path)
    exact = json.loads((results / "exact.json").read_text("utf-8"))
    (results / "history.json").unlink()
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "commit", "-q", "--allow-empty", "-m", "before")
    bases = []
    for error, others in ((0.5, 1), (0.5, 2), (0.25, 3)):
        bases.append(_git(tmp_path, "rev-parse", "--short=8", "HEAD").strip())
        exact["errors"]["gaussian"]["b=8"], exact["another"] = error, others
        (results / "exact.json").write_text(json.dumps(exact), "utf-8")
        _git(tmp_path, "add", str(results / "exact.json"))
        _git(tmp_path, "commit", "-q", "-m", "measured")
    found = from_git(results, [])
    assert [entry.commit for entry in found] == [bases[0], bases[2]]
    assert [entry.figures["error, b=8"] for entry in found] == [0.5, 0.25]
    assert found[0].machine == {"isa": exact["isa"], "threads": exact["threads"]}
    noted = [type(found[0])(**{**vars(found[0]), "note": "a note"})]
    assert [entry.note for entry in from_git(results, noted)] == ["a note", ""]
    write_entries(results, found)
    assert read_entries(results) == found
    shallow = tmp_path / "shallow"
    _git(tmp_path, "clone", "-q", "--depth", "1", f"file://{tmp_path}", str(shallow))
    with pytest.raises(UsageError, match="no history"):
        from_git(shallow / "results", [])


def test_a_plot_leaves_gaps_and_keeps_names_apart() -> None:
    svg = draw("t", "a & b", [("1", "x"), ("2", "y")], {"p": [0.5, 0.5], "q": [None, 0.51]}, 1.0)
    root = ET.fromstring(svg)
    space = {"s": "http://www.w3.org/2000/svg"}
    assert len(root.findall("s:circle", space)) == 3
    places = {text.text: float(text.get("y", "0")) for text in root.findall("s:text", space)}
    assert abs(places["p: 0.50"] - places["q: 0.51"]) >= 18
    assert "a & b" in {text.text for text in root.findall("s:text", space)}


def test_a_plot_of_many_times_names_as_many_as_fit() -> None:
    svg = draw("t", "a", [(f"d{n}", f"c{n}") for n in range(13)], {"p": [1.0] * 13})
    root = ET.fromstring(svg)
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text and text[0] == "d" and text[1:].isdigit()] == [
        f"d{n}" for n in (0, 3, 6, 9, 12)
    ]


def _copied(directory: Path) -> tuple[Path, Path]:
    results, docs = directory / "results", directory / "docs"
    shutil.copytree(RESULTS, results)
    (docs / "images").mkdir(parents=True)
    return results, docs


def _git(directory: Path, *command: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(directory), *who, *command], capture_output=True, text=True, check=True
    )
    return done.stdout
