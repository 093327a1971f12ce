"""A job trained on every path, with several threads, and killed with SIGKILL on the way."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick_bench.process import environment
from tallystick_bench.trained.subjects import Subject, examples

PATIENCE_S = 1800.0
# The process of an example with a Trainer: a training that goes on where it was left.
_TRAINER = (
    "import sys, pathlib; sys.path.insert(0, sys.argv[1]); import {name}; "
    "{name}.trainer(pathlib.Path(sys.argv[2]){steps}).train()"
)


@dataclass(frozen=True)
class Way:
    """An instruction set and a number of threads."""

    isa: str
    threads: int

    @property
    def environment(self) -> dict[str, str]:
        return environment({"TALLYSTICK_ISA": self.isa})

    def __str__(self) -> str:
        return f"{self.isa}, {self.threads} thread{'s' if self.threads > 1 else ''}"


def tallystick(way: Way | None, *words: object, codes: tuple[int, ...] = (0,)) -> Any:
    """What a command prints as JSON. Raises RuntimeError for another exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "tallystick", *map(str, words), "--json"],
        env=way.environment if way else environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in codes:
        raise RuntimeError(f"tallystick {words[0]} ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def train(job: Path, run: Path, way: Way) -> dict[str, Any]:
    """Train to the end, or go on with a run that was killed."""
    found = tallystick(way, "train", job, "--out", run, "--threads", way.threads, "--quiet")
    session = tallystick(None, "inspect", run)
    assert (session["isa"], session["threads"]) == (way.isa, way.threads), session
    return {
        "way": str(way),
        "root": found["run_root"],
        "final_state": found["final_state_root"],
        "steps": found["steps"],
        "seconds": found["seconds"],
        "sessions": len(session["sessions"]),
    }


def kill(command: list[str], way: Way, run: Path, at: int) -> int | None:
    """Start a training and end it by SIGKILL once its journal has `at` bytes; the step that its
    journal then has. None where it ended before."""
    process = subprocess.Popen(
        command, env=way.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    journal, limit = run / "journal", time.monotonic() + PATIENCE_S
    while process.poll() is None:
        if time.monotonic() > limit:
            process.kill()
            process.wait()
            raise RuntimeError(f"{command} takes more than {PATIENCE_S:.0f} s.")
        if journal.exists() and journal.stat().st_size >= at:
            process.send_signal(signal.SIGKILL)
            process.wait()
            if process.returncode != -signal.SIGKILL:
                return None
            steps: int = tallystick(None, "inspect", run)["steps"]
            return steps
        time.sleep(0.002)
    if process.returncode:
        raise RuntimeError(f"{command} ended with {process.returncode}.")
    return None


def killed(job: Path, run: Path, way: Way, length: int, draw: random.Random) -> dict[str, Any]:
    """Train with one kill at a random place; `length` is the journal's in a whole run."""
    command = [sys.executable, "-m", "tallystick", "train", str(job), "--out", str(run),
               "--threads", str(way.threads), "--quiet"]  # fmt: skip
    for _ in range(5):
        at = kill(command, way, run, draw.randrange(length // 20, length * 3 // 4))
        if at is not None:
            break
        shutil.rmtree(run)
    else:
        raise RuntimeError("The run always ends before it can be killed: use more steps.")
    return train(job, run, way) | {"killed_at": at}


def trainer_killed(
    subject: Subject, made: Path, out: Path, way: Way, length: int, steps: int | None,
    draw: random.Random,
) -> dict[str, Any]:  # fmt: skip
    """The example's own process, which makes the job and trains it: killed, and called again."""
    out.mkdir()
    shutil.copytree(made / "base-model", out / "base-model")
    code = _TRAINER.format(name=subject.name, steps="" if steps is None else f", {steps}")
    command = [sys.executable, "-c", code, str(examples()), str(out)]
    run = out / "tuned" / "run"
    at = kill(command, way, run, draw.randrange(length // 20, length * 3 // 4))
    if at is None:
        raise RuntimeError("The example ended before it could be killed.")
    subprocess.run(command, env=way.environment, check=True, capture_output=True)
    found = tallystick(None, "inspect", run)
    assert found["finished"] and len(found["sessions"]) == 2, found
    return {
        "way": f"{way.isa}, Trainer.train() itself",
        "root": found["run_root"],
        "final_state": found["final_state_root"],
        "steps": found["steps"],
        "seconds": 0.0,
        "sessions": len(found["sessions"]),
        "killed_at": at,
    }
