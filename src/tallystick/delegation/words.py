"""The outcomes of games and of sessions in words, for documents and for people (PROTOCOL 12.2)."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.delegation.entries import (
    ALONE,
    CONTESTED,
    CONVICTED,
    NO_RESULT,
    NO_VERDICT,
    NONE_ACCEPTED,
    UNCONTESTED,
    UNDECIDED,
)

VERDICTS = {CONVICTED: "convicted", UNDECIDED: "undecided", NO_VERDICT: "no verdict"}


@dataclass(frozen=True)
class Words:
    """A result: its `name` in JSON (docs/INTERFACE.md), and a `sentence` for a person.

    `accepts` says whether a person reads of an accepted claim: of one that was compared (10.6.1).
    """

    name: str
    sentence: str
    accepts: bool = False


RESULTS = {
    NONE_ACCEPTED: Words("none accepted", "No claim is accepted: every party was removed."),
    CONTESTED: Words(
        "accepted", "One claim is accepted; every party that signed another one was removed.", True
    ),
    UNCONTESTED: Words(
        "uncontested", "All parties have signed the same claim; it is accepted.", True
    ),
    ALONE: Words(
        "one party alone",
        "One party alone has opened; its claim was compared with nothing, and none is accepted.",
    ),
    NO_RESULT: Words("no result", "The session has no result: a game could not be decided."),
}
