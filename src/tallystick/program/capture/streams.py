"""Where the random numbers of `reproducible()` come from (PROGRAM 5.23).

With `seed=` they are those of a capture: key (seed, step), draw ids in order. Without it each call
has a key of its own, the next number of torch's default generator. So the position is torch's state
of random numbers, which every library saves and restores as it does without us.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from tallystick.errors import UsageError
from tallystick.program.capture.functions import Lowering
from tallystick.program.capture.schema import op_name

# Random operators that a function of torch in C++, or one that `Lowering` does not see inside,
# calls by itself: ATen's name and ours. Their arguments are those of the Python functions.
_BY_NAME = {
    "rand": "rand", "randn": "randn", "rand_like": "rand_like", "randn_like": "randn_like",
    "randint": "randint", "randint_like": "randint_like", "randperm": "randperm",
    "normal": "normal_of", "bernoulli": "bernoulli", "multinomial": "multinomial",
    "bernoulli_": "bernoulli_", "normal_": "normal_", "log_normal_": "log_normal_",
    "uniform_": "uniform_", "random_": "random_", "exponential_": "exponential_",
}  # fmt: skip


def key_from(generator: Any) -> Tensor:
    """i64[2]: the low 63 bits of the generator's next 64-bit number, and step 0."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        word = torch.empty((), dtype=torch.int64).random_(generator=generator)
        return torch.stack([word, torch.zeros_like(word)])


class Streams(Lowering):
    """Capture's replacements, which draw from (seed, step) or from torch's generators.

    `operators` counts the runs of the contract's kernels in the block, by the operator's name.
    """

    def __init__(self, seed: int | None) -> None:
        super().__init__(torch.from_numpy(np.array([seed or 0, 0], dtype=np.int64)))
        self.seed = seed
        self.operators: Counter[str] = Counter()

    def next_step(self) -> None:
        """Begin the next training step: its masks are those of a capture's next step.

        Without `seed=` it changes nothing: there every call has a key of its own.
        """
        self.draws = 0
        self.rng = torch.from_numpy(np.array([int(self.rng[0]), int(self.rng[1]) + 1]))

    def check_generator(self, name: str, generator: Any) -> None:
        """Raises UsageError for a generator of another device than the CPU."""
        if generator is not None and generator.device.type != "cpu":
            raise UsageError(
                f"{name} has a generator on the device {generator.device}.",
                "Use one on the CPU: torch.Generator().",
            )

    def place(self, generator: Any = None) -> tuple[Tensor, int]:
        """Key and draw id of the next random call.

        A worker of a DataLoader draws by the seed that torch gave it: with `seed=` all of them
        would have the same numbers.
        """
        if generator is None and self.seed is not None and get_worker_info() is None:
            return super().place()
        return key_from(generator), 0

    def drawn_by(self, func: Any) -> Any:
        """The replacement of a random ATen operator, or None for any other operator."""
        name = _BY_NAME.get(op_name(func).removeprefix("aten.").partition(".")[0])
        return None if name is None else getattr(self, name)
