"""A verdict for people and as JSON, for `dispute` and `judge` (DESIGN 9), with names of the keys
that it is about: those that the caller gives with --name, and those of a page's maker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import click

from tallystick.cli.output import say
from tallystick.commit.encoding import sha256
from tallystick.commit.signing import PublicKey
from tallystick.disk.keys import load_public_key
from tallystick.errors import UsageError
from tallystick.protocol.judge import Judgement
from tallystick.protocol.verdict import CASES, PARTIES, Event
from tallystick.report.answer_meanings import Work
from tallystick.report.first import first_sentence, meaning

name_option = click.option(
    "--name",
    "named",
    multiple=True,
    metavar="KEY=NAME",
    help="Your name for the holder of a public key. KEY is the key's file or its 64 "
    "hexadecimal digits (repeatable).",
)
_DIGITS = re.compile(r"[0-9a-f]{64}")


def load_names(given: Sequence[str]) -> dict[str, str]:
    """Name by key as `--name` gives them: a key id, or the 64 digits that the caller typed, which
    are a public key's or a key id's. Raises UsageError, CannotCheckError."""
    names = dict[str, str]()
    for text in given:
        key, equals, name = text.partition("=")
        if not equals or not key or not name.strip():
            raise UsageError(
                f"{text!r} is not KEY=NAME.", "Write KEY=NAME, such as alice.pub=Alice."
            )
        names[key if _DIGITS.fullmatch(key) else load_public_key(Path(key)).key_id] = name
    return names


def names_by_key(names: Mapping[str, str], keys: Sequence[PublicKey]) -> dict[bytes, str]:
    """The names of `load_names` by raw public key, each of them one of `keys`.

    Raises UsageError for another one.
    """
    known = {key.key_id: key.raw for key in keys} | {key.raw.hex(): key.raw for key in keys}
    if strange := sorted(set(names) - set(known)):
        raise UsageError(
            f"No party in this evidence has the key {strange[0]}.",
            "Pass the public key of a party.",
        )
    return {known[key]: name for key, name in names.items()}


def names_json(
    found: Judgement, own: Mapping[str, str], makers: Mapping[bytes, str]
) -> list[dict[str, Any]]:
    """The names of the keys that a verdict is about, and whose names they are."""
    by_reader = {**own, **{sha256(bytes.fromhex(k)).hex(): name for k, name in own.items()}}
    by_maker = {sha256(key).hex(): name for key, name in makers.items()}
    keys = dict.fromkeys((*found.signers, *([found.referee] if found.referee else ())))
    return [
        {"key_id": key, "name": names[key], "given_by": giver}
        for key in keys
        for giver, names in (("you", by_reader), ("page", by_maker))
        if key in names
    ]


def say_names(found: Judgement, names: Sequence[Mapping[str, Any]]) -> None:
    """One line for each name, with the giver of it."""
    givers = {"you": "by your --name", "page": "by the page's maker; nobody has checked it"}
    for entry in names:
        roles = [p for p, signer in zip(PARTIES, found.signers, strict=True)
                 if signer == entry["key_id"]]  # fmt: skip
        who = " and ".join(roles) or "the referee"
        say(f"name        {who}: {entry['name']} ({givers[entry['given_by']]})")


def verdict_json(found: Judgement) -> dict[str, Any]:
    """The documented keys of `dispute --json` and `judge --json`."""
    v, place = found.verdict, found.verdict.place
    return {
        "agreement": v.agreement,
        "undecided": v.undecided,
        "convicted": [
            {
                "party": PARTIES[c.party],
                "run_root": found.run_roots[c.party],
                "signer": found.signers[c.party],
                "trusted": found.trusted[c.party],
                "case": v.case,
                "clause": c.clause,
                "sentence": c.sentence,
            }
            for c in v.convicted
        ],
        "accepted": None if v.accepted is None else found.run_roots[v.accepted],
        "accepted_party": None if v.accepted is None else PARTIES[v.accepted],
        "phase": v.phase,
        "case": v.case,
        "clause": v.convicted[0].clause if v.convicted else None,
        "interval": None if place.interval is None else list(place.interval),
        "step": place.step,
        "node": place.node,
        "operator": place.operator,
        "side": place.side,
        "operand": place.operand,
        "element": place.element,
        "quantity": place.quantity,
        "claimed": list(v.claimed),
        "value": v.value,
        "choices": {"left": v.choices[0], "taken": v.choices[1]},
        "forfeit": v.forfeit,
        "rests_on": None if not v.convicted else ("referee" if v.forfeit else "parties"),
        "referee": found.referee,
        "run_roots": list(found.run_roots),
        "signers": list(found.signers),
        "trusted": list(found.trusted),
        "rounds": v.rounds,
        "received_bytes": v.received,
        "terms": v.terms,
    }


def say_event(event: Event) -> None:
    """One line about a finding of the referee."""
    text = f"  phase {event.phase}  {event.sentence}"
    a, b = event.stated
    if a or b:
        text += f": both {a}" if a == b else f": A {a}, B {b}"
    say(text)


def say_verdict(found: Judgement, work: Work = Work.TRAINING) -> None:
    """The verdict in words: parties, place, claims, true value, clause."""
    v = found.verdict
    for party, name in enumerate(PARTIES):
        known = {True: "trusted", False: "not among --trust", None: "unknown to you"}
        say(
            f"run {name}       {found.run_roots[party].hex()}  signer "
            f"{found.signers[party][:16]} ({known[found.trusted[party]]})"
        )
    if v.agreement:
        say("AGREEMENT   both runs are the same, to the bit")
        return
    say(f"in words    {first_sentence(v, work)}")
    said = dict.fromkeys(meaning(v, c, work).means for c in v.convicted)
    for line in (line for words in said for line in wrap(words, 88)):
        say(f"            {line}")
    place = _place(found)
    if place:
        say(f"place       {place}")
    for party, name in enumerate(PARTIES):
        if v.claimed[party]:
            say(f"{name} claims    {v.claimed[party]}")
    if v.value:
        say(f"it is       {v.value}")
    if v.undecided:
        say("UNDECIDED   it could not be decided: neither party is shown wrong. Runs that follow")
        say("            different rounding logs may differ honestly. Follow the trainer's with")
        say("            `tallystick train JOB --out RUN --replay TRAINER_RUN`, every log at hand,")
        say("            and dispute that run. `dispute --logs-a` or `--logs-b` gets logs that you")
        say("            lack. A run that could not follow a step checks nothing past that step")
        say("            (PROTOCOL 6.12, 6.15). Under form=published a run that followed every log")
        say("            can still end here: then no new run decides it (NUMERICS 14.9.2).")
    if any(v.choices):
        say(f"choices     {v.choices[0]} left to the trainer by the log here, {v.choices[1]} taken")
    if v.case:
        say(f"case        {v.case}: {CASES[v.case]}")
    for c in v.convicted:
        say(f"CONVICTED   {PARTIES[c.party]}: {c.sentence} (PROTOCOL {c.clause})")
    if v.forfeit:
        named = f" {found.referee[:16]}" if found.referee else ", who has signed it with a new key"
        say(f"            by silence, which rests on the word of the referee{named}, not on a")
        say("            signed message of a party; a judge must name that referee to believe it")
    elif v.convicted:
        say("            which rests on the parties' signed messages; anyone can check it")
    if v.accepted is not None:
        say(f"ACCEPTED    {PARTIES[v.accepted]}: run root {found.run_roots[v.accepted].hex()}")
        say("            (not shown wrong against this opponent; an audit says more)")
    else:
        say("ACCEPTED    neither")
    say(f"cost        {v.rounds} rounds, {v.received:,} bytes, {v.terms} terms executed")


def _place(found: Judgement) -> str:
    place = found.verdict.place
    parts = []
    if place.step is not None:
        parts.append(f"step {place.step}")
    elif place.interval is not None:
        parts.append(f"steps {place.interval[0]} to {place.interval[1]}")
    if place.node is not None:
        parts.append(f"node {place.node} ({place.operator})")
    if place.operand is not None:
        parts.append(f"{place.side} {place.operand}")
    if place.element is not None:
        parts.append(f"element {place.element}")
    if place.quantity is not None:
        parts.append(place.quantity)
    return ", ".join(parts)
