"""`bench ovt`, storage: bytes of one step's log in every form, by operator and by place.

Naive and packed sizes follow from shapes. Compressed and bounded sizes are those of a trainer's
logs of the job's first steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tallystick.commit.log import Section
from tallystick.contracts.replay.sections import operators_of, sections_of
from tallystick.contracts.replay.stock.emulated import kind_named
from tallystick.job.job import Job
from tallystick.numerics.contracts import find_contract
from tallystick.program.ir import Program
from tallystick.run.logs.reader import Expected, LogReader
from tallystick_bench.ovt.classes import class_of, places
from tallystick_bench.ovt.context import Context
from tallystick_bench.ovt.parties.arms import PLAIN, open_arm
from tallystick_bench.ovt.parties.party import Party
from tallystick_bench.ovt.results.store import PartFile

PUBLISHED, BOUNDED = find_contract("replay/1;form=published"), find_contract("replay/1")
STEPS, QUICK_STEPS = 3, 1
ARMS = {"zstd": ("published", "replay/1;form=published"), "bounded": ("bounded", "replay/1")}


def about(quick: bool) -> dict[str, Any]:
    """The settings of the entries, beside the model."""
    return {"steps logged": QUICK_STEPS if quick else STEPS, "bits": 32}


def measure(part: PartFile, context: Context) -> None:
    """Entries `zstd` and `bounded` (bytes of each section), then the tables made from them."""
    if "classes" in part.entries:
        return
    job = context.job(part.model)
    steps = QUICK_STEPS if context.quick else STEPS
    for form, (arm, contract) in ARMS.items():
        work = context.work / f"storage-{part.model}-{form}"

        def logged(
            arm: str = arm, contract: str = contract, work: Path = work
        ) -> list[dict[str, Any]]:
            return sections_logged(job, arm, contract, work, steps, context.threads)

        part.get(f"sections of {form}", logged)
    program = job.program
    by_class, by_place = tables(program, part.entries)
    part.entries |= {
        "weights": _weights(job),
        "rounded_ratio": _of_rounded(program, part.entries),
        "places": by_place,
        "classes": by_class,
    }
    part.write()


def sections_logged(
    job: Job, arm: str, contract: str, work: Path, steps: int, threads: int
) -> list[dict[str, Any]]:
    """(node, output, payload bytes, stored bytes) of every section, mean over `steps` steps."""
    party = Party(
        job, open_arm(arm, contract, job, kind_named(PLAIN), False, work, threads, compress=True)
    )
    sections = sections_of(job.program, find_contract(contract))
    expected = Expected(job.digest, sections, operators_of(job.program, sections), sections[0].form)
    payload, stored = [0] * len(sections), [0] * len(sections)
    try:
        for step in range(steps):
            path = Path(party.advance(None)["log"])
            with LogReader(path, step, expected) as reader:
                for number, line in enumerate(reader.index):
                    payload[number] += line.payload
                    stored[number] += line.stored
            path.unlink()
    finally:
        party.arm.close()
    return [
        {"node": s.node, "output": s.output, "payload": p / steps, "stored": z / steps}
        for s, p, z in zip(sections, payload, stored, strict=True)
    ]


def tables(
    program: Program, entries: Mapping[str, Any]
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    """Bytes by form, for each operator class and for each place in the step."""
    by_class: dict[str, dict[str, float]] = {}
    by_place: dict[str, dict[str, float]] = {}
    where = places(program)

    def add(node: int, output: int, form: str, value: float) -> None:
        for table, key in (
            (by_class, class_of(program.nodes[node].op)),
            (by_place, where[node][output]),
        ):
            row = table.setdefault(key, {})
            row[form] = row.get(form, 0) + value

    def published(count: Callable[[Section], int], form: str) -> None:
        for section in sections_of(program, PUBLISHED):
            add(section.node, section.output, form, count(section))

    published(lambda section: section.elements, "naive")
    published(lambda section: section.packed_bytes, "packed")
    for line in entries["sections of zstd"]:
        add(line["node"], line["output"], "zstd", line["stored"])
    for line in entries["sections of bounded"]:
        add(line["node"], line["output"], "bounded", line["payload"])
    return by_class, by_place


def _of_rounded(program: Program, entries: Mapping[str, Any]) -> float:
    """Bounded over packed bytes, both of the rounded operators alone."""
    packed = sum(-(-section.elements // 5) for section in sections_of(program, BOUNDED))
    bounded = sum(line["payload"] for line in entries["sections of bounded"])
    return float(bounded / packed)


def _weights(job: Job) -> dict[str, int]:
    """Bytes of the weights, and of the whole state, for storing them at each step."""
    types = job.program.state_types
    return {
        "bytes": sum(t.nbytes for name, t in types.items() if name.startswith("param.")),
        "state_bytes": sum(t.nbytes for t in types.values()),
    }
