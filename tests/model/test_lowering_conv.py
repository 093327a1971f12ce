"""Convolutions of one and three axes, and transposed ones (PROGRAM 5.2, NUMERICS 2.6, 2.7)."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from lowering_check import OneCall, Op, captured, check  # noqa: E402

CASES = {
    "1d": Op(
        lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1, dilation=2),
        [(2, 4, 9), (6, 4, 3), (6,)],
        eager=True,
    ),
    "1d, groups": Op(lambda x, w: F.conv1d(x, w, groups=2), [(2, 4, 9), (6, 2, 3)]),
    "1d, unbatched, same": Op(lambda x, w: F.conv1d(x, w, padding="same"), [(4, 9), (6, 4, 4)]),
    "2d, depthwise": Op(
        lambda x, w, b: F.conv2d(x, w, b, groups=4, padding=1), [(2, 4, 5, 6), (8, 1, 3, 3), (8,)]
    ),
    "2d, same": Op(
        lambda x, w: F.conv2d(x, w, padding="same", dilation=2), [(2, 4, 7, 6), (3, 4, 3, 2)]
    ),
    "3d": Op(
        lambda x, w, b: F.conv3d(x, w, b, (2, 1, 2), (1, 0, 1), (1, 2, 1)),
        [(2, 4, 5, 6, 7), (6, 4, 3, 2, 3), (6,)],
        eager=True,
    ),
    "3d, groups": Op(
        lambda x, w: F.conv3d(x, w, groups=2, padding=1), [(2, 4, 3, 4, 5), (6, 2, 3, 3, 3)]
    ),
    "3d, points": Op(lambda x, w, b: F.conv3d(x, w, b), [(2, 4, 3, 4, 5), (6, 4, 1, 1, 1), (6,)]),
    "3d, depth dilated": Op(
        lambda x, w: F.conv3d(x, w, dilation=(2, 1, 1), stride=2),
        [(1, 2, 8, 5, 5), (3, 2, 2, 3, 3)],
    ),
    "3d, patches": Op(lambda x, w: F.conv3d(x, w, stride=2), [(1, 2, 5, 6, 4), (3, 2, 2, 2, 2)]),
    "3d, planes": Op(
        lambda x, w: F.conv3d(x, w, padding=(0, 1, 1)), [(1, 2, 4, 5, 4), (3, 2, 1, 3, 3)]
    ),
    "3d, unbatched": Op(lambda x, w: F.conv3d(x, w), [(2, 4, 5, 4), (3, 2, 2, 3, 3)]),
    "transposed 1d": Op(
        lambda x, w, b: F.conv_transpose1d(x, w, b, 3, 1, 2, 1, 2),
        [(2, 4, 5), (4, 3, 4), (3,)],
        eager=True,
    ),
    "transposed 1d, groups": Op(
        lambda x, w, b: F.conv_transpose1d(x, w, b, groups=2, stride=2),
        [(2, 4, 5), (4, 3, 4), (6,)],
    ),
    "transposed 2d": Op(
        lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2, padding=1, output_padding=1),
        [(2, 4, 5, 3), (4, 3, 3, 3), (3,)],
        eager=True,
    ),
    "transposed 2d, groups": Op(
        lambda x, w: F.conv_transpose2d(x, w, stride=(2, 1), groups=2, dilation=(1, 2)),
        [(2, 4, 5, 3), (4, 3, 2, 3)],
    ),
    "transposed 2d, output_padding beyond the stride": Op(
        lambda x, w: F.conv_transpose2d(x, w, dilation=3, output_padding=2, padding=1),
        [(2, 4, 5, 3), (4, 3, 2, 3)],
    ),
    "transposed 2d, output_padding beyond the padding": Op(
        lambda x, w: F.conv_transpose2d(x, w, dilation=3, output_padding=(2, 1), stride=(1, 2)),
        [(2, 4, 5, 3), (4, 3, 2, 3)],
    ),
    "transposed 2d, unbatched": Op(
        lambda x, w: F.conv_transpose2d(x, w, stride=2), [(4, 5, 3), (4, 3, 2, 2)]
    ),
    "transposed 3d": Op(
        lambda x, w, b: F.conv_transpose3d(x, w, b, 2, 1, (1, 0, 1)),
        [(1, 4, 3, 4, 3), (4, 3, 3, 3, 3), (3,)],
        eager=True,
    ),
    "transposed 3d, groups": Op(
        lambda x, w: F.conv_transpose3d(x, w, groups=2, dilation=(1, 2, 1)),
        [(1, 4, 3, 4, 3), (4, 3, 2, 2, 2)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_torchs(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize("name", ["1d", "3d", "transposed 2d", "transposed 3d"])
def test_every_result_is_one_dot(name: str) -> None:
    """No sum of partial convolutions: one DOT of 2.6 or 2.7 per element and function."""
    used = check(CASES[name])
    dots = [op for op in used if op.startswith("aten.convolution")]
    # Forward, and the input's and weight's gradient: these are one node of 2.7, or 2.6 and 2.7.
    assert len(dots) == (3 if "transposed" in name else 2)


def test_a_frozen_input_has_no_gradient_nodes() -> None:
    op = Op(lambda x, w: F.conv_transpose2d(x, w), [(2, 4, 5, 3), (4, 3, 2, 2)], frozen=(0,))
    nodes = [n for n in captured(OneCall(op)).program.nodes if "convolution" in n.op]
    assert [n.op for n in nodes] == ["aten.convolution_backward"] * 2
