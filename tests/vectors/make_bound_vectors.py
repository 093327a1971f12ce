"""Writes vectors/bounds/evidence.json: how much evidence each job of vectors/protocol allows (8.5).

    PYTHONPATH=tests:tests/vectors python tests/vectors/make_bound_vectors.py [--out FILE]

The figures are the package's own; vectors/bounds/README.md says what they hold others to.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from evidence_format import bundles, load

from tallystick.job.job_file import load_terms
from tallystick.protocol.facts import Facts
from tallystick.protocol.sizes import game_bounds

FORMAT = "tallystick-bound-vectors/1"
FILE = Path(__file__).resolve().parents[2] / "vectors" / "bounds" / "evidence.json"
ARITIES = (2, 20, 256)


def bounds_of(job: Path) -> list[list[int]]:
    """Per arity the messages of a game and their bytes, at most, without the last two."""
    facts = Facts(load_terms(job))
    found = [game_bounds(facts, arity) for arity in ARITIES]
    return [[bounds.messages, bounds.size] for bounds in found]


def text() -> str:
    """The file's content, a job a line."""
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in bundles():
            bundle = load(name)
            for number in range(len(bundle.jobs)):
                job = bundle.write_job(number, Path(scratch) / f"{name}-{number}")
                one = {"bundle": name, "job": number, "bounds": bounds_of(job)}
                lines.append(json.dumps(one, separators=(",", ":")))
    head = json.dumps({"format": FORMAT, "arities": ARITIES}, separators=(",", ":"))
    return head[:-1] + ',"jobs":[\n' + ",\n".join(lines) + "\n]}\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=FILE)
    parser.parse_args().out.write_text(text(), encoding="ascii")
