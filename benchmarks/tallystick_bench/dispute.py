"""A whole dispute over one falsified number, and its cost for the referee and the judge.

The liar changes one element of one node's output in one step and is honest otherwise. So the game
goes through all phases, down to the contract's own partials. The benchmark knows the liar, so a
game with another verdict is an error and no figure. A long run of a small model gives the number of
steps that a dispute executes again: there only the number of steps matters (PROTOCOL 4.6).
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.devices.context import ExecutionContext
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.job import MANIFEST, PROGRAM, Job
from tallystick.job.job_file import load_terms
from tallystick.job.recipes import new_job
from tallystick.opening.quantity import rules
from tallystick.program.ir import Node, Program
from tallystick.prover.cheating import CheatingProver
from tallystick.prover.local import Played, play
from tallystick.prover.prover import Prover
from tallystick.run.cheats.override import Override
from tallystick.run.cheats.training import Cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore
from tallystick_bench import process

SECONDS_TARGET = 5.0
PEAK_MB_TARGET = 256.0
BYTES_TARGET = 5_000_000
MIB = 1 << 20

# GPT-2 124M; a few steps are enough, since only the disputed one matters here.
GPT2 = {
    "size": "124m",
    "block_size": "64",
    "batch_size": "8",
    "text_bytes": "200000",
    "validation": "0",
    "schedule": "constant",
    "warmup": "0",
}
STEPS, STEP = 4, 2
ARITY = 20
# The worst operator of GPT-2 by the cost of an element's opening (docs/adr/0004).
WORST = "aten.embedding_dense_backward"
CHEAP = "tallystick.cross_entropy_backward"
# Run length, interval, stored states; and the share that may be executed again (PROTOCOL 4.6).
SHARES = ((400, 20, 20, 0.06), (10_000, 100, 100, 0.011))


class OneNumber(Override):
    """Changes one number of one node's first output in one step.

    It is the largest number, or by `pick` the first, middle or last one, because not every number
    reaches the next state.
    """

    PICKS = 4

    def __init__(self, node: int, step: int = STEP, pick: int = 0) -> None:
        self.at, self.step, self.pick = node, step, pick

    def watches(self, step: int) -> bool:
        return step == self.step

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        if (step, index) != (self.step, self.at):
            return
        output: Any = outputs[0]
        flat = (self.pick - 1) * (output.size - 1) // 2
        if self.pick == 0:
            flat = int(np.where(np.isfinite(output), np.abs(output), 0).argmax())
        place = np.unravel_index(flat, output.shape)
        value = output[place]
        if output.dtype.kind == "f":
            output[place] = value * 2 if np.isfinite(value) and value else 1
        else:
            output[place] = (not value) if output.dtype.kind == "b" else abs(value - 1)


@dataclass(frozen=True)
class Game:
    """A played game and its cost: the honest party's executed steps, the seconds of both."""

    played: Played
    executed: int
    seconds: float


def largest_node(program: Program, operator: str) -> int:
    """The node of `operator` with the most bytes of operands and outputs.

    Raises UsageError where the program has no such node, or this build no opening rule for it.
    """
    nodes = [index for index, node in enumerate(program.nodes) if node.op == operator]
    if not nodes or operator not in rules():
        ours = sorted({node.op for node in program.nodes} & set(rules()))
        raise UsageError(
            f"There is no disputable operator {operator!r} in this program.",
            f"Choose one of: {', '.join(ours)}.",
        )

    def size(index: int) -> int:
        node = program.nodes[index]
        given = sum(program.type_of(v).nbytes for v in node.inputs if v is not None)
        return given + sum(t.nbytes for t in node.out_types)

    return max(nodes, key=lambda index: (size(index), -index))


def play_out(job: Job, honest: Path, liar: Path, lie: Override, threads: int | None) -> Game:
    """The game of the two runs. The liar is party 0, which opens where one true answer decides."""
    began = time.monotonic()
    context = ExecutionContext(threads)
    with CheatingProver(liar, None, context, lie) as bad, Prover(honest, None, context) as good:
        played = play(load_terms(job.directory), (bad, good), ARITY)
        executed = good.executed_steps
    verdict = played.verdict
    if [conviction.party for conviction in verdict.convicted] != [0]:
        raise CannotCheckError(
            f"The game ended otherwise than it must: {verdict.convicted}, {verdict.place}.",
            "This is a bug; report it.",
        )
    return Game(played, executed, time.monotonic() - began)


def judged(job: Job, evidence: bytes, directory: Path) -> dict[str, Any]:
    """The output of dispute_judge about the evidence."""
    terms = directory / "terms"
    terms.mkdir(exist_ok=True)
    for name in (MANIFEST, PROGRAM):
        shutil.copyfile(job.directory / name, terms / name)
    path = directory / "evidence"
    path.write_bytes(evidence)
    found: dict[str, Any] = process.answer(
        "tallystick_bench.dispute_judge",
        str(terms),
        str(path),
        failed="The judge's process failed",
        next_action="Report it.",
    )
    return found


