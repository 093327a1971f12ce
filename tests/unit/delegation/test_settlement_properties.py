"""What follows from a settlement, over random worlds (PROTOCOL 14.10)."""

from __future__ import annotations

import json
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from reference.settlement import settlement
from unit.delegation.offers import CLAIM, CLIENT
from unit.delegation.worlds import HONEST, World, world

from tallystick.commit.signing import PublicKey
from tallystick.delegation.book import challenge_of, providers_of
from tallystick.delegation.outcome import Fate
from tallystick.delegation.settlement import FALSE, PRICE, WITHDRAWAL, Settlement, settle
from tallystick.delegation.statement import outcome_json

C = CLIENT.public
SEEDS = st.integers(0, (1 << 64) - 1)


def played(seed: int) -> tuple[World, Settlement]:
    made = world(Random(seed))
    return made, settle(made.book, made.session, made.challenge)


def recalled(made: World) -> tuple[PublicKey, ...]:
    """The providers that a challenge session calls."""
    assert made.session is not None
    called = challenge_of(made.book, made.session)
    return called.providers if called is not None else ()


def claims_of(made: World, key: PublicKey) -> set[bytes | None]:
    """The claims that a key has opened."""
    sessions = [s for s in (made.session, made.challenge) if s is not None]
    return {m.claim for s in sessions for m in s.members if m.key == key}


def paid_for(found: Settlement, reason: str, payer: PublicKey) -> int:
    return sum(t.amount for t in found.transfers if (t.reason, t.payer) == (reason, payer))


@settings(max_examples=250, deadline=None)
@given(SEEDS)
def test_the_transfers_sum_to_zero_and_stay_within_the_stakes(seed: int) -> None:  # 14.10
    made, found = played(seed)
    keys = {k for t in found.transfers for k in (t.payer, t.payee)}
    assert sum(map(found.balance, keys)) == 0
    assert all(t.amount > 0 and t.payer != t.payee for t in found.transfers)
    out = {key: sum(t.amount for t in found.transfers if t.payer == key) for key in keys}
    for key in keys - {C}:
        stake = made.order.alarm_stake if key in made.auditors else made.order.provider_stake
        assert out[key] <= stake
    more = made.order.alarm_stake if C in made.auditors else 0
    assert out.get(C, 0) - paid_for(found, PRICE, C) <= made.order.client_stake + more
    assert {t.payee for t in found.transfers if t.reason == PRICE} <= set(made.seats)


def is_paid(made: World, found: Settlement, key: PublicKey) -> bool:
    """Whether a provider has remained, in the last session that called it, with the final claim."""
    last = made.challenge if key in recalled(made) else made.session
    right = found.accepted is not None and claims_of(made, key) == {found.accepted}
    return right and last is not None and last.fate_of(key) is Fate.REMAINING


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_an_honest_provider_never_pays_and_a_liar_never_gains(seed: int) -> None:  # 14.10, P2
    made, found = played(seed)
    for key, (way, _) in made.seats.items():
        fates = {s.fate_of(key) for s in (made.session, made.challenge) if s is not None}
        paid, balance = is_paid(made, found, key), found.balance(key)
        if way == HONEST:
            # P1: with an honest party the claim is the true one, where there is a result.
            assert found.accepted in (CLAIM, None) and paid is (found.accepted == CLAIM)
        assert balance >= made.order.price if paid else balance <= 0
        if fates & {Fate.CONVICTED, Fate.EXCLUDED}:
            assert balance == -made.order.provider_stake
        elif fates == {Fate.REMAINING} and len(claims_of(made, key)) == 1:
            assert balance >= 0


@settings(max_examples=250, deadline=None)
@given(SEEDS)
def test_those_removed_gain_nothing_together_with_auditors(seed: int) -> None:  # 14.10
    made, found = played(seed)
    unpaid = {key for key in made.seats if not is_paid(made, found, key)}
    # The client may be an auditor too, and lose its stake as one.
    stake = made.order.alarm_stake if C in made.auditors else 0
    assert sum(map(found.balance, unpaid | set(made.auditors) - {C})) <= stake


@settings(max_examples=250, deadline=None)
@given(SEEDS)
def test_alarms_cost_and_bring_what_they_should(seed: int) -> None:  # PROTOCOL 14.8.5, 14.8.6
    made, found = played(seed)
    for key, (way, _) in made.auditors.items():
        assert made.session is not None and made.challenge is not None
        balance = found.balance(key) if key != C else -paid_for(found, FALSE, C)
        decided = made.challenge.result != 4
        same = found.accepted == made.session.accepted
        if way == HONEST and (not same or not decided):
            assert balance >= 0
        elif decided and same and key != C:  # the alarm was false
            assert balance == -made.order.alarm_stake


@settings(max_examples=250, deadline=None)
@given(SEEDS)
def test_a_withdrawal_costs_exactly_what_the_offer_says(seed: int) -> None:  # PROTOCOL 14.4
    made, found = played(seed)
    providers = providers_of(made.book)
    for key in providers.withdrawn:
        assert found.balance(key) == -made.order.withdrawal.provider
    if providers.client_withdrew:
        assert paid_for(found, WITHDRAWAL, C) == (
            made.order.withdrawal.client * len(providers.standing)
        )
        assert {t.reason for t in found.transfers} <= {WITHDRAWAL}


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_a_settlement_depends_on_nothing_else(seed: int) -> None:  # PROTOCOL 14.8
    assert played(seed)[1] == played(seed)[1]


def test_the_worlds_are_worth_playing() -> None:
    """The sample above holds each kind of world, so that no property holds for want of one."""
    seen: dict[str, int] = {}
    for seed in range(400):
        made, found = played(seed)
        kinds = {t.reason for t in found.transfers} | {f"result {s.result}" for s in
                 (made.session, made.challenge) if s is not None}  # fmt: skip
        if made.challenge is not None and found.accepted != made.session.accepted:  # type: ignore[union-attr]
            kinds.add("overturned")
        if any(way == HONEST for way, _ in made.seats.values()):
            kinds.add("honest")
        for kind in kinds:
            seen[kind] = seen.get(kind, 0) + 1
    wanted = {
        "price", "re-execution", "reward", "false alarm", "convicted", "excluded", "silent",
        "unopened", "absent", "withdrawal", "result 0", "result 1", "result 2", "result 4",
        "overturned", "honest",
    }  # fmt: skip
    assert wanted <= set(seen) and min(seen[kind] for kind in wanted) >= 3, seen


@settings(max_examples=300, deadline=None)
@given(SEEDS)
def test_a_second_reading_of_the_text_gives_the_same(seed: int) -> None:  # PROTOCOL 14.3 to 14.8
    made, found = played(seed)
    documents = [(t, d.digest.hex(), json.loads(d.payload())) for t, d in made.book.received]
    outcomes = [None if s is None else outcome_json(s) for s in (made.session, made.challenge)]
    order = json.loads(made.order.payload())
    transfers, final = settlement(order, made.order.digest.hex(), documents, *outcomes)
    assert final == (None if found.accepted is None else found.accepted.hex())
    assert transfers == [
        {"amount": t.amount, "from": t.payer.raw.hex(), "reason": t.reason, "to": t.payee.raw.hex()}
        for t in found.transfers
    ]
