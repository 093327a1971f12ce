"""Operands whose content a kernel refuses: one typed error, told apart from everything else a
kernel may raise (PROTOCOL 6.5)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tallystick
from tallystick import _core
from tallystick.devices.device import refused_operands
from tallystick.errors import RefusedOperandsError, UsageError

F = np.float32
ROWS = np.ones((3, 4), F)
BAD = np.array([0, 9, 1], np.int64)
PLANE, NOWHERE = np.ones((1, 2, 2), F), np.full((1, 1, 1), 4, np.int64)

PYTHON: dict[str, Callable[[], object]] = {
    "embedding": lambda: tallystick.evaluate("aten.embedding", ROWS, BAD, padding_idx=-1),
    "embedding_dense_backward": lambda: tallystick.evaluate(
        "aten.embedding_dense_backward", ROWS, BAD, num_weights=5
    ),
    "index_add": lambda: tallystick.evaluate("aten.index_add", ROWS, BAD, ROWS, dim=0),
    "index_select": lambda: tallystick.evaluate("aten.index_select", ROWS, BAD, dim=0),
    "gather": lambda: tallystick.evaluate("aten.gather", np.ones(3, F), BAD, dim=0),
    "scatter": lambda: tallystick.evaluate(
        "aten.scatter.src", np.ones(3, F), BAD, np.ones(3, F), dim=0
    ),
    "floor_divide": lambda: tallystick.evaluate("aten.floor_divide", BAD, BAD),
    "cross_entropy": lambda: tallystick.evaluate("tallystick.cross_entropy", ROWS, BAD),
    "nll_loss": lambda: tallystick.evaluate("aten.nll_loss_forward", ROWS, BAD),
    "max_pool_backward": lambda: tallystick.evaluate(
        "aten.max_pool2d_with_indices_backward",
        np.ones((1, 1, 1), F),
        PLANE,
        NOWHERE,
        kernel_size=(2, 2),
        stride=(2, 2),
    ),
    "to_i64": lambda: tallystick.evaluate("aten._to_copy", np.array([np.nan], F), dtype="i64"),
    "random_key": lambda: tallystick.evaluate(
        "tallystick.uniform", np.array([0, -1], np.int64), shape=(2,)
    ),
}
ONE = np.zeros(1, F)
NATIVE: dict[str, Callable[[], object]] = {
    "embedding": lambda: _core.embedding(ROWS, BAD, np.empty((3, 4), F)),
    "embedding_dense_backward": lambda: _core.embedding_dense_backward(
        ROWS, BAD, -1, np.empty((5, 4), F)
    ),
    "index_add": lambda: _core.index_add(ROWS, BAD, ROWS, 1, 4, np.empty((3, 4), F)),
    "cross_entropy": lambda: _core.cross_entropy(
        ROWS, BAD, -100, 0, ONE.copy(), np.empty(3, F), np.empty(3, F)
    ),
    "nll_loss": lambda: _core.nll_loss(ROWS, BAD, -100, 0, ONE.copy(), ONE.copy()),
    "max_pool_backward": lambda: _core.max_pool2d_backward(
        np.ones((1, 1, 1), F), NOWHERE, np.empty((1, 2, 2), F)
    ),
}


@pytest.mark.parametrize("name", PYTHON)
def test_a_kernel_names_refused_content_by_type(name: str) -> None:
    with pytest.raises(RefusedOperandsError) as caught:
        PYTHON[name]()
    assert refused_operands(caught.value)


@pytest.mark.parametrize("name", NATIVE)
def test_the_core_names_refused_content_by_type(name: str) -> None:
    with pytest.raises(_core.OperandError) as caught:
        NATIVE[name]()
    assert isinstance(caught.value, ValueError) and refused_operands(caught.value)


def test_shapes_that_do_not_fit_are_no_refused_content() -> None:
    with pytest.raises(ValueError) as native:
        _core.embedding(ROWS, BAD, np.empty((2, 4), F))
    with pytest.raises(UsageError) as python:
        tallystick.evaluate("aten.mm", ROWS, ROWS)
    for error in (native.value, python.value, MemoryError(), OSError(24, "too many files")):
        assert not refused_operands(error)
