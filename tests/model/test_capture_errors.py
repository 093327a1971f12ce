"""A capture's errors are ours, with the model's file and line and a next action that fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capture_checks import Around, squares, step_of
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tallystick.errors import UsageError
from tallystick.program.capture import capture
from tallystick.program.optimizers import SGD

HERE = r"test_capture_errors\.py:\d+"
X = {"x": ((3, 4), "f32"), "label": ((3,), "i64")}


def by_loss(loss: Any, module: Any = None, batch: Any = None) -> Callable[[], Any]:
    return lambda: capture(module or nn.Linear(4, 2), loss, X if batch is None else batch, SGD(0.1))


def by_batch(batch: Any) -> Callable[[], Any]:
    return by_loss(squares, batch=batch)


def by_body(function: Callable[..., Tensor], **held: Any) -> Callable[[], Any]:
    return lambda: step_of(Around(function, **held))


def fails(error: Exception) -> Callable[..., Tensor]:
    def body(m: Any, x: Tensor) -> Tensor:
        raise error

    return body


def unpickled(m: Any, x: Tensor) -> Tensor:
    a, b, c = x.shape
    return x * (a + b + c)


CASES: dict[str, tuple[Callable[[], Any], str, str]] = {
    # what capture gets: the message, the next action
    "misspelt key": (
        by_loss(lambda m, b: F.cross_entropy(m(b["x"]), b["labels"])),
        rf"no 'labels'; it has 'label', 'x' \(.*{HERE}",
        "one of those names",
    ),
    "another key": (
        by_body(lambda m, x: x * {"a": 1}["b"]),
        rf"\(.*{HERE}\): KeyError: 'b'",
        r"no such key. The batch has x float32\[3, 4\]",
    ),
    "shapes": (
        by_body(lambda m, x: x @ x),
        rf"\(.*{HERE}\): RuntimeError",
        r"do not fit at that line. The batch has x float32\[3, 4\]",
    ),
    "linear": (
        by_loss(squares, nn.Linear(5, 2)),
        r"mat1 and mat2|capture_checks\.py:\d+",
        "do not fit",
    ),
    "unpacking": (by_body(unpickled), rf"{HERE}.*ValueError: not enough values", "the model's"),
    "arguments": (
        by_loss(lambda m, b: m(b["x"], mask=b["x"]).sum()),
        rf"{HERE}.*TypeError.*unexpected keyword argument 'mask'",
        "how the loss calls the module",
    ),
    "division": (by_body(lambda m, x: x * (1 // 0)), rf"{HERE}.*ZeroDivisionError", "the model's"),
    "assertion": (by_body(fails(AssertionError("odd"))), rf"{HERE}.*AssertionError: odd", "error"),
    "not implemented": (by_body(fails(NotImplementedError())), "NotImplementedError", "error"),
    "stop": (by_body(fails(StopIteration())), rf"{HERE}.*StopIteration", "error"),
    "item": (
        by_body(lambda m, x: x * x.max().item()),
        rf"values of tensors.*{HERE}",
        "depend on data",
    ),
    "branch": (
        by_body(lambda m, x: x if x.sum() > 0 else -x),
        rf"values.*{HERE}",
        "depend on data",
    ),
    "every": (
        by_body(lambda m, x: x if (x > 0).all() else -x),
        rf"values.*{HERE}",
        "depend on data",
    ),
    "mask": (by_body(lambda m, x: x[x > 0]), rf"values.*{HERE}", "mask"),
    "nonzero": (by_body(lambda m, x: x.nonzero().float()), rf"values.*{HERE}", "mask"),
    "range": (by_body(lambda m, x: x[: int(x.sum())]), rf"values.*{HERE}", "depend on data"),
    "tuple": (by_batch((torch.ones(3, 4), torch.ones(3))), "batch is a tuple", r'"x": batch\[0\]'),
    "tensor": (by_batch(torch.ones(3, 4)), "batch is a Tensor", "dict"),
    "loader": (
        by_batch(DataLoader(TensorDataset(torch.ones(3, 4)))),
        "batch is a DataLoader",
        "next\\(iter",
    ),
    "number": (by_batch(3), "batch is a int", "dict"),
    "names": (by_batch({0: torch.ones(3)}), "name 0", "dict"),
    "ragged": (by_batch({"x": [[1, 2], [3]]}), "'x'.*different lengths", "Pad them"),
    "list": (by_batch({"x": [[1.0, 2.0]]}), r"'x' is a list of shape \(1, 2\)", "torch.tensor"),
    "pair": (by_batch({"x": ((3, "a"), "f32")}), "'x'", "pair"),
    "negative": (by_batch({"x": ((3, -1), "f32")}), "'x'", "pair"),
    "string": (by_batch({"x": "f32"}), "'x' is a str", "pair"),
    "dtype": (by_batch({"x": ((3, 4), "f99")}), "'f99' is not a dtype", "torch.int64"),
    "objects": (by_batch({"x": np.array([None])}), "not a dtype", "torch.int64"),
    "half a batch": (
        by_batch({"x": torch.ones(3, 4).bfloat16()}),
        "bfloat16",
        "torch.int64|float32",
    ),
    "sparse": (by_batch({"x": torch.eye(4).to_sparse()}), "'x' is sparse", "to_dense"),
    "lazy": (by_loss(squares, nn.LazyLinear(3)), "param weight of a lazy module", "one batch"),
    "half": (
        by_loss(squares, nn.Linear(4, 2).bfloat16()),
        "param weight has dtype bfloat16",
        "float",
    ),
    "uncallable": (by_loss("mse"), "loss is a str", "function"),
    "criterion": (by_loss(nn.MSELoss()), r"calls loss\(module, batch\)", "lambda module, batch"),
    "class": (by_loss(nn.MSELoss), "The loss is MSELoss", "lambda module, batch"),
    "no scalar": (by_loss(lambda m, b: m(b["x"])), r"returns float32\[3, 2\]", "mean"),
    "nothing": (by_loss(lambda m, b: None), "returns NoneType", "Return the loss"),
    "a number": (by_loss(lambda m, b: 1.0), "returns float", "Return the loss"),
    "integers": (by_loss(lambda m, b: b["label"].sum()), r"returns int64\[\]", "mean"),
    "three": (by_loss(lambda m, b: (m(b["x"]).sum(), 1, 2)), "returns tuple", "Return the loss"),
    "metrics": (by_loss(lambda m, b: (m(b["x"]).sum(), [1])), "not a dict of tensors", "Return"),
    "detached": (by_loss(lambda m, b: m(b["x"]).detach().sum()), "no trained parameter", "detach"),
    "no loss of it": (by_loss(lambda m, b: b["x"].sum()), "no trained parameter", "output"),
}


@pytest.mark.parametrize("name", CASES)
def test_an_error_is_ours_with_a_hint_that_fits(name: str) -> None:
    run, message, action = CASES[name]
    with pytest.raises(UsageError, match=f"(?s){message}") as caught:
        run()
    assert caught.value.message and str(caught.value).startswith(caught.value.message)
    import re

    assert re.search(action, caught.value.next_action), caught.value.next_action
