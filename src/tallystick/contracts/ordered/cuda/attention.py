"""Calls of native/cuda/attention.cu (NUMERICS 18)."""

from __future__ import annotations

from tallystick.contracts.ordered.cuda import cuda_kernel
from tallystick.devices.cuda.launch import Outputs, Tensors, f32, launch_over, pointer, whole
from tallystick.devices.kernel import operand, optional
from tallystick.numerics.operators.common import flag, integer, number
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.folds import launch_rows


def _seen(attrs: Attrs, queries: int, keys: int) -> bytes:
    """An AttentionSeen (18.2)."""
    first, window = integer(attrs, "first"), integer(attrs, "window")
    return whole(flag(attrs, "causal"), first, window, queries, keys)


@cuda_kernel("tallystick.attention_scores")
def _scores(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    q, k, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    softcap = number(attrs, "softcap")
    params = pointer(q, k, optional(inputs, 2), out)
    params += whole(out.size, q.shape[1], k.shape[1], q.shape[3])
    params += _seen(attrs, q.shape[2], k.shape[2]) + f32(number(attrs, "scale"), softcap)
    launch_over(out, "attention_scores", out.size, params + whole(softcap != 0))


@cuda_kernel("tallystick.attention_weights", inplace=((0, 0),))
def _weights(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    s, out = operand(inputs, 0), outputs[0]
    batches, heads, queries, keys = s.shape
    rows = batches * heads * queries
    params = pointer(s, optional(inputs, 1), out) + whole(rows, heads)
    launch_rows(out.device, "attention_weights", rows, keys, params + _seen(attrs, queries, keys))


@cuda_kernel("tallystick.attention_values")
def _values(attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    p, v, out = operand(inputs, 0), operand(inputs, 1), outputs[0]
    params = pointer(p, v, out) + whole(out.size, p.shape[1], v.shape[1], v.shape[3])
    params += _seen(attrs, p.shape[2], p.shape[3])
    launch_over(out, "attention_values", out.size, params)
