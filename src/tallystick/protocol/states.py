"""Every state of the referee and every way out of it, in one table (PROTOCOL 3 to 6).

Theory of operation. A state asks its queries in rounds. Then it either convicts, by raising
`Guilty`, or names the state that follows. The referee refuses a transition that is not in this
table. docs/PROTOCOL-STATES.md is drawn from the table. A conviction (and, while a query is open, a
forfeit or an equivocation) ends the game from every state, so the table does not list it per state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tallystick.protocol import phase1, phase2, phase3, phase_log
from tallystick.protocol.game import Game, Rounds
from tallystick.protocol.verdict import AGREEMENT, CONVICTION, UNDECIDED

START = "commitments"


@dataclass(frozen=True)
class RefereeState:
    """One state of the referee.

    `clauses` are those of spec/PROTOCOL.md that the state implements. `does` says in a few words
    what the state finds out. `follows` are the states that may follow without a conviction. `run`
    is the state's function; it receives the result that the state before hands on.
    """

    phase: int
    clauses: str
    does: str
    follows: tuple[str, ...]
    run: Callable[[Game, Any], Rounds]


TABLE: dict[str, RefereeState] = {
    START: RefereeState(0, "3.2", "lengths of the runs fit the job", ("ends",), phase1.commitments),
    "ends": RefereeState(
        0,
        "3.3-3.6",
        "first and last checkpoints are proved",
        (AGREEMENT, "search", "middle", "common"),
        phase1.ends,
    ),
    "middle": RefereeState(
        1, "4.2", "equal final states: a checkpoint that differs", ("search",), phase1.middle
    ),
    "common": RefereeState(
        1, "4.2", "different ends: the last common checkpoint", ("search", "shorter"), phase1.common
    ),
    "search": RefereeState(1, "4.3", "two neighbouring checkpoints", ("interval",), phase1.search),
    "shorter": RefereeState(
        1, "4.7", "where the shorter run ends", ("interval", "stop"), phase1.shorter
    ),
    "stop": RefereeState(1, "4.7-4.10", "was the last loss finite?", ("slot_stop",), phase1.stop),
    "slot_stop": RefereeState(1, "4.11", "does the state end the run?", (), phase1.slot_stop),
    "interval": RefereeState(
        1, "4.4-4.5", "the step between the checkpoints", ("nodes",), phase1.interval
    ),
    "nodes": RefereeState(
        2, "5.1-5.3", "node trees, tied to the states by COMMIT", ("descent",), phase2.nodes
    ),
    "descent": RefereeState(2, "5.4", "the first differing node", ("records",), phase2.descent),
    "records": RefereeState(
        2,
        "5.5-5.7",
        "the first differing input or output",
        ("slot", "producer", "batch", "derived", "output", "commit"),
        phase2.records,
    ),
    "slot": RefereeState(2, "5.6.1", "input from the state", (), phase2.slot),
    "producer": RefereeState(2, "5.6.2", "input from another node", (), phase2.producer),
    "batch": RefereeState(2, "5.6.3", "input from the batch", (), phase2.batch),
    "derived": RefereeState(
        2, "5.6.4", "input that is a scalar or the random key", (), phase2.derived
    ),
    "commit": RefereeState(2, "5.8", "outputs of the COMMIT node", ("entries",), phase2.commit),
    "output": RefereeState(
        3, "6.1", "the first differing element", ("element", "log"), phase3.output
    ),
    "log": RefereeState(3, "6.10", "the entries of the element", ("element",), phase_log.log),
    "element": RefereeState(
        3, "6.2-6.12", "at most 256 terms are executed", (UNDECIDED,), phase3.element
    ),
    "entries": RefereeState(
        3, "6.13", "equal outputs: the first differing entry", ("entry",), phase_log.entries
    ),
    "entry": RefereeState(3, "6.13", "the party with the forged entry", ("beyond",), phase3.entry),
    "beyond": RefereeState(
        1,
        "6.14",
        "equal values so far: the first step of different ones",
        ("nodes", "stop", UNDECIDED),
        phase_log.beyond,
    ),
}


def mermaid() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {START}"]
    for name, state in TABLE.items():
        lines.append(f"    {name} : {name} ({state.clauses})<br>{state.does.replace(':', ',')}")
    for name, state in TABLE.items():
        lines += [f"    {name} --> {target}" for target in (*state.follows, CONVICTION)]
    lines += [f"    {end} --> [*]" for end in (AGREEMENT, CONVICTION, UNDECIDED)]
    return "\n".join(lines) + "\n"


def page() -> str:
    """docs/PROTOCOL-STATES.md, whole."""
    rows = [
        f"| `{name}` | {s.phase} | {s.clauses} | {s.does} | "
        f"{', '.join(f'`{f}`' for f in s.follows) or 'conviction only'} |"
        for name, s in TABLE.items()
    ]
    return (
        "# States of the referee\n\n"
        "Drawn from `src/tallystick/protocol/states.py`; a test keeps this page equal to it.\n"
        "Clauses are those of [PROTOCOL](../spec/PROTOCOL.md). A conviction ends the game from\n"
        "every state; silence (2.10) and equivocation (2.9) from every state that asks.\n\n"
        f"```mermaid\n{mermaid()}```\n\n"
        "| state | phase | clauses | finds out | then |\n|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )
