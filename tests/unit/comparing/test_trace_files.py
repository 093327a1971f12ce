"""The files of a trace: their budgets, loops that stopped, and damaged files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import Tensor, nn
from traced_loops import (
    BASE,
    STEPS,
    Loop,
    compare,
    flip,
    plainly,
)

import tallystick
from tallystick.commit.encoding import canonical_json
from tallystick.comparing.tracefile import digest_of
from tallystick.errors import CannotCheckError, CorruptFileError, UsageError


def test_a_trace_changes_no_bit(tmp_path: Path) -> None:
    def final(block: Any) -> list[Tensor]:
        torch.manual_seed(3)
        net, rule, loader = Loop(inside=True).parts()
        with block:
            Loop().train(net, rule, loader)
        return [parameter.detach() for parameter in net.parameters()]

    traced = final(tallystick.trace(tmp_path / "a"))
    assert all(map(torch.equal, traced, final(plainly())))


def test_values_that_are_not_kept_are_recorded_again(tmp_path: Path) -> None:
    other = Loop(before=flip(22))
    found = compare(BASE, other, tmp_path, keep_bytes=0)
    assert found.first is not None and found.first.elements is None
    step = found.first.step
    assert step == 3 and f"step={step}" in found.first.unknown
    again = compare(BASE, other, tmp_path, keep_bytes=1 << 20, step=step, overwrite=True)
    assert again.first is not None and again.first.elements is not None
    assert again.first.elements.flipped == 22 and again.first.elements.index == (7, 2)
    assert again.first.inputs[0].name == "parameter first.weight"


def test_the_disk_is_bounded(tmp_path: Path) -> None:
    with pytest.raises(CannotCheckError, match="used up"):
        compare(BASE, BASE, tmp_path, log_bytes=20_000, keep_bytes=5_000)
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "a").iterdir()}
    assert sizes["operators.jsonl"] <= 20_100 and sizes["values.bin"] <= 5_000


def cut(place: Path, share: float) -> Path:
    """The trace of a process that was killed when it had written this share of its lines."""
    log = place / "operators.jsonl"
    data = log.read_bytes()
    log.write_bytes(data[: int(share * (len(data) - 25))])
    return place


@pytest.mark.parametrize("share", [0.1, 0.45, 0.8, 1.0])
def test_a_killed_loop_is_no_other_program(share: float, tmp_path: Path) -> None:
    whole, killed = BASE.run(tmp_path / "a"), cut(BASE.run(tmp_path / "b"), share)
    for pair in ((whole, killed), (killed, whole), (killed, killed)):
        with pytest.raises(CannotCheckError, match=r"the loop of [AB] was stopped"):
            tallystick.diff(*pair)


def test_a_killed_loop_is_compared_as_far_as_it_went(tmp_path: Path) -> None:
    whole, killed = BASE.run(tmp_path / "a"), cut(Loop(lr=0.04).run(tmp_path / "b"), 0.6)
    for pair in ((whole, killed), (killed, whole)):
        found = tallystick.diff(*pair)
        assert found.cause is not None and found.cause.kind == "rate"


def test_a_loop_that_fails_has_no_end(tmp_path: Path) -> None:
    def fail(step: int, model: nn.Module) -> None:
        if step == 4:
            raise RuntimeError("the loop failed")

    with pytest.raises(RuntimeError, match="the loop failed"):
        Loop(before=fail).run(tmp_path / "b")
    with pytest.raises(CannotCheckError, match="the loop of B was stopped"):
        tallystick.diff(BASE.run(tmp_path / "a"), tmp_path / "b")


def test_traces_without_an_operator_are_not_equal(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with tallystick.trace(tmp_path / name):
            pass
    full = BASE.run(tmp_path / "c")
    for pair in (("a", "b"), ("a", "c"), ("c", "b")):
        with pytest.raises(CannotCheckError, match=r"The trace [AB] contains no operators"):
            tallystick.diff(tmp_path / pair[0], tmp_path / pair[1])
    assert tallystick.diff(full, full).compared["equal steps"] == STEPS


def test_steps_without_an_operator_do_not_count(tmp_path: Path) -> None:
    def run(name: str, idle: int) -> Path:
        with tallystick.trace(tmp_path / name) as block:
            for step in range(3):
                torch.ones(2) * step
                for _ in range(idle):
                    block.next_step()
        return tmp_path / name

    found = tallystick.diff(run("a", 1), run("b", 2))
    assert found.equal and found.compared["equal steps"] == 3


def test_directories_are_not_overwritten(tmp_path: Path) -> None:
    BASE.run(tmp_path / "a")
    with pytest.raises(UsageError, match="already contains a trace"):
        BASE.run(tmp_path / "a")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="other files"):
        BASE.run(tmp_path / "other", overwrite=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        BASE.run(tmp_path / "file")
    with pytest.raises(UsageError, match="out of range"):
        BASE.run(tmp_path / "new", keep_bytes=-1)


def test_a_trace_beside_a_job_cannot_be_compared(tmp_path: Path, mlp_job: Any) -> None:
    trace = BASE.run(tmp_path / "a")
    with pytest.raises(CannotCheckError, match="A is a trace and B is a job"):
        tallystick.diff(trace, mlp_job)


@pytest.mark.parametrize("damage", range(12))
def test_a_damaged_trace_is_refused_by_type(damage: int, tmp_path: Path) -> None:
    """Whatever stands in the files, the answer is an answer or a typed error."""
    Loop(steps=2).run(tmp_path / "a")
    Loop(steps=2).run(tmp_path / "b")
    log = tmp_path / "a" / "operators.jsonl"
    lines = log.read_bytes().splitlines()
    number = 3 + damage
    hostile = [
        b"{}", b"[]", b'["op"]', b'["op",1,2,3,4,5,6]', b'["step",-1]', b'["step","x"]',
        b'["value","x","f32[1000000000000]",0,4]', b'["set","x",[[1]]]', b'["rows",[],{}]',
        b'["op","a","","",[["d","f32[1]","data","",0,99999,0]],[],""]', b"[" * 100, b"\xff",
    ]  # fmt: skip
    lines[number] = hostile[damage]
    log.write_bytes(b"\n".join(lines) + b"\n")
    with suppress(CorruptFileError, CannotCheckError):
        tallystick.diff(tmp_path / "a", tmp_path / "b")


HOSTILE_TYPES = {
    "many digits": f"f32[{'9' * 150}]", "no number": "f32[,]", "rank 100": f"f32[{'1,' * 99}1]",
    "a great size": f"f32[0,1{'0' * 100}]", "no bracket": "f32", "a number": 7, "none": "",
    "another shape": "f32[3]", "rank 40": f"f32[{'1,' * 39}1]",
    "a great product": "f32[9999999999999,9999999999999,0]",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_TYPES)
@pytest.mark.parametrize("line", ["call", "input", "output", "value", "all"])
def test_a_hostile_type_is_refused(name: str, line: str, tmp_path: Path) -> None:
    """In each place where a trace states the type of a tensor."""
    form, data = HOSTILE_TYPES[name], [np.zeros(2, "<f4"), np.ones(2, "<f4")]
    good = digest_of("f32[2]", data[0].tobytes()), digest_of("f32[2]", data[1].tobytes())
    for number, place in enumerate(("a", "b")):
        forms = dict.fromkeys(("call", "input", "output", "value"), "f32[2]")
        if number or line in ("call", "all"):
            forms |= dict.fromkeys(forms if line == "all" else [line], form)  # type: ignore[arg-type]
        with tallystick.trace(tmp_path / place):
            pass
        rows = [
            ["step", 0], ["call", "M", forms["call"]],
            ["op", "aten.x", "", "", [["d", forms["input"], "data", "", -1, 0, 0]],
             [[good[number], forms["output"]]], ""],
            ["value", good[number], forms["value"], 0, 8], ["end", "complete"],
        ]  # fmt: skip
        lines = b"".join(canonical_json(row) + b"\n" for row in rows)  # type: ignore[arg-type]
        (tmp_path / place / "operators.jsonl").write_bytes(lines)
        (tmp_path / place / "values.bin").write_bytes(data[number].tobytes())
    with suppress(CorruptFileError):
        found = tallystick.diff(tmp_path / "a", tmp_path / "b")
        assert not found.equal and name in ("another shape", "a great product", "rank 40")


def test_a_kept_value_is_held_against_its_digest(tmp_path: Path) -> None:
    BASE.run(tmp_path / "a")
    Loop(before=flip(22)).run(tmp_path / "b")
    values = tmp_path / "b" / "values.bin"
    values.write_bytes(bytes(len(values.read_bytes())))
    with pytest.raises(CorruptFileError, match="another digest than its tensor"):
        tallystick.diff(tmp_path / "a", tmp_path / "b")


def test_tensors_without_bytes_are_counted(tmp_path: Path) -> None:
    def run(name: str, value: float) -> Path:
        with tallystick.trace(tmp_path / name):
            for _ in range(2):
                torch.eye(4).to_sparse() * value
                torch.empty(3, device="meta") + 1
        return tmp_path / name

    found = tallystick.diff(run("a", 2), run("b", 2))
    assert found.equal and len(found.notices) == 1
    assert "no bytes to compare" in found.notices[0], found.notices
    assert int(found.notices[0].split()[0]) >= 5


def test_a_plain_loop_has_no_notice(tmp_path: Path) -> None:
    assert compare(BASE, BASE, tmp_path).notices == ()
