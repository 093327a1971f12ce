"""The table of operators as a file: not stale, and enough for an interpreter of another language.

Three ways compute each golden call: the text's reference (which made the vectors), the table's
interpreter in plain primitives, and the package's kernel with the referee's element.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kernel_format as fmt
import make_exact_vectors as exact_maker
import make_operator_table as maker
import make_rounded_vectors as rounded_maker
import numpy as np
import pytest
import table_reader as reader
from part_reader import Opened
from part_reader_sums import Exact, Rounded

from tallystick.kernels.elements import element_values
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.registry import all_ops, dot_operators, rounded_operators
from tallystick.numerics.values.graph import values_below
from tallystick.opening.real_pointwise import real_graph

KINDS = {name: {k: a.kind for k, a in spec.attrs.items()} for name, spec in all_ops().items()}
WITH_PARTS = sorted(name for name, spec in all_ops().items() if spec.parts)
WITH_FORMS = sorted(name for name, spec in all_ops().items() if spec.forms)


def cases(op: str) -> list[fmt.Case]:
    return [case for group in fmt.groups() for case in fmt.load(group, KINDS, op=op)]


def test_the_file_is_what_the_declarations_say() -> None:
    assert maker.PATH.read_text() == maker.text()


@pytest.mark.parametrize("op", WITH_FORMS)
def test_three_ways(op: str) -> None:
    entry, spec = reader.table()[op], all_ops()[op]
    found = cases(op)
    assert found
    for case in found:
        attrs = dict(case.attrs)
        by_table = reader.evaluated(entry, attrs, case.inputs)
        assert by_table is not None
        by_package = element_values(spec, attrs, case.inputs)
        for one, other, wanted in zip(by_table, by_package, case.outputs, strict=True):
            shape = wanted.shape
            assert fmt.same_bits(np.broadcast_to(one, shape).copy(), wanted), (op, attrs)
            assert fmt.same_bits(np.broadcast_to(other, shape).copy(), wanted), (op, attrs)


@pytest.mark.parametrize("op", WITH_PARTS)
def test_parts_give_the_golden_elements(op: str) -> None:
    entry, looked = reader.table()[op], 0
    for case in cases(op):
        opened = Opened(entry, case.attrs, case.inputs, case.outputs)
        for out, element, found, wanted in golden_elements(case, opened, 8):
            assert found.tobytes() == wanted, (op, dict(case.attrs), out, element, found)
            looked += 1
    assert looked


def golden_elements(
    of: fmt.Case, opened: Opened, element_every: int = 6
) -> Iterator[tuple[int, int, np.ndarray, bytes]]:
    """What a reader computes of some elements of each output, and the golden bits."""
    for out, wanted in enumerate(of.outputs):
        for element in range(0, wanted.size, max(1, wanted.size // element_every)):
            found = np.asarray(opened.value(out, element), wanted.dtype)
            yield out, element, found, wanted.reshape(-1)[element].tobytes()


@pytest.mark.parametrize("group", sorted(rounded_maker.CONTRACTS))
def test_sums_give_the_golden_elements_of_rounded(group: str) -> None:
    contract = rounded_maker.CONTRACTS[group]
    seen = set()
    for case in fmt.load(group, KINDS, rounded_maker.ROOT, contract):
        bits, entry = find_contract(contract).bits, reader.table()[case.op]
        opened = Rounded(bits, entry, case.attrs, case.inputs, case.outputs)
        for out, element, found, wanted in golden_elements(case, opened):
            assert found.tobytes() == wanted, (case.op, dict(case.attrs), out, element, found)
        seen.add(case.op)
    assert seen == rounded_operators()


@pytest.mark.parametrize("group", sorted(exact_maker.CONTRACTS))
def test_dots_give_the_golden_elements_of_exact(group: str) -> None:
    contract = exact_maker.CONTRACTS[group]
    seen = set()
    for case in fmt.load(group, KINDS, exact_maker.ROOT, contract):
        width, entry = find_contract(contract).width, reader.table()[case.op]
        opened = Exact(width, entry, case.attrs, case.inputs, case.outputs)
        for out, element, found, wanted in golden_elements(case, opened):
            assert found.tobytes() == wanted, (case.op, dict(case.attrs), out, element, found)
        seen.add(case.op)
    assert seen == dot_operators()


def test_what_moves_keeps_the_bits_of_a_nan() -> None:
    x = np.array([0x7F800001, 0xFFC12345], np.uint32).view(np.float32)
    opened = Opened(reader.table()["aten.view"], {"size": (1, 2)}, [x], [x.reshape(1, 2)])
    assert [opened.value(0, k).tobytes() for k in range(2)] == [x[:1].tobytes(), x[1:].tobytes()]


@pytest.mark.parametrize(
    ("op", "attrs", "inputs", "out"),
    [
        ("aten.gather", {"dim": 0}, [np.zeros(3), np.array([3])], np.zeros(1)),
        ("aten.index_select", {"dim": 0}, [np.zeros(3), np.array([-1])], np.zeros(1)),
        ("aten.embedding", {}, [np.zeros((3, 2), np.float32), np.array([3])], np.zeros((1, 2))),
        ("aten.scatter.src", {"dim": 0}, [np.zeros(3), np.array([3]), np.ones(1)], np.zeros(3)),
        ("tallystick.dropout_mask", {"draw": 0, "p": 0.5}, [np.array([-1, 0])], np.zeros(1, bool)),
        ("tallystick.uniform", {"draw": 0}, [np.array([0, 1 << 32])], np.zeros(1, np.float32)),
    ],
)
def test_what_a_part_refuses(
    op: str, attrs: dict[str, object], inputs: list[np.ndarray], out: np.ndarray
) -> None:
    with pytest.raises(reader.RefusedError):
        Opened(reader.table()[op], attrs, inputs, [out]).value(0, 0)


def test_an_interpreter_needs_no_name_of_an_operator() -> None:
    """What decides a call is in its entry: no name stands in the reader's text."""
    text = Path(reader.__file__).read_text()
    assert "aten." not in text and "tallystick." not in text.split('"""')[2]


