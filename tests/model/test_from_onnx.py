# ruff: noqa: E402
"""A trainable module from an ONNX file (docs/adr/0011-onnx.md; docs/INTERFACE.md, "ONNX files")."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnx", reason="the package onnx is not installed (extra `onnx`)")

from onnx import TensorProto, helper, save_model
from onnx_models import CASES, Images, images, loss, model, node, written
from torch import nn

import tallystick
from tallystick.errors import UnsupportedOperatorError, UsageError
from tallystick.program.capture import capture, capture_forward
from tallystick.program.capture.onnx import module
from tallystick.program.capture.onnx.call import rules
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD

X = ["x f 2,3"]
Y = ["y f"]


def pair(name: str, tmp_path: Path) -> tuple[nn.Module, Any]:
    """A torch module, and the module of its file."""
    torch.manual_seed(0)
    theirs = CASES[name].build()
    save_model(CASES[name].onnx(theirs), str(tmp_path / "model.onnx"))
    return theirs, tallystick.from_onnx(tmp_path / "model.onnx")


@pytest.mark.parametrize("name", CASES)
def test_the_modules_output_is_torchs(name: str, tmp_path: Path) -> None:
    """Also at sizes that the file leaves open: shapes are computed once for each form."""
    theirs, ours = pair(name, tmp_path)
    batch = CASES[name].batch()
    for x in (batch["x"], batch["x"][:2]):
        np.testing.assert_allclose(ours(x).detach(), theirs(x).detach(), rtol=2e-6, atol=2e-6)
    assert torch.equal(ours(x=batch["x"]), ours(batch["x"]))


@pytest.mark.parametrize("name", CASES)
def test_it_trains_as_torch_does(name: str, tmp_path: Path) -> None:
    """Three captured steps against three of torch in float64."""
    theirs, ours = pair(name, tmp_path)
    batch = CASES[name].batch()
    step = capture(ours, loss, batch, SGD(lr=0.5))
    state, executor = step.initial_state, Executor(step.program)
    assert state is not None
    theirs = theirs.double()
    exact = {k: v.double() if v.is_floating_point() else v for k, v in batch.items()}
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.5)
    for _ in range(3):
        arrays = {k: v.numpy() for k, v in batch.items()}
        got = executor.run_step(state, arrays, {"lr": 0.5}).loss
        optimizer.zero_grad()
        expected = loss(theirs, exact)
        expected.backward()
        optimizer.step()
        assert got is not None
        np.testing.assert_allclose(float(got), expected.item(), rtol=1e-5)
    for file_name, tensor in theirs.state_dict().items():
        if file_name in getattr(ours, "parameter_names", {}):
            slot = state.get(f"param.{file_name}", state.get(f"buffer.{file_name}"))
            np.testing.assert_allclose(slot, tensor, rtol=1e-4, atol=1e-6)


def test_a_job_is_compared_with_the_module_and_eager_has_its_bits(tmp_path: Path) -> None:
    """PROGRAM 5.9 holds for a file's module too; captured == reproducible()."""
    _, ours = pair("text", tmp_path)
    batch = CASES["text"].batch()
    job = tallystick.capture(ours, loss, batch, tallystick.SGD(lr=0.1)).save_job(
        tmp_path / "job", {k: v.numpy() for k, v in batch.items()}, steps=2
    )
    assert "not compared" not in str(job.about)
    forward = capture_forward(ours, {"x": batch["x"]}, lambda m, b: m(b["x"]))
    slots = {f"param.{k}": v for k, v in ours.named_parameters()}
    slots |= {f"buffer.{k}": v for k, v in ours.named_buffers()}
    state = {k: slots[k].detach().numpy() for k in forward.state_types}
    captured = Executor(forward).run_step(state, {"x": batch["x"].numpy()}).outputs["logits"]
    with tallystick.reproducible(), torch.no_grad():
        eager = ours(batch["x"])
    assert captured.tobytes() == eager.numpy().tobytes()


