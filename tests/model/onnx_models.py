"""Torch modules, and the same as ONNX files written by hand: an exporter would need onnxscript."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper, save_model
from torch import Tensor, nn

KINDS = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "b": TensorProto.BOOL,
         "d": TensorProto.DOUBLE}  # fmt: skip
Nodes = Sequence[Any]


def node(op: str, inputs: str, outputs: str, name: str = "", **attributes: Any) -> Any:
    """A node; inputs and outputs by name, "-" for an absent one."""
    ends = [["" if n == "-" else n for n in text.split()] for text in (inputs, outputs)]
    return helper.make_node(op, *ends, name=name or f"{op}_{outputs.split()[0]}", **attributes)


def port(text: str) -> Any:
    """ "x f 2,n,4": name, kind, sizes; "x f" has any shape."""
    name, kind, *sizes = text.split()
    shape = None
    if sizes:
        shape = [int(n) if n.isdigit() else n for n in sizes[0].split(",")]
    return helper.make_tensor_value_info(name, KINDS[kind], shape)


def model(
    nodes: Nodes,
    inputs: Sequence[str],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 18,
    **more: Any,
) -> Any:
    """A ModelProto of one graph."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [port(text) for text in inputs],
        [port(text) for text in outputs],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **more)


def written(path: Path, *args: Any, **kwargs: Any) -> Path:
    """`model(...)` in a file."""
    save_model(model(*args, **kwargs), str(path))
    return path


def weights_of(module: nn.Module, **more: Any) -> dict[str, np.ndarray]:
    """The module's state under its own names, as initializers, and more."""
    found = {name: t.detach().numpy() for name, t in module.state_dict().items()}
    found = {name: array for name, array in found.items() if "num_batches" not in name}
    return found | {name: np.asarray(array) for name, array in more.items()}


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 10), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)) / 2.0)


def perceptron(m: nn.Module) -> Any:
    return model(
        [
            node("Gemm", "x up.weight up.bias", "a", transB=1),
            node("Constant", "", "root", value_float=float(np.float32(2.0**0.5))),
            node("Div", "a root", "scaled"),
            node("Erf", "scaled", "e"),
            node("Constant", "", "one", value_float=1.0),
            node("Add", "e one", "p"),
            node("Mul", "a p", "ap"),
            node("Constant", "", "half", value_float=0.25),
            node("Mul", "ap half", "h"),
            node("Gemm", "h down.weight down.bias", "y", transB=1),
        ],
        ["x f n,6"],
        ["y f n,3"],
        weights_of(m),
    )


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.out = nn.Linear(4 * 3 * 3, 3)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.out(x.flatten(1))


