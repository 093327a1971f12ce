"""One side of the memory measurement, in a process of its own: `python -m` this file, JSON.

Our side executes a job as an auditor would and never loads torch; torch's side trains the
recipe's module, or one of `step_models`. Both print their resident memory before and at the peak.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.devices.context import ExecutionContext
from tallystick.job.recipes.gpt2 import Gpt2Settings, make_module
from tallystick_bench.memory import peak_bytes

if TYPE_CHECKING:
    import torch


class Engines:
    """Names of the two sides; torch's are its optimizer variants."""

    OURS = "tallystick"


class TorchStep:
    """One training step in torch eager float32 of the recipe's module: call it to take a step.

    Forward, mean cross-entropy, backward, clipping by norm, AdamW with decay on matrices, as
    the captured program does. `use` switches between torch's own optimizer variants.
    """

    VARIANTS: tuple[str, ...] = ("fused", "foreach", "for-loop")

    def __init__(
        self, settings: Gpt2Settings, threads: int, weights: Mapping[str, np.ndarray] | None = None
    ) -> None:
        import torch

        torch.set_num_threads(threads)
        self.settings = settings
        self.module = make_module(settings).train()
        if weights is not None:
            with torch.no_grad():
                for name, parameter in self.module.named_parameters():
                    parameter.copy_(torch.from_numpy(weights[f"param.{name}"]))
        self.parameters = list(self.module.parameters())
        shape = (settings.batch_size, settings.block_size + 1)
        drawn = np.random.default_rng(0).integers(0, settings.vocab_size, shape)
        self.tokens = torch.from_numpy(drawn)
        self.optimizer: Any = None
        self._compiled: Callable[[], torch.Tensor] | None = None
        self._forward: Callable[[], torch.Tensor] = self._loss

    def to(self, device: str) -> None:
        """Continue on torch's device `device`; before the first `use`."""
        self.module.to(device)
        self.parameters = list(self.module.parameters())
        self.tokens = self.tokens.to(device)

    def use(self, variant: str) -> None:
        """Continue with another variant of AdamW, on the present moments."""
        import torch

        options = {"fused": variant == "fused", "foreach": variant == "foreach"}
        s = self.settings
        groups = [
            {
                "params": [p for p in self.parameters if (p.ndim >= 2) is matrices],
                "weight_decay": s.weight_decay if matrices else 0.0,
            }
            for matrices in (True, False)
        ]
        moments = None if self.optimizer is None else self.optimizer.state
        self.optimizer = torch.optim.AdamW(groups, lr=s.lr, betas=(s.beta1, s.beta2), **options)
        if moments is not None:
            self.optimizer.state = moments

    def compile(self, on: bool) -> None:
        """Take forward, loss and backward through torch.compile from now on, or eagerly."""
        import torch

        if on and self._compiled is None:
            self._compiled = torch.compile(self._loss)
        self._forward = self._compiled if on and self._compiled is not None else self._loss

    def _loss(self) -> torch.Tensor:
        from torch.nn import functional

        logits = self.module(self.tokens[:, :-1])
        targets = self.tokens[:, 1:].reshape(-1)
        return functional.cross_entropy(logits.reshape(-1, self.settings.vocab_size), targets)

    def __call__(self) -> None:
        import torch

        s = self.settings
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._forward()
        loss.backward()  # type: ignore[no-untyped-call]
        if s.clip_norm:
            torch.nn.utils.clip_grad_norm_(self.parameters, s.clip_norm)
        self.optimizer.step()
        float(loss.detach())


def _ours(arguments: dict[str, Any]) -> dict[str, int]:
    from tallystick.job.job_file import load_job
    from tallystick.run.execute.engine import Engine
    from tallystick.run.logs.training import scratch_logs

    start = peak_bytes()
    job = load_job(Path(arguments["job"]))
    with scratch_logs(job) as logs:
        context = ExecutionContext(arguments["threads"])
        engine = Engine(job, job.genesis(), context=context, log=logs)
        for _ in range(arguments["steps"]):
            engine.run()
    if "torch" in sys.modules:
        raise RuntimeError("torch was loaded on our side of the measurement")
    return {"start": start, "peak": peak_bytes()}


def _their_step(arguments: dict[str, Any]) -> Any:
    if "net" not in arguments:
        return TorchStep(Gpt2Settings(**arguments["settings"]), arguments["threads"])
    from tallystick_bench.step_models import net
    from tallystick_bench.step_nets import TorchNet

    return TorchNet(net(arguments["net"]), arguments["threads"])


def _theirs(arguments: dict[str, Any]) -> dict[str, int]:
    import torch  # noqa: F401 - its own size belongs to the start

    start = peak_bytes()
    step = _their_step(arguments)
    step.use(arguments["engine"])
    for _ in range(arguments["steps"]):
        step()
    return {"start": start, "peak": peak_bytes()}


def main() -> None:
    """Read one JSON object of arguments, print one of results."""
    arguments = json.loads(sys.argv[1])
    side = _ours if arguments["engine"] == Engines.OURS else _theirs
    print(json.dumps(side(arguments)))


if __name__ == "__main__":
    main()
