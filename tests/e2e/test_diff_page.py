"""The blocks of docs/DIFF.md run as they are written, and print what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
from commands import Run

pytest.importorskip("torch", reason="torch is not installed")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "DIFF.md").read_text("utf-8")
_BLOCK = re.compile(r"^```(sh|python|text)\n(.*?)^```$", re.M | re.S)
_CODE = re.compile(r"# exit code (\d)")


def commands_of(block: str) -> list[tuple[list[str], int]]:
    """The commands of a block, each with the exit code that its comment states, else 0."""
    found = []
    for line in block.splitlines():
        code = _CODE.search(line)
        words = shlex.split(line, comments=True)
        assert words[0] == "tallystick"
        found.append((words[1:], int(code[1]) if code else 0))
    return found


def test_the_page_runs_as_it_is_written(
    ts: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    printed, shown = "", 0
    for kind, block in _BLOCK.findall(PAGE):
        if kind == "sh":
            for words, code in commands_of(block):
                found, printed, err = ts(*words)
                assert found == code, (words, printed, err)
        elif kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(block, "DIFF.md", "exec"), names)
            printed = out.getvalue()
        else:
            whole, shown = block.removesuffix("…\n"), shown + 1
            assert printed.startswith(whole) and (whole != block or printed == block), printed
    assert shown >= 2
