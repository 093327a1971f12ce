"""torch's dropouts, random activation, integers, orders and choices, each made of draws of uniform
numbers on the contract's generator (PROGRAM 5.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.errors import UnsupportedOperatorError, UsageError
from tallystick.program.capture.randomness import Draws, Table, sizes

_UNIT = 1 << 24
_PART = 1 << 21
_MOST_SAMPLES = 256

# Of `random_` without bounds: how many of the 63 bits a number of the type has. A float of 32 bits
# holds every integer below 2^24; the float64 run of `first_step` has the same numbers.
_BITS = {torch.int64: 63, torch.int32: 31, torch.uint8: 8, torch.bool: 1}
_BITS |= {torch.float32: 24, torch.float64: 24}


class Choices(Draws):
    """Draws, and what is chosen by them."""

    def words(self, shape: Sequence[int], generator: Any = None) -> Tensor:
        """i64 of 63 random bits: three times 21 of one draw, the first part on top."""
        parts = (self.uniform([3, *shape], generator=generator) * float(_PART)).to(torch.int64)
        return (parts[0] * _PART + parts[1]) * _PART + parts[2]

    def integers(self, low: int, high: int, shape: Sequence[int], generator: Any = None) -> Tensor:
        """i64: low + floor(k·n / 2²⁴), n = high − low, where k·2⁻²⁴ is the uniform number.

        The product in f32 may round up to the next integer; the exact product in i64 says where.
        More than 2²⁴ integers: low + (63 random bits modulo n).
        """
        n = int(high) - int(low)
        if not 0 < n < 1 << 63:
            raise UnsupportedOperatorError(
                f"Random integers from {low} to {high} (exclusive) are not defined.",
                "Choose a range of at least 1 and less than 2^63 integers.",
            )
        if n > _UNIT:
            return self.words(shape, generator) % n + int(low)
        u = self.uniform(shape, generator=generator)
        k = (u * float(_UNIT)).to(torch.int64)
        q = (u * float(n)).to(torch.int64)
        over = (q * _UNIT > k * n).to(torch.int64)
        return q - over + int(low)

    def randint(self, *args: Any, generator: Any = None, **options: Any) -> Tensor:
        """`randint(high, size)` or `randint(low, high, size)`."""
        self.check_generator("torch.randint", generator)
        given = list(args)
        shape = options.pop("size", None)
        if shape is None:
            shape = given.pop()
        low = options.pop("low", None)
        high = options.pop("high", None)
        high = given.pop() if high is None else high
        low = (given.pop() if given else 0) if low is None else low
        options.setdefault("dtype", torch.int64)
        drawn = self.integers(low, high, sizes("torch.randint", (shape,), None), generator)
        return self.made("torch.randint", drawn, options)

    def randint_like(
        self, input: Tensor, *args: Any, generator: Any = None, **options: Any
    ) -> Tensor:
        self.check_generator("torch.randint_like", generator)
        given = list(args)
        high = options.pop("high", None)
        high = given.pop() if high is None else high
        low = options.pop("low", given.pop() if given else 0)
        options.setdefault("dtype", input.dtype)
        drawn = self.integers(low, high, input.shape, generator)
        return self.made("torch.randint_like", drawn, options)

    def random_(self, input: Tensor, *bounds: Any, generator: Any = None, **named: Any) -> Tensor:
        self.check_generator("Tensor.random_", generator)
        high = bounds[-1] if bounds else named.get("to")
        low: int = bounds[0] if len(bounds) == 2 else named.get("from", 0)
        if high is not None:
            return input.copy_(self.integers(low, high, input.shape, generator))
        if low or input.dtype not in _BITS:
            raise UnsupportedOperatorError(
                f"Tensor.random_ from {low} without an end is not defined for {input.dtype}.",
                "Use torch.randint.",
            )
        return input.copy_(self.words(input.shape, generator) >> 63 - _BITS[input.dtype])

    def randperm(self, n: int, *, generator: Any = None, **options: Any) -> Tensor:
        """The positions 0 … n − 1, sorted by the first and then the second of two draws each.

        Positions with equal numbers stay in their order.
        """
        self.check_generator("torch.randperm", generator)
        options.setdefault("dtype", torch.int64)
        keys = self.uniform([2, int(n)], generator=generator)
        second = torch.argsort(keys[1], stable=True)
        first = torch.argsort(keys[0][second], stable=True)
        return self.made("torch.randperm", second[first], options)

    # -- choices -----------------------------------------------------------------------------------

    def multinomial(
        self,
        input: Tensor,
        num_samples: int,
        replacement: bool = False,
        *,
        generator: Any = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """The first index whose cumulative sum exceeds u·(sum of the row).

        Without replacement the weights of what was taken become 0, one sample after the other.
        """
        self.check_generator("torch.multinomial", generator)
        weights, count = input.detach(), int(num_samples)
        if not replacement and not 0 < count <= min(input.shape[-1], _MOST_SAMPLES):
            raise UnsupportedOperatorError(
                f"torch.multinomial of {count} samples without replacement is not defined.",
                f"Take at most {_MOST_SAMPLES}, and at most one per category.",
            )
        u = self.uniform([*weights.shape[:-1], count], generator=generator)
        if replacement or count == 1:
            chosen = self._chosen(weights, u)
        else:
            places = torch.arange(weights.shape[-1], device=weights.device)
            samples = []
            for i in range(count):
                samples.append(self._chosen(weights, u[..., i : i + 1]))
                weights = weights.masked_fill(places == samples[-1], 0.0)
            chosen = torch.cat(samples, -1)
        return chosen if out is None else out.copy_(chosen)

    @staticmethod
    def _chosen(weights: Tensor, u: Tensor) -> Tensor:
        """i64 of u's shape. The last sum is not compared: u is below 1, so an index always is."""
        sums = weights.cumsum(-1)
        at = u * sums[..., -1:]
        return (sums[..., None, :-1] <= at[..., None]).sum(-1)

    def gumbel_softmax(
        self,
        logits: Tensor,
        tau: float = 1,
        hard: bool = False,
        eps: float = 1e-10,
        dim: int = -1,
    ) -> Tensor:
        """softmax((logits − log E)/τ), E exponential; hard: one-hot, with the soft gradient."""
        noise = self.exponential(logits.shape).log().neg()
        soft = torch.softmax((logits + noise) / tau, dim)
        if not hard:
            return soft
        places = torch.arange(soft.shape[dim], device=soft.device)
        places = places.reshape([-1 if d == dim % soft.dim() else 1 for d in range(soft.dim())])
        one_hot = (places == soft.argmax(dim, keepdim=True)).to(soft.dtype)
        return one_hot - soft.detach() + soft

    def table_of_draws(self) -> Table:
        return super().table_of_draws() | {
            torch.randint: self.randint,
            torch.randint_like: self.randint_like,
            Tensor.random_: self.random_,
            torch.randperm: self.randperm,
            torch.multinomial: self.multinomial,
            Tensor.multinomial: self.multinomial,
            F.gumbel_softmax: self.gumbel_softmax,
        }

    def nested_draws(self) -> Table:
        return super().nested_draws() | {"gumbel_softmax": self.gumbel_softmax}


