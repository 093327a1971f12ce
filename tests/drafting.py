"""Drafters for tests: some know what will be drawn, and say it, a part of it, or anything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from tallystick.generation.drafters import DraftAsked
from tallystick.generation.sequences import GeneratedAnswer, GenerationRequest

Change = Callable[[list[int], int], list[int]]  # of the true tokens, and of how many are wanted


@dataclass
class Oracle:
    """Changes what the true answer goes on with, as `change` says."""

    answers: Mapping[GenerationRequest, GeneratedAnswer]
    change: Change = lambda tokens, _most: tokens
    most: int = 7
    vocabulary: int | None = None
    asked: int = field(default=0, init=False)

    def propose(self, asked: Sequence[DraftAsked]) -> Sequence[Sequence[int]]:
        self.asked += len(asked)
        return [self.change(self._rest(one), one.most) for one in asked]

    def _rest(self, one: DraftAsked) -> list[int]:
        true = [*one.request.prompt, *self.answers[one.request].tokens]
        text = list(one.text)
        assert text == true[: len(text)], "a drafter reads a token that nobody has drawn"
        return true[len(text) :]


def changes(vocabulary: int) -> dict[str, Change]:
    random = Random(4)

    def wrong(tokens: list[int]) -> list[int]:
        return [(token + 1) % vocabulary for token in tokens]

    return {
        "right": lambda tokens, most: tokens[:most],
        "wrong": lambda tokens, most: wrong(tokens[:most]),
        "half right": lambda tokens, most: [
            *tokens[: most // 2],
            *wrong(tokens[most // 2 : most]),
        ],
        "too many": lambda tokens, _: [*tokens, *range(500)],
        "outside": lambda tokens, most: [*tokens[: most // 2], vocabulary, -1, 10**30],
        "nothing": lambda _tokens, _most: [],
        "anything": lambda tokens, most: [
            token if random.random() < 0.7 else random.randrange(vocabulary)
            for token in tokens[: random.randint(0, most)]
        ],
    }
