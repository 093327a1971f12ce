"""Program texts with micro-batches: canonical form, refusals, expansion (PROGRAM 6)."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from micro_samples import MICRO_TEXT, ROWS, micro_inputs, micro_step
from program_samples import LINEAR_TEXT, f32, interpret, linear_step

from tallystick.delegation.rules import node_terms, step_terms
from tallystick.errors import CorruptFileError, UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.operators.reduction import FOLD
from tallystick.program.canonical import canonicalize
from tallystick.program.check import check_program
from tallystick.program.executor import Executor
from tallystick.program.expand import (
    Expanded,
    expand,
    extremes,
    is_forward,
    kinds,
    micro_batch_of,
    numbering,
    part_of_name,
    split_batch,
    step_batch_types,
    times,
)
from tallystick.program.ir import Node, Program, Value
from tallystick.program.text import attribute_text, parse_text, text_digest

STEP = micro_step()
LR, KEY = {"lr": 0.25}, np.array([5, 9], np.int64)


def test_the_text_round_trips_and_names_the_program() -> None:
    for text in (MICRO_TEXT, STEP.text()):
        program = parse_text(text.encode())
        assert program.text() == text
        digest = hashlib.sha256(b"tallystick/program/2\0" + text.encode()).digest()
        assert program.digest() == text_digest(text.encode()) == digest
    assert parse_text(STEP.text().encode()) == STEP
    tag_1 = hashlib.sha256(b"tallystick/program/1\0" + LINEAR_TEXT.encode()).digest()
    assert text_digest(LINEAR_TEXT.encode()) == tag_1 == linear_step().digest()


def changed(*pairs: tuple[str, str]) -> bytes:
    text = MICRO_TEXT
    for old, new in pairs:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text.encode()


ADD = "%0 = aten.add.Tensor(@buffer.n, @batch.x){alpha=0x1.0000000000000p+0} : f32[2]\n"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (changed(("program 2", "program 1")), "stands once in a program 2"),
        (changed(("micro 2\ncarry buffer.n %0\n", "")), "has a line `micro N`"),
        (changed(("micro 2\n", "micro 2\nmicro 2\n")), "stands once"),
        (changed(("micro 2", "micro 0")), "at least one node"),
        (changed(("micro 2", "micro -1")), "at least one node"),
        (changed(("micro 2", "micro 02")), "canonical form"),
        (changed(("micro 2", "micro 5")), "more nodes than the program"),
        (changed(("micro 2", "micro 3")), r"Node 2: tallystick.fold stands in the tail"),
        (changed(("micro 2", "micro 1")), "folds one value of the section"),
        (changed(("carry buffer.n %0", "carry buffer.n %2")), "not the section's"),
        (changed(("carry buffer.n %0", "carry buffer.n %9")), "not an earlier value"),
        (changed(("carry buffer.n %0", "carry buffer.n @param.w")), "output of a node"),
        (changed(("carry buffer.n %0", "carry buffer.n none")), "output of a node"),
        (changed(("carry buffer.n %0", "carry buffer.x %0")), "not a state slot"),
        (changed(("carry buffer.n %0", "carry batch.x %0")), "not a state slot"),
        (changed(("carry buffer.n %0", "carry buffer.n  %0")), "carry NAME VALUE"),
        (changed(("carry buffer.n %0\n", "carry buffer.n %0\ncarry buffer.n %0\n")), "each once"),
        (changed(("carry buffer.n %0\n", "carry param.w %0\ncarry buffer.n %0\n")), "name order"),
        (changed(("carry buffer.n %0\n", "")), "neither folded nor carried"),
        (changed(("carry buffer.n %0\n", ""), ("micro 2\n", "carry buffer.n %0\nmicro 2\n")),
         "node line"),
        (changed(("fold(%1){mean", "fold(%1, %1){mean")), "folds one value of the section"),
        (changed(("fold(%1)", "fold(@param.w)")), "folds one value of the section"),
        (changed(("fold(%1){mean", "fold(%1){count=1, mean")), "no count"),
        (changed(("output param.w %2", "output metric.a %1\noutput param.w %2")), "not carried"),
        (changed(("output param.w %2", "output param.w %1"), ("(%0, %2) :", "(%0, %1) :")),
         "neither folded nor carried"),
        (changed(("fold(%1){mean=true}", "neg(@batch.x)"), ), "tallystick.neg"),
        (changed(("tallystick.fold(%1){mean=true}", "aten.neg(@batch.x)")), "reads input batch.x"),
    ],
)  # fmt: skip
def test_a_text_that_breaks_a_rule_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CorruptFileError, match=reason):
        parse_text(data)


def test_the_tail_draws_nothing() -> None:
    drawn = "%2 = tallystick.uniform(@rng){draw=0, high=0x1.0000000000000p+0, " \
            "low=0x0.0p+0, shape=[2]} : f32[2]\n"  # fmt: skip
    data = changed(
        ("input state param.w f32[2]\n", "input state param.w f32[2]\ninput rng rng i64[2]\n"),
        ("%2 = tallystick.fold(%1){mean=true} : f32[2]\n", drawn),
    )
    with pytest.raises(CorruptFileError, match="draws random values in the tail"):
        parse_text(data)


def test_the_tail_is_not_merged_with_the_section() -> None:
    """PROGRAM 3.5 with 6.3: equal nodes on both sides of the border are two."""
    full = Node("aten.full", (), {"size": (2,), "value": 1.0, "dtype": "f32"}, (f32(2),))
    fold = Node(FOLD, (Value(0, 0),), {"mean": True}, (f32(2),))
    both = (
        Value(2, 0),
        Value(3, 0),
    )
    add = Node("aten.add.Tensor", both, {"alpha": 1.0}, (f32(2),))
    again = replace(full)
    program = Program(
        "ordered/1-draft.1", (), (full, again, fold, full, add), (("loss", Value(4, 0)),), 2
    )
    made = canonicalize(program)
    check_program(made)
    assert made.section == 1 and [n.op for n in made.nodes] == [
        "aten.full", FOLD, "aten.full", "aten.add.Tensor",
    ]  # fmt: skip
    assert canonicalize(made) == made


# -- expansion (6.7) -------------------------------------------------------------------------------
def test_a_text_1_is_its_own_expansion() -> None:
    program = linear_step()
    assert expand(program, 1) is program
    with pytest.raises(UsageError, match="no section"):
        expand(program, 2)


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_numbers_draws_names_and_carried_slots(parts: int) -> None:
    flat = expand(STEP, parts)
    n = STEP.section
    assert isinstance(flat, Expanded) and len(flat.nodes) == parts * n + len(STEP.nodes) - n
    assert flat.text() == STEP.text() and flat.digest() == STEP.digest()
    assert [s.name for s in flat.inputs] == sorted(s.name for s in flat.inputs)
    draws = [node.attrs["draw"] for node in flat.nodes if "draw" in node.attrs]
    assert draws == list(range(2 * parts))
    carried = dict(STEP.carried)
    for index, node in enumerate(flat.nodes):
        at, part = flat.expanded.original(index)
        assert node == flat.nodes[index] == flat.nodes[index - len(flat.nodes)]
        old = STEP.nodes[at]
        assert (node.op, node.out_types) == (old.op, old.out_types)
        if part is None:
            continue
        assert index == part * n + at
        for new, text in zip(node.inputs, old.inputs, strict=True):
            if text is None or new is None:
                assert text is new
            elif not text.is_input:
                assert new == Value(part * n + text.node, text.out)
            else:
                name = STEP.inputs[text.out].name
                if name in carried and part:
                    assert new == Value((part - 1) * n + carried[name].node, carried[name].out)
                else:
                    shown = f"{name}#{part}" if name.startswith("batch.") else name
                    assert flat.inputs[new.out].name == shown and new.is_input
            if new is not None:
                assert flat.type_of(new) == STEP.type_of(text)  # type: ignore[arg-type]
    folds = [node for node in flat.nodes if node.op == FOLD]
    assert len(folds) == 4 and all(len(node.inputs) == parts for node in folds)
    for name, value in flat.outputs:
        assert flat.type_of(value) == STEP.type_of(STEP.output_values[name])
    assert flat.nodes[3:5] == (flat.nodes[3], flat.nodes[4])
    with pytest.raises(IndexError):
        flat.nodes[len(flat.nodes)]
    assert flat == expand(STEP, parts) and hash(flat.nodes) == hash(expand(STEP, parts).nodes)
    assert flat != expand(STEP, parts + 1)


@pytest.mark.parametrize(("parts", "lower"), [(256, 0), (257, 2), (512, 2), (513, 3), (1000, 4)])
def test_a_wide_fold_has_levels(parts: int, lower: int) -> None:
    program = parse_text(MICRO_TEXT.encode())
    flat = expand(program, parts)
    assert len(flat.nodes) == 2 * parts + lower + 2
    for k in range(lower):
        node = flat.nodes[2 * parts + k]
        assert node.op == FOLD and node.attrs == {"mean": False}
        of = range(256 * k, min(256 * (k + 1), parts))
        assert node.inputs == tuple(Value(2 * v + 1, 0) for v in of)
    top = flat.nodes[2 * parts + lower]
    if lower:
        assert top.inputs == tuple(Value(2 * parts + k, 0) for k in range(lower))
        assert top.attrs == {"count": parts, "mean": True}
    else:
        assert len(top.inputs) == parts and top.attrs == {"mean": True}
    assert flat.nodes[-1].inputs == (Value(2 * (parts - 1), 0), Value(2 * parts + lower, 0))


def test_nodes_share_what_micro_batches_have_in_common() -> None:
    flat = expand(STEP, 4)
    n = STEP.section
    for at, node in enumerate(STEP.nodes[:n]):
        for part in range(4):
            made = flat.nodes[part * n + at]
            assert made.out_types is node.out_types
            assert made.attrs is node.attrs or "draw" in node.attrs


def test_limits_are_named() -> None:
    program = parse_text(MICRO_TEXT.encode())
    for parts in (0, -1, 65537):
        with pytest.raises(UsageError, match="not between 1 and 65536"):
            expand(program, parts)
    assert numbering(program, 65536).total == 2 * 65536 + 256 + 2
    many = replace(STEP, nodes=(*STEP.nodes[:1] * 100, *STEP.nodes), section=100)
    assert numbering(many, 9000).total <= LIMITS.nodes
    with pytest.raises(UsageError, match=rf"nodes, more than {LIMITS.nodes}"):
        expand(many, 10000)
    wide = replace(program, inputs=program.inputs[:1] * 20)
    with pytest.raises(UsageError, match=rf"inputs, more than {LIMITS.slots}"):
        expand(wide, 65536)
    # Draw ids are below 2^32, whatever a text's largest one is.
    far = parse_text(STEP.text().replace("{draw=1,", "{draw=4294967295,").encode())
    assert numbering(far, 1).draws == 2**32
    with pytest.raises(UsageError, match="random draws"):
        expand(far, 2)


def test_the_batch_is_cut_into_consecutive_places() -> None:
    _, batch = micro_inputs(4)
    cut = split_batch(batch, 4)
    assert set(cut) == {f"x#{v}" for v in range(4)}
    for name, array in cut.items():
        field, part = part_of_name(name)
        assert part is not None and field == "x" and array.base is batch["x"]
        assert (array == batch["x"][ROWS * part : ROWS * (part + 1)]).all()
    assert part_of_name("batch.x") == ("batch.x", None)
    assert step_batch_types(STEP, 4) == {"x": f32(4 * ROWS, 4)}
    with pytest.raises(UsageError, match="into 5 micro-batches"):
        split_batch(batch, 5)


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 8])
def test_the_expansion_is_executed_as_it_reads(parts: int) -> None:
    """The executor against the plain interpreter; and a step of one micro-batch by hand."""
    flat = expand(STEP, parts)
    state, batch = micro_inputs(parts)
    cut = split_batch(batch, parts)
    inputs = {**state, **{f"batch.{k}": v for k, v in cut.items()},
              "scalar.lr": np.float64(LR["lr"]), "rng": KEY}  # fmt: skip
    expected = interpret(flat, inputs)
    result = Executor(flat).run_step(state, cut, LR, KEY)
    for name, value in expected.items():
        found = result.outputs.get(name, state.get(name))
        assert found is not None and found.tobytes() == value.tobytes(), name
    assert int(expected["metric.count"]) == 7 + parts


# -- who reads nodes by number ---------------------------------------------------------------------
def test_kinds_and_extremes_stand_for_all_nodes() -> None:
    flat = expand(STEP, 5)
    chosen = kinds(flat)
    assert sum(times(flat, n) for n in chosen) == len(flat.nodes)
    assert {(flat.nodes[n].op, flat.nodes[n].out_types) for n in chosen} == {
        (node.op, node.out_types) for node in flat.nodes
    }
    lengths = [len(attribute_text(node.attrs)) for node in expand(STEP, 500).nodes]
    some = expand(STEP, 500)
    assert max(len(attribute_text(some.nodes[n].attrs)) for n in extremes(some)) == max(lengths)
    plain = linear_step()
    assert kinds(plain) == extremes(plain) == list(range(len(plain.nodes)))
    assert {times(plain, n) for n in kinds(plain)} == {1}
    # An estimate that looks at each node gives the same.
    assert step_terms(flat) == sum(node_terms(flat, node) for node in flat.nodes)
    assert step_terms(expand(STEP, 1)) < step_terms(flat) < 5 * step_terms(expand(STEP, 1))


def test_a_node_up_to_the_loss_of_its_micro_batch_is_forward() -> None:
    flat, n = expand(STEP, 3), STEP.section
    (loss,) = (i for i, node in enumerate(STEP.nodes[:n]) if node.op == "aten.mean")
    forward = is_forward(flat)
    assert [forward(i) for i in range(3 * n)] == [i % n <= loss for i in range(3 * n)]
    assert not any(forward(i) for i in range(3 * n, len(flat.nodes)))
    plain = linear_step()
    end = plain.output_values["loss"].node
    assert [is_forward(plain)(i) for i in range(9)] == [i <= end for i in range(9)]
    without = replace(plain, outputs=tuple(o for o in plain.outputs if o[0] != "loss"))
    assert all(is_forward(without)(i) for i in range(9))
    assert micro_batch_of(flat, n + 2) == (1, 2)
    assert micro_batch_of(flat, 3 * n) is None and micro_batch_of(plain, 0) is None
