# ruff: noqa: E402
"""Single rules for ONNX operators: what the standard says and torch does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnx", reason="the package onnx is not installed (extra `onnx`)")

from torch import Tensor, nn

from tallystick.program.capture import capture_forward
from tallystick.program.capture.onnx.call import OnnxCall, rules
from tallystick.program.capture.onnx.graph import GraphNode
from tallystick.program.executor import Executor

X = ["x f 2,3"]
Y = ["y f"]


def run_rule(op: str, version: int, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """The outputs of one rule on tensors (numpy arrays are known)."""
    ends = tuple(f"i{k}" for k in range(len(inputs))), tuple(f"o{k}" for k in range(outputs))
    one = GraphNode(op, op, version, *ends, attributes)
    found = rules[op].run(OnnxCall(one, inputs, torch.device("cpu")))
    return found if isinstance(found, Tensor) else found[0] if outputs == 1 else found


def test_rules_follow_the_standard_where_torch_differs() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    i = torch.tensor([-7, 7])
    d = torch.tensor([2, -2])
    assert run_rule("Div", 14, i, d).tolist() == [-3, -3]
    assert run_rule("Mod", 13, i, torch.tensor([3, 3]), fmod=0).tolist() == [2, 1]
    assert run_rule("Mod", 13, i, torch.tensor([3, 3]), fmod=1).tolist() == [-1, 1]
    # Before version 13 softmax is over all axes from `axis` on.
    one = run_rule("Softmax", 11, x.reshape(1, 2, 3), axis=1)
    np.testing.assert_allclose(one.sum(), 1.0, rtol=1e-6)
    two = run_rule("Softmax", 13, x.reshape(1, 2, 3), axis=1)
    np.testing.assert_allclose(two.sum(), 3.0, rtol=1e-6)
    back = [np.array([-1]), np.array([-(1 << 63)]), np.array([1]), np.array([-1])]
    assert run_rule("Slice", 13, x, *back).tolist() == [[3.0, 2.0, 1.0], [6.0, 5.0, 4.0]]
    ties = torch.tensor([1.0, 3.0, 3.0, 0.0])
    values, places = run_rule("TopK", 11, ties, np.array([2]), outputs=2, axis=-1)
    assert values.tolist() == [3.0, 3.0] and places.tolist() == [1, 2]
    last = run_rule("ArgMax", 13, ties, axis=0, keepdims=0, select_last_index=1)
    assert int(last) == 2
    assert run_rule("Gather", 13, x, torch.tensor([-1]), axis=1).tolist() == [[3.0], [6.0]]
    shape = np.array([0, -1])
    assert run_rule("Reshape", 14, x, shape).shape == (2, 3)
    assert run_rule("Squeeze", 11, x.reshape(1, 2, 3), axes=[0]).shape == (2, 3)
    padded = run_rule("Pad", 13, x, np.array([0, 2, 0, 1]), mode="reflect")
    assert padded[0].tolist() == [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]
    exclusive = run_rule("CumSum", 14, x, np.array(1), exclusive=1, reverse=1)
    assert exclusive[0].tolist() == [5.0, 3.0, 0.0]


def test_what_ceil_mode_adds_to_a_pool_never_counts() -> None:
    """The last window of 2 sees one element: its mean is that element, pads counted or not."""
    x = torch.tensor([[[1.0, 3.0, 5.0]]])
    for counted in (0, 1):
        shape = {"kernel_shape": [2], "strides": [2], "auto_pad": "NOTSET"}
        y = run_rule("AveragePool", 22, x, ceil_mode=1, count_include_pad=counted, **shape)
        assert y.tolist() == [[[2.0, 5.0]]]


def test_a_scalar_of_higher_rank_keeps_its_rank() -> None:
    known = np.ones((1, 1, 1), np.float32)
    assert run_rule("Mul", 14, torch.ones(3), known).shape == (1, 1, 3)


def test_recurrent_layers_are_torchs() -> None:
    """ONNX orders an LSTM's gates i, o, f, c and a GRU's z, r, h; torch i, f, g, o and r, z, n."""
    torch.manual_seed(0)
    x = torch.randn(4, 2, 3)
    for name, layer, order in (
        ("LSTM", nn.LSTM(3, 5), (0, 3, 1, 2)),
        ("GRU", nn.GRU(3, 5), (1, 0, 2)),
    ):
        parts = {}
        for key, tensor in layer.named_parameters():
            chunks = tensor.detach().chunk(len(order))
            parts[key] = torch.cat([chunks[j] for j in order]).unsqueeze(0)
        bias = torch.cat([parts["bias_ih_l0"], parts["bias_hh_l0"]], 1)
        more = {"linear_before_reset": 1} if name == "GRU" else {}
        y = run_rule(name, 14, x, parts["weight_ih_l0"], parts["weight_hh_l0"], bias,
                     direction="forward", hidden_size=5, **more)  # fmt: skip
        np.testing.assert_allclose(y[:, 0], layer(x)[0].detach(), rtol=1e-5, atol=1e-6)


def test_known_values_are_constants_of_the_program() -> None:
    """PROGRAM 5.13: nodes with the values' bits, and no slot of the state."""
    from tallystick.program.capture.onnx.call import made_tensor

    class Made(nn.Module):
        def __init__(self, array: np.ndarray) -> None:
            super().__init__()
            self.make = lambda device: made_tensor(array, device)

        def forward(self, x: Tensor) -> Tensor:
            made = self.make(x.device)
            return made | (x > 9) if made.dtype == torch.bool else made * x.to(made.dtype)

    for array in (
        np.array([0, 0, 1, 1, 5, 6, 7, 3]),
        np.array([[0.5, 0.5, -0.0], [0.0, np.nan, np.inf]], np.float32),
        np.array([True, False, False]),
        np.arange(10, 0, -3),
        np.array(7),
    ):
        one = torch.ones(())
        program = capture_forward(Made(array), {"x": one}, lambda m, b: m(b["x"]))
        got = Executor(program).run_step({}, {"x": one.numpy()}).outputs["logits"]
        assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())
