"""The members: wide enough that operators are split among threads, of at most 0.5M parameters.

Coverage's own rows stand for families whose steps are long anyway.
"""

from __future__ import annotations

import functools
import importlib.util
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tallystick
from tallystick.program.optimizers import Adam, AdamW
from tallystick_bench.coverage import hf_text
from tallystick_bench.coverage.case import Batch, floats, integers, library, padded
from tallystick_bench.coverage.table import all_cases
from tallystick_bench.families.member import ADAMW, MOMENTUM, Member, of_case

ROWS, LENGTH, WORDS = 4, 24, 211
_WIDE: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 128, "max_position_embeddings": 64,
}  # fmt: skip
_DECODER = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}

# Rows of the coverage table by title; those with `SGD` take momentum instead of AdamW.
_ADAMW = (
    "transformers causal: mamba", "transformers causal: rwkv", "transformers masked: deberta-v2",
    "transformers encoder-decoder: marian", "transformers vision: swin",
    "transformers vision: convnext", "transformers vision: segformer",
    "transformers sound: wav2vec2", "transformers sound: whisper", "transformers several: clip",
    "transformers several: patchtst", "peft: dora", "peft: oft", "peft: prefix tuning",
    "diffusers: UNet2DConditionModel", "diffusers: AutoencoderKL sampled",
    "diffusers: DiTTransformer2DModel", "image net: mlp-mixer", "generative: vae",
    "generative: vq-vae", "generative: gan gradient penalty", "mixture: of experts, 2",
    "state space: scan", "state space: mamba", "contrastive: clip", "contrastive: barlow",
    "reinforcement: dqn", "reinforcement: ppo", "graph: gat", "tables: deep factorisation",
)  # fmt: skip
_SGD = (
    "transformers vision: resnet", "image net: mobilenet", "image net: efficientnet",
    "image net: densenet", "segmentation: u-net transposed, dice", "segmentation: u-net bilinear",
    "contrastive: simclr", "graph: gcn", "points: pointnet", "text: bidirectional lstm",
    "layer: Conv3d", "layer: grid_sample", "layer: TransformerEncoder", "loss: CTCLoss",
)  # fmt: skip


def _tokens(g: torch.Generator) -> Batch:
    ids, mask = integers(g, WORDS - 5, ROWS, LENGTH) + 5, padded(g, ROWS, LENGTH)
    ids, labels = ids.masked_fill(mask == 0, 1), ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def _unpadded(g: torch.Generator) -> Batch:
    ids = integers(g, WORDS - 5, ROWS, LENGTH) + 5
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


def _sentences(g: torch.Generator) -> Batch:
    return _tokens(g) | {"labels": integers(g, 4, ROWS)}


def _text(kind: str, auto: str, dropout: float = 0.0, **given: Any) -> Callable[[], nn.Module]:
    """A text model of transformers, wider than coverage's; `dropout` in every dropout module."""

    def build() -> nn.Module:
        module = hf_text.build(kind, auto, **{**_WIDE, **given})
        for child in module.modules():
            if isinstance(child, nn.Dropout):
                child.p = dropout
        return module

    return build


