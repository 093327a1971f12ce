"""The keys that `tallystick referee` lets take part, from cards that no signature covers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from service.links import MEMORY, Direct, hosts, rules
from service.parties import REFEREE, A, B, Player
from service.transports import now

from tallystick.cli.main import run as main
from tallystick.cli.referee import HeldEvidence
from tallystick.commit.signing import PrivateKey
from tallystick.delegation.turns import Card
from tallystick.disk.entry_log import EntryLog
from tallystick.disk.keys import save_private_key
from tallystick.errors import CannotCheckError
from tallystick.job.job import Job


class Naming(Direct):
    """A link whose card names the referee's key."""

    async def card(self) -> Card:
        return Card(REFEREE.public, self.party.terms.digest, False)


def _held(job: Job, players: tuple[Player, ...], log: Any = None) -> HeldEvidence:
    urls = [f"http://x:{n + 1}" for n in range(len(players))]
    return HeldEvidence(job.terms, REFEREE, log, rules(job, players), 300, urls, None, None, True)


# A card that names the referee's key leaves its own link out, and stops no session.
def test_a_card_with_the_referees_key_is_no_party(
    small_job: Job, pair: tuple[Player, Player], tmp_path: Path
) -> None:
    with hosts(MEMORY, pair, tmp_path) as at:
        links: list[Any] = [host.link() for host in at] + [Naming(at[0].party)]
        keys = now(_held(small_job, pair)._keys(links))
    assert set(keys) == {A.public, B.public}


# PROTOCOL 10.1.1: an empty list would allow any key.
def test_no_party_is_no_open_list(
    small_job: Job, pair: tuple[Player, Player], tmp_path: Path
) -> None:
    with hosts(MEMORY, pair, tmp_path) as at:
        links: list[Any] = [Naming(at[0].party)]
        with pytest.raises(CannotCheckError, match="No party"):
            now(_held(small_job, pair)._keys(links))


# An option that has no effect is refused: a person may take it for protection.
def test_authorities_without_https_are_refused(
    small_job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = str(small_job.directory)
    for words in (
        ["referee", job, "--party", "http://x:1", "--party", "http://x:2", "--key", "k"],
        ["fetch-logs", "http://x:1", "--job", job],
    ):
        assert main([*words, "--out", str(tmp_path / "out"), "--tls-ca", "ca.pem"]) == 3
        assert "--tls-ca" in capsys.readouterr().err


# A session that has begun runs on by its clock: a wrong address is found before.
def test_a_wrong_address_to_listen_at_begins_no_session(
    small_job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_private_key(REFEREE, tmp_path / "key")
    words = ["referee", str(small_job.directory), "--party", "http://127.0.0.1:1"]
    words += ["--party", "http://127.0.0.1:2", "--out", str(tmp_path / "out")]
    words += ["--key", str(tmp_path / "key"), "--listen", "nowhere", "--sealing", "200ms"]
    words += ["--allow", _public(tmp_path / "a.pub", A), "--allow", _public(tmp_path / "b.pub", B)]
    assert main(words) == 3
    assert "not an address" in capsys.readouterr().err
    assert len(EntryLog(tmp_path / "out")) == 0


def _public(path: Path, key: PrivateKey) -> str:
    path.write_bytes(key.public.pem())
    return str(path)


def test_a_long_number_is_no_duration(
    small_job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["referee", str(small_job.directory), "--party", "http://x:1", "--party", "http://x:2"]
    out = ["--out", str(tmp_path / "out"), "--key", "k", "--budget", "9" * 400]
    assert main([*words, *out]) == 3
    assert "duration" in capsys.readouterr().err
