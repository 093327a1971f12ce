# ruff: noqa: E402
"""Models of several families: the same bits on every path, with any threads, and in eager code.

`benchmarks/same_bits_families.py` has every family and 200 steps (NUMERICS 1.8, PROGRAM 5.2).
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tallystick import _core
from tallystick.devices.context import ExecutionContext
from tallystick_bench.families.table import members
from tallystick_bench.families.train import Subject, captured_run, eager_run

# Convolutions, groups, both normalisations; a scan; two optimizers with noise that is drawn.
SAMPLE = {
    "image net: residual, wide": 25, "state space: scan": 30, "generative: gan, two optimizers": 60,
}  # fmt: skip


@pytest.mark.parametrize("title", SAMPLE)
def test_paths_threads_and_eager_code_have_the_same_roots(title: str) -> None:
    (member,) = [m for m in members()[0] if m.title == title]
    steps = SAMPLE[title]
    subject = Subject.of(member, steps)
    # The scalar path is everywhere; where it is alone, it has threads at least.
    ways = [(3, isa) for isa in _core.supported_isas() if isa != "scalar"] or [(3, "scalar")]
    runs = [captured_run(subject, ExecutionContext(*w), (5, steps)) for w in [(1, "scalar"), *ways]]
    assert all(run.roots == runs[0].roots for run in runs)
    assert len(set(runs[0].losses)) > steps // 2
    assert eager_run(subject, (5,), slow_s=60.0).weights[5] == runs[0].weights[5]


def test_another_bit_is_another_root() -> None:
    """The comparison above can fail: a batch that differs in one bit gives other roots."""
    (member,) = [m for m in members()[0] if m.title == "generative: gan, two optimizers"]
    subject = Subject.of(member, 2)
    one = captured_run(subject, ExecutionContext(1), (1, 2))
    values = subject.batches[1]["x"].view(torch.int32)
    values[0, 0] ^= 1 << 22
    other = captured_run(subject, ExecutionContext(1), (1, 2))
    assert one.roots[1] == other.roots[1] and one.roots[2] != other.roots[2]
    assert one.weights[2] != other.weights[2]


def test_a_mixture_of_experts_has_the_captured_bits_in_eager_code() -> None:
    """`reproducible` gives experts of transformers the form that a trace has (PROGRAM 5.15)."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    (member,) = [m for m in members()[0] if m.title == "transformers causal: mixtral, wide"]
    subject = Subject.of(member, 2)
    run = captured_run(subject, ExecutionContext(2), (2,))
    assert eager_run(subject, (2,), slow_s=60.0).weights == run.weights
