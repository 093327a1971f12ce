"""Both readers of sessions give the stored outcomes, and every message its stored bytes.

PROTOCOL 10 to 13; the format is in vectors/protocol/README.md.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from adversary.two_sessions import REASONS, package
from reference.judge.encoding import Reader, tag
from reference.session import log as by_the_text
from reference.session.layout import (
    read_entry,
    read_opening,
    read_rules,
    read_seal,
    write_entry,
    write_opening,
    write_rules,
    write_seal,
)
from reference.session.turns import read_turn, write_turn
from session_format import Log, Message, load

from tallystick.commit.signed import sign_compact
from tallystick.commit.signing import PrivateKey
from tallystick.delegation.entries import open_entry
from tallystick.delegation.seals import open_opening, open_seal
from tallystick.delegation.turns import open_turn
from tallystick.job.job_file import load_terms

VECTORS = load()


@pytest.mark.parametrize("log", VECTORS.logs, ids=lambda log: log.name)
def test_the_text_gives_the_outcome(log: Log) -> None:
    found = asdict(
        by_the_text.read(VECTORS.job["job.json"], VECTORS.job["program.txt"], log.entries)
    )
    del found["why"]
    assert _plain(found) == log.outcome


def _plain(value: Any) -> Any:
    """Tuples as lists, as JSON has them."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the package needs of the job."""
    path: Path = tmp_path_factory.mktemp("vectors")
    for name, data in VECTORS.job.items():
        (path / name).write_bytes(data)
    return SimpleNamespace(terms=load_terms(path))


@pytest.mark.parametrize("log", VECTORS.logs, ids=lambda log: log.name)
def test_the_package_gives_the_outcome(log: Log, job: Any) -> None:
    cut_off = log.name.startswith("an entry cut off")
    found = package(job, log.entries[:-1] if cut_off else log.entries)  # 12.3.1: the log's store
    stated = {k: v for k, v in log.outcome.items() if k in found}
    stated["removed"] = {k: REASONS.get(why, "lost") for k, why in stated["removed"].items()}
    assert _plain(found) == stated


@pytest.mark.parametrize("message", VECTORS.messages, ids=lambda m: m.name)
def test_messages_have_these_bytes(message: Message) -> None:
    """Signed by the package, read by the package, read and written by the text's reader."""
    key = PrivateKey(bytes.fromhex(message.seed))
    signed, data, referee = message.signed, message.data, key.public.raw
    assert sign_compact(key, message.payload_type, data) == signed
    if message.name == "seal":
        seal = read_seal(signed)
        assert write_seal(seal.session, seal.key, seal.sealed) == data
        assert open_seal(signed).to_bytes() == data
    elif message.name == "opening":
        assert write_opening(read_opening(signed)) == data == open_opening(signed).to_bytes()
    elif message.name.startswith("turn"):
        assert write_turn(read_turn(signed, referee)) == data
        assert open_turn(signed, (key.public,))[0].to_bytes() == data
    else:
        e = read_entry(data)
        assert write_entry(e.index, e.previous, e.time, e.kind, e.fields) == data
        assert open_entry(signed, key.public).to_bytes() == data
        if e.kind == 1:
            assert write_rules(read_rules(e.fields)) == e.fields


def test_there_is_a_vector_of_every_kind() -> None:
    """12.2, 13.2: no kind was forgotten, and each is what its name says."""
    kinds: dict[str, set[int]] = {"log-entry/1": set(), "turn/1": set()}
    for message in VECTORS.messages:
        for name, at in (("log-entry/1", 8 + 32 + 8), ("turn/1", 32)):
            if message.data.startswith(tag(name)):
                r = Reader(message.data)
                r.take(len(tag(name)) + at)
                kinds[name].add(r.u8())
    assert kinds == {"log-entry/1": set(range(1, 13)), "turn/1": {1, 2, 3, 4}}
    assert {"seal", "opening"} <= {m.name for m in VECTORS.messages}