# -- roles and names -------------------------------------------------------------------------------
def test_initializers_become_parameters_or_buffers(tmp_path: Path) -> None:
    theirs, ours = pair("images", tmp_path)
    buffers = {name for name, _ in ours.named_buffers()}
    assert buffers == {"norm.running_mean", "norm.running_var"}
    trained = {name for name, _ in ours.named_parameters()}
    assert trained == {name for name, _ in theirs.named_parameters()}
    frozen = tallystick.from_onnx(tmp_path / "model.onnx", frozen=["conv.*"])
    buffers |= {"conv.weight", "conv.bias"}
    assert {name for name, _ in frozen.named_buffers()} == buffers
    with pytest.raises(UsageError, match=r"'nothing'"):
        tallystick.from_onnx(tmp_path / "model.onnx", frozen=["nothing"])


def test_integers_that_are_data_become_buffers(tmp_path: Path) -> None:
    table = {"w": np.ones((4, 3), np.float32), "rows": np.array([3, 0, 0])}
    nodes = [node("Gather", "w rows", "g"), node("MatMul", "g x", "y")]
    ours = tallystick.from_onnx(written(tmp_path / "m.onnx", nodes, ["x f 3,2"], Y, table))
    assert [name for name, _ in ours.named_buffers()] == ["rows"]
    assert ours(torch.ones(3, 2)).tolist() == [[3.0, 3.0]] * 3


ODD = ["plan", "parameter_names", "a", "a.b", "a.b.c", "a.", ".a", "a..b", "", "_x2e_",
       "a_x_b", "type", "forward.x", "é",
       "onnx::MatMul_1", "/layer/Constant_output_0", "onnx_nodes", "onnx_x3a__x3a_MatMul_1", "_",
       "a/b", "a_x2f_b", "x", "_x", "-x2f_", "training", "_parameters.w", "0.weight"]  # fmt: skip


def test_names_are_valid_and_never_collide() -> None:
    """The stated rule: every name is found again from its attribute, so no two become one."""
    made = module.attribute_names(ODD)
    assert [module.original(made[name]) for name in ODD] == ODD
    assert made["0.weight"] == "0.weight"
    assert made["onnx::MatMul_1"] == "onnx_x3a__x3a_MatMul_1"
    root = nn.Module()
    for path in made.values():
        owner, parts = root, path.split(".")
        for part in parts[:-1]:
            if part not in owner._modules:
                owner.add_module(part, nn.Module())
            owner = getattr(owner, part)
        owner.register_parameter(parts[-1], nn.Parameter(torch.ones(1)))
    assert len(list(root.parameters())) == len(ODD)
    flat = [module.flat_name(name) for name in ODD]
    assert [module.original(name) for name in flat] == ODD
    assert all("." not in name for name in flat)


def test_odd_names_survive_capture(tmp_path: Path) -> None:
    weights = {name: np.ones(3, np.float32) for name in ("a/ü", "w", "w.type", "plan")}
    nodes = [node("Mul", "self a/ü", "t", name="a node")]
    nodes += [node("Add", "t w", "u"), node("Add", "u w.type", "v"), node("Add", "v plan", "y")]
    path = written(tmp_path / "m.onnx", nodes, ["self f 2,3"], Y, weights)
    ours = tallystick.from_onnx(path)
    step = capture(ours, lambda m, b: m(b["x"]).sum(), {"x": torch.ones(2, 3)}, SGD(lr=0.1))
    assert [n for n in step.program.state_types if n.startswith("param.")] == [
        "param._x70_lan",
        "param.a_x2f__xfc_",
        "param.w._x74_ype",
        "param.w_x_",
    ]  # fmt: skip


