"""PROTOCOL 14.3 to 14.8 again, from the text alone: plain JSON in, plain JSON out.

Written clause by clause, without the package: a second reading to hold its settlement against.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

Object = dict[str, Any]
ORDER = ["withdrawal", "price", "re-execution", "reward", "false alarm", "convicted", "excluded",
         "silent", "unopened", "absent"]  # fmt: skip


def settlement(
    offer: Object,
    offer_digest: str,
    documents: list[tuple[int, str, Object]],
    session: Object | None = None,
    challenge: Object | None = None,
) -> tuple[list[Object], str | None]:
    """The transfers (14.8.10) and the final claim, of documents as (time, digest, payload)."""
    client = offer["client"]
    due: dict[tuple[str, str, str], int] = defaultdict(int)

    def owe(reason: str, payer: str, payee: str, amount: int) -> None:
        due[reason, payer, payee] += amount

    def named(name: str) -> list[tuple[int, str, Object]]:
        return [d for d in documents if d[2]["kind"] == f"tallystick/{name}/1"
                and d[2]["offer"] == offer_digest]  # fmt: skip

    # 14.3.2, 14.4
    withdrawals = [(t, d["party"]) for t, _, d in named("withdrawal")
                   if t <= offer["deadlines"]["withdraw"]]  # fmt: skip
    end = min([t for t, party in withdrawals if party == client], default=None)
    valid = []
    for time, _, d in named("acceptance"):
        key = d["provider"]
        if time > offer["deadlines"]["accept"] or (end is not None and time >= end):
            continue
        if (offer["keys"] and key not in offer["keys"]) or key in [client, *offer["referees"]]:
            continue
        valid.append((time, key))
    taken = [key for _, key in sorted(valid)][: offer["providers"]]
    gone = {p for t, p in withdrawals if p in taken and (end is None or t < end)}
    stand = sorted(set(taken) - gone)
    for key in gone:
        owe("withdrawal", key, client, offer["withdrawal"]["provider"])
    if end is not None:
        for key in stand:
            owe("withdrawal", client, key, offer["withdrawal"]["client"])
    if end is not None or len(stand) < offer["least"]:
        return _listed(due), None
    assert session is not None

    # 14.7
    first = {m["key"]: m for m in session["members"]}
    called: list[str] = []
    auditors: list[str] = []
    last = session["ended"] + offer["deadlines"]["challenge"]
    alarms = sorted(
        (t, d["auditor"]) for t, _, d in named("alarm")
        if session["accepted"] is not None and t <= last
        and (d["session"], d["claim"]) == (session["session"], session["accepted"])
        and d["auditor"] not in [*stand, *offer["referees"]]
    )  # fmt: skip
    if alarms:
        remain = sorted(k for k, m in first.items() if m["fate"] == "remaining")
        called = remain[: offer["most_parties"] - 1]
        auditors = [k for _, k in alarms][: offer["most_parties"] - len(called)]
        assert challenge is not None
    second = {m["key"]: m for m in challenge["members"]} if alarms and challenge else {}
    final = session["accepted"]
    if alarms and challenge and challenge["result"] != 4:
        final = challenge["accepted"]

    # 14.8.1, 14.8.3
    def claim(key: str) -> str | None:
        return first[key]["claim"] if key in first else None

    def fate(key: str) -> str:
        if key not in called:
            return str(first[key]["fate"]) if key in first else "absent"
        if key not in second:
            return "absent"
        if second[key]["claim"] is not None and second[key]["claim"] != claim(key):
            return "excluded"
        return str(second[key]["fate"])

    paid = [k for k in stand if final is not None and fate(k) == "remaining" and claim(k) == final]
    for key in paid:
        owe("price", client, key, offer["price"])

    # 14.8.2, 14.8.5, 14.8.6
    forfeit: dict[str, int] = {}
    for key in stand:
        how = fate(key)
        if how in ("convicted", "excluded"):
            forfeit[key] = offer["provider_stake"]
        elif how == "remaining" or (final is not None and claim(key) == final):
            forfeit[key] = 0
        elif how == "silent" or key in called:
            forfeit[key] = offer["silence"]
        else:
            forfeit[key] = offer["absence"]
    right = [k for k in auditors if k in second and final is not None
             and second[k]["claim"] == final and final != session["accepted"]]  # fmt: skip
    won = [k for k in right if second[k]["fate"] == "remaining"]
    for key in auditors:
        how = second[key]["fate"] if key in second else "absent"
        undecided = how == "remaining" and challenge is not None and challenge["result"] == 4
        free = key in won or undecided or (how == "silent" and key in right)
        forfeit[key] = 0 if free else offer["alarm_stake"]

    # 14.8.4
    again = offer["reexecution"]
    left = defaultdict(lambda: int(again["most_steps"]))
    for game in session["games"] + (challenge["games"] if alarms and challenge else []):
        for party in (0, 1):
            key, other = game["keys"][party], game["keys"][1 - party]
            steps = min(left[key], game["executed"][party])
            left[key] -= steps
            cost = steps * again["unit_price"]
            if again["payer"] == "client" and key in paid:
                owe("re-execution", client, key, cost)
            beat = game["removed"] == [party == 1, party == 0] and (key in paid or key in won)
            if again["payer"] == "loser" and beat:
                cost = min(cost, forfeit[other])
                forfeit[other] -= cost
                owe("re-execution", other, key, cost)

    # 14.8.5 to 14.8.7
    for key in stand:
        if key in called and fate(key) in ("convicted", "excluded") and won:
            amount = min(offer["reward"], forfeit[key])
            forfeit[key] -= amount
            for payee, part in _shares(amount, won):
                owe("reward", key, payee, part)
        if fate(key) != "remaining":
            owe(fate(key), key, client, forfeit[key])
    for key in auditors:
        for payee, part in _shares(forfeit[key], paid or [client]):
            owe("false alarm", key, payee, part)
    return _listed(due), final


def _shares(amount: int, keys: list[str]) -> list[tuple[str, int]]:
    """14.8.8"""
    n = len(keys)
    return [(k, amount // n + (1 if i < amount % n else 0)) for i, k in enumerate(sorted(keys))]


def _listed(due: dict[tuple[str, str, str], int]) -> list[Object]:
    """14.8.10"""
    found = [(ORDER.index(why), a, b, n) for (why, a, b), n in due.items() if n and a != b]
    return [{"amount": n, "from": a, "reason": ORDER[i], "to": b} for i, a, b, n in sorted(found)]
