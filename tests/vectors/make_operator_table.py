"""Writes vectors/operators.json, the table of operators (see operators.md beside it).

`python tests/vectors/make_operator_table.py` rewrites the file, byte for byte the same.
"""

from __future__ import annotations

import json
from pathlib import Path

from operator_entries import operator_entry

from tallystick.numerics.registry import all_ops

FORMAT = "tallystick-operators/1"
PATH = Path(__file__).resolve().parents[2] / "vectors" / "operators.json"


def text() -> str:
    """The file: one operator a line."""
    rows = [
        json.dumps(operator_entry(spec), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        for _, spec in sorted(all_ops().items())
    ]
    return f'{{"format":"{FORMAT}","operators":[\n' + ",\n".join(rows) + "\n]}\n"


if __name__ == "__main__":
    PATH.write_text(text())
