"""`bench ovt`, memory: peak resident memory of each side, in a process of its own.

`python -m` this file with JSON takes two steps as one side and prints its peak.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallystick.job.job_file import load_job
from tallystick_bench import process
from tallystick_bench.memory import peak_bytes
from tallystick_bench.ovt.results.store import PartFile

if TYPE_CHECKING:
    from tallystick_bench.ovt.context import Context

STEPS = 2
# Side -> (arm, contract, the side whose logs it follows); float64 is plain torch.
SIDES: dict[str, tuple[str, str, str | None]] = {
    "ordered": ("ordered", "ordered/1", None),
    "rounded": ("rounded", "rounded/1", None),
    "trainer": ("bounded", "replay/1", None),
    "auditor": ("bounded", "replay/1", "trainer"),
    "published-trainer": ("published", "replay/1;form=published", None),
    "published-auditor": ("published", "replay/1;form=published", "published-trainer"),
}
QUICK_SIDES = ("float64", "trainer", "auditor")


def about(quick: bool) -> dict[str, Any]:
    """The settings of the entries, beside the model."""
    return {"steps": STEPS}


def measure(part: PartFile, context: Context) -> None:
    """One entry a side: bytes at the start (after imports) and at the peak."""
    for side in QUICK_SIDES if context.quick else ("float64", *SIDES):

        def run(side: str = side) -> dict[str, Any]:
            work = context.work / f"memory-{part.model}"
            follows = SIDES[side][2] if side in SIDES else None
            if follows is not None and not (work / follows).exists():
                # After an interruption: the logs to follow went with the last process.
                _child(context, part.model, follows, work)
            return _child(context, part.model, side, work)

        part.get(side, run)


def _child(context: Context, model: str, side: str, work: Path) -> dict[str, Any]:
    arguments = {
        "job": str(context.job(model).directory),
        "model": model,
        "side": side,
        "work": str(work),
        "threads": context.threads,
    }
    found: dict[str, Any] = process.answer(
        "tallystick_bench.ovt.parts.memory",
        json.dumps(arguments),
        failed=f"The process that measures {side}'s memory failed",
        next_action="Run it where there is more memory.",
    )
    return found


def main() -> None:
    """Take two steps as one side; print bytes at the start and at the peak."""
    given = json.loads(sys.argv[1])
    job, side, work = load_job(Path(given["job"])), given["side"], Path(given["work"])
    threads = given["threads"]
    if side == "float64":
        from tallystick_bench.ovt.parts.time import plain_step

        start = peak_bytes()
        step = plain_step(job, given["model"], threads)
        for _ in range(STEPS):
            step()
    else:
        from tallystick.contracts.replay.stock.emulated import kind_named
        from tallystick_bench.ovt.parties.arms import PLAIN, open_arm
        from tallystick_bench.ovt.parties.party import Party

        arm, contract, follows = SIDES[side]
        start = peak_bytes()
        opened = open_arm(
            arm, contract, job, kind_named(PLAIN), follows is not None, work / side, threads
        )
        party = Party(job, opened)
        log: Path | None = None
        for number in range(STEPS):
            if follows is not None:
                log = work / f"{follows}-{number}.log"
            found = party.advance(log)
            if "log" in found:
                Path(found["log"]).replace(work / f"{side}-{number}.log")
    sys.stdout.write(json.dumps({"start": start, "peak": peak_bytes()}))


if __name__ == "__main__":
    main()
