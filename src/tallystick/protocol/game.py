"""What the states of a game share: the terms, the pinned state roots, and convictions.

Theory of operation. A state is a generator: it is given a result of results.py, yields rounds, a
query per party that is asked, and is sent the decoded bodies; it returns the state that follows
and the result for it. State roots that were proved or stated once are kept here, so that they are
neither asked for again nor taken back (PROTOCOL 4.4).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from tallystick.commit.signing import RunCommitment
from tallystick.opening.accumulators import shown
from tallystick.opening.quantity import ACCUMULATOR, REAL
from tallystick.protocol.bodies import Body, NodeBody
from tallystick.protocol.facts import Facts
from tallystick.protocol.layouts import B
from tallystick.protocol.query import Query
from tallystick.protocol.verdict import Event, Place

Round = dict[int, Query[Any]]
Bodies = dict[int, Body]
Rounds = Generator[Round, Bodies, "Next"]  # a state
Guilt = Mapping[int, tuple[str, str]]  # party -> clause, sentence
Part = TypeVar("Part")
Asking = Generator[Round, Bodies, Part]  # a part of a state

BOTH = (0, 1)


class Next(NamedTuple):
    """The state that follows, by its name in states.TABLE, and the result that it is given."""

    state: str
    given: object = None


class Guilty(Exception):  # noqa: N818 (an outcome, not an error)
    """The game ends: who broke which clause, and how (PROTOCOL 1.4). `guilt` is not empty."""

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
    """End the game if there is anybody in `guilt`."""
    if guilt:
        raise Guilty(guilt, case)


def ask(asked: Mapping[int, Query[B]]) -> Asking[dict[int, B]]:
    """One round of queries of one kind: the bodies of their answers, by party."""
    bodies = yield dict(asked)
    # The referee decodes each body by its query's layout.
    return cast("dict[int, B]", bodies)


@dataclass
class Story:
    """What is told about a game: for people and the verdict's particulars. No state asks it."""

    events: list[Event] = field(default_factory=list)
    place: Place = field(default_factory=Place)
    terms: int = 0  # executed by the referee (6.5)
    choices: tuple[int, int] = (0, 0)  # left by logs and taken (NUMERICS 14.8)
    claimed: tuple[str, str] = ("", "")  # of an undecided game
    value: str = ""

    def note(
        self, phase: int, clause: str, sentence: str, stated: tuple[str, str] = ("", "")
    ) -> None:
        """Tell people what was found out."""
        self.events.append(Event(phase, clause, sentence, stated))

    def found(self, **known: Any) -> None:
        """More is known about where the parties part."""
        self.place = replace(self.place, **known)


@dataclass(frozen=True)
class Game:
    """What a game is about (PROTOCOL 1.1), the state roots that parties are pinned to (4.4), and
    its story. What the states find out they hand to each other (results.py)."""

    facts: Facts
    runs: tuple[RunCommitment, RunCommitment]
    arity: int
    # Proved roots by index of checkpoint, and all stated roots by step, per party: only added to.
    checkpoints: tuple[dict[int, bytes], dict[int, bytes]] = field(default_factory=lambda: ({}, {}))
    states: tuple[dict[int, bytes], dict[int, bytes]] = field(default_factory=lambda: ({}, {}))
    story: Story = field(default_factory=Story)


def misfit(facts: Facts, node: int, body: NodeBody) -> str | None:
    """How a record differs from what the program says, None if it does not (5.2, 5.5)."""
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
        return f"the exact sum {shown(value)}"
    if array.dtype == REAL:
        return f"{float(array['x'])!r} within {float(array['e']):.3g}"
    if array.dtype.kind != "f":
        return str(array.item())
    bits = array.astype(array.dtype.newbyteorder(">")).tobytes().hex()
    return f"{array[()]!s} (0x{bits})"  # as few digits as tell it from its neighbours
