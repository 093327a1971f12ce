"""The programs of Llamas of 1B and 8B parameters: every node checked, the kinds of nodes executed.

    python benchmarks/llama_nodes.py [--only checked/1b] [--json]

`checked/SIZE` captures the training step, the validation and the forward pass of the recipe's
preset (batch 1, 2,048 tokens) on the meta device, where no weight is made. Each program is written
as text, parsed, and checked by PROGRAM 3: operators, attributes, order of operands, and the types
of every node's outputs, inferred again from its operands. The bounds of any game about such a job
are computed (PROTOCOL 8.5).

`executed/SIZE/PART` executes a part of that model at its own width, and compares loss, gradients
and updates with torch in float64 by PROGRAM 5.9. `block` is one layer with a small vocabulary;
`head` is the embedding, the head and the loss with a narrow feed-forward layer. The row counts the
kinds of nodes (operator, attributes, types of operands and results) that the whole model has at
this length, and those that were executed in the parts; it names the operators of the others.
`alone/SIZE` executes these one by one on random operands, and compares each with numpy's or torch's
result in float64: all but those over every slot (the clipping's coefficient, COMMIT), the largest
weight's update, and views, which no kernel executes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from tallystick.commit.job import JobCommitment, scalars_digest
from tallystick.job.reading import schema_for
from tallystick.job.recipes import llama, settings_for
from tallystick.job.recipes.text_records import FIELD, build_next_token, capture_next_token
from tallystick.job.scalars import scalar_tables
from tallystick.program.check import check_program
from tallystick.program.ir import Program
from tallystick.program.terms import Terms
from tallystick.program.text import parse_text
from tallystick.protocol.facts import Facts
from tallystick.protocol.sizes import game_bounds
from tallystick_bench import process, vocabulary_nodes
from tallystick_bench.machine import machine
from tallystick_bench.memory import peak_bytes

STEPS = 1000
# Tokens of an executed part: a product of a block is as long as that of the whole model's.
SHORT = {"block_size": "8", "batch_size": "1", "warmup": "0"}
# A quarter and a sixteenth of the vocabulary, and a plain update for 8B: what this fits into the
# memory of a laptop.
PARTS = {
    "1b": {
        "block": {"n_layer": "1", "vocab_size": "256"},
        "head": {"n_layer": "1", "intermediate": "8", "vocab_size": "32064"},
    },
    "8b": {
        "block": {"n_layer": "1", "vocab_size": "256", "optimizer": "sgd", "momentum": "0"},
        "head": {"n_layer": "1", "intermediate": "8", "vocab_size": "8016"},
    },
}


def settings(size: str, given: dict[str, str]) -> llama.LlamaSettings:
    """The settings of a preset with other values."""
    found: llama.LlamaSettings = settings_for(llama.RECIPE, {"size": size, **given})
    return found


def kinds(program: Program) -> Iterator[tuple[str, str]]:
    """(operator, all that it is executed by) of each node; a draw's number is left out."""
    for node in program.nodes:
        types = [None if v is None else str(program.type_of(v)) for v in node.inputs]
        attrs = sorted((k, repr(v)) for k, v in node.attrs.items() if k != "draw")
        yield node.op, repr((node.op, attrs, types, [str(t) for t in node.out_types]))


def checked(size: str) -> dict[str, Any]:
    """Captures and checks the programs of a preset."""
    s = settings(size, {"batch_size": "1"})
    module, optimizer = llama.on_meta(s)
    started, before = time.perf_counter(), peak_bytes()
    captured, evaluation, forward = capture_next_token(module, optimizer, s)
    capture_s = time.perf_counter() - started
    started = time.perf_counter()
    texts = []
    for program in (captured.program, evaluation, forward):
        text = program.text().encode("ascii")
        again = parse_text(text)
        check_program(again)
        assert again.text().encode("ascii") == text and again.digest() == program.digest()
        texts.append(len(text))
    check_s = time.perf_counter() - started
    scalars = scalar_tables(captured.scalars, s.rates(STEPS), STEPS)
    schema = schema_for(captured.batch, {FIELD: np.zeros((4, s.block_size + 1), np.int64)})
    zero = bytes(32)
    commitment = JobCommitment(
        contract=captured.program.contract, program_digest=captured.program.digest(),
        genesis_root=zero, data_root=zero, record_count=4, batch_size=1, order_seed=0, rng_seed=0,
        steps=STEPS, checkpoint_interval=20, scalars_digest=scalars_digest(scalars),
        stop_on_non_finite=True,
    )  # fmt: skip
    terms = Terms(commitment, (captured.program,), scalars, (schema,))
    assert terms.misfit() is None, terms.misfit()
    bounds = game_bounds(Facts(terms), 16)
    every = list(kinds(captured.program))
    return {
        "parameters": sum(p.numel() for p in module.parameters()),
        "nodes": [len(p.nodes) for p in (captured.program, evaluation, forward)],
        "operators": len({op for op, _ in every}),
        "kinds": len({kind for _, kind in every}),
        "text_bytes": texts,
        "program_digest": captured.program.digest().hex(),
        "capture_s": capture_s,
        "check_s": check_s,
        "game_messages": bounds.messages,
        "evidence_bytes": bounds.evidence_bytes,
        "memory": peak_bytes() - before,
    }