# -- what the file says, and what the caller says -------------------------------------------------
def test_modes_are_the_files_unless_asked_for(tmp_path: Path) -> None:
    """Dropout and batch normalisation of an inference file train only with training=True."""
    torch.manual_seed(0)
    proto = images(Images())
    drop = node("Dropout", "c -", "dropped")
    proto.graph.node.insert(3, drop)
    proto.opset_import[0].version = 11
    proto.graph.node[3].input[:] = ["c"]
    proto.graph.node[4].input[0] = "dropped"
    save_model(proto, str(tmp_path / "m.onnx"))
    batch = CASES["images"].batch()
    for training in (False, True):
        ours = tallystick.from_onnx(tmp_path / "m.onnx", training=training)
        step = capture(ours, loss, batch, SGD(lr=0.1))
        used = {n.op for n in step.program.nodes}
        assert ("tallystick.dropout_mask" in used) == training
        before = {k: v.copy() for k, v in (step.initial_state or {}).items()}
        assert step.initial_state is not None
        arrays = {k: v.numpy() for k, v in batch.items()}
        Executor(step.program).run_step(step.initial_state, arrays, {"lr": 0.1}, (1, 0))
        slot = "buffer.norm.running_mean"
        moved = not np.array_equal(step.initial_state[slot], before[slot])
        assert moved == training