def told(job: Job, honest: Path, liar: Path, node: int, threads: int | None) -> OneNumber:
    """Train a liar whose lie about `node` takes effect. Raises CannotCheckError if none does."""
    root = RunStore(honest).journal().run_root
    for pick in range(OneNumber.PICKS):
        lie = OneNumber(node, pick=pick)
        summary = train_job(job, liar, Options(ExecutionContext(threads), keep=1, maker=Cheat(lie)))
        if summary.run_root != root:
            return lie
        shutil.rmtree(liar)
    raise CannotCheckError(
        f"No lie about node {node} changes the run.", "Choose another operator or other settings."
    )


def rows_of(
    job: Job, directory: Path, honest: Path, operator: str, prefix: str, threads: int | None
) -> list[dict[str, Any]]:
    """One dispute over an element of `operator`, measured."""
    node, liar = largest_node(job.program, operator), directory / "liar"
    lie = told(job, honest, liar, node, threads)
    try:
        game = play_out(job, honest, liar, lie, threads)
    finally:
        shutil.rmtree(liar)
    verdict = game.played.verdict
    if (verdict.place.step, verdict.place.node) != (STEP, node):
        raise CannotCheckError(f"The lie was found elsewhere: {verdict.place}.", "Report it.")
    evidence = game.played.evidence.to_bytes()
    judge = judged(job, evidence, directory)
    if (judge["convicted"], judge["node"]) != ([0], node):
        raise CannotCheckError("The judge says otherwise than the referee.", "Report it.")
    place = {
        "operator": operator,
        "node": node,
        "element": verdict.place.element,
        "quantity": verdict.place.quantity,
        "clause": verdict.convicted[0].clause,
        "terms": verdict.terms,
    }

    def row(
        name: str, value: float, unit: str, target: float | None = None, **more: Any
    ) -> dict[str, Any]:
        return {"name": f"{prefix}/{name}", "value": value, "unit": unit, "target": target,
                **place, **more}  # fmt: skip

    return [
        row("rounds", verdict.rounds, "rounds"),
        row("received_bytes", verdict.received, "bytes", BYTES_TARGET),
        row("evidence_bytes", len(evidence), "bytes"),
        row("referee_seconds", game.played.referee_seconds, "s", SECONDS_TARGET),
        row("judge_seconds", judge["seconds"], "s", SECONDS_TARGET),
        row(
            "referee_peak_mb",
            judge["peak_bytes"] / MIB,
            "MiB",
            PEAK_MB_TARGET,
            note="the judge's process, which is the referee's code on the same messages",
        ),
        row("reexecuted_steps", game.executed, "steps", run_steps=STEPS),
        row("parties_seconds", game.seconds, "s"),
    ]


def share_row(steps: int, interval: int, kept: int, target: float, out: Path) -> dict[str, Any]:
    """The share of a long run that the honest party executes again in a whole dispute."""
    pairs = {"features": "4", "classes": "2", "records": "16", "batch_size": "2"}
    job = new_job(
        "logreg",
        out / "job",
        pairs,
        steps=steps,
        checkpoint_interval=interval,
        evaluate_every=0,
    )
    lie = OneNumber(largest_node(job.program, CHEAP), steps - 1)
    train_job(job, out / "honest", Options(keep=kept))
    train_job(job, out / "liar", Options(keep=kept, maker=Cheat(lie)))
    game = play_out(job, out / "honest", out / "liar", lie, None)
    return {
        "name": f"dispute/{steps}-steps/keep-{kept}/reexecuted_share",
        "value": game.executed / steps,
        "unit": "of the run",
        "target": target,
        "steps": game.executed,
        "rounds": game.played.verdict.rounds,
    }


def rows(
    threads: int | None = None,
    settings: Mapping[str, str] | None = None,
    operators: Sequence[str] = (),
    shares: Sequence[tuple[int, int, int, float]] = SHARES,
) -> list[dict[str, Any]]:
    """The rows of `bench dispute`: GPT-2 124M, or the same recipe with `settings`.

    Without `operators`, the worst one by opening cost. Raises UsageError for unknown settings or
    operators, CannotCheckError where a game does not end as it must.
    """
    name = "gpt2-124m" if not settings else "gpt2-set"
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="tallystick-bench-") as temporary:
        directory = Path(temporary)
        job = new_job(
            "gpt2",
            directory / "job",
            {**GPT2, **(settings or {})},
            steps=STEPS,
            checkpoint_interval=STEPS,
            evaluate_every=0,
        )
        for operator in operators:
            largest_node(job.program, operator)
        honest = directory / "honest"
        train_job(job, honest, Options(ExecutionContext(threads), keep=1))
        for operator in operators or (WORST,):
            prefix = f"dispute/{name}/{operator}" if operators else f"dispute/{name}"
            found += rows_of(job, directory, honest, operator, prefix, threads)
        for number, (steps, interval, kept, target) in enumerate(shares):
            out = directory / f"share{number}"
            found.append(share_row(steps, interval, kept, target, out))
    return found
