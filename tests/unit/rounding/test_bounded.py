"""Recording and following honest bounded logs (NUMERICS 14.2 to 14.6), against plain fractions."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.logs import C, Element, order
from reference.nasty import near_boundaries
from reference.orders import LeftToRight, Perturbed, Shuffled
from reference.rounded import abs_sums
from unit.rounding.recorded import (
    ENGINES,
    JOB,
    Arrays,
    Run,
    elements_of_mm,
    nasty_mm,
    program,
    run,
    same,
)

from tallystick.commit.encoding import sha256
from tallystick.commit.log import BOUNDED
from tallystick.contracts.replay import sections
from tallystick.contracts.replay.findings import LogCorruptError
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.types import TensorType, type_of
from tallystick.products.engines import DEFAULT
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.program.ir import Value
from tallystick.run.logs.reader import expected_of, open_log
from tallystick.run.logs.writer import LogDirectory


def every_operator(b: Builder, x: dict[str, Value]) -> list[Value]:
    conv = {
        "stride": (2, 1), "padding": (1, 1), "dilation": (1, 2), "transposed": False,
        "output_padding": (0, 0), "groups": 2,
    }  # fmt: skip
    y = b.one("aten.convolution", [x["image"], x["weight"], x["bias"]], **conv)
    back = b.emit(
        "aten.convolution_backward",
        [y, x["image"], x["weight"]],
        **conv,
        output_mask=(True, True, True),
    )
    one = {**conv, "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    far = {**one, "stride": (3, 3)}
    return [
        *b.emit("aten.mm", [x["a"], x["b"]]),
        *b.emit("aten.addmm", [x["c"], x["a"], x["b"]], alpha=1.0, beta=1.0),
        *b.emit("aten.addmm", [x["c"], x["a"], x["b"]], alpha=0.5, beta=2.0),
        *b.emit("aten.bmm", [x["left"], x["right"]]),
        *b.emit("aten.sum", [x["a"]]),
        *b.emit("aten.sum.dim_IntList", [x["left"]], dim=(2,), keepdim=False),
        *b.emit("aten.mean.dim", [x["left"]], dim=(0, 2), keepdim=True),
        *b.emit("aten.mean", [x["b"]]),
        *b.emit("aten.convolution", [x["patches"], x["taps"], None], **far),
        *b.emit(
            "aten.convolution_backward",
            [x["grad_w"], x["image_w"], x["weight_w"]],
            **one,
            output_mask=(False, True, True),
        ),
        *b.emit(
            "aten.convolution_backward",
            [x["grad_x"], x["image_x"], x["weight_x"]],
            **one,
            output_mask=(True, False, False),
        ),
        y,
        *back,
    ]


def everything(seed: int, bits: int) -> Arrays:
    rng = np.random.default_rng(seed)
    a, b = near_boundaries(40, 50, 20, seed, bits)
    pairs = [near_boundaries(15, 36, 11, seed + 1 + n, bits) for n in range(3)]
    image = rng.standard_normal((2, 4, 9, 10)).astype(np.float32)
    weight = rng.standard_normal((6, 2, 3, 3)).astype(np.float32)
    # Convolutions whose contractions are the nasty products: distinct patches, 1x1 kernels.
    taps, patches = near_boundaries(20, 45, 12, seed + 7, bits)
    grad_w, image_w = near_boundaries(24, 45, 6, seed + 8, bits)
    weight_x, grad_x = near_boundaries(18, 45, 12, seed + 9, bits)
    patches = patches.reshape(5, 3, 3, 3, 4).transpose(0, 3, 1, 4, 2).reshape(1, 5, 9, 12)
    return {
        "a": a, "b": b, "c": rng.standard_normal(20).astype(np.float32),
        "left": np.stack([p[0] for p in pairs]), "right": np.stack([p[1] for p in pairs]),
        "image": image, "weight": weight, "bias": rng.standard_normal(6).astype(np.float32),
        "taps": taps.reshape(20, 5, 3, 3), "patches": patches,
        "grad_w": grad_w.reshape(1, 24, 5, 9), "image_w": image_w.T.reshape(1, 6, 5, 9),
        "weight_w": np.zeros((24, 6, 1, 1), np.float32),
        "grad_x": grad_x.reshape(1, 45, 3, 4), "weight_x": weight_x.T.reshape(45, 18, 1, 1),
        "image_x": np.zeros((1, 18, 3, 4), np.float32),
    }  # fmt: skip


@pytest.mark.parametrize("bits", [32, 28, 20])
def test_any_engine_follows_any_other(tmp_path: Path, bits: int) -> None:  # NUMERICS 14.5, 14.6
    batch = everything(bits, bits)
    made = program(bits, batch, every_operator)
    runs = [Run(tmp_path / e.name, made, batch, e) for e in ENGINES]
    assert len({sha256(b"".join(o.tobytes() for o in r.outputs)) for r in runs}) > 1
    logged = [len(runs[0].entries(n)) for n in range(len(runs[0].expected.sections))]
    # The plain convolution (0 to 3) and single elements may need none.
    assert all(logged[n] for n in (4, 5, 6, 7, 9, 12, 13, 14, 15)), logged
    for recorded in runs:
        for engine in ENGINES:
            follower, outputs, digest = recorded.follow(engine=engine, digest=recorded.digest)
            assert not follower.findings, (recorded.expected.operators, engine.name)
            assert same(outputs, recorded.outputs), engine.name
            assert digest == recorded.digest


@pytest.mark.parametrize(("bits", "seed"), [(32, 1), (32, 2), (31, 3), (28, 4), (20, 5)])
@pytest.mark.parametrize("engine", [Shuffled(5, 7), Perturbed(3)], ids=lambda e: e.name)
def test_honest_values_are_the_clauses(tmp_path: Path, bits: int, seed: int, engine: Any) -> None:
    # NUMERICS 14.5 and 14.7: every element of a recorded product, and every entry.
    made, batch = nasty_mm(bits, seed)
    recorded = Run(tmp_path, made, batch, engine)
    found = recorded.entries()
    entry = dict(zip(found.positions.tolist(), found.directions.tolist(), strict=True))
    patterns = recorded.outputs[0].reshape(-1).view(np.uint32).tolist()
    taken = left = 0
    for at, element in enumerate(elements_of_mm(batch, bits)):
        direction = entry.get(at)
        assert patterns[at] == element.value(direction), at
        if direction is not None:
            assert not element.forged(direction), at
            left += len(element.v) == 2
            taken += order(patterns[at]) != element.nearest
    assert len(entry) > 10 and left > 3
    follower, _, _ = recorded.follow(engine=LeftToRight(), count_taken=True)
    assert follower.choices.taken == taken
    assert left <= follower.choices.left <= len(entry)


def test_sums_and_means_by_the_clauses(tmp_path: Path) -> None:  # NUMERICS 13.3, 14.4, 14.5
    x, _ = near_boundaries(200, 61, 1, 61, 32)
    batch = {"x": x}

    def sums(b: Builder, v: dict[str, Value]) -> list[Value]:
        return b.emit("aten.sum.dim_IntList", [v["x"]], dim=(1,), keepdim=False)

    recorded = Run(tmp_path, program(32, batch, sums), batch, Perturbed(4))
    found = recorded.entries()
    entry = dict(zip(found.positions.tolist(), found.directions.tolist(), strict=True))
    bounds = (float(x.shape[1]) * C) * abs_sums(x.T)
    patterns = recorded.outputs[0].view(np.uint32).tolist()
    for at, row in enumerate(x):
        element = Element([Fraction(float(v)) for v in row], float(bounds[at]), 32)
        assert patterns[at] == element.value(entry.get(at)), at
        assert at not in entry or not element.forged(entry[at])
    assert entry


def test_only_f32_outputs_of_rounded_operators_have_sections() -> None:  # COMMITMENTS 10.1
    b = Builder("replay/1-draft.1;b=32;form=bounded")
    x = b.batch("x", TensorType("f32", (3, 0)))
    y = b.batch("y", TensorType("i64", (3,)))
    empty = b.one("aten.mm", [x, b.one("aten.permute", [x], dims=(1, 0))])
    whole = b.one("aten.sum", [y])
    grown = b.one("aten.exp", [empty])
    made = b.finish({"grad.0": grown, "grad.1": whole})
    sections = LoggedSteps(made).logged.sections
    assert [(s.node, s.output, s.elements, s.form) for s in sections] == [(1, 0, 9, BOUNDED)]
    # An inner size of 0: every element is +0 (NUMERICS 13.4), and no entry is needed.
    batch = {"x": np.zeros((3, 0), np.float32), "y": np.arange(3)}
    outputs, _ = run(LoggedSteps(made), batch, 0, DEFAULT)
    assert outputs[0].tolist() == [[1.0] * 3] * 3 and int(outputs[1]) == 3


def test_a_step_outside_its_brackets_is_refused() -> None:
    made, batch = nasty_mm(32, 71, (2, 8, 2))
    recorder = LoggedSteps(made)
    with pytest.raises(UsageError, match="begin"):
        Executor(made, kernels=recorder.kernels).run_step({}, batch)
    with pytest.raises(UsageError, match="begin"):
        recorder.finish()
    with pytest.raises(UsageError, match="keeps no rounding log"):
        a, b = near_boundaries(2, 8, 2, 1, 32)
        plain = Builder("rounded/1-draft.1")
        values = [plain.batch(n, type_of(x)) for n, x in (("a", a), ("b", b))]
        LoggedSteps(plain.finish({"grad.0": plain.one("aten.mm", values)}))


def test_a_failed_step_leaves_no_file(tmp_path: Path) -> None:
    made, batch = nasty_mm(32, 72, (2, 8, 2))
    expected = expected_of(LoggedProgram(made), JOB)
    logs = LogDirectory(tmp_path, JOB, expected.sections)
    recorder = LoggedSteps(made, sink=logs.writer)
    recorder.begin(0)
    recorder.abort()
    assert list(tmp_path.iterdir()) == []
    run(recorder, batch, 0, DEFAULT)
    assert [p.name for p in tmp_path.iterdir()] == ["0000000000.log"]
    with pytest.raises(LogCorruptError):
        open_log(tmp_path, 1, expected)


def test_a_program_with_more_outputs_than_an_answer_can_name_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, _ = nasty_mm(32, 1)
    monkeypatch.setattr(sections, "LIMITS", replace(LIMITS, log_sections=0))
    with pytest.raises(UsageError, match="1 sections, more than the limit of 0"):
        LoggedSteps(made)