def _lora() -> nn.Module:
    peft = library("peft")
    config = peft.LoraConfig(
        r=8, lora_dropout=0.1, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    inner = _text("llama", "AutoModelForCausalLM", num_key_value_heads=2)()
    module: nn.Module = peft.get_peft_model(inner, config)
    return module.train()


def _transformers() -> Iterator[Member]:
    causal, whole = "AutoModelForCausalLM", hf_text.whole_call
    for kind, dropout, given in (
        ("gpt2", 0.1, {}),
        ("llama", 0.0, {"num_key_value_heads": 2, "attention_dropout": 0.1}),
        ("mixtral", 0.0, {"num_key_value_heads": 2, "num_local_experts": 4,
                          "num_experts_per_tok": 2, "sliding_window": 9}),
        ("falcon_mamba", 0.0, {"state_size": 8}),
    ):  # fmt: skip
        yield Member("transformers causal", f"{kind}, wide", _text(kind, causal, dropout, **given),
                     whole, _tokens, needs="transformers")  # fmt: skip
    for kind in ("gpt2", "llama", "mistral"):
        # Eager code leaves the mask out here, and a trace keeps it (PROGRAM 5.14).
        yield Member("transformers call", f"{kind}, no padding",
                     _text(kind, causal, num_key_value_heads=2, sliding_window=9), whole, _unpadded,
                     needs="transformers")  # fmt: skip
    yield Member("transformers masked", "bert, wide, dropout",
                 _text("bert", "AutoModelForMaskedLM", 0.1), whole, _tokens,
                 needs="transformers")  # fmt: skip
    yield Member("transformers head", "distilbert, wide, dropout", _text(
        "distilbert", "AutoModelForSequenceClassification", 0.1, dim=64, hidden_dim=128, n_layers=2,
        n_heads=4, num_labels=4), whole, _sentences, MOMENTUM, "transformers")  # fmt: skip
    for kind, given in (
        ("t5", {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_decoder_layers": 2,
                "num_heads": 4}),
        ("bart", {**hf_text.SEQ2SEQ["bart"], **_DECODER}),
    ):  # fmt: skip
        yield Member("transformers encoder-decoder", f"{kind}, wide, dropout",
                     _text(kind, "AutoModelForSeq2SeqLM", 0.1, **given), whole, _tokens,
                     needs="transformers")  # fmt: skip
    image: dict[str, Any] = {"image_size": 16, "patch_size": 4, "num_channels": 3, "num_labels": 4}
    yield Member("transformers vision", "vit, wide", _text(
        "vit", "AutoModelForImageClassification", 0.1, **image), whole,
        lambda g: {"pixel_values": floats(g, 6, 3, 16, 16), "labels": integers(g, 4, 6)},
        needs="transformers")  # fmt: skip


class _Recurrent(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, 64)
        layers: Any = getattr(nn, kind)
        self.body = layers(64, 64, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(64, WORDS)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(self.words(x))[0])
        return found


def _next_word(module: nn.Module, b: Batch) -> Tensor:
    logits = module(b["x"][:, :-1])
    return F.cross_entropy(logits.reshape(-1, WORDS), b["x"][:, 1:].reshape(-1))


class _ConvNet(nn.Module):
    """A residual net with strides, groups, running statistics and dropout of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16))
        self.one = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1), nn.GroupNorm(4, 16), nn.GELU())
        self.two = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1, groups=2), nn.BatchNorm2d(32))
        self.drop, self.head = nn.Dropout2d(0.1), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.stem(x))
        x = F.max_pool2d(self.drop(F.relu(self.two(x + self.one(x)))), 2)
        found: Tensor = self.head(x.mean((2, 3)))
        return found


def _classified(module: nn.Module, b: Batch) -> Tensor:
    return F.cross_entropy(module(b["x"]), b["y"], label_smoothing=0.1)


class _Gan(nn.Module):
    """Drawn noise and running statistics in the generator, a mask in the critic."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(32, 128, bias=False), nn.BatchNorm1d(128),
                                       nn.ReLU(), nn.Linear(128, 96))  # fmt: skip
        self.critic = nn.Sequential(nn.Linear(96, 128), nn.LeakyReLU(0.2), nn.Dropout(0.2),
                                    nn.Linear(128, 1))  # fmt: skip


def _judged(module: nn.Module, x: Tensor, truth: float) -> Tensor:
    critic: Any = module.critic
    found = critic(x)
    return F.binary_cross_entropy_with_logits(found, torch.full_like(found, truth))


def _gan_step(module: nn.Module, b: Batch, update: Any) -> Tensor:
    """As a loop of torch: the critic's step, then the generator's against the new critic."""
    generator: Any = module.generator
    fake = generator(torch.randn(b["x"].shape[0], 32))
    critics = _judged(module, b["x"], 1.0) + _judged(module, fake.detach(), 0.0)
    update("critic", critics)
    generators = _judged(module, fake, 1.0)
    update("generator", generators)
    return critics + generators


