"""What a Llama of 1B or 70B parameters is: counts of its captured step. No weight is made.

The step is captured on the meta device in micro-batches of one record; the counts do not depend on
the machine. `most_micro_batches` is found by asking PROGRAM 6.8's own check.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tallystick.errors import UsageError
from tallystick.job.recipes import llama, settings_for
from tallystick.job.recipes.settings import step_options
from tallystick.job.recipes.text_records import FIELD
from tallystick.numerics.operators.reduction import FOLD, MOST_PARTS
from tallystick.program.expand import numbering
from tallystick.program.ir import Program, op_spec

# The recipe's preset for 1B; Llama 3's published shape for 70B, in records of 8,192 tokens.
SHAPES: dict[str, dict[str, str]] = {
    "1b": {"size": "1b"},
    "70b": {
        "size": "8b", "n_layer": "80", "n_head": "64", "n_kv_head": "8", "n_embd": "8192",
        "intermediate": "28672", "block_size": "8192",
    },
    "tiny": {"size": "tiny"},
}  # fmt: skip


def shape(name: str) -> dict[str, Any]:
    """The counts of SHAPES[name]'s step with AdamW. Needs torch."""
    import torch
    from torch.nn import functional as F

    from tallystick.program.capture.api import capture

    given = {**SHAPES[name], "batch_size": "2", "micro_batches": "2"}
    s: Any = settings_for(llama.RECIPE, given)
    module, optimizer = llama.on_meta(s)

    def loss(module: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        tokens = batch[FIELD]
        logits = module(tokens[:, :-1])
        return F.cross_entropy(logits.reshape(-1, s.vocab_size), tokens[:, 1:].reshape(-1))

    module.train()
    batch = {FIELD: ((2, s.block_size + 1), "i64")}
    program: Program = capture(module, loss, batch, optimizer, **step_options(s)).program
    section = range(program.section)
    types = {i: program.nodes[i].out_types for i in section}
    weights = [t for name, t in program.state_types.items() if name.startswith("param.")]
    return {
        "parameters": sum(p.numel() for p in module.parameters()),
        "layers": s.n_layer,
        "tokens": s.block_size,
        "slots": len(program.state_types),
        "state_bytes": sum(t.nbytes for t in program.state_types.values()),
        "section_nodes": program.section,
        "tail_nodes": len(program.nodes) - program.section,
        "folds": sum(node.op == FOLD for node in program.nodes),
        "most_micro_batches": most_micro_batches(program),
        # Of one micro-batch of one record.
        "node_output_bytes": sum(t.nbytes for found in types.values() for t in found),
        "product_elements": sum(
            t.numel
            for i in section
            if op_spec(program.nodes[i].op).op_class == "dot"
            for t in types[i]
        ),
        # Bytes of each trained tensor, and how many have that size.
        "tensors": sorted(Counter(t.nbytes for t in weights).items(), reverse=True),
        "largest_tensor_bytes": max(t.nbytes for found in types.values() for t in found),
    }


def most_micro_batches(program: Program) -> int:
    """The largest V that PROGRAM 6.8 allows for `program`, a text 2."""
    low, high = 1, MOST_PARTS
    while low < high:
        middle = math.ceil((low + high) / 2)
        try:
            numbering(program, middle)
            low = middle
        except UsageError:
            high = middle - 1
    return low