def test_what_has_a_real_form_of_its_own() -> None:
    """OPENING 10.9 is the form's lifting, but for these operators, and for these constants."""
    specs = all_ops()
    named = {name for name, entry in reader.table().items() if "real_clause" in entry}
    assert {op for op in real_graph if specs[op].forms} == named
    assert named == {
        "aten.pow.Tensor_Scalar",
        "tallystick.adam_step",
        "tallystick.adamw_step",
        "tallystick.sgd_step",
    }
    standing = {
        op
        for op in WITH_FORMS
        for form in specs[op].forms
        if any(value.real is not None for value in values_below(form.outputs))
    }
    assert standing == {"aten.gelu", "aten.gelu_backward"}


@pytest.mark.parametrize("op", ["aten.floor_divide", "aten._to_copy"])
def test_what_a_form_refuses(op: str) -> None:
    entry = reader.table()[op]
    bad = {
        "aten.floor_divide": ({}, [np.array([7], np.int64), np.array([0], np.int64)]),
        "aten._to_copy": ({"dtype": "i64"}, [np.array([np.nan], np.float32)]),
    }[op]
    with pytest.raises(reader.RefusedError):
        reader.evaluated(entry, *bad)


LOSS = {"ignore_index": -100, "reduction": "sum"}
INDEX = np.array([0, 2], np.int64)


@pytest.mark.parametrize(
    ("op", "attrs", "operands"),
    [
        ("aten.index_add", {"dim": 0}, [np.ones(2, np.float32), INDEX, np.ones(2, np.float32)]),
        ("aten.nll_loss_forward", LOSS, [np.ones((2, 2), np.float32), INDEX]),
        ("tallystick.cross_entropy", LOSS, [np.ones((2, 2), np.float32), INDEX]),
    ],
)
def test_what_a_chain_or_a_class_refuses(
    op: str, attrs: dict[str, object], operands: list[np.ndarray]
) -> None:
    opened = Opened(reader.table()[op], attrs, operands, [np.zeros(2, np.float32)])
    with pytest.raises(reader.RefusedError):
        opened.value(0, 0)
