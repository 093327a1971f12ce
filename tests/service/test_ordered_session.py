"""A session that an offer orders, held by processes, and what it refuses (PROTOCOL 14.5)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from service.processes import run
from service.test_service_commands import Stage
from unit.delegation.offers import OFFER

from tallystick.cli.main import run as main
from tallystick.cli.offer import now_ms
from tallystick.commit.signing import PrivateKey
from tallystick.delegation.documents import Acceptance, Receipt, sign_document
from tallystick.delegation.offer import Deadlines, Offer, SessionNumbers
from tallystick.delegation.watch import replayed
from tallystick.disk.entry_log import EntryLog
from tallystick.disk.keys import load_private_key


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("ordered"))


def documents(
    stage: Stage, path: Path, deadlines: Deadlines, names: Sequence[str] = ("honest", "twin")
) -> tuple[Offer, list[Path]]:
    """An offer about the stage's job that the providers of these names have accepted."""
    client = PrivateKey(bytes([99]) * 32)
    referee = load_private_key(stage.path / "referee.key")
    offer = replace(
        OFFER, client=client.public, job_digest=stage.job.digest, referees=(referee.public,),
        deadlines=deadlines, rules=SessionNumbers(20, 60_000, 60_000, 50, 100, 20_000),
    )  # fmt: skip
    signed = [sign_document(client, offer)]
    for name in names:
        key = load_private_key(stage.path / f"{name}.key")
        accepts = Acceptance(offer.digest, key.public)
        receipt = Receipt(offer.digest, accepts.digest, deadlines.accept, referee.public)
        signed += [sign_document(key, accepts), sign_document(referee, receipt)]
    files = []
    for number, envelope in enumerate(signed):
        files.append(path / f"document-{number}")
        files[-1].write_bytes(envelope)
    return offer, files


def named(files: list[Path]) -> list[object]:
    return [part for file in files for part in ("--offer", file)]


def test_the_offers_rules_are_the_sessions(stage: Stage, tmp_path: Path) -> None:
    """Both providers check the rules against the offer that they have accepted."""
    now = now_ms()
    offer, files = documents(stage, tmp_path, Deadlines(now - 2, now - 1, now + 90_000, 1000))
    with ExitStack() as stack:
        parties = [stage.serve(name, "--offer", files[0]) for name in ("honest", "twin")]
        for party in parties:
            stack.callback(party.stop)
        more = (*named(files), "--json")
        done = run(*stage.referee(tmp_path / "out", *(p.url for p in parties), more=more))
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["outcome"] == "uncontested"
    rules = replayed(stage.job.terms, EntryLog(tmp_path / "out")).rules
    assert rules is not None and rules.offer == offer.digest
    assert (rules.sealing, rules.extension, rules.most) == (now + 90_000, 20_000, 2)


def test_an_offer_with_one_provider(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """14.5: its session compares nothing, and its result says so (10.6)."""
    now = now_ms()
    deadlines = Deadlines(now - 2, now - 1, now + 90_000, 1000)
    _, files = documents(stage, tmp_path, deadlines, ["honest"])
    party = stage.serve("honest", "--offer", files[0])
    try:
        words = stage.referee(tmp_path / "out", party.url, more=(*named(files), "--json"))
        done = run(*words)
    finally:
        party.stop()
    assert done.returncode == 2, done
    found = json.loads(done.stdout)
    assert (found["outcome"], found["rounds"]) == ("one party alone", 0)
    assert found["accepted"] is None and "compared with nothing" in found["why"]
    assert json.loads((tmp_path / "out" / "result.json").read_text())["accepted"] is None
    # Without an offer, a second party may come, and needs an address.
    assert main([str(word) for word in stage.referee(tmp_path / "none", party.url)]) == 3
    assert "2 to 64 parties" in capsys.readouterr().err


def test_a_provider_refuses_other_rules_than_its_offers(stage: Stage, tmp_path: Path) -> None:
    """14.5: the twin has accepted an offer with other numbers, which the digest does not show."""
    now = now_ms()
    offer, files = documents(stage, tmp_path, Deadlines(now - 2, now - 1, now + 8_000, 1000))
    from tallystick.cli.serve import check_of_offers
    from tallystick.delegation.book import open_book, session_rules
    from tallystick.errors import MismatchError

    book = open_book([file.read_bytes() for file in files])
    referee, twin = (load_private_key(stage.path / f"{n}.key") for n in ("referee", "twin"))
    rules = session_rules(book, referee.public, b"n" * 32)
    check = check_of_offers([offer], twin.public)
    check(rules)
    check(replace(rules, offer=b"\0" * 32, budget=1))  # it names no offer of this provider
    for changed in ({"budget": 1}, {"extension": 1}, {"sealing": rules.sealing + 1}):
        with pytest.raises(MismatchError, match="its rules are others"):
            check(replace(rules, **changed))  # type: ignore[arg-type]


def test_what_an_offer_fixes_is_not_named_twice(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = now_ms()
    _, files = documents(stage, tmp_path, Deadlines(now - 2, now + 60_000, now + 90_000, 1000))
    urls = ("http://127.0.0.1:1", "http://127.0.0.1:2")

    def said(*more: object) -> str:
        words = stage.referee(tmp_path / "out", *urls, more=more)
        assert main([str(word) for word in words]) == 3
        return capsys.readouterr().err

    assert "may still withdraw" in said(*named(files))
    assert "--arity cannot be given, because the offer" in said(*named(files), "--arity", "5")
    assert "--budget cannot be given, because the offer" in said(*named(files), "--budget", "5m")
    assert "--challenge-of needs an offer" in said("--challenge-of", tmp_path)
    assert not (tmp_path / "out").exists()
