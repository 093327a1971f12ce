"""The scripts, what they need besides torch, and how one is run."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

import tallystick
from tallystick_bench.scripts import accelerate_loop, ddp, ppo, trainers


@dataclass(frozen=True)
class Script:
    """`run(workers)` trains and gives the module and its losses."""

    name: str
    run: Callable[[int], tuple[nn.Module, list[Any]]]
    needs: tuple[str, ...] = ()
    loads: bool = True

    def missing(self) -> list[str]:
        """The packages that are not installed here."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


_HF = ("transformers", "accelerate", "tokenizers")
_TRL = (*_HF, "datasets", "trl")

SCRIPTS = (
    Script("accelerate", accelerate_loop.run, ("accelerate",)),
    Script("ppo, Categorical", ppo.discrete, ("gymnasium",), loads=False),
    Script("ppo, Normal", ppo.continuous, loads=False),
    Script("ddp of one process", ddp.run),
    Script("transformers.Trainer, GPT-2", trainers.trainer, _HF),
    *(
        Script(f"trl.{name}, {title}", functools.partial(run, kind), _TRL)
        for name, run in (
            ("SFTTrainer", trainers.sft),
            ("DPOTrainer", trainers.dpo),
            ("GRPOTrainer", trainers.grpo),
        )
        for kind, title in (("gpt2", "GPT-2"), ("llama", "Llama"))
    ),
)


def outcome(script: Script, workers: int) -> dict[str, Any]:
    """The script within `reproducible()`: its last loss, and a digest of weights and losses."""
    with tallystick.reproducible("ordered/1"):
        module, losses = script.run(workers)
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode() + b"\0" + tensor.detach().contiguous().numpy().tobytes())
    digest.update(repr([float(x) for x in losses]).encode())
    return {"digest": digest.hexdigest(), "losses": [losses[0], losses[-1]]}
