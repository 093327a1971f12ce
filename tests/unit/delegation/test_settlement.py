"""Settlements with amounts worked out by hand, rule by rule (PROTOCOL 14.8)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.delegation.offers import (
    AGAIN,
    CLAIM,
    CLIENT,
    ENDED,
    FALSE,
    HEAD_AGAIN,
    OFFER,
    WORSE,
    P,
    accepted,
    alarm,
    book,
    game,
    offer,
    outcome,
    withdrawn,
)

from tallystick.commit.signing import PublicKey
from tallystick.delegation.book import challenge_of
from tallystick.delegation.offer import Offer, Payer, Reexecution
from tallystick.delegation.outcome import Fate, Outcome, PlayedGame, SealedMember
from tallystick.delegation.settlement import Settlement, settle
from tallystick.errors import UsageError

C = CLIENT.public
A, B, D, E, F = P[:5]
REMAINING, CONVICTED, EXCLUDED, SILENT, UNOPENED = Fate
NAMES = {C: "client", A: "a", B: "b", D: "d", E: "e", F: "f"}
Fates = dict[PublicKey, tuple[Fate, bytes | None]]


def listed(settlement: Settlement) -> list[str]:
    """The transfers as `a > client 40 absent`."""
    return [f"{NAMES[t.payer]} > {NAMES[t.payee]} {t.amount} {t.reason}" for t in
            settlement.transfers]  # fmt: skip


def first(order: Offer, fates: Fates, claim: bytes | None = CLAIM, *games: PlayedGame) -> Outcome:
    return outcome(order.digest, fates, claim, games)


def settled(order: Offer, fates: Fates, claim: bytes | None = CLAIM, *games: PlayedGame,
            standing: int = 3) -> list[str]:  # fmt: skip
    """A session of a, b and d, without an alarm."""
    return listed(
        settle(book(order, accepted(order, P[:standing])), first(order, fates, claim, *games))
    )


def test_those_that_remain_get_the_price() -> None:  # PROTOCOL 14.8.3
    fates: Fates = dict.fromkeys((A, B, D), (REMAINING, CLAIM))
    assert settled(OFFER, fates) == [f"client > {n} 100 price" for n in "abd"]


LOST: Fates = {A: (REMAINING, CLAIM), B: (CONVICTED, FALSE)}


def test_a_convicted_provider_loses_its_stake_to_the_client() -> None:  # 14.8.2, 14.8.7
    found = settled(OFFER, LOST, CLAIM, game(0, (A, B), 2), standing=2)
    assert found == ["client > a 100 price", "b > client 1000 convicted"]


def test_each_fate_has_its_cost() -> None:  # PROTOCOL 14.8.2
    five = offer(providers=5)
    fates: Fates = {A: (REMAINING, CLAIM), B: (EXCLUDED, None), D: (SILENT, FALSE),
                    E: (UNOPENED, None)}  # fmt: skip
    assert settled(five, fates, CLAIM, game(0, (A, D), 2), standing=5) == [
        "client > a 100 price",
        "b > client 1000 excluded",
        "d > client 250 silent",
        "e > client 40 unopened",
        "f > client 40 absent",
    ]


def test_silence_with_the_final_claim_costs_the_price_only() -> None:  # PROTOCOL 14.8.2
    fates: Fates = {A: (REMAINING, CLAIM), B: (SILENT, CLAIM), D: (CONVICTED, FALSE)}
    games = (game(0, (B, D), 1), game(1, (A, D), 2))
    assert settled(OFFER, fates, CLAIM, *games) == [
        "client > a 100 price",
        "d > client 1000 convicted",
    ]


def test_a_lie_for_the_final_claim_costs_the_stake() -> None:  # 10.5.1: it threw its game
    fates: Fates = {A: (REMAINING, CLAIM), B: (CONVICTED, CLAIM), D: (CONVICTED, FALSE)}
    games = (game(0, (B, D), 1), game(1, (A, D), 2))
    assert "b > client 1000 convicted" in settled(OFFER, fates, CLAIM, *games)


def test_no_claim_no_price() -> None:  # PROTOCOL 14.8.3
    fates: Fates = {A: (CONVICTED, WORSE), B: (CONVICTED, FALSE)}
    assert settled(OFFER, fates, None, game(0, (A, B), 3), standing=2) == [
        "a > client 1000 convicted",
        "b > client 1000 convicted",
    ]
    undecided = outcome(OFFER.digest, {A: (REMAINING, CLAIM), B: (REMAINING, FALSE)}, None,
                        [game(0, (A, B), 0)], result=4)  # fmt: skip
    assert settle(book(OFFER, accepted(OFFER, P[:2])), undecided).transfers == ()


def test_the_client_pays_steps_up_to_the_most() -> None:  # PROTOCOL 14.8.4
    paying = offer(reexecution=Reexecution(Payer.CLIENT, 3, 100))
    fates: Fates = {A: (REMAINING, CLAIM), B: (CONVICTED, FALSE), D: (CONVICTED, WORSE)}
    games = (game(0, (A, B), 2, 70, 9), game(1, (A, D), 2, 70, 9))
    assert settled(paying, fates, CLAIM, *games) == [
        "client > a 100 price",
        "client > a 300 re-execution",
        "b > client 1000 convicted",
        "d > client 1000 convicted",
    ]


def test_the_loser_pays_its_game_out_of_its_forfeit() -> None:  # PROTOCOL 14.8.4
    paying = offer(reexecution=Reexecution(Payer.LOSER, 7, 100))
    fates: Fates = {A: (REMAINING, CLAIM), B: (CONVICTED, FALSE), D: (SILENT, WORSE)}
    games = (game(0, (A, B), 2, 60, 9), game(1, (A, D), 2, 60, 9))
    assert settled(paying, fates, CLAIM, *games) == [
        "client > a 100 price",
        "b > a 420 re-execution",
        "d > a 250 re-execution",  # 40 steps count, 280 units; the forfeit is 250
        "b > client 580 convicted",
    ]


def test_a_removed_winner_is_paid_nothing() -> None:  # PROTOCOL 14.8.4
    paying = offer(reexecution=Reexecution(Payer.LOSER, 7, 100))
    fates: Fates = {A: (REMAINING, CLAIM), B: (CONVICTED, FALSE), D: (CONVICTED, WORSE)}
    games = (game(0, (B, D), 2, 60, 9), game(1, (A, B), 2, 60, 9))
    found = settled(paying, fates, CLAIM, *games)
    assert "d > client 1000 convicted" in found and "b > a 420 re-execution" in found


# ---- withdrawals --------------------------------------------------------------------------------


def test_a_provider_that_withdraws_pays_what_the_offer_says() -> None:  # PROTOCOL 14.4
    one = book(OFFER, accepted(OFFER, (A, B)), withdrawn(OFFER, B, 2000))
    found = settle(one, first(OFFER, {A: (REMAINING, CLAIM)}))
    assert listed(found) == ["b > client 30 withdrawal", "client > a 100 price"]
    with pytest.raises(UsageError, match="does not stand"):
        settle(one, first(OFFER, {A: (REMAINING, CLAIM), B: (REMAINING, CLAIM)}))


def test_a_client_that_withdraws_pays_each_provider() -> None:  # PROTOCOL 14.4
    one = book(OFFER, accepted(OFFER, (A, B, D)), withdrawn(OFFER, B, 1500),
               withdrawn(OFFER, C, 1600))  # fmt: skip
    assert sorted(listed(settle(one))) == [
        "b > client 30 withdrawal", "client > a 70 withdrawal", "client > d 70 withdrawal",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="no session"):
        settle(one, first(OFFER, {A: (REMAINING, CLAIM)}))


def test_a_lapsed_offer_costs_nothing_else() -> None:  # PROTOCOL 14.4.1
    three = offer(least=3)
    one = book(three, accepted(three, (A, B, D)), withdrawn(three, B, 1500))
    assert listed(settle(one)) == ["b > client 30 withdrawal"]


# ---- alarms -------------------------------------------------------------------------------------

BOTH: Fates = {A: (REMAINING, CLAIM), B: (REMAINING, CLAIM)}


def challenged(
    fates: Fates,
    claim: bytes | None,
    *games: PlayedGame,
    order: Offer = OFFER,
    auditors: tuple[PublicKey, ...] = (E,),
    result: int = 1,
) -> list[str]:
    """A session that a and b end with CLAIM, and what becomes of it after alarms."""
    alarms = [alarm(order, key, ENDED + 1 + at) for at, key in enumerate(auditors)]
    one = book(order, accepted(order, P[:2]), *alarms)
    session = first(order, BOTH)
    called = challenge_of(one, session)
    assert called is not None
    second = outcome(called.names, fates, claim, games, session=AGAIN, head=HEAD_AGAIN,
                     ended=called.begins, result=result if claim or result != 1 else 0)  # fmt: skip
    return listed(settle(one, session, second))


def test_a_false_alarm_costs_the_one_who_raised_it() -> None:  # PROTOCOL 14.8.6, 14.8.8
    lost = {**BOTH, E: (CONVICTED, FALSE)}
    prices = ["client > a 100 price", "client > b 100 price"]
    shared = ["e > a 151 false alarm", "e > b 150 false alarm"]
    assert challenged(lost, CLAIM, game(0, (A, E), 2)) == prices + shared
    assert challenged({**BOTH, E: (REMAINING, CLAIM)}, CLAIM, result=2) == prices + shared
    assert challenged(BOTH, CLAIM, result=2) == prices + shared  # it did not appear
    assert challenged({**BOTH, E: (UNOPENED, None)}, CLAIM, result=2) == prices + shared


def test_the_clients_false_alarm_costs_the_client() -> None:  # PROTOCOL 14.8.6
    found = challenged({**BOTH, C: (CONVICTED, FALSE)}, CLAIM, game(0, (A, C), 2), auditors=(C,))
    assert found[2:] == ["client > a 151 false alarm", "client > b 150 false alarm"]


WON: Fates = {A: (CONVICTED, CLAIM), B: (CONVICTED, CLAIM), E: (REMAINING, FALSE)}
GAMES = (game(0, (A, E), 1, 5, 50), game(1, (B, E), 1, 5, 50))


def test_a_true_alarm_costs_the_signers_and_is_rewarded() -> None:  # PROTOCOL 14.8.5, 14.8.3
    assert challenged(WON, FALSE, *GAMES) == [
        "a > e 333 reward", "b > e 333 reward", "a > client 667 convicted",
        "b > client 667 convicted",
    ]  # fmt: skip


def test_two_true_alarms_share_the_reward() -> None:  # PROTOCOL 14.8.5, 14.8.8
    fates: Fates = {**WON, F: (REMAINING, FALSE)}
    found = challenged(fates, FALSE, *GAMES, auditors=(F, E))
    assert found[:4] == ["a > e 167 reward", "a > f 166 reward", "b > e 167 reward",
                         "b > f 166 reward"]  # fmt: skip


def test_re_execution_comes_before_the_reward() -> None:  # PROTOCOL 14.8.4, 14.8.5
    paying = offer(reexecution=Reexecution(Payer.LOSER, 15, 100))
    assert challenged(WON, FALSE, *GAMES, order=paying) == [
        "a > e 750 re-execution", "b > e 750 re-execution", "a > e 250 reward", "b > e 250 reward",
    ]  # fmt: skip
    lost = {**BOTH, E: (CONVICTED, FALSE)}
    played = game(0, (A, E), 2, 10, 1)
    assert challenged(lost, CLAIM, played, order=paying)[2:] == [
        "e > a 150 re-execution", "e > a 76 false alarm", "e > b 75 false alarm",
    ]  # fmt: skip


def test_silence_brings_no_reward() -> None:  # PROTOCOL 14.8.5, 14.8.2
    fates: Fates = {A: (SILENT, CLAIM), E: (REMAINING, FALSE)}
    assert challenged(fates, FALSE, game(0, (A, E), 1)) == [
        "a > client 250 silent", "b > client 250 absent",
    ]  # fmt: skip


def test_a_signer_that_is_away_while_another_defends_loses_its_price() -> None:  # PROTOCOL 14.8.2
    fates: Fates = {A: (REMAINING, CLAIM), E: (CONVICTED, FALSE)}
    assert challenged(fates, CLAIM, game(0, (A, E), 2)) == [
        "client > a 100 price", "e > a 301 false alarm",
    ]  # fmt: skip


def test_a_provider_with_two_claims_has_contradicted_itself() -> None:  # PROTOCOL 14.8.1
    fates: Fates = {A: (CONVICTED, CLAIM), B: (REMAINING, FALSE), E: (REMAINING, FALSE)}
    assert challenged(fates, FALSE, game(0, (A, E), 1)) == [
        "a > e 333 reward", "b > e 333 reward", "a > client 667 convicted",
        "b > client 667 excluded",
    ]  # fmt: skip


def test_an_undecided_challenge_costs_nobody() -> None:  # PROTOCOL 14.7.3, 14.8.6
    fates: Fates = {**BOTH, E: (REMAINING, FALSE)}
    found = challenged(fates, None, game(0, (A, E), 0), result=4)
    assert found == ["client > a 100 price", "client > b 100 price"]


def test_an_alarm_lost_to_another_true_alarm() -> None:  # PROTOCOL 14.8.6
    fates: Fates = {**WON, F: (CONVICTED, WORSE)}
    games = (*GAMES, game(2, (E, F), 2))
    assert challenged(fates, FALSE, *games, auditors=(E, F))[2] == "f > client 301 false alarm"
    fates[F] = (SILENT, FALSE)  # right, and then its machine failed
    games = (*GAMES, game(2, (B, F), 2))
    fates[B], games = (CONVICTED, CLAIM), (GAMES[0], game(1, (B, F), 2), game(2, (B, E), 1))
    assert not any(" 301 " in line for line in challenged(fates, FALSE, *games, auditors=(E, F)))


def test_an_alarm_that_is_not_called_costs_nothing() -> None:  # PROTOCOL 14.7.2
    two = offer(most_parties=2, providers=2)
    fates: Fates = {A: (REMAINING, CLAIM), E: (CONVICTED, FALSE)}
    found = challenged(fates, CLAIM, game(0, (A, E), 2), order=two, auditors=(E, F))
    assert found == [  # b was not called either, and keeps its price
        "client > a 100 price", "client > b 100 price", "e > a 151 false alarm",
        "e > b 150 false alarm",
    ]  # fmt: skip


# ---- what does not fit --------------------------------------------------------------------------


def test_outcomes_of_something_else_are_refused() -> None:  # PROTOCOL 14.8
    one = book(OFFER, accepted(OFFER, P[:2]))
    session = first(OFFER, BOTH)
    with pytest.raises(UsageError, match="has no outcome"):
        settle(one)
    with pytest.raises(UsageError, match="names another"):
        settle(one, replace(session, offer=bytes(32)))
    with pytest.raises(UsageError, match="no alarm"):
        settle(one, session, replace(session, session=AGAIN))
    alarmed = book(OFFER, accepted(OFFER, P[:2]), alarm(OFFER, E))
    with pytest.raises(UsageError, match="challenge session has no outcome"):
        settle(alarmed, session)
    called = challenge_of(alarmed, session)
    assert called is not None
    again = replace(session, session=AGAIN, offer=called.names, ended=called.begins)
    settle(alarmed, session, again)
    for changes, words in (
        ({"offer": OFFER.digest}, "another alarm"),
        ({"session": session.session}, "twice"),
        ({"ended": called.begins - 1}, "before it could"),
        ({"members": (SealedMember(D, REMAINING, CLAIM),)}, "not called"),
    ):
        with pytest.raises(UsageError, match=words):
            settle(alarmed, session, replace(again, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"result": 5}, {"result": 0}, {"accepted": None}, {"accepted": FALSE}, {"ended": -1},
        {"members": (SealedMember(B, REMAINING, CLAIM), SealedMember(A, REMAINING, CLAIM))},
        {"members": (SealedMember(A, CONVICTED, FALSE),), "result": 0, "accepted": None},
        {"games": (game(0, (A, B), 1),)},
        {"games": (game(0, (A, E), 0),)},
        {"games": (game(1, (A, B), 0), game(0, (A, B), 0))},
    ],
)  # fmt: skip
def test_an_outcome_that_no_session_has_is_refused(changes: dict[str, object]) -> None:  # 14.6
    with pytest.raises(UsageError, match="No session ends so"):
        replace(first(OFFER, BOTH), **changes)  # type: ignore[arg-type]


def test_a_remaining_key_has_a_claim() -> None:  # PROTOCOL 14.6
    with pytest.raises(UsageError, match="No session ends so"):
        SealedMember(A, REMAINING)
