"""Shared by the states of a game: the terms, the pinned state roots, and convictions.

Theory of operation. A state is a generator. It receives a result of results.py. It yields rounds:
one query for each party that it asks. The referee sends it the decoded bodies. It returns the next
state's name and the result for it. The game keeps every state root that a party has proved or
stated, so that no party is asked for it again or can take it back (PROTOCOL 4.4).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from tallystick.commit.signing import RunCommitment
from tallystick.commit.tensor import DTYPES, widened
from tallystick.contracts.exact.opening import shown as shown_blocks
from tallystick.contracts.rounded.opening import accumulator_text
from tallystick.opening.quantity import ACCUMULATOR, BLOCKS, REAL
from tallystick.protocol.bodies import Body, NodeBody
from tallystick.protocol.facts import Facts
from tallystick.protocol.messages import B, Query
from tallystick.protocol.verdict import Event, Place

Round = dict[int, Query[Any]]
Bodies = dict[int, Body]
Rounds = Generator[Round, Bodies, "Next"]  # a state
Guilt = Mapping[int, tuple[str, str]]  # party -> clause, sentence
Part = TypeVar("Part")
Asking = Generator[Round, Bodies, Part]  # a part of a state

BOTH = (0, 1)


class Next(NamedTuple):
    """The state that follows, by its name in states.TABLE, and the result that it receives."""

    state: str
    given: object = None


class Guilty(Exception):  # noqa: N818 (an outcome, not an error)
    """The game ends: each guilty party's clause and sentence (1.4). `guilt` is not empty."""

    def __init__(
        self,
        guilt: Guilt,
        case: str = "",
        claimed: tuple[str, str] = ("", ""),
        value: str = "",
    ) -> None:
        super().__init__("; ".join(sentence for _, sentence in guilt.values()))
        assert guilt
        self.guilt, self.case, self.claimed, self.value = dict(guilt), case, claimed, value


def convict(guilt: Guilt, case: str = "") -> None:
    """End the game if `guilt` names a party."""
    if guilt:
        raise Guilty(guilt, case)


def ask(asked: Mapping[int, Query[B]]) -> Asking[dict[int, B]]:
    """One round of queries of one kind: the bodies of their answers, by party."""
    bodies = yield dict(asked)
    # The referee decodes each body by its query's layout.
    return cast("dict[int, B]", bodies)


@dataclass
class Story:
    """The story of a game, for people and for the verdict's particulars. No state reads it."""

    events: list[Event] = field(default_factory=list)
    place: Place = field(default_factory=Place)
    terms: int = 0  # executed by the referee (6.5)
    choices: tuple[int, int] = (0, 0)  # left by logs and taken (NUMERICS 14.8)
    claimed: tuple[str, str] = ("", "")  # of an undecided game
    value: str = ""

    def note(
        self, phase: int, clause: str, sentence: str, stated: tuple[str, str] = ("", "")
    ) -> None:
        """Add a finding to the story."""
        self.events.append(Event(phase, clause, sentence, stated))

    def found(self, **known: Any) -> None:
        """Add to the place where the parties part."""
        self.place = replace(self.place, **known)


@dataclass(frozen=True)
class Game:
    """The subject of a game (PROTOCOL 1.1), the parties' pinned state roots (4.4), and its story.

    The states hand their findings to each other (results.py).
    """

    facts: Facts
    runs: tuple[RunCommitment, RunCommitment]
    arity: int
    # Proved roots by index of checkpoint, and all stated roots by step, per party: only added to.
    checkpoints: tuple[dict[int, bytes], dict[int, bytes]] = field(default_factory=lambda: ({}, {}))
    states: tuple[dict[int, bytes], dict[int, bytes]] = field(default_factory=lambda: ({}, {}))
    story: Story = field(default_factory=Story)


def misfit(facts: Facts, node: int, body: NodeBody) -> str | None:
    """The record's difference from the program, in words; None without one (5.2, 5.5)."""
    operator, attributes, outputs = facts.structure(node)
    if body.operator != operator:
        return f"its operator is {body.operator[:40]!r}, the program's {operator}"
    if body.attributes != attributes:
        return "its attributes are not the program's"
    inputs = len(facts.operands(node))
    if len(body.inputs) != inputs:
        return f"it has {len(body.inputs)} inputs, in the program {inputs}"
    if len(body.outputs) != outputs:
        return f"it has {len(body.outputs)} outputs, in the program {outputs}"
    return None


def short(digest: bytes) -> str:
    """The beginning of a digest, for a person."""
    return digest.hex()[:16]


def shorts(pair: tuple[bytes, ...]) -> tuple[str, str]:
    """The two parties' digests, for a person."""
    return short(pair[0]), short(pair[1])


def show(value: np.generic) -> str:
    """A scalar for a person: the number, and for a float its bits."""
    array = np.asarray(value)
    if array.dtype == ACCUMULATOR:
        return f"the exact sum {accumulator_text(value)}"
    if array.dtype == BLOCKS:
        return shown_blocks(value)
    if array.dtype == REAL:
        return f"{float(array['x'])!r} within {float(array['e']):.3g}"
    if array.dtype in (DTYPES["bf16"], DTYPES["f16"]):
        return f"{widened(array)[()]!s} (0x{int.from_bytes(array.tobytes(), 'little'):04x})"
    if array.dtype.kind != "f":
        return str(array.item())
    bits = array.astype(array.dtype.newbyteorder(">")).tobytes().hex()
    return f"{array[()]!s} (0x{bits})"  # as few digits as tell it from its neighbours
