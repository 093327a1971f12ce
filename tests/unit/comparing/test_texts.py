"""What a comparison says to a person: each sentence as it is printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tallystick.cli.diff import say_comparison
from tallystick.comparing.causes import cause_of_stored, cause_of_values, shorter
from tallystick.comparing.found import TRACES, Comparison, FirstApart
from tallystick.comparing.programs import ProgramLines, arguments_apart
from tallystick.comparing.steps import (
    CARRIED,
    INPUT,
    OPERATOR,
    ExecutedOperator,
    OperandRecord,
    StepApart,
    inputs_said,
)
from tallystick.comparing.tracefile import is_readable
from tallystick.comparing.values import elements_apart, kept_bits, units


def printed(found: Comparison, capsys: pytest.CaptureFixture[str]) -> list[str]:
    say_comparison(found)
    return capsys.readouterr().out.splitlines()


def of_values(ours: Any, theirs: Any, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines about the first element of two arrays that differ."""
    apart = elements_apart(np.asarray(ours), np.asarray(theirs))
    first = FirstApart(0, (None, None), (None, None), elements=apart)
    lines = printed(Comparison(TRACES, False, first=first), capsys)
    return [line for line in lines if line.startswith(("element", "A ", "B ", "distance"))]


# -- numbers and their nouns -----------------------------------------------------------------------
def test_one_unit_is_no_plural(capsys: pytest.CaptureFixture[str]) -> None:
    assert (units(0), units(1)) == ("0 units in the last place", "1 unit in the last place")
    assert units(4_503) == "4,503 units in the last place"
    ours = np.linspace(0.1, 0.9, 12, dtype=np.float32)
    theirs = np.where(np.arange(12) == 3, np.nextafter(ours, np.float32(2)), ours)
    assert of_values(ours, theirs, capsys)[-1] == "distance    1 unit in the last place"
    said = cause_of_values(ours, theirs, "x").sentence
    assert "1 of 12 elements of x differs, by at most 1 unit in the last place: " in said
    stored = cause_of_stored([("w", ours, np.nextafter(ours, np.float32(2)))], "it")
    assert stored is not None and stored.sentence.endswith("by at most 1 unit in the last place.")


def test_how_many_elements_differ(capsys: pytest.CaptureFixture[str]) -> None:
    zeros, ones = np.zeros(3, np.float32), np.ones(3, np.float32)
    some = np.array([0, 1, 1], np.float32)
    assert of_values(zeros[:1], ones[:1], capsys)[0] == "element     [0], the only element"
    one = of_values(zeros, np.array([0, 0, 1], np.float32), capsys)[0]
    assert one == "element     [2], the only one of 3 that differs"
    assert of_values(zeros, some, capsys)[0] == "element     [1], the first of 2 that differ, of 3"
    every = of_values(zeros, ones, capsys)
    assert every[0] == "element     [0], the first of 3, which all differ"
    assert every[-1].endswith("; the greatest of all is 1,065,353,216")


def test_zeros_of_two_signs(capsys: pytest.CaptureFixture[str]) -> None:
    ours, theirs = np.zeros(4, np.float32), np.array([0, -0.0, 0, 0], np.float32)
    assert of_values(ours, theirs, capsys)[-1] == (
        "distance    0 units in the last place: zeros differ in their signs"
    )
    assert "units" not in cause_of_values(ours, theirs, "x").sentence


def test_a_lower_precision_is_not_said_to_be_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    ours = np.linspace(0.1, 0.9, 12, dtype=np.float32)
    theirs = (ours.astype(np.float64) * (1 + 2.0**-11)).astype(np.float32)
    assert cause_of_values(ours, theirs, "x").sentence == (
        "In x the two differ by 0.0005 of the greatest value, about the size of TF32's rounding. "
        "The values do not show which of the two is less precise."
    )


