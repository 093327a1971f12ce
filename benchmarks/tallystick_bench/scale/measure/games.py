"""Unit costs of a small real run: a dispute's messages, and an audit's time over training's."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick.devices.context import ExecutionContext
from tallystick.job.recipes import new_job
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, train_job
from tallystick_bench.dispute import GPT2, WORST, rows_of

Found = dict[str, Any]
# Settings of the recipe `gpt2`. QUICK is for the tests alone.
SMALL = {"size": "small", "n_layer": "4", "n_embd": "256", "block_size": "64", "batch_size": "8"}
QUICK = {"size": "small", "n_layer": "1", "n_embd": "16", "block_size": "8", "batch_size": "2"}
# The operator with the dearest opening, and a product (docs/adr/0004).
OPERATORS = (WORST, "aten.mm")


def disputes(settings: Mapping[str, str], directory: Path, threads: int) -> Found:
    """Rounds and bytes of whole disputes over one number, and the referee's own seconds."""
    job = new_job(
        "gpt2", directory / "job", {**GPT2, **settings}, steps=4, checkpoint_interval=4,
        evaluate_every=0,
    )  # fmt: skip
    honest = directory / "honest"
    train_job(job, honest, Options(ExecutionContext(threads), keep=1))
    games = {}
    for operator in OPERATORS:
        found = rows_of(job, directory, honest, operator, operator, threads)
        rows = {row["name"].rsplit("/", 1)[1]: row["value"] for row in found}
        names = ("rounds", "received_bytes", "evidence_bytes", "referee_seconds")
        games[operator] = {name: rows[name] for name in names}
    return {
        "disputes": games,
        "dispute_bytes_a_round": max(g["received_bytes"] / g["rounds"] for g in games.values()),
        "dispute_settings": dict(settings),
    }


def audits(
    settings: Mapping[str, str], steps: int, turns: int, directory: Path, threads: int
) -> Found:
    """Seconds of a whole audit over those of the training that it repeats; both in turns."""
    context, ratios = ExecutionContext(threads), []
    job = new_job(
        "gpt2", directory / "job", {**GPT2, **settings}, steps=steps, checkpoint_interval=steps,
        evaluate_every=0,
    )  # fmt: skip
    for turn in range(turns + 1):
        run = directory / f"run{turn}"
        trained = train_job(job, run, Options(context, keep=1)).seconds
        repeated = audit_run(run, context=context)
        assert repeated.accepted and repeated.whole
        if turn:
            ratios.append(repeated.seconds / trained)
    return {"audit_ratio": statistics.median(ratios), "audit_steps": steps}