# The negative of the value at which SELU saturates, as torch's alpha_dropout has it.
_ALPHA = -1.7580993408473766


class Dropouts(Choices):
    """Choices, and what is made of a mask of kept elements."""

    def _masked(
        self,
        x: Tensor,
        p: float,
        training: bool,
        inplace: bool,
        shape: list[int],
        made: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """`made` of a fresh mask of `shape`, expanded to x's; x itself where nothing is dropped.

        Raises UsageError for a probability outside [0, 1].
        """
        if not 0.0 <= p <= 1.0:
            raise UsageError(
                f"The dropout probability is {p}, which is out of range.",
                "Choose a probability from 0 to 1.",
            )
        if not training or p == 0.0:
            return x
        # A product, as torch's: x keeps a gradient, which is zero.
        result = x * 0.0 if p == 1.0 else made(self.keep(p, shape).expand(x.shape))
        return x.copy_(result) if inplace else result

    def dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        """mask_scale over a fresh dropout_mask (NUMERICS 8.4, 8.5)."""
        return self._dropped(input, p, training, inplace, list(input.shape))

    def torch_dropout(self, input: Tensor, p: float, train: bool) -> Tensor:
        """`torch.dropout`, whose last argument has another name."""
        return self.dropout(input, p, train)

    def torch_dropout_(self, input: Tensor, p: float, train: bool) -> Tensor:
        return self.dropout(input, p, train, True)

    def _dropped(
        self, x: Tensor, p: float, training: bool, inplace: bool, shape: list[int]
    ) -> Tensor:
        def made(mask: Tensor) -> Tensor:
            return self.scaled(x, mask, 1.0 / (1.0 - float(p)))

        return self._masked(x, p, training, inplace, shape, made)

    def feature_dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        """One choice per image and channel: axes 0 and 1."""
        return self._dropped(input, p, training, inplace, self._features(input))

    def torch_feature_dropout(self, input: Tensor, p: float, train: bool) -> Tensor:
        return self.feature_dropout(input, p, train)

    @staticmethod
    def _features(x: Tensor) -> list[int]:
        return [*x.shape[:2], *[1] * (x.dim() - 2)]

    def _feature_dropout_of(self, spatial: int) -> Callable[..., Tensor]:
        def dropped(
            input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
        ) -> Tensor:
            if spatial != 2 and input.dim() == spatial + 1:
                # Without a batch axis: channels are axis 0. (dropout2d reads axes 0 and 1 always.)
                single = self.feature_dropout(input.unsqueeze(0), p, training).squeeze(0)
                return input.copy_(single) if inplace else single
            return self.feature_dropout(input, p, training, inplace)

        return dropped

    def alpha_dropout(
        self, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
    ) -> Tensor:
        """where(mask, x, α')·a + b, with torch's a and b in binary64."""
        return self._alpha(input, p, training, inplace, list(input.shape))

    def feature_alpha_dropout(
        self, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
    ) -> Tensor:
        return self._alpha(input, p, training, inplace, self._features(input))

    def _alpha(
        self, x: Tensor, p: float, training: bool, inplace: bool, shape: list[int]
    ) -> Tensor:
        def made(mask: Tensor) -> Tensor:
            a: float = ((1.0 - p) * (1.0 + p * _ALPHA * _ALPHA)) ** -0.5
            return x.masked_fill(~mask, _ALPHA) * a + -a * _ALPHA * p

        return self._masked(x, p, training, inplace, shape, made)

    def rrelu(
        self,
        input: Tensor,
        lower: float = 1.0 / 8,
        upper: float = 1.0 / 3,
        training: bool = False,
        inplace: bool = False,
    ) -> Tensor:
        """x where x > 0, else x times a slope drawn per element."""
        if training:
            slope = self.uniform(input.shape, lower, upper)
            result = torch.where(input > 0, input, input * slope)
        else:
            result = torch.where(input > 0, input, input * ((lower + upper) / 2))
        return input.copy_(result) if inplace else result

    def table_of_draws(self) -> Table:
        alpha, features = self.alpha_dropout, self.feature_alpha_dropout
        return (
            super().table_of_draws()
            | {
                torch.dropout: self.torch_dropout,
                torch.dropout_: self.torch_dropout_,
                torch.feature_dropout: self.torch_feature_dropout,
                torch.alpha_dropout: alpha,
                torch.feature_alpha_dropout: features,
                torch.alpha_dropout_: lambda x, p, train: alpha(x, p, train, True),
                torch.feature_alpha_dropout_: lambda x, p, train: features(x, p, train, True),
                torch.rrelu: self.rrelu,
                torch.rrelu_: lambda *a, **k: self.rrelu(*a, **{**k, "inplace": True}),
            }
            | {getattr(F, name): f for name, f in self._functionals().items()}
        )

    def nested_draws(self) -> Table:
        return super().nested_draws() | self._functionals()

    def _functionals(self) -> Table:
        return {
            "dropout": self.dropout,
            "dropout1d": self._feature_dropout_of(1),
            "dropout2d": self._feature_dropout_of(2),
            "dropout3d": self._feature_dropout_of(3),
            "alpha_dropout": self.alpha_dropout,
            "feature_alpha_dropout": self.feature_alpha_dropout,
            "rrelu": self.rrelu,
        }
