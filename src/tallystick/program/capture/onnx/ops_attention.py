"""Attention and rotary positions."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from tallystick.program.capture.onnx.call import OnnxCall, rule


def _heads(x: Tensor, count: int) -> Tensor:
    """(batch, length, heads · width) to (batch, heads, length, width)."""
    batch, length, width = x.shape
    return x.reshape(batch, length, count, width // count).permute(0, 2, 1, 3)


def _allowed(c: OnnxCall, q: int, kv: int, offset: Tensor | int) -> Tensor | None:
    """Which keys a query may see by causality and windows: (q, kv), or one for each row."""
    left, right = c.attr("left_window_size", -1), c.attr("right_window_size", -1)
    causal = c.attr("is_causal")
    if not causal and left < 0 and right < 0:
        return None
    row = torch.arange(q, device=c.device).reshape(q, 1) + offset
    distance = row - torch.arange(kv, device=c.device).reshape(1, kv)
    allowed = torch.ones_like(distance, dtype=torch.bool)
    if causal:
        allowed = torch.logical_and(allowed, distance >= 0)
    if left >= 0:
        allowed = torch.logical_and(allowed, distance <= left)
    if right >= 0:
        allowed = torch.logical_and(allowed, distance >= -right)
    return allowed


def _bias(c: OnnxCall, q: int, kv: int, past: int) -> tuple[Tensor | None, list[Tensor]]:
    """What is added to scores, and the masks of bools: False is forbidden."""
    masks: list[Tensor] = []
    lengths = c.optional(6)
    offset: Tensor | int = past
    if lengths is not None:
        keys = torch.arange(kv, device=c.device).reshape(1, 1, 1, kv)
        masks.append(keys < lengths.reshape(-1, 1, 1, 1))
        offset = lengths.reshape(-1, 1, 1, 1) - q
    allowed = _allowed(c, q, kv, offset)
    if allowed is not None:
        masks.append(allowed)
    bias = c.optional(3)
    if bias is None:
        return None, masks
    missing, forbidden = kv - bias.shape[-1], bias.dtype == torch.bool
    if missing > 0:
        shape = [*bias.shape[:-1], missing]
        filling = torch.full(shape, False if forbidden else -math.inf, dtype=bias.dtype,
                             device=bias.device)  # fmt: skip
        bias = torch.cat([bias, filling], dim=-1)
    if forbidden:
        return None, [*masks, bias]
    return bias, masks


@rule("Attention 23-25")
def _attention(c: OnnxCall) -> tuple[Tensor | None, ...]:
    """Rows without a key to see are zero. Queries and keys are scaled by √scale each."""
    q, k, v = (c.tensor(i) for i in range(3))
    flat = q.dim() == 3
    q_heads, kv_heads = c.attr("q_num_heads"), c.attr("kv_num_heads")
    scale, cap, mode = c.attr("scale"), c.attr("softcap"), c.attr("qk_matmul_output_mode")
    precision = c.attr("softmax_precision")
    if precision not in (None, 1):
        raise c.refuse("its softmax_precision is not float32.")
    if flat:
        q, k, v = _heads(q, q_heads), _heads(k, kv_heads), _heads(v, kv_heads)
    past = 0
    if c.has(4):
        past = c.tensor(4).shape[2]
        k, v = torch.cat([c.tensor(4), k], dim=2), torch.cat([c.tensor(5), v], dim=2)
    keys, values = k, v
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    factor = math.sqrt(1.0 / math.sqrt(q.shape[3]) if scale is None else scale)
    scores = torch.matmul(q * factor, (k * factor).transpose(-2, -1))
    shown = [scores]
    if cap > 0:
        scores = torch.tanh(scores / cap) * cap
    shown.append(scores)
    bias, masks = _bias(c, q.shape[2], k.shape[2], past)
    if bias is not None:
        scores = scores + bias
    for mask in masks:
        scores = torch.where(mask, scores, torch.full((), -math.inf, device=c.device))
    shown.append(scores)
    weights = F.softmax(scores, dim=-1)
    if bias is not None or masks:
        none = torch.amax(scores.detach(), -1, keepdim=True) == -math.inf
        weights = torch.where(none, torch.zeros_like(weights), weights)
    shown.append(weights)
    found = torch.matmul(weights, v)
    if flat:
        found = found.permute(0, 2, 1, 3).reshape(found.shape[0], found.shape[2], -1)
    return found, keys, values, shown[mode]


@rule("RotaryEmbedding 23")
def _rotary(c: OnnxCall) -> Tensor:
    x, cos, sin, places = c.tensor(0), c.tensor(1), c.tensor(2), c.optional(3)
    width, interleaved, heads = (
        c.attr("rotary_embedding_dim"), c.attr("interleaved"), c.attr("num_heads")
    )  # fmt: skip
    rotated = x.permute(0, 2, 1, 3) if x.dim() == 4 else x
    if x.dim() == 3:
        rotated = x.reshape(*x.shape[:2], heads, x.shape[2] // heads)
    width = width or rotated.shape[3]
    if places is not None:
        cos, sin = F.embedding(places, cos), F.embedding(places, sin)
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    turned, rest = rotated[..., :width], rotated[..., width:]
    if interleaved:
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned[..., : width // 2], turned[..., width // 2 :]
    real, imaginary = cos * first - sin * second, sin * first + cos * second
    if interleaved:
        turned = torch.stack([real, imaginary], dim=-1).reshape(turned.shape)
    else:
        turned = torch.cat([real, imaginary], dim=-1)
    found = torch.cat([turned, rest], dim=-1) if rest.shape[-1] else turned
    return found.permute(0, 2, 1, 3) if x.dim() == 4 else found.reshape(x.shape)


@rule("LinearAttention 27")
def _linear_attention(c: OnnxCall) -> tuple[Tensor, Tensor]:
    """A state of (key width, value width) for each head, written and read once a time step."""
    q_heads, kv_heads, how = c.attr("q_num_heads"), c.attr("kv_num_heads"), c.attr("update_rule")
    scale, _ = c.attr("scale"), c.attr("chunk_size")  # a hint without effect on the output
    q, k, v = (
        _heads(c.tensor(0), q_heads),
        _heads(c.tensor(1), kv_heads),
        _heads(c.tensor(2), kv_heads),
    )
    decay, beta = c.optional(4), c.optional(5)
    if how not in ("linear", "gated", "delta", "gated_delta"):
        raise c.refuse(f"its update_rule is {how!r}.")
    gates = None if decay is None else torch.exp(_heads(decay, kv_heads)).unsqueeze(-1)
    beta = None if beta is None else beta.permute(0, 2, 1).unsqueeze(-1).unsqueeze(-1)
    batch, _, length, width = q.shape
    state = c.optional(3)
    if state is None:
        state = torch.zeros(batch, kv_heads, width, v.shape[3], dtype=q.dtype, device=q.device)
    read: list[Tensor] = []
    groups = q_heads // kv_heads
    for i in range(length):
        key, value = k[:, :, i].unsqueeze(-1), v[:, :, i].unsqueeze(-2)
        if gates is not None:
            state = state * gates[:, :, i]
        if beta is not None:
            value = beta[:, :, i] * (value - torch.matmul(key.transpose(-1, -2), state))
        state = state + key * value
        seen = state.repeat_interleave(groups, 1) if groups > 1 else state
        read.append(torch.matmul(q[:, :, i].unsqueeze(-2), seen))
    found = torch.cat(read, dim=2) * (1.0 / math.sqrt(width) if scale == 0.0 else scale)
    return found.permute(0, 2, 1, 3).reshape(batch, length, -1), state
