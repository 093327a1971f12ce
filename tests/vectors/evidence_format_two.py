"""Evidence of games about jobs of format 2 (COMMITMENTS 7.6, 8.6; PROTOCOL 4.11; PROGRAM 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adversary.lies import KINDS, Ground, Told
from format_two import make_micro_job
from unit.protocol.scenarios import Lie, liar
from unit.protocol.simulator import Party
from unit.protocol.validated import DECISION, PASS, lies, make_validated_job

from tallystick.job.job import Job


def format_two(maker: Any) -> None:
    """Every lie of `validated.lies`, a sample of all about validation and about micro-batches,
    every one about the parts of a long record; agreement about each job."""
    job = make_validated_job(maker.scratch / "validated")
    honest = Party(job)
    for name, scenario in lies().items():
        maker.both_seats(job, name, honest, liar(job, scenario))
    ground = Ground(job, honest.run.final_step, (1, PASS, DECISION))
    told = [*KINDS["whole"](ground)][::4] + [*KINDS["lived"](ground)][::9]
    _play(maker, job, honest, [*told, *KINDS["parts"](ground)])
    maker.game(job, "agreement about a validated run", (honest, Party(job)))
    wide = make_validated_job(maker.scratch / "exact", contract="exact/1;b=15")
    for name in ("a false sum", "a false mean", "other held-out records"):
        maker.both_seats(wide, f"{name}, exact/1", Party(wide), liar(wide, lies()[name]))
    micro = make_micro_job(maker.scratch / "micro")
    honest = Party(micro)
    ground = Ground(micro, micro.steps, (1,))
    told = [*KINDS["lived"](ground)][::4]
    _play(maker, micro, honest, [*told, *KINDS["parts"](ground)], ", micro-batches")
    maker.game(micro, "agreement about micro-batches", (honest, Party(micro)))
    # More micro-batches than one fold reads (PROGRAM 6.7 c).
    many = make_micro_job(maker.scratch / "many", 300, rows=1, steps=2, records=7)
    honest = Party(many)
    nodes = many.program.nodes
    for index in [i for i, node in enumerate(nodes) if node.op == "tallystick.fold"]:
        cheat = Party(many, Lie(node=_wrong(index)))
        maker.both_seats(many, f"fold {index} of 300 micro-batches", honest, cheat)
    long = make_micro_job(maker.scratch / "long", rows=1, steps=1, width=(1 << 18) + 5, records=3)
    _play(maker, long, Party(long), [*KINDS["parts"](Ground(long, 1, (0,)))], ", long records")


def _wrong(index: int) -> Any:
    def node(step: int, number: int, _: Any, outputs: Any) -> None:
        if (step, number) == (1, index):
            outputs[0][...] += 1

    return node


def _play(maker: Any, job: Job, honest: Party, told: Sequence[Told], more: str = "") -> None:
    """Each lie in both seats, unless no committed state depends on it."""
    for one in told:
        cheat = Party(job, Lie(**one.hooks), one.tamper, one.statement)
        if cheat.run.run_root != honest.run.run_root:
            maker.both_seats(job, one.name + more, honest, cheat)
