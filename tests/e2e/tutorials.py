"""Runs the pages of docs/tutorials, and writes what their blocks print into them.

python tests/e2e/tutorials.py [PAGE...]   # after a change that other output follows from
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "tutorials"
# A block of Python, and what it printed where the page shows it.
_BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
_NUMBER = re.compile(r"[0-9a-f]{16,}|\d+(?:\.\d+)?(?:e-?\d+)?")


@dataclass(frozen=True)
class Block:
    code: str
    shown: str | None


def blocks(page: str) -> list[Block]:
    """The page's Python, in order."""
    text = (PAGES / page).read_text("utf-8")
    return [Block(found[1], found[2]) for found in _BLOCK.finditer(text)]


def packages(page: str) -> list[str]:
    """What the page imports that is neither Python's, nor ours, nor torch."""
    known = {"tallystick", "torch", *sys.stdlib_module_names}
    imported: dict[str, None] = {}
    for block in blocks(page):
        for node in ast.walk(ast.parse(block.code)):
            if isinstance(node, ast.Import):
                imported |= dict.fromkeys(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                imported[str(node.module)] = None
    return [name for name in dict.fromkeys(n.split(".")[0] for n in imported) if name not in known]


def until_named(page: str) -> list[str]:
    """The page's code up to its `save_job`, or up to the statement of its model."""
    code = [block.code for block in blocks(page)]
    saves = next(i for i, text in enumerate(code) if "save_job" in text or "statement = " in text)
    return [*code[:saves], code[saves].split("run = ")[0]]


def execute(code: list[str], page: str) -> tuple[dict[str, Any], list[str]]:
    """Run the code in the current directory: its names, and what each piece printed."""
    names: dict[str, Any] = {"__name__": "tutorial"}
    printed = []
    for text in code:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(text, page, "exec"), names)
        printed.append(out.getvalue())
    return names, printed


def form(output: str) -> str:
    """Output without its numbers and digests: they are of one machine and one release of torch."""
    return _NUMBER.sub("#", output)


def rewrite(page: str) -> None:
    """Show under each block that prints what it prints now."""
    _, printed = execute([block.code for block in blocks(page)], page)
    outputs = iter(printed)

    def shown(found: re.Match[str]) -> str:
        output = next(outputs)
        block = f"```python\n{found[1]}```\n"
        return f"{block}\n```text\n{output}```\n" if output else block

    path = PAGES / page
    path.write_text(_BLOCK.sub(shown, path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    here = Path.cwd()
    for name in sys.argv[1:] or sorted(p.name for p in PAGES.glob("*.md")):
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            rewrite(Path(name).name)
            os.chdir(here)
