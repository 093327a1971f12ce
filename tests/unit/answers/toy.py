"""A model of a few hundred weights by hand: what an answer's program is, without torch.

One layer: a head of causal attention, and a gate. So an answer depends on the whole text before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.job import LOGPROBS, SALT, TOKENS, AnswerJob
from tallystick.answers.layout import Bucket, Settings, batch_types
from tallystick.answers.receipt import LENGTH, AnswerReceipt, sign_receipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.sampler import emit
from tallystick.answers.statement import Adapter, ModelStatement, ProgramName, Weight
from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import Array, header_of, tensor_digest
from tallystick.numerics.contracts import ORDERED_1
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Program, Value
from tallystick.program.state import State
from tallystick.run.execute.engine import Engine

VOCABULARY, WIDTH = 16, 8
BUCKETS = (Bucket(12, 4), Bucket(24, 8))
SECRET, MOMENT, LATER = bytes(range(32)), 1_764_000_000_000, 1_764_600_000_000
KEY = PrivateKey(bytes([7]) * 32)
SHAPES = {
    "param.down": (WIDTH, WIDTH),
    "param.embed": (VOCABULARY, WIDTH),
    "param.head": (WIDTH, VOCABULARY),
    "param.key": (WIDTH, WIDTH),
    "param.query": (WIDTH, WIDTH),
    "param.value": (WIDTH, WIDTH),
}
# The matrices of an adapter of one layer (ANSWERS 4.7.2).
MATRICES = {"param.value.lora_A.weight": (2, WIDTH), "param.value.lora_B.weight": (WIDTH, 2)}


def i64(*shape: int) -> TensorType:
    return TensorType("i64", shape)


def f32(*shape: int) -> TensorType:
    return TensorType("f32", shape)


def weights(seed: int = 0, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def program(
    bucket: Bucket,
    set_: str = "greedy",
    contract: str = ORDERED_1,
    shapes: Mapping[str, tuple[int, ...]] = SHAPES,
) -> Program:
    """The program of an answer (ANSWERS 2.5)."""
    b, length, most = Builder(contract), bucket.length, bucket.answer
    held = {name: b.state(name, f32(*shape)) for name, shape in shapes.items()}
    for name, type_ in ((LOGPROBS, f32(most)), (SALT, i64(4)), (TOKENS, i64(most))):
        b.state(name, type_)
    types = batch_types(bucket, set_, VOCABULARY)
    given = {n: b.batch(n, TensorType(t.dtype, (1, *t.shape))) for n, t in types.items()}
    fields = {n: b.one("aten.view", [given[n]], size=t.shape) for n, t in types.items()}
    told = b.one("aten.embedding", [held["param.embed"], fields["text"]], padding_idx=-1)
    mixed = b.one("aten.add.Tensor", [told, _attended(b, told, held, length)], alpha=1.0)
    deep = b.one("aten.silu", [b.one("aten.mm", [mixed, held["param.down"]])])
    hidden = b.one("aten.add.Tensor", [mixed, deep], alpha=1.0)
    rows = b.one("aten.index_select", [hidden, fields["place"]], dim=0)
    logits = b.one("aten.mm", [rows, held["param.head"]])
    tokens, logprobs = emit(b, set_, logits, fields, VOCABULARY)
    zero = b.one("aten.full", [], size=(), value=0.0, dtype="f32")
    loss = b.one("aten.sub.Tensor", [zero, b.one("aten.sum", [logprobs])], alpha=1.0)
    after = {**held, LOGPROBS: logprobs, SALT: fields["salt"], TOKENS: tokens}
    b.commit(after)
    return b.finish({**after, "loss": loss})


def _attended(b: Builder, x: Value, held: Mapping[str, Value], length: int) -> Value:
    """One head of causal attention over the whole text."""
    made = [b.one("aten.mm", [x, held[f"param.{name}"]]) for name in ("query", "key", "value")]
    if MATRICES.keys() <= held.keys():
        made[2] = b.one("aten.add.Tensor", [made[2], _added(b, x, held)], alpha=1.0)
    q, k, v = (b.one("aten.view", [value], size=(1, 1, length, WIDTH)) for value in made)
    seen = {"causal": True, "first": 0, "window": 0}
    scores = b.one("tallystick.attention_scores", [q, k, None], scale=0.125, softcap=0.0, **seen)
    p = b.one("tallystick.attention_weights", [scores, None], **seen)
    values = b.one("tallystick.attention_values", [p, v], **seen)
    return b.one("aten.view", [values], size=(length, WIDTH))


def _added(b: Builder, x: Value, held: Mapping[str, Value]) -> Value:
    """What the adapter adds to its layer's output (ANSWERS 4.7.2)."""
    for name in MATRICES:
        x = b.one("aten.mm", [x, b.one("aten.permute", [held[name]], dims=(1, 0))])
    return b.one("aten.mul.Scalar", [x], other=1.5)