# -- complex values --------------------------------------------------------------------------------
def test_complex_values_are_compared_by_their_parts(capsys: pytest.CaptureFixture[str]) -> None:
    ours = np.array([1 + 2j, 0.5 - 0.25j, 3], np.complex64)
    theirs = ours.copy()
    theirs[1] = 0.5 + 0.25j
    assert of_values(ours, theirs, capsys) == [
        "element     [1], the only one of 3 that differs",
        "A           0.5 - 0.25i (0x3f000000, 0xbe800000)",
        "B           0.5 + 0.25i (0x3f000000, 0x3e800000)",
        "distance    real part 0, imaginary part 2,097,152,000 units in the last place",
    ]
    found = elements_apart(ours, theirs)
    assert found is not None and found.facts == {
        "index": [1],
        "values": [[0.5, -0.25], [0.5, 0.25]],
        "bits": [["0x3f000000", "0xbe800000"], ["0x3f000000", "0x3e800000"]],
        "ulps": [0, 2 * 0x3E800000],
        "different_elements": 1,
        "elements": 3,
        "most_ulps": 2 * 0x3E800000,
        "flipped_bit": 31,
    }


@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_causes_of_complex_values(kind: Any) -> None:
    ours = (np.linspace(0.1, 0.9, 12) - 1j * np.linspace(2, 3, 12)).astype(kind)
    parts = np.float32 if kind is np.complex64 else np.float64

    def with_part(at: int, change: Callable[[Any], Any]) -> Any:
        made = ours.copy()
        flat = made.view(parts)
        flat[at] = change(flat[at])
        return made

    one = with_part(7, lambda x: np.nextafter(x, parts(9)))
    assert cause_of_values(ours, one, "x").sentence == (
        "From equal inputs 1 of 12 elements of x differs, by at most 1 unit in the last place: "
        "another library, or another order of sums."
    )
    doubled = cause_of_values(ours, with_part(7, lambda x: x * 4), "x")
    assert doubled.kind == "flipped bit" and "of its imaginary part alone" in doubled.sentence
    real = cause_of_values(ours, with_part(6, lambda x: x * 4), "x")
    assert real.kind == "flipped bit" and "of its real part alone" in real.sentence
    # A conjugate is no flipped bit.
    conjugate = cause_of_values(ours, with_part(7, lambda x: -x), "x")
    assert conjugate.kind == "result", conjugate
    assert cause_of_values(ours, ours.conj(), "x").kind == "result"
    nan = elements_apart(ours, with_part(7, lambda x: parts(np.nan)))
    assert nan is not None and nan.ulps == (0, None) and nan.most is None
    short = (ours.astype(np.complex64).view("<u4") & np.uint32(0xFFFF0000)).view("<c8")
    assert kept_bits(short) is not None and int(kept_bits(short) or 99) <= 7
    assert "of B fits in 8 significant bits" in str(shorter(ours, short.astype(kind)))


@pytest.mark.parametrize(
    ("form", "known"),
    [
        ("complex64[2]", True), ("complex128[2,3]", True), ("int16[2]", True), ("f32[]", True),
        ("float8_e4m3fn[2]", False), (f"f32[{'1,' * 40}1]", False), ("complex32[2]", False),
    ],
)  # fmt: skip
def test_which_types_have_values_to_show(form: str, known: bool) -> None:
    assert is_readable(form) is known


