"""A small network, written node by node: as an engine program, and as one over a whole text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tallystick.answers import programs
from tallystick.answers.layout import Bucket
from tallystick.numerics.contracts import ORDERED_1
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Program, Value

EPS, MAX_LENGTH = 1e-5, 512


@dataclass(frozen=True)
class Tiny:
    """The options that families have, on a network of `layers` layers."""

    vocabulary: int = 61
    length: int = MAX_LENGTH
    layers: int = 2
    heads: int = 4
    groups: int = 2
    size: int = 8  # elements of a key
    value: int = 8
    hidden: int = 24
    windows: tuple[int, ...] = (0,)  # of layer i: windows[i % len(windows)]
    softcap: float = 0.0
    sinks: bool = False
    slopes: bool = False
    rotary: bool = True
    contract: str = ORDERED_1

    @property
    def width(self) -> int:
        return self.heads * self.size

    def types(self) -> dict[str, TensorType]:
        c, h = self.width, self.hidden
        found: dict[str, tuple[int, ...]] = {
            "param.embed": (self.vocabulary, c),
            "param.norm": (c,),
        }
        for i in range(self.layers):
            found |= {
                f"param.{i}.norm1": (c,),
                f"param.{i}.norm2": (c,),
                f"param.{i}.q": (self.heads * self.size, c),
                f"param.{i}.k": (self.groups * self.size, c),
                f"param.{i}.v": (self.groups * self.value, c),
                f"param.{i}.o": (c, self.heads * self.value),
                f"param.{i}.gate": (h, c),
                f"param.{i}.up": (h, c),
                f"param.{i}.down": (c, h),
            }
            if self.sinks:
                found[f"param.{i}.sinks"] = (self.heads,)
        if self.slopes:
            found["buffer.slopes"] = (self.heads,)
        if self.rotary:
            found["buffer.frequency"] = (self.size // 2,)
        return {name: TensorType("f32", shape) for name, shape in found.items()}

    def weights(self) -> Mapping[str, np.ndarray]:
        random = np.random.default_rng(11)
        found = {}
        for name, type_ in self.types().items():
            scale = 1.0 if len(type_.shape) == 1 else 2.0 / np.sqrt(type_.shape[-1])
            found[name] = (random.standard_normal(type_.shape) * scale).astype(np.float32)
        if self.rotary:
            powers = 100.0 ** (-np.arange(self.size // 2) / (self.size // 2))
            found["buffer.frequency"] = powers.astype(np.float32)
        if self.slopes:
            found["buffer.slopes"] = (-(2.0 ** -np.arange(1, self.heads + 1))).astype(np.float32)
        return found

    def program(self, rows: int) -> Program:
        """The engine program (generation/network.py)."""
        builder = Builder(self.contract)
        token = builder.batch("token", TensorType("i64", (rows, 1)))
        place = builder.batch("place", TensorType("i64", (rows, 1)))
        written = _Written(self, builder, rows, 1)
        return builder.finish({"logits": written.head(written.hidden(token, place))})

    def forward(self, length: int, rows: int) -> Program:
        """A whole text at once: the logits of some rows of it, as an answer's program has them."""
        builder = Builder(self.contract)
        text = builder.batch("text", TensorType("i64", (length,)))
        place = builder.batch("place", TensorType("i64", (rows,)))
        written = _Written(self, builder, 1, length)
        places = builder.one("aten.arange", [], start=0.0, end=float(length), step=1.0, dtype="i64")
        hidden = written.hidden(written.view(text, 1, length), written.view(places, 1, length))
        chosen = builder.one("aten.index_select", [hidden, place], dim=0)
        return builder.finish({"logits": written.head(chosen)})

    def answer(self, bucket: Bucket, sampler: str) -> Program:
        """The program whose one step is an answer, with the nodes that a model's has."""
        return programs.answering_program(
            self.forward(bucket.length, bucket.answer), bucket, sampler
        )