def programs(
    contract: str = ORDERED_1, shapes: Mapping[str, tuple[int, ...]] = SHAPES
) -> dict[ProgramName, Program]:
    return {
        ProgramName(bucket.length, bucket.answer, set_): program(bucket, set_, contract, shapes)
        for bucket in BUCKETS
        for set_ in ("greedy", "draw", "full")
    }


def statement(
    held: Mapping[str, Array], texts: Mapping[ProgramName, Program], stop: tuple[int, ...] = ()
) -> ModelStatement:
    contract = next(iter(texts.values())).contract
    slots = {n: Weight(header_of(a), tensor_digest(a)) for n, a in held.items()}
    digests = {name: text.digest() for name, text in texts.items()}
    return ModelStatement(contract, VOCABULARY, slots, digests, stop=stop)


@dataclass(frozen=True)
class Toy:
    """A model at hand: statement, program texts and weights."""

    held: dict[str, Array]
    texts: dict[ProgramName, Program]
    statement: ModelStatement

    @staticmethod
    def make(seed: int = 0, stop: tuple[int, ...] = (), contract: str = ORDERED_1) -> Toy:
        held, texts = weights(seed), programs(contract)
        return Toy(held, texts, statement(held, texts, stop))

    @staticmethod
    def adapted() -> Toy:
        """With an adapter that is not merged."""
        shapes = {**SHAPES, **MATRICES}
        held, texts = weights(shapes=shapes), programs(shapes=shapes)
        stated = replace(statement(held, texts), adapter=Adapter(b"a" * 32, False))
        return Toy(held, texts, stated)

    def request(self, tokens: tuple[int, ...] = (3, 1, 4), **given: object) -> ModelRequest:
        settings = Settings(**{"max_tokens": 3, "seed": 11, **given})  # type: ignore[arg-type]
        return ModelRequest(self.statement.digest, settings, tokens=tokens, secret=SECRET)

    def text_of(self, job: AnswerJob) -> Program:
        name = ProgramName(job.bucket.length, job.bucket.answer, job.settings.set)
        return self.texts[name]

    def texts_of(self, set_: str) -> Program:
        """The program of a set in the smallest bucket."""
        return self.texts[ProgramName(BUCKETS[0].length, BUCKETS[0].answer, set_)]

    def executed(self, job: AnswerJob, held: Mapping[str, Array] | None = None) -> State:
        """state[1] of the answer's run."""
        text = self.text_of(job)
        engine = Engine(job.in_memory(text), State(job.state(text, held or self.held)))
        engine.run()
        return engine.state

    def said(self, request: ModelRequest, held: Mapping[str, Array] | None = None) -> Spoken:
        """The answer, token by token: each by a run over what is there."""
        prompt, tokens = request.tokens or (), []
        for _ in range(request.settings.max_tokens):
            spoken = Spoken(prompt, (*tokens, 0), np.zeros(len(tokens) + 1, np.float32))
            after = self.executed(AnswerJob(self.statement, request, spoken), held)
            drawn, logs = (np.asarray(after.slots[name]) for name in (TOKENS, LOGPROBS))
            tokens.append(int(drawn[len(tokens)]))
            if tokens[-1] in (*self.statement.stop, *request.settings.stop):
                break
        return Spoken(prompt, tuple(tokens), logs[: len(tokens)].copy())

    def answered(self, request: ModelRequest) -> AnswerJob:
        return AnswerJob(self.statement, request, self.said(request))


def receipt_of(
    said: AnswerJob, finish: str = LENGTH, key: PrivateKey = KEY, **odd: object
) -> bytes:
    """The signed receipt of what `said` claims; `odd` are members in the place of the true ones."""
    final, root = said.roots()
    told: dict[str, object] = {
        "model": said.statement.digest,
        "request": said.request.digest,
        "choice": said.choice,
        "job": said.digest,
        "root": root,
        "state": final,
        "prompt": len(said.spoken.prompt),
        "answer": len(said.spoken.tokens),
        "finish": finish,
        "time": MOMENT,
        "until": LATER,
        "signer": key.public,
    }
    return sign_receipt(key, AnswerReceipt(**{**told, **odd}))  # type: ignore[arg-type]
