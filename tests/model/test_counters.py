"""Small programs of counters: what a capture signs is one function at every call (PROGRAM 5.19)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.program.capture import capture
from tallystick.program.optimizers import SGD

BATCH = {"x": ((8, 4), "f32"), "y": ((8,), "i64")}
CALLS = 60
# Each changes the state in a call; each reads it and gives a factor of the loss.
CHANGES: tuple[Any, ...] = (
    lambda s, k: s.update(a=s["a"] + 1),
    lambda s, k: s.update(b=s["b"] + (s["a"] % k == 0)),
    lambda s, k: s.update(b=max(s["b"], s["a"] - k)),
    lambda s, k: s["seen"].append(s["a"]),
    lambda s, k: s.update(mode="late") if len(s["seen"]) >= k else None,
    lambda s, k: s.update(a=0) if s["a"] > k else None,
)
READS: tuple[Any, ...] = (
    lambda s, k: 1.0,
    lambda s, k: 0.5 if s["a"] >= k else 1.0,
    lambda s, k: 1.0 if s["b"] < k else 2.0,
    lambda s, k: 2.0 if s["mode"] == "late" else 1.0,
    lambda s, k: 0.5 if k in s["seen"] else 1.0,
    lambda s, k: float(f"{s['b']}" != str(k)) + 1.0,
    lambda s, k: 1.0 if s["a"] + s["b"] > -k else 3.0,
)


class Counting:
    """A loss whose factor follows from counters."""

    def __init__(self, changes: list[tuple[Any, int]], read: Any, k: int) -> None:
        self.state = {"a": 0, "b": 0, "seen": [], "mode": "early"}
        self.changes, self.read, self.k = changes, read, k

    def factor(self) -> float:
        for change, k in self.changes:
            change(self.state, k)
        found: float = self.read(self.state, self.k)
        return found

    def __call__(self, module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return self.factor() * F.cross_entropy(module(batch["x"]), batch["y"])


def test_what_is_signed_is_one_function(is_exhaustive: bool) -> None:
    """Ten examples by default, sixty with --exhaustive."""
    many = settings(max_examples=60 if is_exhaustive else 10)
    many(
        given(
            st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(2, 40)), max_size=4),
            st.sampled_from(READS),
            st.integers(0, 40),
        )(_what_is_signed_is_one_function)
    )()


def _what_is_signed_is_one_function(changes: list[tuple[Any, int]], read: Any, k: int) -> None:
    plain = Counting(changes, read, k)
    factors = {plain.factor() for _ in range(CALLS)}
    step = Counting(changes, read, k)
    torch.manual_seed(0)
    try:
        capture(nn.Linear(4, 3), step, BATCH, SGD(0.1))
    except UsageError as error:
        assert "changes" in error.message
        assert changes, "nothing moves, and it is refused"
    else:
        assert len(factors) == 1
    assert step.state == {"a": 0, "b": 0, "seen": [], "mode": "early"}


def test_a_reader_that_reads_nothing_is_never_refused() -> None:
    for change in CHANGES:
        step = Counting([(CHANGES[0], 2), (CHANGES[3], 2), (change, 3)], READS[0], 1)
        assert capture(nn.Linear(4, 3), step, BATCH, SGD(0.1)).program.nodes