def _from_onnx() -> nn.Module:
    """A file with a convolution, a normalisation and two matrix products, read back."""
    onnx = library("onnx")
    make, kinds = onnx.helper, onnx.TensorProto
    drawn = np.random.default_rng(3)
    shapes = {"w": (16, 3, 3, 3), "scale": (16,), "shift": (16,), "up": (1024, 64),
              "up_bias": (64,), "down": (64, 10)}  # fmt: skip
    weights = {k: (drawn.standard_normal(s) / 16).astype(np.float32) for k, s in shapes.items()}
    nodes = [
        make.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        make.make_node("InstanceNormalization", ["a", "scale", "shift"], ["b"]),
        make.make_node("Relu", ["b"], ["c"]),
        make.make_node("MaxPool", ["c"], ["d"], kernel_shape=[2, 2], strides=[2, 2]),
        make.make_node("Flatten", ["d"], ["e"]),
        make.make_node("Gemm", ["e", "up", "up_bias"], ["f"]),
        make.make_node("Tanh", ["f"], ["g"]),
        make.make_node("MatMul", ["g", "down"], ["y"]),
    ]
    graph = make.make_graph(
        nodes, "graph", [make.make_tensor_value_info("x", kinds.FLOAT, ["n", 3, 16, 16])],
        [make.make_tensor_value_info("y", kinds.FLOAT, ["n", 10])],
        [onnx.numpy_helper.from_array(a, k) for k, a in weights.items()],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "model.onnx"
        onnx.save_model(make.make_model(graph, opset_imports=[make.make_opsetid("", 18)]), file)
        return tallystick.from_onnx(file, training=True).train()


def _torch() -> Iterator[Member]:
    for kind in ("LSTM", "GRU", "RNN"):
        yield Member("recurrent", kind.lower(), functools.partial(_Recurrent, kind), _next_word,
                     lambda g: {"x": integers(g, WORDS, ROWS, 17)}, MOMENTUM)  # fmt: skip

    def images(g: torch.Generator) -> Batch:
        return {"x": floats(g, 4, 3, 16, 16), "y": integers(g, 10, 4)}

    yield Member("image net", "residual, wide", _ConvNet, _classified, images, MOMENTUM)
    yield Member("image net", "residual, wide, AdamW", _ConvNet, _classified, images)
    rules = {"critic": AdamW(2e-3, betas=(0.5, 0.99)), "generator": Adam(1e-3, betas=(0.6, 0.999))}
    yield Member("generative", "gan, two optimizers", _Gan, _gan_step,
                 lambda g: {"x": floats(g, 64, 96)}, rules)  # fmt: skip
    yield Member("onnx", "convolution and products", _from_onnx, _classified, images,
                 needs="onnx")  # fmt: skip


def members(every_row: bool = False) -> tuple[list[Member], list[str]]:
    """The members whose library is here, and the absent libraries; or all rows of the table too."""
    cases, absent = all_cases()
    of_title = {case.title: case for case in cases}
    found = [*_transformers(), *_torch()]
    if importlib.util.find_spec("peft"):
        found.append(Member("peft", "lora, wide, dropout", _lora, hf_text.whole_call, _tokens,
                            needs="peft"))  # fmt: skip
    for titles, optimizer in ((_ADAMW, ADAMW), (_SGD, MOMENTUM)):
        here = [t for t in titles if t.split()[0].rstrip(":") not in absent]
        found += [of_case(of_title.pop(t), optimizer) for t in here]
    if every_row:
        found += [of_case(case, ADAMW) for case in of_title.values() if not case.slow]
    absent += [name for name in ("onnx",) if importlib.util.find_spec(name) is None]
    seen: Counter[str] = Counter()
    turn: dict[str, int] = {}
    for member in found:
        turn[member.title] = seen[member.family]
        seen[member.family] += 1
    # The first of every family, then the second ones: a run that is cut short has seen them all.
    # Coverage's own are the quicker ones.
    found.sort(key=lambda m: ("wide" in m.name, turn[m.title]))
    return [m for m in found if m.needs not in absent], absent
