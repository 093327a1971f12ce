"""Run and job directories changed by whoever may write there, read by every reading command.

    PYTHONPATH=tests python tests/adversary/fuzz_runs.py [--reads 200000] [--seed 1]

A run is changed where its structure lets it be, its checksums made anew (they need no key): journal
records, manifests, states and their roots, logs, traces, job parts, files of other kinds, names.
The signature stays the honest one, or is the liar's own over its own lie. Every command then ends
in this process with an exit code of DESIGN 9 and a typed error, within 10 seconds and 256 MiB; what
it accepts under the honest key is the truth, and no dispute convicts the honest run beside it.
Counts go to docs/proofs/fuzz.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from adversary.limits import TooLongError, bound_memory, bounded_time
from adversary.run_changes import CHANGES

from tallystick.cli.main import run as command
from tallystick.errors import UsageError
from tallystick.installed import tallystick_version
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, train_job

STEPS, INTERVAL = 6, 3
CONTRACTS = ("ordered/1", "replay/1")


@dataclass(frozen=True)
class World:
    """A job, its honest run, evidence against a cheat, and what is true of the run."""

    job: Job
    honest: Path
    evidence: Path
    signer: Path
    root: str
    model: bytes
    validation: dict[str, Any]


def make_world(directory: Path, contract: str) -> World:
    """Everything small: a run of a few kilobytes."""
    from tallystick.run.store.unsigned import Declaration

    directory.mkdir()
    pairs = {"features": "4", "classes": "2", "records": "16", "batch_size": "2"}
    job = new_job(
        "logreg", directory / "job", pairs, steps=STEPS, checkpoint_interval=INTERVAL,
        evaluate_every=3, contract=contract,
    )  # fmt: skip
    honest, cheat = directory / "honest", directory / "cheat"
    made = train_job(job, honest, Options(trace=(2, 3)))
    train_job(
        job, cheat, Options(maker=declared_cheat(job, Declaration("lie-output", {"step": 4})))
    )
    evidence, signer = directory / "evidence", directory / "signer.pub"
    words = ["dispute", str(honest), str(cheat), "--as-attack", "B", "--job", str(job.directory)]
    assert _run([*words, "--out", str(evidence)])[0] in (1, 2)
    from tallystick.commit.signing import Envelope, verify_run

    envelope = Envelope.from_bytes((honest / "commitment.json").read_bytes())
    signer.write_bytes(verify_run(envelope)[0].signer.pem())
    model = directory / "model.safetensors"
    assert _run(["export", str(honest), "-o", str(model)])[0] == 0
    code, out, _ = _run(["evaluate", str(honest), "--json"])
    assert code == 0
    return World(
        job, honest, evidence, signer, made.run_root.hex(), model.read_bytes(), json.loads(out)
    )


def _run(words: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and error of a command in this process."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = command(words)
    return code, out.getvalue(), errors.getvalue()


# --- reads ----------------------------------------------------------------------------------------
Read = Callable[[World, Path, Path], None]
COMMANDS: Counter[str] = Counter()  # how often each was called


def _checked(words: list[str]) -> tuple[int, str]:
    """Run a command; AssertionError for a traceback, an unknown exit code or raw escapes."""
    with bounded_time():
        code, out, errors = _run(words)
    COMMANDS[words[0]] += 1
    assert code in (0, 1, 2, 3), (code, words)
    assert "this is a bug" not in errors and "Traceback" not in errors, errors[-3000:]
    assert "not enough memory" not in errors, (words, errors)
    raw = [c for c in out + errors if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0]
    assert not raw, (words, raw[:10])
    return code, out


def read_inspect(world: World, run: Path, _: Path) -> None:
    _checked(["inspect", str(run)])
    _checked(["inspect", str(run), "--json"])


def read_fsck(world: World, run: Path, _: Path) -> None:
    _checked(["fsck", str(run), "--trust", str(world.signer)])


def read_audit(world: World, run: Path, _: Path) -> None:
    words = ["audit", str(run), "--job", str(world.job.directory), "--trust", str(world.signer)]
    code, out = _checked([*words, "--quiet", "--json"])
    if code == 0:
        assert json.loads(out)["run_root"] == world.root


def read_segment(world: World, run: Path, _: Path) -> None:
    code, out = _checked(["audit", str(run), "--steps", "4:5", "--quiet", "--json"])
    if code == 0 and json.loads(out)["job_digest"] == world.job.digest.hex():
        _signed_by_honest(world, run, json.loads(out)["run_root"])


def _signed_by_honest(world: World, run: Path, root: str) -> None:
    """Under the honest key only the honest run root exists."""
    from tallystick.commit.signing import Envelope, verify_run
    from tallystick.disk.keys import load_public_key

    envelope = Envelope.from_bytes((run / "commitment.json").read_bytes())
    if verify_run(envelope)[0].signer == load_public_key(world.signer):
        assert root == world.root


def read_export(world: World, run: Path, scratch: Path) -> None:
    out = scratch / "model"
    code, _ = _checked(["export", str(run), "-o", str(out), "--trust", str(world.signer)])
    if code == 0:
        assert out.read_bytes() == world.model


def read_verify_model(world: World, run: Path, scratch: Path) -> None:
    model = scratch / "honest-model"
    model.write_bytes(world.model)
    _checked(["verify-model", str(model), str(run), "--trust", str(world.signer)])


def _manifest(run: Path) -> bytes:
    return (run / "job" / "job.json").read_bytes()


def read_evaluate(world: World, run: Path, _: Path) -> None:
    code, out = _checked(["evaluate", str(run), "--json"])
    # No digest covers what a job says of its validation: only its own manifest does.
    same_job = code == 0 and _manifest(run) == _manifest(world.honest)
    if same_job and json.loads(out)["state_root"] == world.validation["state_root"]:
        assert json.loads(out) == world.validation


def read_sample(world: World, run: Path, _: Path) -> None:
    _checked(["sample", str(run), "--length", "3"])


def read_report(world: World, run: Path, scratch: Path) -> None:
    _checked(["report", str(run), "-o", str(scratch / "page"), "--job", str(world.job.directory)])


def read_report_beside(world: World, run: Path, scratch: Path) -> None:
    words = ["report", str(world.evidence), "-o", str(scratch / "page"), "--run", str(run)]
    _checked([*words, "--job", str(world.job.directory)])


def read_dispute(world: World, run: Path, scratch: Path) -> None:
    """Against the honest run: that one is never convicted, and neither is a run that is signed by
    the honest key, whatever lies beside its signature."""
    words = ["dispute", str(world.honest), str(run), "--job", str(world.job.directory), "--json"]
    code, out = _checked([*words, "--out", str(scratch / "evidence")])
    if code == 1:
        convicted = [c["party"] for c in json.loads(out)["convicted"]]
        assert not convicted, out


def read_job(world: World, run: Path, _: Path) -> None:
    _checked(["inspect", str(run / "job")])
    _checked(["fsck", str(run / "job")])


def read_train(world: World, run: Path, _: Path) -> None:
    """A resume: the finished run stays finished, an unfinished one goes on or is refused."""
    code, out = _checked(
        ["train", str(world.job.directory), "--out", str(run), "--quiet", "--json"]
    )
    assert code != 0 or json.loads(out)["job_digest"] == world.job.digest.hex()


def read_replay(world: World, run: Path, scratch: Path) -> None:
    out = scratch / "follower"
    words = ["train", str(world.job.directory), "--out", str(out), "--replay", str(run), "--quiet"]
    code, text = _checked([*words, "--json"])
    shutil.rmtree(out, ignore_errors=True)
    # Whatever the followed logs say: an auditor's own run is its own.
    assert code in (0, 1, 2, 3), text


# Those that execute steps, or draw, take most of the time: one in HEAVY_EVERY of them is done.
HEAVY = (read_audit, read_segment, read_dispute, read_report, read_report_beside, read_replay,
         read_train)  # fmt: skip
HEAVY_EVERY = 4
NOTHING_LEFT = (IndexError, OSError, MemoryError, struct.error, UsageError, TooLongError)
READS: list[Read] = [
    read_inspect,
    read_fsck,
    read_export,
    read_verify_model,
    read_evaluate,
    read_sample,
    read_job,
    *HEAVY,  # train last: it may change the run
]


def fuzz(reads: int, seed: int, memory: bool = True) -> dict[str, Any]:
    """At least so many reads of changed directories."""
    rng = random.Random(seed)
    np.random.seed(seed % 2**32)
    changes: Counter[str] = Counter()
    done = told = 0
    COMMANDS.clear()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        worlds = [make_world(directory / f"w{k}", c) for k, c in enumerate(CONTRACTS)]
        for world in worlds:  # twice: imports and caches are there now
            for read in READS:
                _read(read, world, world.honest, directory, "unchanged")
        COMMANDS.clear()
        if memory:
            bound_memory()
        while done < reads:
            world, run = rng.choice(worlds), directory / "run"
            shutil.copytree(world.honest, run)
            made = [rng.choice(CHANGES) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
            for change in made:
                # A change may find that an earlier one has left it nothing to work on.
                with contextlib.suppress(
                    IndexError, OSError, MemoryError, struct.error, UsageError
                ):
                    change(run, rng)
                changes[change.__name__] += 1
            what = f"seed {seed}, read {done}, {', '.join(c.__name__ for c in made)}"
            for read in READS:
                if read in HEAVY and rng.randrange(HEAVY_EVERY):
                    continue
                before = COMMANDS.total()
                _read(read, world, run, directory, what)
                done += COMMANDS.total() - before
            _remove(run)
            if done // 10_000 > told:
                told = done // 10_000
                print(f"seed {seed}: {done} reads", file=sys.stderr, flush=True)
    return {
        "reads": done, "seed": seed, "by_command": dict(sorted(COMMANDS.items())),
        "changes": dict(sorted(changes.items())),
    }  # fmt: skip


def _read(read: Read, world: World, run: Path, directory: Path, what: str) -> None:
    scratch = directory / "scratch"
    scratch.mkdir(exist_ok=True)
    try:
        read(world, run, scratch)
    except BaseException:
        print(f"{what}: {read.__name__}", file=sys.stderr)
        kept = os.environ.get("FUZZ_KEEP")
        if kept:
            shutil.copytree(run, kept, symlinks=True, dirs_exist_ok=True)
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _remove(run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)
    (run.parent / "outside").unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reads", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    found = fuzz(given.reads, given.seed)
    found["seconds"] = round(time.monotonic() - began, 1)
    found["tallystick"], found["date"] = tallystick_version(), time.strftime("%Y-%m-%d")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
