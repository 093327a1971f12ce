"""What an answer must be: the whole text at once, by the scalar code on one thread."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

import numpy as np

from tallystick.answers.layout import Bucket, batch_types, choice_seed, record
from tallystick.answers.sampler import emit
from tallystick.devices.context import ExecutionContext
from tallystick.generation.network import Network
from tallystick.generation.requests import Answer, Request
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.ir import Program
from tallystick.program.runner import StepInputs

SCALAR = ExecutionContext(1, "scalar")


class WholeNetwork(Network, Protocol):
    """A network whose forward pass over a whole text is there too: inputs `text` i64[length] and
    `place` i64[rows], output `logits`."""

    def forward(self, length: int, rows: int) -> Program: ...


class Truth:
    """Checks answers of one network."""

    def __init__(self, network: WholeNetwork) -> None:
        self._network = network
        self._weights: Mapping[str, Any] = network.weights()
        self._forward = cache(self._made_forward)
        self._sampler = cache(self._made_sampler)
        self._known: dict[tuple[Request, tuple[int, ...]], bytes] = {}
        self.checked = 0

    def _made_forward(self, bucket: Bucket) -> Executor:
        return Executor(self._network.forward(bucket.length, bucket.answer), SCALAR)

    def _made_sampler(self, bucket: Bucket, sampler: str) -> Executor:
        vocabulary = self._network.vocabulary
        builder = Builder(self._network.contract)
        logits = builder.batch("logits", TensorType("f32", (bucket.answer, vocabulary)))
        types = batch_types(bucket, sampler, vocabulary)
        fields = {name: builder.batch(name, type_) for name, type_ in types.items()}
        drawn, logprobs = emit(builder, sampler, logits, fields, vocabulary)
        return Executor(builder.finish({"drawn": drawn, "logprobs": logprobs}), SCALAR)

    def check(self, request: Request, answer: Answer) -> None:
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

    def _drawn(self, request: Request, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], bytes]:
        length, rows = len(request.prompt) + len(tokens), len(tokens)
        bucket = Bucket(-(-length // 64) * 64, -(-rows // 16) * 16)
        sampler, vocabulary = request.settings.set, self._network.vocabulary
        salt = np.zeros(4, np.int64)
        fields = record(bucket, request.settings, request.prompt, tokens, salt, vocabulary)
        batch = {"text": fields["text"], "place": fields["place"]}
        logits = self._forward(bucket).execute(self._weights, StepInputs(batch)).outputs["logits"]
        rng = (
            None if sampler == "greedy" else (choice_seed(request.settings.seed, request.choice), 0)
        )
        inputs = StepInputs({**fields, "logits": logits}, rng=rng)
        made = self._sampler(bucket, sampler).execute({}, inputs).outputs
        return tuple(map(int, made["drawn"][:rows])), made["logprobs"][:rows].tobytes()
