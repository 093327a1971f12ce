"""`tallystick offer` and `tallystick settle` (PROTOCOL 14)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Run, as_json

from tallystick.cli.offer import read_offer
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import PublicKey
from tallystick.delegation.outcome import Fate, Outcome, PlayedGame, SealedMember
from tallystick.delegation.statement import outcome_json
from tallystick.disk.keys import load_public_key

CLAIM, FALSE = b"\xc1" * 32, b"\xf1" * 32
HOUR = 3_600_000


class Clock:
    """This machine's time, moved by the test."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms = 1_790_000_000_000
        monkeypatch.setattr("time.time_ns", lambda: self.ms * 1_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Market:
    """Keys, a job and an offer in a directory; `ts` runs the commands."""

    def __init__(self, ts: Run, root: Path) -> None:
        self.ts, self.root = ts, root
        for name in ("client", "referee", "a", "b", "auditor"):
            as_json(ts("keys", "new", root / name, "--json"))
        self.job, self.offer = root / "job", root / "offer.json"
        assert ts("job", "new", "logreg", "--out", self.job, "--steps", 3)[0] == 0
        numbers = {
            "price": 100, "provider_stake": 1000, "silence": 250, "alarm_stake": 300,
            "client_stake": 500, "withdrawal.provider": 30, "reward": 400,
        }  # fmt: skip
        settings = [part for n, v in numbers.items() for part in ("--set", f"{n}={v}")]
        as_json(ts("offer", "new", self.job, "--out", self.offer, "--key", root / "client",
                   "--referee", root / "referee.pub", *settings, "--json"))  # fmt: skip
        self.documents = [self.offer]

    def key(self, name: str) -> PublicKey:
        return load_public_key(self.root / name)

    def sign(self, command: str, name: str, *more: object) -> Path:
        """The document that party `name` signs, with the referee's receipt."""
        path, receipt = self.root / f"{command}-{name}", self.root / f"{command}-{name}-receipt"
        as_json(self.ts("offer", command, self.offer, *more, "--out", path, "--key",
                        self.root / name, "--json"))  # fmt: skip
        as_json(self.ts("offer", "receive", self.offer, path, "--out", receipt, "--key",
                        self.root / "referee", "--json"))  # fmt: skip
        self.documents += [path, receipt]
        return path

    def outcome(self, ended: int, both_lose: bool = False) -> Path:
        """A session in which b was convicted, or both providers."""
        a, b = self.key("a"), self.key("b")
        fate = Fate.CONVICTED if both_lose else Fate.REMAINING
        members = [SealedMember(a, fate, CLAIM), SealedMember(b, Fate.CONVICTED, FALSE)]
        members.sort(key=lambda member: member.key.raw)
        result, accepted = (0, None) if both_lose else (1, CLAIM)
        made = Outcome(
            read_offer(str(self.offer)).digest, bytes(32), bytes(32), ended, result, accepted,
            tuple(members), (PlayedGame(0, (a, b), (both_lose, True)),),
        )  # fmt: skip
        path = self.root / "outcome.json"
        path.write_bytes(canonical_json(outcome_json(made)))
        return path


@pytest.fixture
def market(ts: Run, tmp_path: Path, clock: Clock) -> Market:
    return Market(ts, tmp_path)


def test_from_an_offer_to_a_checked_settlement(market: Market, ts: Run, clock: Clock) -> None:
    market.sign("accept", "a", "--job", market.job)
    market.sign("accept", "b")
    found = as_json(ts("offer", "check", *market.documents, "--json"))
    keys = {name: market.key(name).raw.hex() for name in ("a", "b", "client")}
    assert set(found["standing"]) == {keys["a"], keys["b"]} and found["held"]
    code, out, _ = ts("offer", "check", *market.documents)
    assert code == 0 and "of 2 providers" in out and f"stands      {keys['a']}" in out

    clock.ms += 30 * HOUR
    outcome, signed = market.outcome(clock.ms), market.root / "settlement.json"
    sign = ("--key", market.root / "referee", "--out", signed)
    early = ts("settle", *market.documents, "--outcome", outcome, *sign)
    assert early[0] == 3 and "time" in early[2] and not signed.exists()
    clock.ms += 24 * HOUR + 1
    found = as_json(ts("settle", *market.documents, "--outcome", outcome, *sign, "--json"))
    transfers = {(t["from"], t["to"], t["amount"], t["reason"]) for t in found["transfers"]}
    assert transfers == {
        (keys["client"], keys["a"], 100, "price"), (keys["b"], keys["client"], 1000, "convicted"),
    }  # fmt: skip
    assert {b["key"]: b["amount"] for b in found["balances"]} == {
        keys["a"]: 100, keys["b"]: -1000, keys["client"]: 900,
    }  # fmt: skip
    for more in (("--outcome", outcome), ()):
        assert ts("settle", *market.documents, *more, "--check", signed)[0] == 0
    code, out, _ = ts("settle", *market.documents, "--outcome", outcome)
    assert code == 0 and "owes" in out and "-1000 credit" in out

    lie = json.loads(outcome.read_bytes())
    lie["members"] = [{**m, "fate": "silent" if m["fate"] == "convicted" else m["fate"]} for m in
                      lie["members"]]  # fmt: skip
    outcome.write_bytes(canonical_json(lie))
    wrong = ts("settle", *market.documents, "--outcome", outcome, "--check", signed)
    assert wrong[0] == 1 and "not the one that follows" in wrong[2]


def test_a_withdrawal_and_a_lapsed_offer(market: Market, ts: Run, clock: Clock) -> None:
    market.sign("accept", "a")
    market.sign("withdraw", "a")
    code, out, _ = ts("offer", "check", *market.documents)
    assert code == 0 and "withdrawn" in out and "session     none: fewer than 1" in out
    clock.ms += 3 * HOUR
    found = as_json(ts("settle", *market.documents, "--json"))
    assert [(t["amount"], t["reason"]) for t in found["transfers"]] == [(30, "withdrawal")]


def test_an_alarm_names_the_accepted_claim(market: Market, ts: Run, clock: Clock) -> None:
    market.sign("accept", "a")
    market.sign("accept", "b")
    clock.ms += 30 * HOUR
    outcome = market.outcome(clock.ms)
    market.sign("alarm", "auditor", "--outcome", outcome)
    clock.ms += 25 * HOUR
    waits = ts("settle", *market.documents, "--outcome", outcome)
    assert waits[0] == 3 and "challenge session has no outcome" in waits[2]


def test_without_an_accepted_claim_no_alarm_can_come(market: Market, ts: Run, clock: Clock) -> None:
    """14.9.1: so the settlement's time has come with the session's result."""
    market.sign("accept", "a")
    market.sign("accept", "b")
    clock.ms += 30 * HOUR
    outcome = market.outcome(clock.ms, both_lose=True)
    code, out, told = ts("settle", *market.documents, "--outcome", outcome)
    assert code == 0 and "none is accepted" in out and "may still arrive" not in told


# An option is refused where it has no effect.
def test_no_option_is_ignored(market: Market, ts: Run, clock: Clock) -> None:
    market.sign("accept", "a")
    market.sign("accept", "b")
    clock.ms += 30 * HOUR
    outcome, signed = market.outcome(clock.ms), market.root / "settlement.json"
    given = ("--outcome", outcome)
    assert "may still arrive" in ts("settle", *market.documents, *given)[2]  # 14.9.1
    clock.ms += 24 * HOUR + 1
    assert "may still arrive" not in ts("settle", *market.documents, *given)[2]
    key = ("--key", market.root / "referee", "--out", signed)
    assert ts("settle", *market.documents, *given, *key)[0] == 0
    alone = ts("settle", *market.documents, "--challenge", outcome, "--check", signed)
    assert alone[0] == 3 and "--outcome or --log" in alone[2]
    job = ts("settle", *market.documents, *given, "--job", market.job)
    assert job[0] == 3 and "--job is only used to replay a log" in job[2]
    alarm = ts("offer", "alarm", market.offer, *given, "--job", market.job,
               "--out", market.root / "x", "--key", market.root / "auditor")  # fmt: skip
    assert alarm[0] == 3 and "--job is only used to replay a log" in alarm[2]


def test_what_no_party_can_sign(market: Market, ts: Run, tmp_path: Path) -> None:
    key, out = tmp_path / "a", tmp_path / "out"
    stranger = ts("offer", "receive", market.offer, market.sign("accept", "a"), "--key", key,
                  "--out", out)  # fmt: skip
    assert stranger[0] == 3 and "is not one of the offer's referees" in stranger[2]
    assert ts("job", "new", "logreg", "--out", tmp_path / "other", "--steps", 4)[0] == 0
    other = ts("offer", "accept", market.offer, "--job", tmp_path / "other", "--key", key,
               "--out", out)  # fmt: skip
    assert other[0] == 1 and "another job" in other[2]
    bare = ("offer", "new", market.job, "--out", out, "--key", key, "--referee")
    for number in ("price=x", "prize=1", "price=-1", "providers=65", "reexecution.payer=all"):
        assert ts(*bare, tmp_path / "referee.pub", "--set", number)[0] == 3
    assert ts(*bare, tmp_path / "a.pub")[0] == 3  # a party's key is not a referee's (14.2.1)
    assert not out.exists()
    damaged = tmp_path / "damaged"
    damaged.write_bytes(market.offer.read_bytes().replace(b'"sig":"', b'"sig":"A'))
    assert ts("offer", "check", damaged)[0] == 2


def test_under_a_contract_with_logs_two_parties_at_most(ts: Run, tmp_path: Path) -> None:
    for name in ("client", "referee"):
        as_json(ts("keys", "new", tmp_path / name, "--json"))
    made = ts("job", "new", "logreg", "--out", tmp_path / "job", "--contract", "replay/1")
    assert made[0] == 0
    new = ("offer", "new", tmp_path / "job", "--key", tmp_path / "client", "--referee",
           tmp_path / "referee.pub", "--out", tmp_path / "offer")  # fmt: skip
    assert ts(*new, "--set", "most_parties=3")[0] == 3  # PROTOCOL 10.1
    assert ts(*new)[0] == 0 and read_offer(str(tmp_path / "offer")).most_parties == 2