def images(m: nn.Module) -> Any:
    """Flatten as old exporters write it: by Shape, Gather, Unsqueeze and Concat."""
    return model(
        [
            node("Conv", "x conv.weight conv.bias", "a", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            node("BatchNormalization",
                 "a norm.weight norm.bias norm.running_mean norm.running_var", "b", epsilon=1e-5),
            node("Relu", "b", "c"),
            node("MaxPool", "c", "d", kernel_shape=[2, 2], strides=[2, 2]),
            node("Shape", "d", "s"),
            node("Gather", "s zero", "n", axis=0),
            node("Unsqueeze", "n", "n1", axes=[0]),
            node("Concat", "n1 rest", "shape", axis=0),
            node("Reshape", "d shape", "e"),
            node("Gemm", "e out.weight out.bias", "y", transB=1),
        ],
        ["x f n,3,6,6"],
        ["y f n,3"],
        weights_of(m, zero=np.int64(0), rest=np.array([-1])),
        opset=11,
    )  # fmt: skip


class Text(nn.Module):
    """A block of attention over tokens, causal, with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 8), nn.Embedding(7, 8)
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 11)

    def forward(self, x: Tensor) -> Tensor:
        n, t = x.shape
        h = self.tokens(x) + self.places(torch.arange(t, device=x.device))
        q, k, v = self.qkv(self.norm(h)).split(8, -1)
        q, k, v = (z.reshape(n, t, 2, 4).permute(0, 2, 1, 3) for z in (q, k, v))
        scores = q @ k.transpose(2, 3) / 2.0
        mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
        weights = F.softmax(torch.where(mask, scores, torch.full_like(scores, -1e9)), -1)
        return self.out(h + (weights @ v).permute(0, 2, 1, 3).reshape(n, t, 8))


def text(m: nn.Module) -> Any:
    """With MatMul and transposed weights, as exporters write linear layers over sequences."""
    weights = weights_of(m, one=np.int64(1), zero=np.int64(0), two=np.int64(2), four=np.array([4]))
    for name in ("qkv", "out"):
        weights[f"onnx::MatMul_{name}"] = weights.pop(f"{name}.weight").T.copy()
    heads = [
        part
        for z in "qkv"
        for part in (
            node("Reshape", f"{z} split", f"{z}1"),
            node("Transpose", f"{z}1", f"{z}2", perm=[0, 2, 3, 1] if z == "k" else [0, 2, 1, 3]),
        )
    ]
    return model(
        [
            node("Shape", "x", "s"),
            node("Gather", "s one", "t"),
            node("Gather", "tokens.weight x", "h0"),
            node("Range", "zero t one", "line"),
            node("Gather", "places.weight line", "p"),
            node("Add", "h0 p", "h"),
            node("LayerNormalization", "h norm.weight norm.bias", "g", epsilon=1e-5),
            node("MatMul", "g onnx::MatMul_qkv", "w"),
            node("Add", "w qkv.bias", "wb"),
            node("Split", "wb", "q k v", axis=2, num_outputs=3),
            node("Constant", "", "two1", value_ints=[2]),
            node("Concat", "s two1 four", "split", axis=0),
            *heads,
            node("MatMul", "q2 k2", "qk"),
            node("Constant", "", "scale", value_float=2.0),
            node("Div", "qk scale", "scores"),
            node("Unsqueeze", "t axis0", "t1"),
            node("Concat", "t1 t1", "square", axis=0),
            node("ConstantOfShape", "square", "ones", value=helper.make_tensor(
                "v", TensorProto.INT64, [1], [1])),
            node("Trilu", "ones", "lower", upper=0),
            node("Cast", "lower", "mask", to=TensorProto.BOOL),
            node("Constant", "", "low", value_float=-1e9),
            node("Where", "mask scores low", "masked"),
            node("Softmax", "masked", "weights", axis=-1),
            node("MatMul", "weights v2", "wv"),
            node("Transpose", "wv", "wv1", perm=[0, 2, 1, 3]),
            node("Shape", "h", "hs"),
            node("Reshape", "wv1 hs", "wv2"),
            node("Add", "h wv2", "sum"),
            node("MatMul", "sum onnx::MatMul_out", "o"),
            node("Add", "o out.bias", "y"),
        ],
        ["x i n,t"],
        ["y f n,t,11"],
        weights | {"axis0": np.array([0])},
    )  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A module, its file, and a batch's shape; `x` are numbers, or integers below `classes`."""

    build: Callable[[], nn.Module]
    onnx: Callable[[nn.Module], Any]
    shape: tuple[int, ...]
    classes: int = 0

    def batch(self) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(3)
        if self.classes:
            x = torch.randint(self.classes, self.shape, generator=generator)
            return {"x": x, "y": torch.randint(self.classes, self.shape, generator=generator)}
        x = torch.randn(self.shape, generator=generator)
        return {"x": x, "y": torch.arange(self.shape[0]) % 3}


CASES = {
    "perceptron": Case(Perceptron, perceptron, (5, 6)),
    "images": Case(Images, images, (4, 3, 6, 6)),
    "text": Case(Text, text, (3, 5), 11),
}


def loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    found = module(batch["x"])
    return F.cross_entropy(found.reshape(-1, found.shape[-1]), batch["y"].reshape(-1))
