"""Who proposes the next tokens of a text before a pass has drawn them.

A pass computes the proposed tokens as if they were there, and draws the token of each of these
places by the sampler. Those that it draws stay (ANSWERS 3.5). So a drafter decides how many tokens
a pass gives, and no bit of them. It may propose anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from tallystick.errors import UsageError
from tallystick.generation.sequences import GenerationRequest

if TYPE_CHECKING:
    from tallystick.generation.engine import AnswerEngine


@dataclass(frozen=True)
class DraftAsked:
    """A text so far, the request that it answers, and how many tokens are wanted at most."""

    text: Sequence[int]
    request: GenerationRequest
    most: int


class Drafter(Protocol):
    """`most` is the most tokens that it proposes for a text, `vocabulary` how many tokens it knows:
    None where it takes any."""

    @property
    def most(self) -> int: ...

    @property
    def vocabulary(self) -> int | None: ...

    def propose(self, asked: Sequence[DraftAsked]) -> Sequence[Sequence[int]]:
        """The tokens that may come next in each text, in its order; none is a proposal too."""
        ...


@dataclass(frozen=True)
class PromptLookup:
    """Proposes what followed the last tokens of a text when they stood there before.

    The longest stretch of `longest` tokens down to one is taken that is there twice, and of its
    places the latest.
    """

    longest: int = 3
    most: int = 7
    vocabulary: ClassVar[None] = None

    def __post_init__(self) -> None:
        if self.longest < 1 or self.most < 1:
            raise UsageError(
                "A lookup compares and proposes at least one token, got "
                f"{self.longest} and {self.most}.",
                "Give 1 or more of each.",
            )

    def propose(self, asked: Sequence[DraftAsked]) -> Sequence[Sequence[int]]:
        return [self._following(np.asarray(one.text, np.int64), one.most) for one in asked]

    def _following(self, text: np.ndarray, most: int) -> list[int]:
        # Where the last token stands too; of these places, where those before it are the same.
        ends = np.flatnonzero(text[:-1] == text[-1])
        for back in range(1, min(self.longest, len(text) - 1)):
            agree = ends[(ends >= back) & (text[ends - back] == text[-1 - back])]
            if not agree.size:
                break
            ends = agree
        if not ends.size:
            return []
        after = int(ends[-1]) + 1
        # What stood there ends with the text, and goes on as it began.
        return [int(token) for token in np.resize(text[after:], most)]


class DraftModel:
    """Proposes what a smaller model with the same tokens would answer.

    Its engine draws by the request's own settings and seed. Noise is by place and token
    (ANSWERS 3.5), so both models draw with the same noise, and agree the more often. The pages of
    the engine keep the beginning of a text from one proposal to the next.
    """

    def __init__(self, engine: AnswerEngine, most: int = 3) -> None:
        if most < 1:
            raise UsageError(
                f"A drafter proposes at least one token, got {most}.", "Give 1 or more."
            )
        self.most, self._engine = most, engine

    @property
    def vocabulary(self) -> int:
        return self._engine.vocabulary

    def propose(self, asked: Sequence[DraftAsked]) -> Sequence[Sequence[int]]:
        handles = [
            self._engine.submit(
                one.text,
                replace(one.request.settings, max_tokens=one.most),
                one.request.choice,
                namespace=one.request.namespace,
            )
            if len(one.text) + one.most <= self._engine.longest
            else None
            for one in asked
        ]
        self._engine.run()
        return [h.answer.tokens if h is not None and h.answer is not None else () for h in handles]
