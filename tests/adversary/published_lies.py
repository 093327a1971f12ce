"""A lie in each logged output of published jobs, in both seats: docs/proofs/published-lies.md.

    PYTHONPATH=tests python tests/adversary/published_lies.py [--recipes mlp gpt2 resnet50]
        [--every 1] [--sizes doubled] [--seconds 600] [--out FILE]

Real runs by torch's kernels: the liar trains with one false element and the honest party follows
its logs. Three sizes of lie: the largest element doubled, one bit in the middle of a significand,
and the smallest step of the grid. The fourth lie takes an element whose x is a number of the grid
(where the output has one), goes one step from it, and logs the entry that names that step. A lie
without effect leaves equal runs and is not counted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.contracts.replay.entries import pack, unpack
from tallystick.contracts.replay.published.follow import PublishedRecord
from tallystick.contracts.replay.sections import sections_of
from tallystick.installed import tallystick_version
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.numerics.contracts import parse_contract
from tallystick.prover.cheating import party_of
from tallystick.prover.local import play
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.unsigned import Declaration

RECIPES = {
    "mlp": {"records": "40", "batch_size": "4", "hidden": "16", "dropout": "0.1"},
    "gpt2": {"n_layer": "1", "n_head": "2", "n_embd": "8", "block_size": "8", "batch_size": "2",
             "dropout": "0.1", "text_bytes": "2000"},
    "resnet50": {"size": "tiny", "batch_size": "2", "records": "16"},
}  # fmt: skip
BITS, STEPS, AT = 32, 2, 0
NAMED = "one step, and the entry that names it"
SIZES = {"doubled": -1, "a bit in the middle": 12, "the smallest step": 0, NAMED: 0}

# Step, call, x, out, packed: what a trainer has settled.
Settled = Callable[[Any, Any, np.ndarray, np.ndarray, np.ndarray], None]


@contextmanager
def settling(then: Settled) -> Iterator[None]:
    """`then` is called for every output that a trainer has rounded and logged."""
    plain = PublishedRecord.settle

    def settle(self: Any, step: Any, call: Any, x: Any, out: Any, packed: Any) -> None:
        plain(self, step, call, x, out, packed)
        then(step, call, x, out, packed)

    PublishedRecord.settle = settle  # type: ignore[method-assign]
    try:
        yield
    finally:
        PublishedRecord.settle = plain  # type: ignore[method-assign]


def exact_elements(job: Job, directory: Path) -> dict[int, int]:
    """By section: an element whose x is a number of the grid at step AT, not zero if there is one
    that is not. Outputs are small here, so no call is cut."""
    found: dict[int, int] = {}

    def look(step: Any, call: Any, x: np.ndarray, out: np.ndarray, _: np.ndarray) -> None:
        exact = np.flatnonzero((x.reshape(-1) == out.reshape(-1)) & np.isfinite(out.reshape(-1)))
        if step.number == AT and len(exact):
            found[call.number] = int(max(exact, key=lambda k: out.reshape(-1)[k] != 0))

    with settling(look):
        train_job(job, directory, Options())
    shutil.rmtree(directory)
    return found


def naming(number: int, element: int) -> Settled:
    """The entry of an element of a section is the one that names its lowest bit's change."""

    def craft(step: Any, call: Any, _: np.ndarray, out: np.ndarray, packed: np.ndarray) -> None:
        if (step.number, call.number) != (AT, number):
            return
        value = out.reshape(-1)[element : element + 1]
        other = (value.view(np.uint32) ^ 1).view(np.float32)
        entries = unpack(packed.tobytes(), out.size)
        entries[element] = 2 if other > value else 0
        packed[:] = np.frombuffer(pack(entries), np.uint8)

    return craft


def make_job(recipe: str, directory: Path) -> Job:
    text = directory / "text"
    text.write_text("a lie has short legs, and so has this text. " * 100)
    return new_job(
        recipe, directory / "job", RECIPES[recipe], steps=STEPS, checkpoint_interval=1,
        evaluate_every=0, contract=f"replay/1;b={BITS};form=published",
        sources=Sources(text=text if recipe == "gpt2" else None),
    )  # fmt: skip


def one_lie(job: Job, directory: Path, params: dict[str, int], also: Settled) -> list[str]:
    """How the games in both seats end; nothing where the lie has no effect."""
    cheat, follower = directory / "cheat", directory / "follower"
    try:
        with settling(also):
            train_job(
                job, cheat, Options(maker=declared_cheat(job, Declaration("lie-output", params)))
            )
        train_job(job, follower, Options(replay=cheat))
        ends = []
        for seat in (0, 1):
            runs = [follower, follower]
            runs[seat] = cheat
            first, second = (party_of(run, as_attack=run == cheat) for run in runs)
            with first, second:
                verdict = play(job.terms, [first, second]).verdict
            if verdict.agreement:
                return []
            convicted = {c.party for c in verdict.convicted}
            if 1 - seat in convicted:
                ends.append("honest convicted")
            else:
                ends.append("convicted" if seat in convicted else "undecided")
        return ends
    finally:
        shutil.rmtree(cheat, ignore_errors=True)
        shutil.rmtree(follower, ignore_errors=True)


def settled_as_it_is(*_: Any) -> None:
    """A trainer that logs what it should."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipes", nargs="+", default=list(RECIPES))
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    ends: dict[str, Counter[str]] = defaultdict(Counter)
    undecided: Counter[str] = Counter()
    operators: dict[str, set[str]] = {}
    began, without, lies = time.monotonic(), 0, 0
    for recipe in given.recipes:
        until = time.monotonic() + given.seconds / len(given.recipes)
        with tempfile.TemporaryDirectory() as scratch:
            job = make_job(recipe, Path(scratch))
            sections = sections_of(job.program, parse_contract(job.commitment.contract))
            # Outputs in turn of operators, so that a run cut short has seen most of them.
            seen: Counter[str] = Counter()
            ranks = []
            for s in sections:
                op = job.program.nodes[s.node].op
                ranks.append((seen[op], s.node, s.output))
                seen[op] += 1
            operators[recipe] = set()
            numbers = {(s.node, s.output): k for k, s in enumerate(sections)}
            exact = exact_elements(job, Path(scratch) / "exact") if NAMED in given.sizes else {}
            for number, (_, node, output) in enumerate(sorted(ranks)):
                if number % given.every or time.monotonic() > until:
                    continue
                op = job.program.nodes[node].op
                for size in given.sizes:
                    section, also = numbers[node, output], settled_as_it_is
                    params = {"step": AT, "node": node, "output": output, "element": -1}
                    if size == NAMED:
                        if section not in exact:
                            continue
                        params["element"] = exact[section]
                        also = naming(section, exact[section])
                    found = one_lie(job, Path(scratch), {**params, "bit": SIZES[size]}, also)
                    lies += bool(found)
                    without += not found
                    operators[recipe].add(op)
                    for end in found:
                        ends[size][end] += 1
                        if end != "convicted":
                            undecided[f"{end}: {op}.{output}, {size}"] += 1
            print(recipe, dict(ends), file=sys.stderr, flush=True)
    result = {
        "lies": lies,
        "without_effect": without,
        "games": {size: dict(sorted(c.items())) for size, c in ends.items()},
        "not_convicted": dict(sorted(undecided.items())),
        "operators": {recipe: sorted(found) for recipe, found in operators.items()},
        "seconds": round(time.monotonic() - began, 1),
        "tallystick": tallystick_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
    text = json.dumps(result, indent=2) + "\n"
    if given.out:
        given.out.write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main()