class _Written:
    """The nodes for [batch, length] places; values between layers have the shape [rows, width]."""

    def __init__(self, net: Tiny, builder: Builder, batch: int, length: int) -> None:
        self.net, self.b = net, builder
        self.batch, self.length, self.rows = batch, length, batch * length
        self.slot = {name: builder.state(name, type_) for name, type_ in net.types().items()}

    def view(self, x: Value, *size: int) -> Value:
        return self.b.one("aten.view", [x], size=size)

    def sum(self, a: Value, b: Value) -> Value:
        return self.b.one("aten.add.Tensor", [a, b], alpha=1.0)

    def product(self, x: Value, name: str) -> Value:
        turned = self.b.one("aten.permute", [self.slot[name]], dims=(1, 0))
        return self.b.one("aten.mm", [x, turned])

    def norm(self, x: Value, name: str) -> Value:
        b = self.b
        mean = b.one("aten.mean.dim", [b.one("aten.mul.Tensor", [x, x])], dim=(1,), keepdim=True)
        scale = b.one("aten.rsqrt", [b.one("aten.add.Scalar", [mean], other=EPS, alpha=1.0)])
        # 1 + weight, as Gemma has it: a value that the weights alone decide.
        weight = b.one("aten.add.Scalar", [self.slot[name]], other=1.0, alpha=1.0)
        return b.one("aten.mul.Tensor", [b.one("aten.mul.Tensor", [x, scale]), weight])

    def heads(self, x: Value, heads: int, size: int) -> Value:
        apart = self.view(x, self.batch, self.length, heads, size)
        return self.b.one("aten.permute", [apart], dims=(0, 2, 1, 3))

    def turned(self, x: Value, cos: Value, sin: Value) -> Value:
        b, half = self.b, self.net.size // 2
        low = b.one("aten.slice", [x], dim=3, start=0, end=half, step=1)
        high = b.one("aten.slice", [x], dim=3, start=half, end=2 * half, step=1)
        other = b.one("aten.cat", [b.one("aten.neg", [high]), low], dim=3)
        return self.sum(b.one("aten.mul.Tensor", [x, cos]), b.one("aten.mul.Tensor", [other, sin]))

    def angles(self, place: Value) -> tuple[Value, Value]:
        b, half = self.b, self.net.size // 2
        at = self.view(b.one("aten._to_copy", [place], dtype="f32"), self.rows, 1)
        angle = b.one("aten.mul.Tensor", [at, self.view(self.slot["buffer.frequency"], 1, half)])
        both = b.one("aten.cat", [angle, angle], dim=1)
        shape = self.batch, 1, self.length, 2 * half
        cos = self.view(b.one("aten.cos", [both]), *shape)
        return cos, self.view(b.one("aten.sin", [both]), *shape)

    def attention(self, x: Value, i: int, turns: tuple[Value, Value] | None) -> Value:
        b, net = self.b, self.net
        q = self.heads(self.product(x, f"param.{i}.q"), net.heads, net.size)
        k = self.heads(self.product(x, f"param.{i}.k"), net.groups, net.size)
        v = self.heads(self.product(x, f"param.{i}.v"), net.groups, net.value)
        if turns is not None:
            q, k = self.turned(q, *turns), self.turned(k, *turns)
        window = net.windows[i % len(net.windows)]
        which = {"causal": True, "first": 0, "window": window}
        slopes = [self.slot["buffer.slopes"]] if net.slopes else []
        sinks = [self.slot[f"param.{i}.sinks"]] if net.sinks else []
        s = b.one(
            "tallystick.attention_scores",
            [q, k, *slopes],
            **which,
            scale=net.size**-0.5,
            softcap=net.softcap,
        )
        p = b.one("tallystick.attention_weights", [s, *sinks], **which)
        y = b.one("tallystick.attention_values", [p, v], **which)
        together = b.one("aten.permute", [y], dims=(0, 2, 1, 3))
        flat = self.view(together, self.rows, net.heads * net.value)
        return self.product(flat, f"param.{i}.o")

    def head(self, x: Value) -> Value:
        return self.product(self.norm(x, "param.norm"), "param.embed")

    def hidden(self, token: Value, place: Value) -> Value:
        b, net = self.b, self.net
        x = self.view(
            b.one("aten.embedding", [self.slot["param.embed"], token], padding_idx=-1),
            self.rows,
            net.width,
        )
        turns = self.angles(place) if net.rotary else None
        for i in range(net.layers):
            x = self.sum(x, self.attention(self.norm(x, f"param.{i}.norm1"), i, turns))
            y = self.norm(x, f"param.{i}.norm2")
            gate = b.one("aten.silu", [self.product(y, f"param.{i}.gate")])
            inner = b.one("aten.mul.Tensor", [gate, self.product(y, f"param.{i}.up")])
            x = self.sum(x, self.product(inner, f"param.{i}.down"))
        return x
