"""One kind of hardware of `bench ovt`, in a process of its own: `python -m` this file, JSON.

It answers commands on standard input, a JSON object a line: `start` an arm with some lanes (lane 0
trains, others follow a trainer's log), take a `step` in a lane, `stop`, or compute a `layer`.
After a step the weights are in a file, and the answer carries a digest of the whole state.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.cli.output import json_float
from tallystick.commit.tensor import Array
from tallystick.contracts.replay.stock.emulated import Hardware, kind_named
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.products.engines import using
from tallystick_bench.ovt.layers import near
from tallystick_bench.ovt.parties.arms import open_arm
from tallystick_bench.ovt.parties.engines import engine_of
from tallystick_bench.ovt.parties.party import Arm, Party


class Lane:
    """A party, and the file that gets its weights after each step."""

    def __init__(self, job: Job, arm: Arm, weights: Path) -> None:
        self.party = Party(job, arm)
        self.weights = weights

    def advance(self, log: str | None) -> dict[str, Any]:
        """Take the next step, along `log` where it follows one."""
        found = self.party.advance(Path(log) if log else None)
        slots = self.party.slots
        with open(self.weights, "wb") as file:
            for name, array in slots.items():
                if name.startswith("param."):
                    file.write(np.ascontiguousarray(array).data)
        found["loss"] = json_float(found["loss"])
        return {"weights": str(self.weights), "state": state_digest(slots), **found}


def state_digest(slots: dict[str, Array]) -> str:
    """A digest of every bit of a state, for comparing within one measurement."""
    hasher = hashlib.blake2b(digest_size=16)
    for name in sorted(slots):
        hasher.update(np.ascontiguousarray(slots[name]).reshape(-1).view(np.uint8).data)
    return hasher.hexdigest()


def main() -> None:
    """Answer commands until standard input ends."""
    given = json.loads(sys.argv[1])
    work, kind = Path(given["work"]), kind_named(given["hardware"])
    with using(engine_of(kind)):
        serve(kind, work, given["threads"])


def serve(kind: Hardware, work: Path, threads: int) -> None:
    """The commands, answered one after the other."""
    lanes: list[Lane] = []
    for line in sys.stdin:
        command = json.loads(line)
        answer: dict[str, Any] = {}
        if command["do"] in ("start", "stop"):
            for lane in lanes:
                lane.party.arm.close()
            lanes = []
        if command["do"] == "start":
            job = load_job(Path(command["job"]))
            for number in range(command["lanes"]):
                place = f"{kind.name}-{number}"
                arm = open_arm(
                    command["arm"], command["contract"], job, kind, number > 0, work / place,
                    threads,
                )  # fmt: skip
                lanes.append(Lane(job, arm, work / f"{place}.f32"))
        elif command["do"] == "layer":
            seeds = range(command["begin"], command["end"])
            answer = near(command["layer"], seeds, kind.stock())
        elif command["do"] == "step":
            answer = lanes[command["lane"]].advance(command.get("log"))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
