"""Writes vectors/program/index.json (see its README.md) from texts written by hand.

    PYTHONPATH=tests:tests/vectors python tests/vectors/make_program_vectors.py

Nothing of tallystick is imported: digests are made by the plain reference of COMMITMENTS.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import attention_texts as attention
import micro_texts as micro
import program_texts as texts
import stored_texts as stored_types
from job_2_texts import job_2_cases
from job_3_texts import job_3_cases
from job_texts import job_cases
from reference.expansion import expanded

FORMAT = "tallystick-program-vectors/1"
ROOT = Path(__file__).resolve().parents[2] / "vectors" / "program"
Case = dict[str, Any]


def changed(text: str, old: str, new: str) -> str:
    """`text` with its only `old` replaced."""
    assert text.count(old) == 1, (old, text.count(old))
    return text.replace(old, new)


def program_digest(text: bytes) -> str:
    """PROGRAM 4.1."""
    version = b"2" if text.startswith(b"tallystick program 2\n") else b"1"
    return hashlib.sha256(b"tallystick/program/" + version + b"\0" + text).hexdigest()


def stored(data: bytes) -> Case:
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def said(data: bytes, good: bool) -> Case:
    return {"digest": program_digest(data)} if good else {"refused": True}


def program_cases() -> list[Case]:
    def case(name: str, clause: str, data: bytes, good: bool) -> Case:
        return {"name": name, "clause": clause, **stored(data), **said(data, good)}

    good, small = texts.GOOD, texts.SMALL
    cases = [
        case("a training step", "1", good.encode(), True),
        case("an evaluation", "1", small.encode(), True),
    ]
    for base, changes, right in (
        (good, texts.GOOD_CHANGES, True),
        (small, texts.GOOD_SMALL, True),
        (good, texts.MALFORMED, False),
        (small, texts.MALFORMED_SMALL, False),
    ):
        for name, clause, old, new in changes:
            cases.append(case(name, clause, changed(base, old, new).encode(), right))
    cases += [case(name, clause, data, False) for name, clause, data in texts.WHOLE]
    for name, clause, right, parts in texts.AT_LIMIT:
        whole = "".join(piece * count for piece, count in parts).encode()
        held = {"parts": [list(part) for part in parts]}
        cases.append({"name": name, "clause": clause, **held, **said(whole, right)})
    cases.append(case("text 2: a step over micro-batches", "6", micro.MICRO.encode(), True))
    for changes, right in ((micro.GOOD, True), (micro.MALFORMED, False)):
        for name, clause, old, new in changes:
            cases.append(case(name, clause, changed(micro.MICRO, old, new).encode(), right))
    cases.append(case("attention", "NUMERICS 18", attention.GOOD.encode(), True))
    for changes, right in ((attention.ALSO, True), (attention.MALFORMED, False)):
        for name, clause, old, new in changes:
            cases.append(case(name, clause, changed(attention.GOOD, old, new).encode(), right))
    cases.append(case("weights of bf16 and f16", "3.6", stored_types.GOOD.encode(), True))
    for changes, right in ((stored_types.ALSO, True), (stored_types.MALFORMED, False)):
        for name, clause, old, new in changes:
            cases.append(case(name, clause, changed(stored_types.GOOD, old, new).encode(), right))
    return cases


def expansion_cases() -> list[Case]:
    """PROGRAM 6.7: the flat text of each, by the plain reference."""
    cases = []
    for listed, right in ((micro.EXPANDED, True), (micro.REFUSED, False)):
        for name, changes, parts in listed:
            text = micro.MICRO
            for old, new in changes:
                text = changed(text, old, new)
            case: Case = {"name": name, "clause": "6.7", "text": text, "micro_batches": parts}
            if right:
                flat = expanded(text, parts)
                case["nodes"] = flat.count("\n%")
                case["expansion"] = hashlib.sha256(flat.encode()).hexdigest()
            cases.append(case if right else case | {"refused": True})
    return cases


def build() -> str:
    lists = {
        "programs": program_cases(),
        "jobs": job_cases(texts.GOOD),
        "jobs_2": job_2_cases(),
        "jobs_3": job_3_cases(),
        "expansions": expansion_cases(),
    }
    lines = []
    for name, cases in lists.items():
        assert len({c["name"] for c in cases}) == len(cases)
        inside = ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        lines.append(f'"{name}":[\n{inside}\n]')
    return f'{{"format":"{FORMAT}",' + ",".join(lines) + "}\n"


if __name__ == "__main__":
    ROOT.mkdir(parents=True, exist_ok=True)
    (ROOT / "index.json").write_text(build())