# -- where an input comes from ---------------------------------------------------------------------
def made(source: int, out: int = 0) -> OperandRecord:
    return OperandRecord("d", "f32[2]", OPERATOR, "", source, out)


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (made(4), made(4), "made by operator 4 of the step"),
        (made(4), made(12), "made by operator 4 in A and by operator 12 in B"),
        (made(4, 1), made(4, 1), "made by operator 4 of the step (output 1)"),
        (
            made(4),
            OperandRecord("d", "f32[2]", "data"),
            "made by operator 4 in A, data f32[2] in B",
        ),
        (made(4), None, "made by operator 4 in A"),
        (
            OperandRecord("d", "f32[2]", "parameter", "w"),
            OperandRecord("e", "f32[2]", "parameter", "w"),
            "parameter w",
        ),
        (
            OperandRecord("d", "f32[2]", "parameter", "parameter 1 of group 0"),
            OperandRecord("e", "f32[2]", "parameter", "parameter 1 of group 0"),
            "parameter 1 of group 0",
        ),
        (
            OperandRecord("d", "f32[2]", CARRIED),
            OperandRecord("e", "f32[2]", CARRIED),
            "f32[2] of an earlier step",
        ),
        (
            OperandRecord("d", "f32[2]", "batch", "batch.x"),
            OperandRecord("e", "f32[1]", "batch", "batch.x#0"),
            "batch.x in A, batch.x#0 in B",
        ),
    ],
)
def test_an_input_is_named_for_both(
    ours: OperandRecord, theirs: OperandRecord | None, words: str
) -> None:
    assert inputs_said(ours, theirs) == words


# -- the places where programs differ --------------------------------------------------------------
def operator(arguments: str = "") -> ExecutedOperator:
    return ExecutedOperator("x.y", arguments, (), (OperandRecord("d", "f32[2]"),))


def of_gaps(count: int) -> tuple[StepApart, list[ExecutedOperator], list[ExecutedOperator]]:
    gaps = tuple((n, None) for n in range(count))
    found = StepApart((0, None), INPUT, 0, (), gaps, gaps, ())
    return found, [operator()] * count, []


@pytest.mark.parametrize(("counts", "last"), [
    ((12,), "step 0: only A has operator 11, x.y"), ((13,), "and 1 more place"),
    ((5, 5, 5), "and 3 more places"), ((40, 2), "and 30 more places"),
])  # fmt: skip
def test_the_places_that_are_left_out_are_counted(counts: tuple[int, ...], last: str) -> None:
    lines = ProgramLines()
    assert not lines and lines.said() == ()
    for step, count in enumerate(counts):
        lines.add(step, *of_gaps(count))
    assert lines and lines.said()[-1] == last
    assert len(lines.said()) == 12 + (sum(counts) > 12)


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (
            "beta=0x1.ccccccccccccdp-1, decay=0x1.47ae147ae147bp-7",
            "beta=0x1.ccccccccccccdp-1, decay=0x1.999999999999ap-4",
            "decay is 0.01 in A and 0.1 in B",
        ),
        ("dims=[0,1], p=-0x1.0p-1", "dims=[1], p=true", "dims is [0,1] in A and [1] in B; p is "
         "-0.5 in A and true in B"),
        ("", "p=3", "p is absent in A and 3 in B"),
        ("_, 0.9", "_, 0.8", "the arguments are (_, 0.9) in A and (_, 0.8) in B"),
        ("_, value=1", "_, value=2", "the arguments are (_, value=1) in A and (_, value=2) in B"),
    ],
)  # fmt: skip
def test_only_arguments_that_differ_are_named(ours: str, theirs: str, words: str) -> None:
    assert arguments_apart(operator(ours), operator(theirs)) == words


# -- what was compared -----------------------------------------------------------------------------
def test_labels_and_values_stand_apart(capsys: pytest.CaptureFixture[str]) -> None:
    compared = {"equal steps": 20, "operators in them": 6726, "steps": [1200, 1300]}
    assert printed(Comparison(TRACES, True, compared=compared), capsys)[1:] == [
        "equal steps 20",
        "operators   6,726",
        "steps       1,200, 1,300",
    ]


def test_an_end_is_a_number_of_steps(capsys: pytest.CaptureFixture[str]) -> None:
    first = FirstApart(8, (None, None), (None, None), operand="end")
    assert printed(Comparison(TRACES, False, first=first), capsys)[-1] == (
        "differs     the number of steps"
    )
    record = Comparison(TRACES, False, first=replace(first, operand="record"))
    assert printed(record, capsys)[-1] == "differs     the record of this step"


