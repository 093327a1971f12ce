"""A row of a model with experts: those that it chose alone, beside all of them.

    python benchmarks/experts.py [--rows 1] [--turns 15] [--json]

The model has random weights: 4 layers, hidden 512, 8 experts of 1,792, 2 of them chosen. Both sides
have the same weights, and take their turns one after the other; the medians of the processor's time
are compared, which other work on the machine disturbs less than the clock's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tallystick.answers.model import open_model
from tallystick.devices.context import ExecutionContext
from tallystick.generation import forward
from tallystick.generation.attention import Rows, Stretch
from tallystick.generation.forward import chosen_only
from tallystick.generation.network import ModelNetwork
from tallystick.generation.pages import PLACES
from tallystick_bench.machine import machine

_CHOICE = "chosen_only"


def save(directory: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, MixtralConfig

    torch.manual_seed(3)
    config = MixtralConfig(
        vocab_size=8000,
        hidden_size=512,
        intermediate_size=1792,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        num_local_experts=8,
        num_experts_per_tok=2,
        max_position_embeddings=256,
    )
    module = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    module.save_pretrained(directory)


def passes(network: ModelNetwork, rows: int, chosen: bool) -> Callable[[], np.ndarray]:
    """Computes the logits of `rows` places of one text."""
    if not chosen:
        setattr(forward, _CHOICE, lambda _: {})
    made = forward.Forward(network, ExecutionContext(1), 1 << 26)
    tokens = np.random.default_rng(1).integers(0, network.vocabulary, rows).tolist()
    stretch = Stretch(list(range(-(-rows // PLACES))), 0, rows)

    def run() -> np.ndarray:
        return made.logits(tokens, Rows([stretch]), list(range(rows)))

    run()  # binds its programs with these kernels
    setattr(forward, _CHOICE, chosen_only)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        save(Path(place))
        network = ModelNetwork(open_model(place), "ordered/1")
        sides = {name: passes(network, asked.rows, name == "chosen") for name in ("all", "chosen")}
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        logits = {}
        for _ in range(asked.turns):
            for name, run in sides.items():
                began = time.process_time()
                logits[name] = run()
                seconds[name].append(time.process_time() - began)
    assert np.array_equal(logits["all"].view(np.uint32), logits["chosen"].view(np.uint32))
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    found = {"rows": asked.rows, **medians, "ratio": medians["chosen"] / medians["all"]}
    if asked.json:
        print(json.dumps({**found, "machine": machine()}))
    else:
        print(" ".join(f"{k} {v:.4g}" for k, v in found.items()))


if __name__ == "__main__":
    main()
