"""Runs under every contract as an earlier version wrote them, and what that version said of them.

    PYTHONPATH=tests:tests/vectors python tests/vectors/frozen_runs.py

writes those of vectors/runs/frozen that are not there: per run its directory, `said.json` (what the
reading commands print, less what differs between machines) and `answers.json` (a prover's signed
answers to queries of every kind).
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tallystick.cli.main import run as command
from tallystick.commit.signing import PrivateKey
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.job.recipes import new_job
from tallystick.opening.views import View
from tallystick.program.ir import COMMIT
from tallystick.protocol import queries as q
from tallystick.prover.prover import Prover
from tallystick.run.execute.trainer import Options, train_job

ROOT = Path(__file__).resolve().parents[2] / "vectors" / "runs" / "frozen"
KEY = PrivateKey(bytes([21]) * 32)
CONTRACTS = {
    "ordered": "ordered/1",
    "rounded": "rounded/1;b=28",
    "bounded": "replay/1;b=24",
    "published": "replay/1;b=24;form=published",
    "exact": "exact/1;b=15",
}
FOLLOWER = "bounded-follower"
SETTINGS = {
    "features": "8", "classes": "3", "records": "24", "hidden": "12", "batch_size": "4",
    "dropout": "0.2", "activation": "gelu", "optimizer": "adam",
}  # fmt: skip
STEP = 3  # the queries are about it
# What differs between machines, or tells how long it took.
MACHINE = {"isa", "threads", "seconds", "sessions", "disk_bytes", "run", "path", "choices"}


def commands(run: Path, out: Path) -> dict[str, list[str]]:
    """The reading commands, by name."""
    return {
        "inspect": ["inspect", str(run)],
        "inspect job": ["inspect", str(run / "job")],
        "fsck": ["fsck", str(run)],
        "audit": ["audit", str(run), "--quiet"],
        "audit of a segment": ["audit", str(run), "--quiet", "--steps", "2:5"],
        "evaluate": ["evaluate", str(run)],
        "export": ["export", str(run), "-o", str(out / "model.safetensors")],
        "verify-model": ["verify-model", str(out / "model.safetensors"), str(run)],
    }


def said(run: Path, scratch: Path) -> dict[str, Any]:
    """Exit code and JSON of each command about a copy of `run`, less what is the machine's."""
    here = scratch / "run"
    shutil.copytree(run, here)
    found = {}
    for name, words in commands(here, scratch).items():
        out, noise = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(noise):
            code = command([*words, "--json"])
        value = json.loads(out.getvalue())
        found[name] = {"code": code, "json": {k: v for k, v in value.items() if k not in MACHINE}}
    return found


def queries(job: Job) -> Iterator[q.Query]:
    """Queries of every kind about STEP: each node's record, and each output's first values."""
    yield q.Checkpoints((0, 1, 2, 3))
    yield q.Checkpoints((3,))
    yield q.States((STEP, STEP + 1))
    yield q.Loss(STEP)
    yield q.Nodes(STEP)
    yield q.Record(5)
    nodes = job.program.nodes
    yield q.NodeHashes(STEP, 0, len(nodes))
    for name in job.program.state_types:
        yield q.Slot(STEP, name)
    for index, node in enumerate(nodes):
        yield q.NodeRecord(STEP, index)
        if node.op == COMMIT:
            yield q.Opening(STEP, index, len(node.inputs), (0,))
            continue
        yield q.Values(STEP, index, 0, 0, (), View("needs"))
        yield q.Leaf(STEP, index, q.OUTPUT, 0, 0)
        if node.inputs and node.inputs[0] is not None:
            yield q.Leaf(STEP, index, q.INPUT, 0, 0)
            yield q.Opening(STEP, index, 0, (0,))
    if job.commitment.contract.startswith("replay"):
        yield q.Log(STEP)
        yield q.LogBlock(STEP, 0, 0)


def answers(run: Path, scratch: Path) -> list[dict[str, str]]:
    """A prover's signed answers to them."""
    here = scratch / "prover"
    shutil.copytree(run, here)
    found = []
    with Prover(here, KEY) as prover:
        for query in queries(load_job(here / "job")):
            asked = q.encode_query(query)
            found.append({"query": asked.hex(), "answer": prover.answer(asked).hex()})
    return found


def main() -> None:
    for name, contract in CONTRACTS.items():
        if (ROOT / name).exists():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            here = Path(scratch)
            job = new_job(
                "mlp", here / "job", SETTINGS, steps=6, seed=3, checkpoint_interval=2,
                evaluate_every=3, contract=contract,
            )  # fmt: skip
            made = {name: here / "made"}
            train_job(job, here / "made", Options(key=KEY, keep=2))
            if name == "bounded":
                made[FOLLOWER] = here / "followed"
                train_job(job, here / "followed", Options(key=KEY, keep=2, replay=here / "made"))
            for own, run in made.items():
                target = ROOT / own
                target.mkdir(parents=True)
                shutil.copytree(run, target / "run")
                for file, found in (
                    ("said.json", said(run, here / own)),
                    ("answers.json", answers(run, here / own)),
                ):
                    (target / file).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
