"""What a party replies to a referee's turn (PROTOCOL 13.4)."""

from __future__ import annotations

from dataclasses import dataclass

MALFORMED, UNBELIEVED, NOT_REGISTERED, IN_CONFLICT = (
    "malformed", "unbelieved", "not registered", "in conflict",
)  # fmt: skip


@dataclass(frozen=True)
class Message:
    """The party's signed message: a seal, an opening or an answer. No bytes: nothing is left to
    say, as after the end of a session."""

    data: bytes


@dataclass(frozen=True)
class Working:
    """The party is making the answer. `done` says how far it is."""

    done: str = ""


@dataclass(frozen=True)
class Needs:
    """The party needs the game's messages from number `first` on."""

    first: int


@dataclass(frozen=True)
class Refusal:
    """The party refuses the turn. `kind` is one of the names above, `why` a sentence."""

    kind: str
    why: str


Reply = Message | Working | Needs | Refusal