def test_an_input_that_fixes_a_shape_must_be_given(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", [node("Reshape", "x shape", "y")], ["x f", "shape i"], Y)
    with pytest.raises(UsageError, match=r"'shape' fixes a shape.*'Reshape_y'"):
        tallystick.from_onnx(path)
    ours = tallystick.from_onnx(path, fixed={"shape": [3, 2]})
    assert ours(torch.ones(2, 3)).shape == (3, 2)
    with pytest.raises(UsageError, match=r"no input 'other'"):
        tallystick.from_onnx(path, fixed={"other": 1})
    nodes = [node("ArgMax", "x", "k"), node("Reshape", "x k", "y")]
    with pytest.raises(UsageError, match=r"Reshape_y.*takes 'k'.*from data"):
        tallystick.from_onnx(written(tmp_path / "d.onnx", nodes, X, Y))


def test_inputs_are_checked(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", [node("Relu", "x", "y")], X, Y)
    ours = tallystick.from_onnx(path)
    for wrong, text in (
        (torch.ones(3, 3), "shape"),
        (torch.ones(3), "shape"),
        (torch.ones(2, 3, dtype=torch.int64), "int64"),
        (np.ones((2, 3), np.float32), "ndarray"),
    ):
        with pytest.raises(UsageError, match=text):
            ours(wrong)
    with pytest.raises(UsageError, match=r"missing"):
        ours()
    with pytest.raises(UsageError, match=r"no input 'z'"):
        ours(torch.ones(2, 3), z=1)
    loose = tallystick.from_onnx(path, check_sizes=False)
    assert loose(torch.ones(5, 3)).shape == (5, 3)
    with pytest.raises(UsageError, match=r"shape"):
        loose(torch.ones(5))


def test_several_outputs_are_named(tmp_path: Path) -> None:
    nodes = [node("Split", "x", "a/0 b", axis=1, num_outputs=2)]
    ours = tallystick.from_onnx(written(tmp_path / "m.onnx", nodes, ["x f 2,4"], ["a/0 f", "b f"]))
    assert list(ours(torch.ones(2, 4))) == ["a_x2f_0", "b"]


def test_functions_stand_in_the_place_of_their_calls(tmp_path: Path) -> None:
    """A function of the file with an attribute; and the standard's own body of an operator."""
    twice = helper.make_function(
        "mine", "Scaled", ["a"], ["b"],
        [helper.make_node("Constant", [], ["c"]), helper.make_node("Mul", ["a", "c"], ["b"])],
        [helper.make_opsetid("", 18)], ["factor"],
    )  # fmt: skip
    attribute = twice.node[0].attribute.add()
    attribute.name, attribute.ref_attr_name, attribute.type = "value_float", "factor", 1
    calls = [helper.make_node("Scaled", [a], [b], domain="mine", factor=f, name="s")
             for a, b, f in (("x", "t", 2.0), ("t", "u", 3.0))]  # fmt: skip
    window = [node("Constant", "", "size", value_int=3), node("HannWindow", "size", "w"),
              node("Mul", "u w", "y")]  # fmt: skip
    proto = model([*calls, *window], X, Y, functions=[twice])
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    save_model(proto, str(tmp_path / "m.onnx"))
    found = tallystick.from_onnx(tmp_path / "m.onnx")(torch.ones(2, 3))
    np.testing.assert_allclose(found[0], 6 * torch.hann_window(3), atol=1e-6)


# -- refusals --------------------------------------------------------------------------------------
def test_every_node_that_is_not_covered_is_named(tmp_path: Path) -> None:
    nodes = [
        node("NonMaxSuppression", "x x", "a", name="boxes"),
        node("Relu", "x", "b"),
        node("Add", "x b", "y", name="old add", broadcast=1),
    ]
    with pytest.raises(UnsupportedOperatorError) as caught:
        tallystick.from_onnx(written(tmp_path / "m.onnx", nodes, X, Y))
    for text in ("'boxes' (NonMaxSuppression", "'old add' (Add of version 14) has 'broadcast'"):
        assert text in caught.value.message
    old = written(tmp_path / "o.onnx", [node("Add", "x x", "y")], X, Y, opset=6)
    with pytest.raises(UnsupportedOperatorError, match=r"versions 7 to 14 are covered"):
        tallystick.from_onnx(old)


def test_an_attribute_that_no_rule_reads_is_refused(tmp_path: Path) -> None:
    """A rule that ignores what the file states would compute something else in silence."""
    nodes = [node("LSTM", "x w r", "y", hidden_size=2, clip=1.0)]
    weights = {"w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 2), np.float32)}
    ours = tallystick.from_onnx(written(tmp_path / "m.onnx", nodes, ["x f 4,1,3"], Y, weights))
    with pytest.raises(UnsupportedOperatorError, match=r"'LSTM_y'.*attribute 'clip'"):
        ours(torch.ones(4, 1, 3))


def test_seeds_and_control_flow_are_refused(tmp_path: Path) -> None:
    weights = {"r": np.float32(0.5), "t": np.bool_(True)}
    drop = [node("Dropout", "x r t", "y", name="random", seed=1)]
    ours = tallystick.from_onnx(written(tmp_path / "m.onnx", drop, X, Y, weights))
    with pytest.raises(UnsupportedOperatorError, match=r"'random'.*seed"):
        ours(torch.ones(2, 3))
    branch = helper.make_graph([node("Relu", "x", "z")], "g", [], [
        helper.make_tensor_value_info("z", TensorProto.FLOAT, None)])  # fmt: skip
    choice = node("If", "t", "y", name="choice", then_branch=branch, else_branch=branch)
    path = written(tmp_path / "i.onnx", [choice], X, Y, {"t": np.bool_(True)})
    with pytest.raises(UnsupportedOperatorError, match=r"'choice' is a GRAPH"):
        tallystick.from_onnx(path)


def test_every_rules_versions_are_the_standards() -> None:
    """A rule's first and last versions are versions of its operator, and no gap is claimed."""
    from onnx import defs

    known: dict[str, set[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        if schema.domain == "":
            known.setdefault(schema.name, set()).add(schema.since_version)
    assert len(rules) > 150
    for name, rule in rules.items():
        assert {rule.first, rule.last} <= known[name], name
    newest = {name: max(versions) for name, versions in known.items()}
    assert {name for name, rule in rules.items() if rule.last < newest[name]} <= {
        "Scatter", "Upsample"
    }  # fmt: skip


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UsageError) as caught:
        tallystick.from_onnx(tmp_path / "m.onnx")
    assert caught.value.next_action == "Run pip install 'tallystick[onnx]'."
