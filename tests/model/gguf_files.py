"""Small GGUF files, written plainly from the format's description, with random weights."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from reference.quantised import SIZES
from vectors.kernel_cases_quantised import HALVES, with_scale

_CODES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q4_k": 12,
          "q5_k": 13, "q6_k": 14, "bf16": 30}  # fmt: skip
ALIGNMENT = 32


@dataclass(frozen=True)
class Given:
    """A tensor as the file has it: the shape of its numbers, row-major, and its bytes."""

    kind: str
    shape: tuple[int, ...]
    data: bytes


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def value(x: Any) -> bytes:
    """A metadata value with its kind; u32, f32, bool, text, and lists of one of them or of i32."""
    if isinstance(x, bool):
        return struct.pack("<I?", 7, x)
    if isinstance(x, int):
        return struct.pack("<II", 4, x)
    if isinstance(x, float):
        return struct.pack("<If", 6, x)
    if isinstance(x, str):
        return struct.pack("<I", 8) + text(x)
    if all(isinstance(one, str) for one in x):
        return struct.pack("<IIQ", 9, 8, len(x)) + b"".join(map(text, x))
    kind, form = (6, "f") if isinstance(x[0], float) else (5, "i")
    return struct.pack(f"<IIQ{len(x)}{form}", 9, kind, len(x), *x)


def gguf_bytes(
    metadata: Mapping[str, Any], tensors: Mapping[str, Given], version: int = 3
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    head += b"".join(text(key) + value(x) for key, x in metadata.items())
    data = b""
    for name, t in tensors.items():
        axes = struct.pack(f"<I{len(t.shape)}Q", len(t.shape), *t.shape[::-1])
        head += text(name) + axes + struct.pack("<IQ", _CODES[t.kind], len(data))
        data += t.data + bytes(-len(t.data) % ALIGNMENT)
    return head + bytes(-len(head) % ALIGNMENT) + data


def random_tensor(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> Given:
    """Numbers of some tenths: where they are in blocks, random bytes with small scales."""
    if kind in SIZES:
        elements, size = SIZES[kind]
        raw = rng.integers(0, 256, (int(np.prod(shape)) // elements, size), dtype=np.uint8)
        for block in raw:
            for which in range(len(HALVES[kind])):
                scale = np.float16(rng.choice([-1, 1]) * rng.uniform(1, 2) * _SMALL[kind])
                with_scale(block, kind, int(scale.view(np.uint16)), which)
        return Given(kind, shape, raw.tobytes())
    numbers = (0.2 * rng.standard_normal(shape)).astype(np.float32)
    if kind == "bf16":
        bits = numbers.view(np.uint32) >> 16
        return Given(kind, shape, bits.astype("<u2").tobytes())
    return Given(kind, shape, numbers.astype("<f2" if kind == "f16" else "<f4").tobytes())


_SMALL = {"q4_0": 0.03, "q4_1": 0.02, "q5_0": 0.015, "q5_1": 0.01, "q8_0": 0.002, "q4_k": 5e-4,
          "q5_k": 2e-4, "q6_k": 1e-4}  # fmt: skip


def byte_tokens(count: int) -> dict[str, Any]:
    """A tokenizer of the kind gpt2, of `count` tokens."""
    tokens = [chr(33 + n) for n in range(count - 2)] + ["<s>", "</s>"]
    tokens[2] = tokens[0] + tokens[1]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (count - 2) + [3, 3],
        "tokenizer.ggml.merges": [f"{tokens[0]} {tokens[1]}"],
        "tokenizer.ggml.bos_token_id": count - 2,
        "tokenizer.ggml.eos_token_id": count - 1,
        "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
    }


VOCABULARY, PLACES = 48, 64


def small_model(
    architecture: str, kinds: Sequence[str], width: int = 64, tied: bool = False
) -> tuple[dict[str, Any], dict[str, Given]]:
    """Two blocks with matrices of `kinds` in turn; the rest is f32."""
    rng = np.random.default_rng(11)
    a, heads, shared = architecture, 4, 2
    wide, part = 2 * width, width * shared // heads
    head = {
        f"{a}.embedding_length": width, f"{a}.feed_forward_length": wide, f"{a}.block_count": 2,
        f"{a}.attention.head_count": heads, f"{a}.context_length": PLACES,
    }  # fmt: skip
    if a == "gpt2":
        head[f"{a}.attention.layer_norm_epsilon"] = 1e-5
    else:
        head |= {
            f"{a}.attention.head_count_kv": shared, f"{a}.rope.freq_base": 10000.0,
            f"{a}.attention.layer_norm_rms_epsilon": 1e-6,
        }  # fmt: skip
    found: dict[str, Given] = {}

    def matrix(name: str, *shape: int) -> None:
        found[f"{name}.weight"] = random_tensor(kinds[len(found) % len(kinds)], shape, rng)

    def plain(name: str, size: int) -> None:
        found[name] = random_tensor("f32", (size,), rng)

    matrix("token_embd", VOCABULARY, width)
    if a == "gpt2":
        found["position_embd.weight"] = random_tensor("f32", (PLACES, width), rng)
    for n in range(2):
        b = f"blk.{n}"
        if a == "gpt2":
            matrices = {"attn_qkv": (3 * width, width), "attn_output": (width, width),
                        "ffn_up": (wide, width), "ffn_down": (width, wide)}  # fmt: skip
        elif a == "phi3":
            matrices = {"attn_qkv": (width + 2 * part, width), "attn_output": (width, width),
                        "ffn_up": (2 * wide, width), "ffn_down": (width, wide)}  # fmt: skip
        else:
            matrices = {"attn_q": (width, width), "attn_k": (part, width),
                        "attn_v": (part, width), "attn_output": (width, width),
                        "ffn_gate": (wide, width), "ffn_up": (wide, width),
                        "ffn_down": (width, wide)}  # fmt: skip
        for name, shape in matrices.items():
            matrix(f"{b}.{name}", *shape)
            if a == "gpt2" or (a == "qwen2" and name in ("attn_q", "attn_k", "attn_v")):
                plain(f"{b}.{name}.bias", shape[0])
        for name in ("attn_norm", "ffn_norm"):
            plain(f"{b}.{name}.weight", width)
            if a == "gpt2":
                plain(f"{b}.{name}.bias", width)
        if a == "qwen3":
            plain(f"{b}.attn_q_norm.weight", width // heads)
            plain(f"{b}.attn_k_norm.weight", width // heads)
    plain("output_norm.weight", width)
    if a == "gpt2":
        plain("output_norm.bias", width)
    if not tied:
        matrix("output", VOCABULARY, width)
    return {"general.architecture": a, **head, **byte_tokens(VOCABULARY)}, found


def write_small_model(path: Path, architecture: str, kinds: Sequence[str], **facts: Any) -> Path:
    path.write_bytes(gguf_bytes(*small_model(architecture, kinds, **facts)))
    return path
