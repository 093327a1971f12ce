"""torch's random calls on the contract's generator (NUMERICS 8; PROGRAM 5.3).

Three operators draw: `dropout_mask`, `uniform`, `normal`. Each call of torch makes one of them,
with the next draw id, and computes the rest with deterministic operators. So a program,
`reproducible` and the float64 run of `first_step` have the same numbers; they differ in the methods
that draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.errors import UnsupportedOperatorError, UsageError
from tallystick.program.capture import custom_ops

Table = dict[Any, Callable[..., Any]]

_LEAST = 2.0**-25

# What no rule covers, by name. A library's own generator would make other numbers at each run.
REFUSED_DRAWS: dict[Any, str] = {
    F.fractional_max_pool2d: "fractional_max_pool2d",
    F.fractional_max_pool3d: "fractional_max_pool3d",
    torch.poisson: "torch.poisson",
    torch.binomial: "torch.binomial",
    torch._standard_gamma: "torch's gamma sampler",
    torch._sample_dirichlet: "torch's Dirichlet sampler",
    Tensor.cauchy_: "Tensor.cauchy_",
    Tensor.geometric_: "Tensor.geometric_",
}
_HINT = (
    "Use a random call that the contract defines (dropout, rand, randn, randint, randperm, "
    "bernoulli, multinomial; spec/PROGRAM.md 5.3), or draw the numbers beforehand into the batch."
)


def _refuse(name: str) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperatorError(
            f"{name} draws random numbers that no contract defines.", _HINT
        )

    return refused


def sizes(name: str, size: tuple[Any, ...], given: Any) -> list[int]:
    if given is not None:
        size = (given,)
    if len(size) == 1 and isinstance(size[0], (list, tuple, torch.Size)):
        size = tuple(size[0])
    return [int(n) for n in size]


class Draws:
    """The random calls of torch by the contract's generator; `draws` counts them (NUMERICS 8.2).

    `rng` is i64[2], seed and step.
    """

    def __init__(self, rng: Tensor) -> None:
        self.rng = rng
        self.draws = 0
        self.in_backward = False

    def check_generator(self, name: str, generator: Any) -> None:
        """Raises UsageError where the call `name` has a generator that it cannot draw from."""
        if generator is not None:
            raise UsageError(
                f"{name} uses generator=, a torch generator.",
                "Leave it out: the contract's generator is keyed by the job's seed and the step.",
            )

    def place(self, generator: Any = None) -> tuple[Tensor, int]:
        """Key and draw id of the next random call. Raises UsageError in the backward pass."""
        if self.in_backward:
            raise UsageError(
                "A random operator runs in the backward pass.",
                "Draw in the forward pass and keep the numbers (ctx.save_for_backward).",
            )
        draw, self.draws = self.draws, self.draws + 1
        return self.rng, draw

    # -- the three that draw; first_step computes them at once -------------------------------------

    def keep(self, p: float, shape: Sequence[int]) -> Tensor:
        """bool; an element is True with the probability 1 - p (NUMERICS 8.4)."""
        mask: Tensor = custom_ops.dropout_mask(*self.place(), float(p), list(shape))
        return mask

    def uniform(
        self, shape: Sequence[int], low: float = 0.0, high: float = 1.0, generator: Any = None
    ) -> Tensor:
        """f32 multiples of 2^-24 in [0, 1), scaled to [low, high) (NUMERICS 8.6)."""
        place = self.place(generator)
        drawn: Tensor = custom_ops.uniform(*place, list(shape), float(low), float(high))
        return drawn

    def normal(
        self, shape: Sequence[int], mean: float = 0.0, std: float = 1.0, generator: Any = None
    ) -> Tensor:
        """f32 (NUMERICS 8.7)."""
        place = self.place(generator)
        drawn: Tensor = custom_ops.normal(*place, list(shape), float(mean), float(std))
        return drawn

    def scaled(self, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        """x times scale where the mask is True, else +0 (NUMERICS 8.5)."""
        result: Tensor = custom_ops.mask_scale(x, mask, scale)
        return result

    # -- tensors of numbers ------------------------------------------------------------------------

    def made(self, name: str, drawn: Tensor, options: dict[str, Any]) -> Tensor:
        """`drawn` as a factory's options want it; devices and layouts name no value."""
        out, dtype = options.pop("out", None), options.pop("dtype", None)
        grad = options.pop("requires_grad", False)
        for key in ("device", "layout", "pin_memory", "memory_format"):
            options.pop(key, None)
        if options:
            raise UsageError(
                f"{name} uses {sorted(options)[0]}=, which capture does not know.", "Leave it out."
            )
        if dtype is not None and dtype != drawn.dtype:
            drawn = drawn.to(dtype)
        if out is not None:
            return out.copy_(drawn)  # type: ignore[no-any-return]
        return drawn.requires_grad_() if grad else drawn

    def rand(self, *size: Any, generator: Any = None, **options: Any) -> Tensor:
        self.check_generator("torch.rand", generator)
        shape = sizes("torch.rand", size, options.pop("size", None))
        return self.made("torch.rand", self.uniform(shape, generator=generator), options)

    def randn(self, *size: Any, generator: Any = None, **options: Any) -> Tensor:
        self.check_generator("torch.randn", generator)
        shape = sizes("torch.randn", size, options.pop("size", None))
        return self.made("torch.randn", self.normal(shape, generator=generator), options)

    def rand_like(self, input: Tensor, *, generator: Any = None, **options: Any) -> Tensor:
        self.check_generator("torch.rand_like", generator)
        options.setdefault("dtype", input.dtype)
        drawn = self.uniform(input.shape, generator=generator)
        return self.made("torch.rand_like", drawn, options)

    def randn_like(self, input: Tensor, *, generator: Any = None, **options: Any) -> Tensor:
        self.check_generator("torch.randn_like", generator)
        options.setdefault("dtype", input.dtype)
        drawn = self.normal(input.shape, generator=generator)
        return self.made("torch.randn_like", drawn, options)

    def normal_of(
        self,
        mean: Any,
        std: Any = 1.0,
        size: Any = None,
        *,
        generator: Any = None,
        **options: Any,
    ) -> Tensor:
        """`torch.normal`: numbers go into the operator; tensors give mean + std·z."""
        self.check_generator("torch.normal", generator)
        tensors = [t for t in (mean, std) if isinstance(t, Tensor)]
        if not tensors:
            drawn = self.normal(sizes("torch.normal", (size,), None), mean, std, generator)
        else:
            with torch.no_grad():
                shape = (mean + std).shape
                drawn = mean + std * self.normal(shape, generator=generator)
                never = torch.zeros(shape, dtype=torch.bool, device=self.rng.device)
            for t in tensors:
                if t.requires_grad and torch.is_grad_enabled():
                    drawn = torch.where(never, t, drawn)  # torch's gradient is zero
        return self.made("torch.normal", drawn, options)

    def bernoulli(
        self,
        input: Tensor,
        p: float | None = None,
        *,
        generator: Any = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """1 where a uniform number is below the probability, else 0."""
        self.check_generator("torch.bernoulli", generator)
        chance: Any = input.detach() if p is None else float(p)
        drawn = (self.uniform(input.shape, generator=generator) < chance).to(input.dtype)
        if p is None and input.requires_grad and torch.is_grad_enabled():
            drawn = drawn + input * 0  # torch's gradient by a probability is zero
        return drawn if out is None else out.copy_(drawn)

    # -- in place ----------------------------------------------------------------------------------

    def bernoulli_(self, input: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
        self.check_generator("Tensor.bernoulli_", generator)
        chance = p.detach() if isinstance(p, Tensor) else float(p)
        drawn = self.uniform(input.shape, generator=generator) < chance
        return input.copy_(drawn.to(input.dtype))

    def normal_(
        self, input: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None
    ) -> Tensor:
        self.check_generator("Tensor.normal_", generator)
        return input.copy_(self.normal(input.shape, mean, std, generator))

    def log_normal_(
        self, input: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None
    ) -> Tensor:
        self.check_generator("Tensor.log_normal_", generator)
        return input.copy_(self.normal(input.shape, mean, std, generator).exp())

    def uniform_(self, input: Tensor, *bounds: Any, generator: Any = None, **named: Any) -> Tensor:
        """`uniform_(from=0, to=1)`; Python keeps the first name for itself."""
        self.check_generator("Tensor.uniform_", generator)
        low = bounds[0] if bounds else named.get("from", 0.0)
        high = bounds[1] if len(bounds) > 1 else named.get("to", 1.0)
        return input.copy_(self.uniform(input.shape, low, high, generator))

    def exponential(
        self, shape: Sequence[int], lambd: float = 1.0, generator: Any = None
    ) -> Tensor:
        """max(−log(1 − u), 2⁻²⁵)/λ. It is never 0, so that its logarithm is finite."""
        drawn = (1.0 - self.uniform(shape, generator=generator)).log().neg().clamp_min(_LEAST)
        return drawn if lambd == 1.0 else drawn / float(lambd)

    def exponential_(self, input: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
        self.check_generator("Tensor.exponential_", generator)
        return input.copy_(self.exponential(input.shape, lambd, generator))

    def table_of_draws(self) -> Table:
        """torch's random callables, each with its replacement."""
        table: Table = {f: _refuse(name) for f, name in REFUSED_DRAWS.items()}
        return table | {
            torch.rand: self.rand,
            torch.randn: self.randn,
            torch.rand_like: self.rand_like,
            torch.randn_like: self.randn_like,
            torch.normal: self.normal_of,
            torch.bernoulli: self.bernoulli,
            Tensor.bernoulli: self.bernoulli,
            Tensor.bernoulli_: self.bernoulli_,
            Tensor.normal_: self.normal_,
            Tensor.log_normal_: self.log_normal_,
            Tensor.uniform_: self.uniform_,
            Tensor.exponential_: self.exponential_,
        }

    def nested_draws(self) -> Table:
        """Those of torch.nn.functional by name, since functionals call each other by name."""
        return {}
