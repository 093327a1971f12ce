"""PROGRAM 3.5: the canonical form."""

from __future__ import annotations

from program_samples import f32, linear_step

from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.ir import Program


def _draws(program: Program) -> list[object]:
    return [n.attrs["draw"] for n in program.nodes if n.op == "tallystick.dropout_mask"]


def test_equal_nodes_become_one_and_dead_ones_go() -> None:
    b = Builder()
    x = b.batch("x", f32(3))
    first, second = b.one("aten.exp", [x]), b.one("aten.exp", [x])
    b.one("aten.log", [x])
    program = canonicalize(b.finish({"y": b.one("aten.add.Tensor", [first, second], alpha=1.0)}))
    assert [node.op for node in program.nodes] == ["aten.exp", "aten.add.Tensor"]
    assert program.nodes[1].inputs[0] == program.nodes[1].inputs[1]


def test_attributes_that_python_finds_equal_stay_apart() -> None:
    """0.0 and -0.0 are different constants."""
    b = Builder()
    x = b.batch("x", f32(3))
    outputs = {
        name: b.one("aten.add.Scalar", [x], other=value, alpha=1.0)
        for name, value in (("p", 0.0), ("m", -0.0), ("q", 0.0))
    }
    program = canonicalize(b.finish(outputs))
    assert len(program.nodes) == 2


def test_random_nodes_are_never_merged_and_keep_their_draw_ids() -> None:
    """NUMERICS 8.2: even two nodes with one draw id (a forged program) stay two."""
    b = Builder()
    rng = b.rng()
    masks = [
        b.one("tallystick.dropout_mask", [rng], draw=draw, p=0.5, shape=(3,)) for draw in (4, 4, 7)
    ]
    dead = b.one("tallystick.dropout_mask", [rng], draw=5, p=0.5, shape=(3,))
    program = canonicalize(b.finish({f"y{i}": m for i, m in enumerate(masks)}))
    assert dead is not None
    assert _draws(program) == [4, 4, 7]


def test_unused_key_is_no_input_but_the_interface_stays() -> None:
    b = Builder()
    x = b.batch("x", f32(3))
    b.batch("unused", f32(2))
    b.scalar("lr")
    b.one("tallystick.dropout_mask", [b.rng()], draw=0, p=0.5, shape=(3,))
    program = canonicalize(b.finish({"y": b.one("aten.neg", [x])}))
    assert [spec.name for spec in program.inputs] == ["batch.unused", "batch.x", "scalar.lr"]


def test_canonical_form_is_a_fixed_point() -> None:
    program = canonicalize(linear_step())
    assert canonicalize(program) == program
    assert canonicalize(program).digest() == program.digest()
