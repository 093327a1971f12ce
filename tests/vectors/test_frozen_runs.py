"""Runs that an earlier version left: read, repeated and answered for as it did (vectors/runs)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from frozen_runs import CONTRACTS, FOLLOWER, KEY, ROOT, answers, said

from tallystick.protocol import queries as q
from tallystick.protocol.messages import open_answer

NAMES = (*CONTRACTS, FOLLOWER)


def test_all_are_there() -> None:
    assert {path.name for path in ROOT.iterdir()} == set(NAMES)


# Members that a later version added to what `inspect --json` says. No other one is new.
ADDED = {
    "audit": {"confidence", "sampled", "secret", "segments"},
    "audit of a segment": {"confidence", "sampled", "secret", "segments"},
    "inspect": {"loss_of", "step_seconds", "words", "workers"},
    "inspect job": {
        "continues",
        "format_version",
        "programs",
        "schedule",
        "stop_on_slot",
        "words",
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_every_reading_command_says_the_same(name: str, tmp_path: Path) -> None:
    stored = json.loads((ROOT / name / "said.json").read_text())
    found = said(ROOT / name / "run", tmp_path)
    for command, added in ADDED.items():
        now, then = (each[command]["json"] for each in (found, stored))
        assert set(now) - set(then) == added
        for member in added:
            del now[member]
    assert found == stored


@pytest.mark.parametrize("name", NAMES)
def test_a_prover_signs_the_same_answers(name: str, tmp_path: Path) -> None:
    """Ed25519 has one signature for a message, so the bytes are the same."""
    stored = json.loads((ROOT / name / "answers.json").read_text())
    assert answers(ROOT / name / "run", tmp_path) == stored


@pytest.mark.parametrize("name", NAMES)
def test_queries_and_answers_have_one_layout(name: str) -> None:
    """PROTOCOL 2.1, 2.3: what is read is written again to the same bytes."""
    kinds = set()
    for one in json.loads((ROOT / name / "answers.json").read_text()):
        query = q.decode_query(bytes.fromhex(one["query"]))
        assert q.encode_query(query).hex() == one["query"]
        answer = open_answer(bytes.fromhex(one["answer"]), KEY.public)
        assert answer.query.hex() == one["query"]
        assert query.layout.encode(query.layout.decode(answer.body)) == answer.body
        kinds.add(query.KIND)
    with_logs = {13, 15} if "published" in name or "bounded" in name else set()
    assert kinds >= {1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12} | with_logs
