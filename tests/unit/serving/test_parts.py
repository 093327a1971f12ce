"""The parts of a model server by themselves: queue, keys, accounts, texts, metrics."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")

from tallystick.errors import CorruptFileError, UsageError
from tallystick.serving.api_keys import Accounts, KeyRing, add_key, read_keys, remove_key
from tallystick.serving.app import is_loopback, log_line
from tallystick.serving.fair import FairQueue
from tallystick.serving.fields import ApiError
from tallystick.serving.metrics import Metrics
from tallystick.serving.spelling import Spelling, shown


@dataclass(frozen=True)
class One:
    owner: str
    number: int


# -- the queue -------------------------------------------------------------------------------------
def test_keys_are_served_in_turn() -> None:
    queue: FairQueue[One] = FairQueue()
    for n in range(1000):
        queue.put(One("many", n))
    for n in range(2):
        queue.put(One("few", n))
    taken = [queue.take(lambda _: True) for _ in range(6)]
    assert taken == [
        One("many", 0), One("few", 0), One("many", 1), One("few", 1), One("many", 2), One("many", 3)
    ]  # fmt: skip
    assert (len(queue), queue.count("many"), queue.count("few")) == (996, 996, 0)


def test_a_key_that_may_not_is_passed_over_and_keeps_its_turn() -> None:
    queue: FairQueue[One] = FairQueue()
    for owner in ("a", "b"):
        queue.put(One(owner, 0))
    assert queue.take(lambda owner: owner != "a") == One("b", 0)
    assert queue.take(lambda owner: owner != "a") is None
    assert queue.take(lambda _: True) == One("a", 0)


def test_what_is_removed_is_never_taken() -> None:
    queue: FairQueue[One] = FairQueue()
    for n in range(3):
        queue.put(One("a", n))
    assert queue.remove(One("a", 1)) and not queue.remove(One("a", 1))
    assert not queue.remove(One("b", 1))
    assert [queue.take(lambda _: True) for _ in range(3)] == [One("a", 0), One("a", 2), None]
    queue.put(One("a", 5))
    assert queue.clear() == [One("a", 5)] and len(queue) == 0


# -- API keys --------------------------------------------------------------------------------------
def test_the_file_has_no_key(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    alice, bob = add_key(path, "alice"), add_key(path, "bob", operator=True)
    assert alice not in path.read_text() and alice.removeprefix("tsk-") not in path.read_text()
    assert os.stat(path).st_mode & 0o077 == 0
    assert [(key.name, key.operator) for key in read_keys(path)] == [
        ("alice", False),
        ("bob", True),
    ]
    ring = KeyRing(path)
    found = ring.find(alice)
    assert found is not None and found.name == "alice"
    for other in ("", "tsk-", alice[:-1], alice + "A", alice.lower(), "\udcff"):
        assert ring.find(other) is None
    with pytest.raises(UsageError, match="already"):
        add_key(path, "alice")
    for name in ("", "a b", "../x", "a" * 65, "ä"):
        with pytest.raises(UsageError, match="not a valid name"):
            add_key(path, name)
    assert bob != alice


def test_a_removed_key_opens_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys.json"
    key = add_key(path, "alice")
    ring = KeyRing(path)
    monkeypatch.setattr("tallystick.serving.api_keys.RELOAD_SECONDS", 0)
    assert ring.find(key) is not None
    remove_key(path, "alice")
    assert ring.find(key) is None
    assert ring.find(add_key(path, "carol")) is not None
    with pytest.raises(UsageError, match="No key is named"):
        remove_key(path, "alice")


@pytest.mark.parametrize("text", ["{}", "[]", '{"keys":[],"kind":"x"}', '{"keys":[{}],"kind":"x"}'])
def test_a_malformed_file_of_keys_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(text)
    with pytest.raises(CorruptFileError, match="malformed"):
        read_keys(tmp_path / "keys.json")


# -- tokens a minute -------------------------------------------------------------------------------
def test_a_key_pays_for_its_tokens() -> None:
    accounts = Accounts(60)
    accounts.check("a", 0)
    accounts.pay("a", 90, 0)  # a request that has begun goes on
    with pytest.raises(ApiError) as caught:
        accounts.check("a", 10)
    assert caught.value.status == 429 and caught.value.retry_after == 21
    accounts.check("b", 10)
    accounts.check("a", 30)
    accounts.pay("a", 1000, 10_000)
    with pytest.raises(ApiError):
        accounts.check("a", 10_001)
    free = Accounts(0)
    free.pay("a", 1 << 40, 0)
    free.check("a", 0)


# -- texts -----------------------------------------------------------------------------------------
def spelled(pieces: list[str], stops: list[str], half: bool = False) -> list[str]:
    """What is said after each of `pieces`, and at the end."""
    text = "".join(pieces)
    ends = [sum(map(len, pieces[: n + 1])) for n in range(len(pieces))]

    def decode(tokens: list[int]) -> str:
        whole = text[: ends[len(tokens) - 1]]
        return whole + "\ufffd" if half and len(tokens) < len(pieces) else whole

    spelling = Spelling(decode, stops, [])  # type: ignore[arg-type]
    return [*[spelling.more([0]) for _ in pieces], spelling.rest(text)]


def test_a_stop_string_is_never_said() -> None:
    assert spelled(["ab", "cS", "TO", "P"], ["STOP"]) == ["ab", "c", "", "", ""]
    assert spelled(["ab", "cS", "TO", "x"], ["STOP"]) == ["ab", "c", "", "STOx", ""]
    assert spelled(["aaa", "b"], ["aab"]) == ["a", "", ""]
    assert spelled(["S", "T"], ["STOP"]) == ["", "", "ST"]
    assert shown("one two", ["two", "e"]) == "on"


def test_half_a_character_waits() -> None:
    assert spelled(["a", "b"], [], half=True) == ["a", "b", ""]
    assert spelled(["a", "\ufffd"], []) == ["a", "", "\ufffd"]


def test_a_text_that_changes_is_noticed() -> None:
    spelling = Spelling(lambda tokens: "abc"[: len(tokens)], [], [9])
    assert spelling.more([1, 1, 9]) == "ab"
    with pytest.raises(ValueError, match="not the beginning"):
        spelling.rest("axc")


# -- metrics and logs ------------------------------------------------------------------------------
def test_a_key_reads_its_own_counts() -> None:
    metrics = Metrics()
    metrics.add("requests", "alice", route="/v1/models", status="200")
    metrics.add("requests", "alice", route="/v1/models", status="200")
    metrics.add("answer_tokens", "bob", 7, model='a"b\n')
    assert "bob" not in metrics.text("alice")
    row = 'tallystick_requests_total{key="alice",route="/v1/models",status="200"} 2\n'
    assert row in metrics.text("alice") and row in metrics.text(None)
    text = metrics.text(None, [("answers_waiting", "Waiting.", {"model": "m"}, 3)])
    assert 'tallystick_answer_tokens_total{key="bob",model="a\\"b\\n"} 7\n' in text
    assert (
        '# TYPE tallystick_answers_waiting gauge\ntallystick_answers_waiting{model="m"} 3\n' in text
    )


def test_a_line_of_the_log_is_json() -> None:
    line = log_line({"route": "/v1/models", "why": 'a "\n'})
    assert "\n" not in line and json.loads(line)["route"] == "/v1/models"


@pytest.mark.parametrize(
    ("host", "found"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("example.org", False)],
)  # fmt: skip
def test_loopback(host: str, found: bool) -> None:
    assert is_loopback(host) is found
