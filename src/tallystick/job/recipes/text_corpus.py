"""Text that every Python installation has: the standard library's documentation strings.

They differ between Python versions. The job fixes the bytes by digest, so that the version matters
only to the person who makes the job.
"""

from __future__ import annotations

import ast
import sysconfig
from pathlib import Path

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.data.sources.text import refuse_json
from tallystick.disk.regular import read_file
from tallystick.errors import CannotCheckError, UsageError

TEXT_LIMIT = 1 << 30
DEFAULT_BYTES = 1_000_000


def stdlib_docstrings(limit: int = DEFAULT_BYTES) -> str:
    """Module, class and function docstrings of the standard library, in file-name order.

    The text has about `limit` characters at most. The function imports no module: it only parses
    sources.
    """
    root = Path(sysconfig.get_paths()["stdlib"])
    parts: list[str] = []
    size = 0
    sources = sorted(root.glob("*.py")) + sorted(root.glob("[a-z]*/*.py"))  # our own Python's
    for path in sources:
        if "test" in path.parts[-2] or "site-packages" in path.parts or size > limit:
            continue
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                text = ast.get_docstring(node)
                if text and len(text) > 40:
                    parts.append(text)
                    size += len(text) + 2
    if size < 10_000:
        raise CannotCheckError(
            f"The standard library at {root} contains no documentation strings.",
            "Pass a text with --text FILE.",
        )
    return "\n\n".join(parts)


def read_text(path: Path) -> bytes:
    """The bytes of a text file of any encoding. Raises StorageError, CorruptFileError, and
    UsageError for an empty file and for one that is JSON by its name."""
    refuse_json(path, "name a copy of it .txt")
    data = read_file(path, TEXT_LIMIT, "text")
    if not data:
        raise UsageError(f"{path} is empty.", "Use a text that is not empty.")
    return data


def cut(tokens: Array, width: int, stride: int) -> Array:
    """Windows of `width` tokens, (N, width), whose first tokens are `stride` apart: 1 to `width`.

    A rest that does not fill a window is left out. Raises UsageError for a text that is too short.
    """
    count = (len(tokens) - width) // stride + 1
    if count < 1:
        raise UsageError(
            f"The text has {len(tokens)} tokens, too few for a window of {width}.",
            "Use a longer text or a smaller block_size.",
        )
    starts = np.arange(count)[:, None] * stride
    windows: Array = tokens[starts + np.arange(width)[None, :]]
    return windows
