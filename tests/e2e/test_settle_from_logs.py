"""A settlement from the logs of real sessions: an offer, a game, a true alarm (PROTOCOL 14)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from commands import Run, as_json
from unit.delegation.conftest import game_job, honest, lies  # noqa: F401
from unit.delegation.offers import CLIENT, KEYS, OFFER
from unit.delegation.players import REFEREE, Player, Time, play
from unit.protocol.simulator import Party

from tallystick.commit.signing import PrivateKey
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.book import challenge_rules, open_book, session_rules
from tallystick.delegation.documents import Acceptance, Alarm, Document, Receipt, sign_document
from tallystick.delegation.offer import SessionNumbers
from tallystick.delegation.outcome import Outcome
from tallystick.delegation.rules import Rules
from tallystick.delegation.watch import outcome_of
from tallystick.disk.entry_log import EntryLogWriter
from tallystick.disk.keys import save_private_key
from tallystick.job.job import Job


class Market:
    """An offer of `job` in `root`, with its documents as files and envelopes."""

    def __init__(self, root: Path, job: Job) -> None:
        self.root, self.job, self.time = root, job, Time()
        self.offer = replace(
            OFFER, job_digest=job.digest, referees=(REFEREE.public,),
            rules=SessionNumbers(20, 1000, 500, 2, 10, 50),
        )  # fmt: skip
        self.files: list[Path] = []
        self.envelopes: list[bytes] = []
        self._add("offer", sign_document(CLIENT, self.offer))

    def _add(self, name: str, envelope: bytes) -> None:
        path = self.root / f"{name}-{len(self.files)}"
        path.write_bytes(envelope)
        self.files.append(path)
        self.envelopes.append(envelope)

    def sign(self, key: PrivateKey, document: Document, at: int) -> None:
        receipt = Receipt(self.offer.digest, document.digest, at, REFEREE.public)
        self._add(document.NAME, sign_document(key, document))
        self._add("receipt", sign_document(REFEREE, receipt))

    def hold(self, name: str, rules: Rules, players: list[Player], begins: int) -> Outcome:
        self.time.now = begins
        with EntryLogWriter(self.root / name) as log:
            arbiter = Arbiter(self.job.terms, REFEREE, log, self.time, rules)
            play(arbiter, players, self.time)
        return outcome_of(arbiter.session)


def test_from_an_offer_over_two_sessions_to_a_settlement(
    ts: Run, tmp_path: Path, game_job: Job, honest: Party, lies: list[Party],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    market = Market(tmp_path, game_job)
    liars, auditor = [Player(lies[4], 31), Player(lies[4], 32)], Player(honest, 33)
    for liar in liars:
        market.sign(liar.key, Acceptance(market.offer.digest, liar.key.public), 500)
    rules = session_rules(open_book(market.envelopes), REFEREE.public, b"1" * 32)
    first = market.hold("first", rules, liars, 2001)
    assert first.result == 2 and not first.contested  # two liars agree (P11)
    assert first.accepted is not None

    raised = Alarm(market.offer.digest, first.session, first.accepted, auditor.key.public)
    market.sign(auditor.key, raised, first.ended + 10)
    book = open_book(market.envelopes)
    rules = challenge_rules(book, first, REFEREE.public, b"2" * 32)
    second = market.hold("second", rules, [*liars, auditor], first.ended + 501)
    assert second.result == 1 and second.accepted != first.accepted

    monkeypatch.setattr("time.time_ns", lambda: (first.ended + 501) * 1_000_000)
    key, signed = tmp_path / "referee.pem", tmp_path / "settlement"
    save_private_key(REFEREE, key)
    logs = ("--log", tmp_path / "first", "--challenge-log", tmp_path / "second", "--job",
            game_job.directory)  # fmt: skip
    found = as_json(ts("settle", *market.files, *logs, "--key", key, "--out", signed, "--json"))
    balances = {b["key"]: b["amount"] for b in found["balances"]}
    assert balances == {
        **{liar.key.public.raw.hex(): -1000 for liar in liars},
        auditor.key.public.raw.hex(): 2 * 333,
        CLIENT.public.raw.hex(): 2 * 667,
    }  # fmt: skip
    assert ts("settle", *market.files, *logs, "--check", signed)[0] == 0
    swapped = ("--log", tmp_path / "second", "--job", game_job.directory)
    wrong = ts("settle", *market.files, *swapped)
    assert wrong[0] == 1 and "not the one that the offer orders" in wrong[2]
    assert ts("settle", *market.files, *logs[:-2])[0] == 3  # a log without the job
    assert KEYS[CLIENT.public] is CLIENT


def test_an_alarm_from_a_log(
    ts: Run, tmp_path: Path, game_job: Job, lies: list[Party]  # noqa: F811
) -> None:  # fmt: skip
    market = Market(tmp_path, game_job)
    liar = Player(lies[4], 31)
    market.sign(liar.key, Acceptance(market.offer.digest, liar.key.public), 500)
    rules = session_rules(open_book(market.envelopes), REFEREE.public, b"1" * 32)
    first = market.hold("first", rules, [liar], 2001)
    assert first.result == 3  # one provider: it was compared with nothing (14.5)
    as_json(ts("keys", "new", tmp_path / "auditor", "--json"))
    made = ("offer", "alarm", market.files[0], "--out", tmp_path / "alarm", "--key",
            tmp_path / "auditor")  # fmt: skip
    assert ts(*made)[0] == 3
    code, out, _ = ts(*made, "--log", tmp_path / "first", "--job", game_job.directory)
    assert code == 0 and out.startswith("alarm")