# -- traces ----------------------------------------------------------------------------------------
def test_complex_values_of_two_traces(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import tallystick

    def run(name: str, value: complex, **asked: Any) -> Path:
        w = torch.tensor([1 + 2j, value])
        with tallystick.trace(tmp_path / name, **asked):
            (w * torch.ones(2)).conj().abs().sum()
        return tmp_path / name

    pair = run("a", 3 - 4j), run("b", 3 + 4j)
    found = tallystick.diff(*pair)
    assert found.first is not None and found.first.elements is not None, found.first
    assert (found.first.elements.first, found.first.elements.second) == (3 - 4j, 3 + 4j)
    # Without room for them there is an action that helps.
    bare = tallystick.diff(run("c", 3 - 4j, keep_bytes=0), run("d", 3 + 4j, keep_bytes=0))
    assert bare.first is not None and "step=0" in bare.first.unknown


def test_a_type_that_cannot_be_shown_is_said_to_be_one(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import tallystick

    def run(name: str, value: float) -> Path:
        made = torch.full((4,), value).to(torch.float8_e4m3fn)
        with tallystick.trace(tmp_path / name):
            made.view(2, 2)
        return tmp_path / name

    found = tallystick.diff(run("a", 1.0), run("b", 2.0))
    assert found.first is not None
    assert found.first.unknown == "a comparison shows no values of float8_e4m3fn[4]"


def test_what_follows_the_last_update_is_no_step(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import tallystick

    def run(name: str) -> Path:
        weight = torch.ones(3, requires_grad=True)
        rule = torch.optim.SGD([weight], 0.1)
        with tallystick.trace(tmp_path / name):
            for _ in range(4):
                weight.square().sum().backward()
                rule.step()
            weight.detach().norm()
        return tmp_path / name

    found = tallystick.diff(run("a"), run("b"))
    assert found.equal and found.compared["equal steps"] == 4


def test_one_record_of_a_data_set_and_of_a_batch(tmp_path: Path) -> None:
    """A step may read its records out of a whole data set: then their number is that of the set."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import tallystick

    def run(name: str, changed: tuple[int, ...], whole: bool) -> Path:
        torch.manual_seed(0)
        x = torch.randn(32, 3)
        for row in changed:
            x[row, 1] += 1
        net = torch.nn.Linear(3, 1)
        rule = torch.optim.SGD(net.parameters(), 0.1)
        parts = x.split(8)
        with tallystick.trace(tmp_path / name):
            for step in range(4):
                rule.zero_grad()
                net(x[8 * step : 8 * step + 8] if whole else parts[step]).square().sum().backward()
                rule.step()
        return tmp_path / name

    said = []
    for number, (changed, whole) in enumerate(
        [((21,), True), ((5, 21), True), ((21,), False), ((20, 21), False)]
    ):
        ours = run(f"a{number}", (), whole)
        found = tallystick.diff(ours, run(f"b{number}", changed, whole))
        assert found.cause is not None and found.cause.kind == "data", found.causes
        said.append(found.cause.sentence)
    assert said == [
        "1 of the 32 records differs (record 21).",
        "2 of the 32 records differ (the first is record 5).",
        "1 of the 8 records of the batch of step 2 differs (record 5).",
        "2 of the 8 records of the batch of step 2 differ (the first is record 4).",
    ]


def test_one_unit_in_an_input(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    import tallystick

    def run(name: str, by_hand: bool) -> Path:
        torch.manual_seed(0)
        x = torch.linspace(0.1, 0.9, 12)
        with tallystick.trace(tmp_path / name):
            made = x * 2 if by_hand else x + x
            if by_hand:
                made = made.clone()
                made[[3, 5]] = torch.nextafter(made[[3, 5]], torch.tensor(9.0))
            made.sin()
        return tmp_path / name

    found = tallystick.diff(run("a", False), run("b", True))
    assert found.cause is not None and "1 units" not in found.cause.sentence
    assert (
        "2 of 12 elements of an input of aten.sin.default differ by at most 1 unit in the last"
        in (found.cause.sentence)
    ), found.causes
