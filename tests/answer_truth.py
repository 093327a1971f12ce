"""What an answer must be: the whole text at once, by the scalar code on one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np

from tallystick.answers.layout import GREEDY, Bucket, choice_seed, record
from tallystick.answers.programs import LOGPROBS, TOKENS, answer_slots
from tallystick.devices.context import ExecutionContext
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import Network
from tallystick.generation.sequences import GeneratedAnswer, GenerationRequest
from tallystick.numerics.types import DTYPES
from tallystick.program.executor import Executor
from tallystick.program.ir import Program
from tallystick.program.runner import StepInputs

SCALAR = ExecutionContext(1, "scalar")


class WholeNetwork(Network, Protocol):
    """A network whose answer programs are there too (answers/programs.py)."""

    def answer(self, bucket: Bucket, sampler: str) -> Program: ...


class Truth:
    """Checks answers of one network; `context` computes the truth."""

    def __init__(self, network: WholeNetwork, context: ExecutionContext = SCALAR) -> None:
        self._context = context
        self._network = network
        self._weights: Mapping[str, Any] = network.weights()
        self._executor = cache(self._made)
        self._known: dict[tuple[GenerationRequest, tuple[int, ...]], bytes] = {}
        self.checked = 0

    def _made(self, bucket: Bucket, sampler: str) -> tuple[Executor, dict[str, Any]]:
        types = answer_slots(bucket)
        slots = {name: np.zeros(t.shape, DTYPES[t.dtype]) for name, t in types.items()}
        executor = Executor(self._network.answer(bucket, sampler), self._context)
        return executor, {**self._weights, **slots}

    def check(self, request: GenerationRequest, answer: GeneratedAnswer) -> None:
        """Every token is the one that its text draws, and every log-probability has its bits."""
        tokens = answer.tokens
        key = request, tokens
        if key not in self._known:
            drawn, logprobs = self._drawn(request, tokens)
            assert drawn == tokens
            self._known[key] = logprobs
        assert answer.logprobs.dtype == np.float32
        assert answer.logprobs.tobytes() == self._known[key]
        self.checked += len(tokens)
        settings = request.settings
        ended = [i for i, token in enumerate(tokens) if token in settings.stop]
        if answer.finish == "stop":
            assert ended == [len(tokens) - 1]
        elif answer.finish == "length":
            assert not ended and len(tokens) == settings.max_tokens

    def _drawn(
        self, request: GenerationRequest, tokens: tuple[int, ...]
    ) -> tuple[tuple[int, ...], bytes]:
        length, rows = len(request.prompt) + len(tokens), len(tokens)
        bucket = Bucket(-(-length // 64) * 64, -(-rows // 16) * 16)
        sampler, vocabulary = request.settings.set, self._network.vocabulary
        salt = np.zeros(4, np.int64)
        fields = record(bucket, request.settings, request.prompt, tokens, salt, vocabulary)
        seed = choice_seed(request.settings.seed, request.choice)
        rng = None if sampler == GREEDY else (seed, 0)
        executor, state = self._executor(bucket, sampler)
        batch = {name: array[None] for name, array in fields.items()}  # of one record
        executor.execute(state, StepInputs(batch, rng=rng))
        return tuple(map(int, state[TOKENS][:rows])), state[LOGPROBS][:rows].tobytes()


def hold_whole_text(network: WholeNetwork, wanted: Sequence[GenerationRequest]) -> None:
    """The engine's answers are those of the whole text, by one thread and by two."""
    truth = Truth(network)
    for threads, chunk in ((2, 7), (1, 64)):
        engine = AnswerEngine(network, threads=threads, chunk=chunk, memory=1 << 22)
        for request, answer in zip(wanted, engine.generate(wanted), strict=True):
            truth.check(request, answer)
    assert truth.checked > 100
