"""Program texts and manifests that are read, and many that are refused (PROGRAM 2, 3;
COMMITMENTS 1, 7, 11)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_program_vectors as maker

from tallystick.errors import TallystickError
from tallystick.job.job import MANIFEST, PROGRAM
from tallystick.job.job_file import load_terms
from tallystick.program.expand import expand
from tallystick.program.text import parse_text, program_digest, to_text

INDEX = json.loads((maker.ROOT / "index.json").read_text())
Case = dict[str, Any]


def bytes_of(case: Case) -> bytes:
    if "parts" in case:
        return "".join(piece * count for piece, count in case["parts"]).encode()
    if "base64" in case:
        return base64.b64decode(case["base64"], validate=True)
    return str(case["text"]).encode()


def wrong(cases: list[Case], read: Callable[[Case], bytes]) -> list[str]:
    """What each case of `cases` that does not come out as stored came out as."""
    found = []
    for case in cases:
        try:
            got = read(case).hex()
        except TallystickError:
            got = "refused"
        except Exception as error:  # any other class is the finding
            got = repr(error)[:200]
        if got != ("refused" if case.get("refused") else case["digest"]):
            found.append(f"{case['name']} ({case['clause']}): {got}")
    return found


def test_programs() -> None:
    """PROGRAM 2, 3, 4.1."""
    assert not wrong(INDEX["programs"], lambda case: program_digest(parse_text(bytes_of(case))))


def test_jobs(tmp_path: Path) -> None:
    """COMMITMENTS 1.11, 7.1 to 7.4."""
    good = INDEX["programs"][0]["text"]

    def read(case: Case) -> bytes:
        (tmp_path / MANIFEST).write_bytes(bytes_of(case))
        (tmp_path / PROGRAM).write_bytes(case.get("program", good).encode())
        return load_terms(tmp_path).digest

    assert not wrong(INDEX["jobs"], read)


def test_jobs_of_format_2(tmp_path: Path) -> None:
    """COMMITMENTS 7.6."""

    def read(case: Case) -> bytes:
        programs = re.search(r'"programs":(\[.*?\]),"rng_seed"', case["text"])
        found = json.loads(programs[1]) if programs else []
        for path in tmp_path.iterdir():
            path.unlink()
        (tmp_path / MANIFEST).write_bytes(case["text"].encode())
        for entry, text in zip(found, case["programs"], strict=False):
            if re.fullmatch("[a-z0-9-]{1,40}", str(entry["name"])):
                (tmp_path / f"program-{entry['name']}.txt").write_text(text)
        return load_terms(tmp_path).digest

    assert len(INDEX["jobs_2"]) > 80
    assert not wrong(INDEX["jobs_2"], read)
    assert len(INDEX["jobs_3"]) > 60
    assert not wrong(INDEX["jobs_3"], read)


def test_a_case_that_comes_out_otherwise_is_seen() -> None:
    first, refused = INDEX["programs"][0], {**INDEX["programs"][0], "refused": True}
    altered = {**first, "digest": "00" * 32}

    def broken(case: Case) -> bytes:
        raise KeyError(case["name"])

    def right(case: Case) -> bytes:
        return program_digest(parse_text(bytes_of(case)))

    assert not wrong([first], right)
    assert len(wrong([altered], right)) == len(wrong([refused], right)) == 1
    assert len(wrong([{"name": "", "clause": "", "refused": True}], broken)) == 1


def test_stored_vectors_are_the_makers() -> None:
    assert (maker.ROOT / "index.json").read_text() == maker.build()


def test_expansions() -> None:
    """PROGRAM 6.7: every node, in order, as the plain reference writes it."""

    def read(case: Case) -> bytes:
        flat = expand(parse_text(str(case["text"]).encode()), case["micro_batches"])
        assert len(flat.nodes) == case["nodes"]
        return hashlib.sha256(to_text(flat).encode()).digest()

    named = [{**case, "digest": case.get("expansion")} for case in INDEX["expansions"]]
    assert len(named) > 10 and not wrong(named, read)