def executed(size: str, part: str) -> dict[str, Any]:
    """Executes a part of a preset's model and compares it with torch."""
    s = settings(size, {**PARTS[size][part], **SHORT})
    built = build_next_token(
        *llama.on_meta(s), s.rates(1), s, lambda types, seed: llama.initial_state(s, types, seed), 1
    )
    captured = built.captured
    generator = np.random.default_rng(1)
    batch = {FIELD: generator.integers(0, s.vocab_size, (1, s.block_size + 1))}
    tables = scalar_tables(captured.scalars, built.schedules, 1)
    scalars = {name: t if isinstance(t, float) else t[0] for name, t in tables.items()}
    started = time.perf_counter()
    reason = captured.first_step.compare(
        captured.program.contract, built.initial_state, batch, scalars, (1, 0)
    )
    assert reason is None, reason
    return {
        "parameters": sum(a.size for n, a in built.initial_state.items() if n[:6] == "param."),
        "nodes": len(captured.program.nodes),
        "compare_s": time.perf_counter() - started,
        "peak": peak_bytes(),
        **covered(size),
    }


def short(size: str, given: dict[str, str]) -> Program:
    """The step of a preset with other values, at the parts' length."""
    s = settings(size, {**given, **SHORT})
    program: Program = capture_next_token(*llama.on_meta(s), s)[0].program
    return program


def covered(size: str) -> dict[str, Any]:
    """The kinds of nodes of the whole model at the parts' length, and those that the parts have."""

    def of(given: dict[str, str]) -> dict[str, str]:
        return {kind: op for op, kind in kinds(short(size, given))}

    whole = of({})
    parts: dict[str, str] = {}
    for given in PARTS[size].values():
        parts |= of(given)
    left: dict[str, int] = {}
    for kind, op in whole.items():
        if kind not in parts:
            left[op] = left.get(op, 0) + 1
    return {"kinds": len(whole), "kinds_executed": len(whole.keys() & parts), "left": left}


def alone(size: str) -> dict[str, Any]:
    """Executes each kind of node that no part has, and that needs little memory, on random
    operands, and compares its result with numpy's or torch's in float64."""
    program = short(size, {})
    seen = {kind for given in PARTS[size].values() for _, kind in kinds(short(size, given))}
    done: dict[str, int] = {}
    left: dict[str, int] = {}
    for node, (op, kind) in zip(program.nodes, kinds(program), strict=True):
        if kind in seen:
            continue
        seen.add(kind)
        if op not in vocabulary_nodes.CHECKS:
            left[op] = left.get(op, 0) + 1
            continue
        types = [None if v is None else program.type_of(v) for v in node.inputs]
        vocabulary_nodes.check(op, node.attrs, types, node.out_types)
        done[op] = done.get(op, 0) + 1
    return {"executed": done, "left": left, "peak": peak_bytes()}


ROWS: dict[str, Callable[[], dict[str, Any]]] = {
    **{f"checked/{size}": partial(checked, size) for size in PARTS},
    "alone/1b": partial(alone, "1b"),
    **{
        f"executed/{size}/{part}": partial(executed, size, part)
        for size in PARTS
        for part in PARTS[size]
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(ROWS[args.measure]()))
        return 0
    rows = {name: process.row(__file__, name) for name in ROWS if args.only in name}
    if args.json:
        print(json.dumps({"bench": "llama-nodes", "torch": torch.__version__,
                          "machine": machine(), "rows": rows}, indent=1))  # fmt: skip
    else:
        for name, row in rows.items():
            print(name, json.dumps(row))
    return 1 if any("error" in row for row in rows.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
