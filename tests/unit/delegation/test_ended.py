"""The outcome of a played session, and the settlement that follows from it (PROTOCOL 14.6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.delegation.offers import CLIENT, OFFER
from unit.delegation.players import REFEREE, Player, Silent, Time, play, rules
from unit.protocol.simulator import Party

from tallystick.commit.signing import PublicKey
from tallystick.delegation.arbiter import Arbiter
from tallystick.delegation.book import open_book
from tallystick.delegation.documents import Acceptance, Receipt, sign_document
from tallystick.delegation.offer import Payer, Reexecution
from tallystick.delegation.outcome import Fate, Outcome, claim_digest
from tallystick.delegation.session import Session
from tallystick.delegation.settlement import settle
from tallystick.delegation.watch import outcome_of, replayed, tariff
from tallystick.errors import UsageError
from tallystick.job.job import Job


def ended(job: Job, players: list[Player], **changed: object) -> tuple[Outcome, Session]:
    log: list[bytes] = []
    time = Time()
    arbiter = Arbiter(job.terms, REFEREE, log, time, rules(job, players, **changed))
    play(arbiter, players, time)
    found = outcome_of(arbiter.session)
    assert found == outcome_of(replayed(job.terms, log))  # anyone makes it from the log
    return found, arbiter.session


def fates(found: Outcome) -> dict[PublicKey, Fate]:
    return {member.key: member.fate for member in found.members}


def test_the_fates_of_a_session(game_job: Job, honest: Party, lies: list[Party]) -> None:
    players = [
        Player(honest, 11), Player(lies[0], 12), Silent(honest, 13, 2), Silent(lies[1], 14, 3, 2),
        Silent(honest, 15, 1),
    ]  # fmt: skip
    found, session = ended(game_job, players)
    keys = [player.key.public for player in players]
    assert fates(found) == {
        keys[0]: Fate.REMAINING, keys[1]: Fate.CONVICTED, keys[2]: Fate.UNOPENED,
        keys[3]: Fate.SILENT,
    }  # fmt: skip
    assert found.accepted == claim_digest(players[0].party.run) and found.contested
    assert (found.session, found.head) == (session.session, session.last)
    assert {k for g in found.games for k, out in zip(g.keys, g.removed, strict=True) if out} == {
        keys[1], keys[3],
    }  # fmt: skip


def test_agreement_has_no_game(game_job: Job, honest: Party) -> None:
    found, _ = ended(game_job, [Player(honest, 11), Player(honest, 12)])
    assert (found.result, found.games, found.contested) == (2, (), False)
    assert set(fates(found).values()) == {Fate.REMAINING}


def test_executed_steps_follow_from_the_queries(
    game_job: Job, honest: Party, lies: list[Party]
) -> None:  # PROTOCOL 14.6.1
    """Step 6 is false, and there is a checkpoint every 4 steps. Both parties are asked for the
    states 5, 6 and 7, which takes the steps 4 to 6, and about step 6 itself."""
    found, _ = ended(game_job, [Player(honest, 11), Player(lies[4], 12)])
    (game,) = found.games
    assert game.executed == (4, 4)


def test_the_tariff() -> None:  # PROTOCOL 14.6.1
    assert tariff(set(), set(), 4) == 0
    assert tariff({5}, set(), 4) == 1 and tariff({8}, set(), 4) == 4
    assert tariff({5, 7}, {6}, 4) == 4 and tariff(set(), {6, 9}, 4) == 2


def test_no_outcome_before_the_end(game_job: Job, honest: Party) -> None:
    players = [Player(honest, 11)]
    arbiter = Arbiter(game_job.terms, REFEREE, [], Time(), rules(game_job, players))
    with pytest.raises(UsageError, match="has not ended"):
        outcome_of(arbiter.session)


def test_a_played_session_is_settled(game_job: Job, honest: Party, lies: list[Party]) -> None:
    """From an offer over its session to the transfers, under the referee's own log (14.5)."""
    players = [Player(honest, 11), Player(lies[4], 12)]
    order = replace(
        OFFER, job_digest=game_job.digest, referees=(REFEREE.public,), providers=2,
        reexecution=Reexecution(Payer.LOSER, 5, 100),
    )  # fmt: skip
    documents = [sign_document(CLIENT, order)]
    for player in players:
        acceptance = Acceptance(order.digest, player.key.public)
        receipt = Receipt(order.digest, acceptance.digest, 10, REFEREE.public)
        documents += [sign_document(player.key, acceptance), sign_document(REFEREE, receipt)]
    found, _ = ended(game_job, players, offer=order.digest)
    settlement = settle(open_book(documents), found)
    good, bad = (player.key.public for player in players)
    (game,) = found.games
    repeated = 5 * game.executed[game.keys.index(good)]
    assert settlement.balance(good) == 100 + repeated and repeated > 0
    assert settlement.balance(bad) == -1000
    assert settlement.balance(CLIENT.public) == 900 - repeated
