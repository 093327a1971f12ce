"""Evidence of clauses that were mended in the text after the freeze (PROTOCOL 4.2, 5.5, 6.13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from unit.protocol import log_scenarios, scenarios
from unit.protocol.log_simulator import LogParty, make_log_job
from unit.protocol.scenarios import WRONG, Lie, answering, chained
from unit.protocol.simulator import Party

from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.protocol import queries as q

LOGREG = {"features": "700", "classes": "2", "records": "16", "batch_size": "2", "lr": "0.0001"}


def logreg(path: Path, steps: int, interval: int) -> Job:
    """A small job whose liars are those of unit/protocol/scenarios.py."""
    return new_job(
        "logreg", path, LOGREG, steps=steps, checkpoint_interval=interval, evaluate_every=0
    )


# -- clauses ---------------------------------------------------------------------------------------
def no_proof(index: int) -> Callable[..., Any]:
    """An `answer` hook: the record of a node comes with a proof that gives no root."""
    return answering(
        q.NodeRecord, lambda k, b: replace(b, proof=(WRONG,)) if k.node == index else b
    )


def clauses_later(maker: Any) -> None:
    """4.2, 5.5.1 and 6.13."""
    job = logreg(maker.scratch / "job", 13, 4)
    honest = Party(job)
    bare = no_proof(scenarios.MM)
    for name, answer in (("", bare), (", and a false part", chained(bare, scenarios.WRONG_PART))):
        cheat = Party(job, Lie(node=scenarios.node_lie, answer=answer))
        maker.both_seats(job, f"5.5.1: a record and no proof of it{name}", honest, cheat)
    long = logreg(maker.scratch / "long", 40, 1)
    honest = Party(long)
    for steps in ((31,), (7, 31), (33, 34, 35)):
        cheat = Party(long, Lie(root=lambda s, root, steps=steps: WRONG if s in steps else root))
        for arity in (2, 5, 20):
            name = f"4.2: the checkpoints {list(steps)} differ, arity {arity}"
            maker.both_seats(long, name, honest, cheat, arity)
    misfits(maker)


def misfits(maker: Any) -> None:
    """6.13: the node of a disputed entry is, in both trees, not the program's; or in no tree."""
    job = make_log_job(maker.scratch / "logs", form="bounded")
    entry = {"entries": log_scenarios.entry(log_scenarios.PRODUCT, log_scenarios.PLAIN, 1)}
    odd = odd_record(log_scenarios.STEP, log_scenarios.PRODUCT)
    pair = LogParty(job, Lie(**entry), tamper=odd), LogParty(job, Lie(), tamper=odd)
    maker.both_seats(job, "6.13: both have another operator", pair[1], pair[0])
    false = answering(
        q.NodeRecord,
        lambda k, b: replace(b, outputs=(WRONG,)) if k.node == log_scenarios.PRODUCT else b,
    )
    cheat = LogParty(job, Lie(**entry, answer=false))
    maker.both_seats(job, "6.13: a record that is not in the tree", LogParty(job), cheat)


def odd_record(step: int, index: int) -> Any:
    """A `tamper`: the record of a node has another operator."""
    return lambda s, i, body: (
        replace(body, operator="aten.odd") if (s, i) == (step, index) else body
    )
