"""The dropouts of torch and its random activation, on the contract's generator (PROGRAM 5.3)."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.errors import UsageError
from tallystick.program.capture.choices import Choices
from tallystick.program.capture.randomness import Table

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
