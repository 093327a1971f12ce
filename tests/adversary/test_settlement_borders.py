"""Settlements with the largest numbers that an offer may have, and outcomes made to gain by them.

The properties of ordinary settlements are in tests/unit/delegation/test_settlement_properties.py.
"""

from __future__ import annotations

import json
from itertools import product

import pytest
from unit.delegation.offers import (
    CLAIM,
    CLIENT,
    ENDED,
    FALSE,
    OFFER,
    REFEREE,
    P,
    accepted,
    book,
    game,
    offer,
    outcome,
)

from tallystick.commit.encoding import parse_canonical_json
from tallystick.commit.signing import Envelope
from tallystick.delegation.offer import MOST_AMOUNT, Payer, Reexecution, Withdrawing
from tallystick.delegation.outcome import Fate
from tallystick.delegation.settlement import settle
from tallystick.delegation.statement import Settled, check_settlement, sign_settlement
from tallystick.errors import TallystickError, UsageError
from tallystick.limits import LIMITS

NAMES = (
    "price", "provider_stake", "client_stake", "alarm_stake", "absence", "silence", "reward",
)  # fmt: skip
LARGEST = dict.fromkeys(NAMES, MOST_AMOUNT)
FATES = (Fate.REMAINING, Fate.CONVICTED, Fate.SILENT, Fate.EXCLUDED, Fate.UNOPENED)


@pytest.mark.parametrize("payer", [Payer.LOSER, Payer.EACH])
@pytest.mark.parametrize(("one", "two"), list(product(FATES, repeat=2)))
def test_the_largest_numbers(payer: Payer, one: Fate, two: Fate) -> None:
    """No product leaves the stakes, no number leaves JSON, and the sum is zero."""
    order = offer(
        **LARGEST, reexecution=Reexecution(payer, MOST_AMOUNT, LIMITS.steps),
        withdrawal=Withdrawing(client=MOST_AMOUNT // 3, provider=MOST_AMOUNT),
    )  # fmt: skip
    keys = P[:3]
    fates = {keys[0]: (Fate.REMAINING, CLAIM)}
    for key, fate in zip(keys[1:], (one, two), strict=True):
        claim = CLAIM if fate is Fate.REMAINING else None if fate is Fate.UNOPENED else FALSE
        fates[key] = (fate, claim)
    most = LIMITS.steps
    lost = [key for key in keys[1:] if fates[key][0] in (Fate.CONVICTED, Fate.SILENT)]
    games = [game(n, (keys[0], key), 2, most, most) for n, key in enumerate(lost)]
    made = book(order, accepted(order, keys))
    found = outcome(order.digest, fates, CLAIM, games)
    settled = settle(made, found)
    every = [CLIENT.public, *keys]
    assert sum(settled.balance(key) for key in every) == 0
    for key in keys:
        assert settled.balance(key) >= -MOST_AMOUNT, "more than its stake"
    assert settled.balance(CLIENT.public) >= -MOST_AMOUNT * len(keys), "more than the prices"
    signed = sign_settlement(REFEREE, Settled(made, REFEREE.public, ENDED + 501, found))
    again = check_settlement(signed, made, found)
    payload = Envelope.from_bytes(signed).payload
    assert parse_canonical_json(payload, "settlement", 1 << 20) == json.loads(payload)
    assert all(0 < t.amount <= 1 << 53 for t in settle(again.book, found).transfers)


@pytest.mark.parametrize("name", [*LARGEST, "unit_price"])
@pytest.mark.parametrize("value", [-1, MOST_AMOUNT + 1, 1 << 53, 1 << 64, -(1 << 64)])
def test_numbers_beyond_the_border_make_no_offer(name: str, value: int) -> None:
    change = {name: value}
    if name == "unit_price":
        change = {"reexecution": Reexecution(Payer.LOSER, value, 1)}  # type: ignore[dict-item]
    with pytest.raises(UsageError):
        offer(**{**LARGEST, **change})


@pytest.mark.parametrize("executed", [(-1, 0), (0, 1 << 53), (1 << 64, 0), (0, -(1 << 63))])
def test_steps_that_nobody_executes(executed: tuple[int, int]) -> None:
    """Negative steps would make the paid one pay, and steps beyond JSON cannot be told."""
    with pytest.raises(TallystickError):
        fates = {P[0]: (Fate.REMAINING, CLAIM), P[1]: (Fate.CONVICTED, FALSE)}
        found = outcome(OFFER.digest, fates, CLAIM, [game(0, P[:2], 2, *executed)])
        order = offer(reexecution=Reexecution(Payer.LOSER, 2, 100))
        made = book(order, accepted(order, P[:2]))
        found = outcome(order.digest, fates, CLAIM, [game(0, P[:2], 2, *executed)])
        sign_settlement(REFEREE, Settled(made, REFEREE.public, ENDED + 501, found))
