"""How long capture takes and how much memory, on models without weights (the meta device).

    python benchmarks/capture_time.py [--only TEXT] [--json]

Each row is a process of its own: a first capture of a linear layer loads what every capture needs,
then `tallystick.capture` (training step and evaluation) of the model is timed. `memory` is the peak
resident memory above what the process had before. The rows of 1B parameters stand beside models of
a tenth with the same depth: their programs have the same nodes, so time and memory should be equal.
The issue's bounds: 60 s for 1B parameters, 2 s for a small model. Rows whose library is absent are
left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tallystick
from tallystick_bench import process
from tallystick_bench.machine import machine
from tallystick_bench.memory import peak_bytes

TOKENS = (2, 64)


@dataclass(frozen=True)
class Row:
    """`build` makes the model on the meta device. `most_s` is the issue's bound, in seconds."""

    name: str
    build: Callable[[], nn.Module]
    loss: Callable[[nn.Module, dict[str, Tensor]], Tensor]
    batch: dict[str, Any]
    most_s: float
    library: str = "torch"


def _llama(width: int, heads: int, inner: int, layers: int = 16) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from transformers import LlamaConfig, LlamaForCausalLM

        return LlamaForCausalLM(LlamaConfig(
            vocab_size=32000, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=8))  # fmt: skip

    return build


def _gpt2(width: int, heads: int, layers: int) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from transformers import GPT2Config, GPT2LMHeadModel

        return GPT2LMHeadModel(GPT2Config(n_embd=width, n_head=heads, n_layer=layers))

    return build


class _Plain(nn.Module):
    """Layers of torch alone, causal, with a tied head."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(32000, width), nn.Embedding(1024, width)
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 32000, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
        y = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        found: Tensor = self.head(self.body(y, mask, is_causal=True))
        return found


def _convolutions() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in ((3, 64), (64, 128), (128, 256), (256, 256)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
                   nn.MaxPool2d(2)]  # fmt: skip
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 10))


def _called(module: nn.Module, b: dict[str, Tensor]) -> Tensor:
    loss: Tensor = module(**b).loss
    return loss


def _next(module: nn.Module, b: dict[str, Tensor]) -> Tensor:
    logits = module(b["x"][:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), b["x"][:, 1:].flatten())


def _classified(module: nn.Module, b: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(module(b["x"]), b["y"])


_HF = dict.fromkeys(("input_ids", "attention_mask", "labels"), (TOKENS, "i64"))
_WORDS = {"x": (TOKENS, "i64")}
_IMAGES = {"x": ((16, 3, 32, 32), "f32"), "y": ((16,), "i64")}
ROWS = (
    Row("small/convolutions", _convolutions, _classified, _IMAGES, 2.0),
    Row("small/torch-4-layers", lambda: _Plain(256, 4, 4), _next, _WORDS, 2.0),
    Row("small/gpt2-4-layers", _gpt2(256, 4, 4), _called, _HF, 2.0, "transformers"),
    Row("small/llama-4-layers", _llama(256, 8, 512, 4), _called, _HF, 2.0, "transformers"),
    Row("torch/0.1B", lambda: _Plain(512, 8, 20), _next, _WORDS, 60.0),
    Row("torch/1B", lambda: _Plain(2048, 16, 20), _next, _WORDS, 60.0),
    Row("llama/0.1B", _llama(512, 32, 2048), _called, _HF, 60.0, "transformers"),
    Row("llama/1B", _llama(2048, 32, 8192), _called, _HF, 60.0, "transformers"),
    Row("gpt2-xl/0.1B", _gpt2(400, 25, 48), _called, _HF, 60.0, "transformers"),
    Row("gpt2-xl/1.6B", _gpt2(1600, 25, 48), _called, _HF, 60.0, "transformers"),
)


def measure(row: Row) -> dict[str, Any]:
    """Builds and captures `row`'s model in this process."""
    warm = {"x": ((1, 2), "f32")}
    tallystick.capture(
        nn.Linear(2, 2), lambda m, b: m(b["x"]).sum(), warm, tallystick.SGD(lr=0.1)
    )  # fmt: skip
    with torch.device("meta"):
        module = row.build().train()
    before, started, cpu = peak_bytes(), time.perf_counter(), time.process_time()
    captured = tallystick.capture(module, row.loss, row.batch, tallystick.AdamW(lr=1e-3))
    return {
        "name": f"capture/{row.name}/seconds",
        "value": time.perf_counter() - started,
        "unit": "s",
        "target": row.most_s,
        "processor_seconds": time.process_time() - cpu,
        "memory": peak_bytes() - before,
        "peak": peak_bytes(),
        "parameters": sum(p.numel() for p in module.parameters()),
        "nodes": len(captured.program.nodes),
        "program_digest": captured.program.digest().hex(),
    }


def in_a_process(row: Row) -> dict[str, Any]:
    """`measure` in a process of its own; a row with `error` where that fails."""
    found = process.row(__file__, row.name)
    return {"name": f"capture/{row.name}/seconds", **found} if "error" in found else found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(next(r for r in ROWS if r.name == args.measure))))
        return 0
    here = [r for r in ROWS if args.only in r.name and importlib.util.find_spec(r.library)]
    rows = [in_a_process(row) for row in here]
    if args.json:
        print(json.dumps({"bench": "capture-time", "torch": torch.__version__,
                          "machine": machine(), "rows": rows}, indent=1))  # fmt: skip
        return 0
    for row in rows:
        if "error" in row:
            print(f"{row['name']:36} {row['error']}")
            continue
        print(f"{row['name']:36} {row['value']:6.1f} s ({row['processor_seconds']:.1f} of a "
              f"processor; at most {row['target']:.0f})  {row['memory'] / 2**20:6.0f} MiB  "
              f"{row['parameters'] / 1e6:7.1f}M parameters  {row['nodes']} nodes")  # fmt: skip
    return 1 if any("error" in row for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
