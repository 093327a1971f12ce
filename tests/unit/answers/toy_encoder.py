"""An encoder of a few hundred weights by hand: what an encoding's program is, without torch.

One layer: a head of attention in both directions, and a gate; then the mean of the text's rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from unit.answers.toy import KEY, LATER, MOMENT, SECRET, VOCABULARY, WIDTH, f32, i64

from tallystick.answers.beside_receipt import Encoded
from tallystick.answers.encoding_job import EncodingJob, EncodingRequest
from tallystick.answers.encoding_programs import VALUES, encoding_step
from tallystick.answers.layout import CLASSES, EMBEDDING, EncodingBucket
from tallystick.answers.receipt import AnswerReceipt, sign_receipt
from tallystick.answers.statement import ModelStatement, ProgramName, Weight
from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import Array, header_of, tensor_digest
from tallystick.numerics.contracts import ORDERED_1
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.ir import Program, Value
from tallystick.program.state import State
from tallystick.run.execute.engine import Engine

LENGTHS = (8, 40, 300)
SHAPES = {
    "param.down": (WIDTH, WIDTH),
    "param.embed": (VOCABULARY, WIDTH),
    "param.key": (WIDTH, WIDTH),
    "param.query": (WIDTH, WIDTH),
    "param.value": (WIDTH, WIDTH),
}
TEXT = (3, 1, 4, 1, 5)


def weights(seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def program(length: int, contract: str = ORDERED_1) -> Program:
    """The program of an encoding (ANSWERS 11.4, 11.5)."""
    b = Builder(contract)
    held = {name: b.state(name, f32(*shape)) for name, shape in SHAPES.items()}
    text, count = b.batch("text", i64(length)), b.batch("length", i64(1))
    numbers = b.one("aten.arange", [], start=0.0, end=float(length), step=1.0, dtype="i64")
    present = b.one("aten.lt.Tensor", [numbers, count])
    told = b.one("aten.embedding", [held["param.embed"], text], padding_idx=-1)
    mixed = b.one("aten.add.Tensor", [told, attended(b, told, held, length, present)], alpha=1.0)
    deep = b.one("aten.silu", [b.one("aten.mm", [mixed, held["param.down"]])])
    rows = b.one("aten.add.Tensor", [mixed, deep], alpha=1.0)
    there = b.one("aten.view", [present], size=(length, 1))
    zero = b.one("aten.full", [], size=(), value=0.0, dtype="f32")
    kept = b.one("aten.where", [there, rows, zero])
    total = b.one("aten.sum.dim_IntList", [kept], dim=(0,), keepdim=False)
    total = b.one("aten.add.Scalar", [total], other=0.0, alpha=1.0)
    many = b.one("aten._to_copy", [count], dtype="f32")
    mean = b.one("aten.div.Tensor", [total, many])
    forward = b.finish({"logits": mean})
    return canonicalize(encoding_step(forward, EncodingBucket(length, WIDTH)))


def attended(
    b: Builder,
    x: Value,
    held: Mapping[str, Value],
    length: int,
    present: Value,
    positive: bool = True,
) -> Value:
    """One head of attention over the present places. Only without `positive` it has zeros of the
    other sign."""
    q, k, v = (
        b.one("aten.view", [b.one("aten.mm", [x, held[name]])], size=(1, 1, length, WIDTH))
        for name in ("param.query", "param.key", "param.value")
    )
    seen = {"causal": False, "first": 0, "window": 0}
    keys = b.one("aten.view", [present], size=(1, 1, 1, length))
    rows = b.one("aten.view", [present], size=(1, 1, length, 1))
    least = b.one("aten.full", [], size=(), value=-np.inf, dtype="f32")
    zero = b.one("aten.full", [], size=(), value=0.0, dtype="f32")
    s = b.one("tallystick.attention_scores", [q, k, None], scale=0.125, softcap=0.0, **seen)
    s = b.one("aten.where", [keys, s, least])
    p = b.one("tallystick.attention_weights", [s, None], **seen)
    v = b.one("aten.where", [rows, v, zero])
    out = b.one("tallystick.attention_values", [p, v], **seen)
    if positive:
        out = b.one("aten.add.Scalar", [out], other=0.0, alpha=1.0)
    return b.one("aten.view", [out], size=(length, WIDTH))


@dataclass(frozen=True)
class ToyEncoder:
    """An encoder at hand: statement, program texts and weights."""

    held: dict[str, Array]
    texts: dict[ProgramName, Program]
    statement: ModelStatement

    @staticmethod
    def make(seed: int = 0, contract: str = ORDERED_1, output: str = EMBEDDING) -> ToyEncoder:
        held = weights(seed)
        texts = {ProgramName(n, WIDTH, output): program(n, contract) for n in LENGTHS}
        slots = {n: Weight(header_of(a), tensor_digest(a)) for n, a in held.items()}
        digests = {name: text.digest() for name, text in texts.items()}
        full = next(iter(texts.values())).contract
        return ToyEncoder(held, texts, ModelStatement(full, VOCABULARY, slots, digests))

    def request(self, tokens: tuple[int, ...] = TEXT) -> EncodingRequest:
        output = self.statement.encodes
        assert output is not None
        return EncodingRequest(self.statement.digest, output, tokens=tokens, secret=SECRET)

    def text_of(self, job: EncodingJob) -> Program:
        return self.texts[job.program_name]

    def executed(self, job: EncodingJob, held: Mapping[str, Array] | None = None) -> State:
        """state[1] of the encoding's run."""
        text = self.text_of(job)
        engine = Engine(job.in_memory(text), State(job.state(text, held or self.held)))
        engine.run()
        return engine.state

    def encoded(self, request: EncodingRequest) -> EncodingJob:
        """The honest encoding of a request's tokens."""
        assert request.tokens is not None
        unknown = Encoded(request.tokens, np.zeros(WIDTH, np.float32))
        job = EncodingJob(self.statement, request, unknown)
        values = np.array(self.executed(job).slots[VALUES], np.float32)
        labels = tuple(f"class {n}" for n in range(WIDTH)) if request.output == CLASSES else ()
        return EncodingJob(self.statement, request, Encoded(request.tokens, values, labels))


def receipt_of_encoding(said: EncodingJob, key: PrivateKey = KEY, **odd: object) -> bytes:
    """The signed receipt of what `said` claims; `odd` are members in the place of the true ones."""
    final, root = said.roots()
    told: dict[str, object] = {
        "model": said.statement.digest,
        "request": said.request.digest,
        "choice": said.choice,
        "job": said.digest,
        "root": root,
        "state": final,
        "prompt": len(said.encoded.prompt),
        "answer": len(said.encoded.values),
        "finish": said.request.output,
        "time": MOMENT,
        "until": LATER,
        "signer": key.public,
    }
    return sign_receipt(key, AnswerReceipt(**{**told, **odd}))  # type: ignore[arg-type]
