"""The end of a game, and the way there, in the terms of PROTOCOL 1."""

from __future__ import annotations

from dataclasses import dataclass, field

from tallystick.visible import Tabled

# How a game ends: 1.5, 1.4, 1.5.1.
AGREEMENT, CONVICTION, UNDECIDED = "agreement", "conviction", "undecided"

# What people call the parties 0 and 1, on the command line and in its JSON.
PARTIES = ("A", "B")

# PROTOCOL 1.6, in words for people.
CASES = {
    "0": "commitment, genesis or end of the run",
    "1": "structure of the program",
    "2a": "an input from the state",
    "2b": "an input from another node",
    "2c": "an input from the batch",
    "2d": "a scalar or the random key",
    "3": "an operator's output",
}


@dataclass(frozen=True)
class Conviction:
    """Party `party` (0 or 1) broke `clause` of spec/PROTOCOL.md; `sentence` says how."""

    party: int
    clause: str
    sentence: str


@dataclass(frozen=True)
class Event:
    """One finding, for the report, progress and logs; no verdict rests on it.

    `stated` holds each party's statement, shortened for a person; equal strings are an agreement.
    """

    phase: int
    clause: str
    sentence: str
    stated: tuple[str, str] = ("", "")


@dataclass(frozen=True)
class Place:
    """The place where the parties part, as far as the game found it."""

    interval: tuple[int, int] | None = None
    step: int | None = None
    node: int | None = None
    operator: str | None = None
    side: str | None = None  # "input" or "output"
    operand: int | None = None
    element: int | None = None
    quantity: str | None = None  # the contract's partial on which it was decided


@dataclass(frozen=True, repr=False)
class Verdict(Tabled):
    """The end of a game.

    `case` is one of "", "0", "1", "2a", "2b", "2c", "2d", "3" (PROTOCOL 1.6), "" for an
    agreement, an equivocation, an unopenable commitment or a forfeit. `accepted` is the accepted
    party, None where there is none; under `agreement` both are accepted. `undecided` says that the
    runs differ and neither party is shown wrong (1.5.1). `choices` are the numbers of choices that
    logs left and that were taken, as far as the game determined them (NUMERICS 14.8). `terms` is
    the number of terms that the referee executed; `received` are bytes of answers.
    """

    agreement: bool
    convicted: tuple[Conviction, ...]
    accepted: int | None
    phase: int
    case: str
    place: Place
    forfeit: bool = False
    claimed: tuple[str, str] = ("", "")
    value: str = ""
    terms: int = 0
    rounds: int = 0
    received: int = 0
    undecided: bool = False
    choices: tuple[int, int] = (0, 0)
    story: tuple[Event, ...] = field(default=(), repr=False)

    @property
    def ending(self) -> str:
        """The verdict in a few words."""
        if self.agreement:
            return "both runs are the same"
        if self.undecided:
            return "undecided"
        return f"{' and '.join(PARTIES[c.party] for c in self.convicted) or 'nobody'} convicted"

    def facts_for_people(self) -> tuple[str, dict[str, object]]:
        title = f"Verdict: {self.ending}"
        if self.agreement:
            return title, {"phase": self.phase}
        if self.undecided:
            return title, {"phase": self.phase, "case": self.case}
        facts: dict[str, object] = {
            "accepted": None if self.accepted is None else PARTIES[self.accepted],
            "phase": self.phase,
            "case": self.case,
            "step": self.place.step,
            "node": self.place.node,
            "operator": self.place.operator,
        }
        said = {name: value for name, value in facts.items() if value is not None}
        why = {f"why {PARTIES[c.party]}": c.sentence for c in self.convicted}
        return title, {**said, **why}
