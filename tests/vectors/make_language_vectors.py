"""Writes vectors/language: what each word of the table's languages means, call by call.

`python tests/vectors/make_language_vectors.py` rewrites the files, byte for byte the same;
`--check` only says which of them are stale. Nothing here imports the package or reads the table:
the expected values come from tests/reference.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

import language_dots  # noqa: E402
import language_positions  # noqa: E402
import language_quantities  # noqa: E402
import language_values  # noqa: E402

FOLDER = HERE.parents[2] / "vectors" / "language"
DOCUMENTS = {
    "values": language_values.document,
    "positions": language_positions.document,
    "quantities": lambda: {
        "groups": [*language_quantities.document()["groups"], *language_dots.dots()]
    },
}


def text(name: str) -> str:
    """A file: one group a line."""
    lists: dict[str, list[Any]] = DOCUMENTS[name]()
    members = [
        f'"{member}":[\n' + ",\n".join(_line(row) for row in rows) + "\n]"
        for member, rows in lists.items()
    ]
    return f'{{"format":"tallystick-language-{name}/1",\n' + ",\n".join(members) + "}\n"


def _line(row: Any) -> str:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False)


def stale() -> list[str]:
    """The files that are not what this script writes."""
    paths = {name: FOLDER / f"{name}.json" for name in DOCUMENTS}
    return [n for n, path in paths.items() if not path.exists() or path.read_text() != text(n)]


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(f"stale: {found}" if (found := stale()) else 0)
    FOLDER.mkdir(exist_ok=True)
    for name in DOCUMENTS:
        (FOLDER / f"{name}.json").write_text(text(name))
