# ruff: noqa: E402
"""A trainable module from an ONNX file (docs/adr/0011-onnx.md; docs/INTERFACE.md, "ONNX files")."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnx", reason="the package onnx is not installed (extra `onnx`)")

from onnx import TensorProto, helper, save_model
from onnx_models import CASES, Images, images, loss, model, node, written
from torch import Tensor, nn

import tallystick
from tallystick.errors import UnsupportedOperatorError, UsageError
from tallystick.limits import Limits
from tallystick.program.capture import capture, capture_forward
from tallystick.program.capture.onnx import names, read
from tallystick.program.capture.onnx.call import Call
from tallystick.program.capture.onnx.graph import Node
from tallystick.program.capture.onnx.table import rules
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
    made = names.attribute_names(ODD)
    assert [names.original(made[name]) for name in ODD] == ODD
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
    flat = [names.flat_name(name) for name in ODD]
    assert [names.original(name) for name in flat] == ODD
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
    assert caught.value.next_action == "pip install 'tallystick[onnx]'."


def test_nothing_else_loads_the_package() -> None:
    code = (
        "import sys, tallystick.api, tallystick.program.capture\n"
        "import tallystick.program.capture.onnx.ops_image\n"
        "raise SystemExit('onnx' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# -- files that nobody should trust ----------------------------------------------------------------
def refused(path: Path, proto: Any, match: str) -> None:
    path.write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
    with pytest.raises(UsageError, match=match):
        tallystick.from_onnx(path)


def test_damaged_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, good = tmp_path / "m.onnx", model([node("Relu", "x", "y")], X, Y)
    with pytest.raises(UsageError, match=r"missing"):
        tallystick.from_onnx(path)
    refused(path, b"no model at all", "no ONNX file")
    refused(path, b"", "no graph")
    refused(path, good.SerializeToString()[:-20], "")
    monkeypatch.setattr(read, "LIMITS", Limits(onnx_file_bytes=10))
    refused(path, good, "more than the limit of 10")
    monkeypatch.setattr(read, "LIMITS", Limits(nodes=1))
    refused(path, model([node("Relu", "x", "t"), node("Relu", "t", "y")], X, Y), "1 nodes")


def test_broken_graphs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    refused(path, model([node("Relu", "z", "y")], X, Y), "reads 'z'")
    refused(path, model([node("Relu", "x", "x")], X, Y), "'x' is empty, long or there twice")
    refused(path, model([node("Relu", "x", "t")], X, Y), "output 'y'")
    refused(path, model([node("Relu", "x", "y")], X, Y, opset=999), "newer than onnx's")
    refused(path, model([node("Relu", "x", "y")], ["x d"], Y), "DOUBLE")
    double = {"w": np.ones(3)}
    refused(path, model([node("Add", "x w", "y")], X, Y, double), "'w'.*DOUBLE")
    itself = helper.make_node("F", ["a"], ["b"], domain="f")
    imports = [helper.make_opsetid("f", 1)]
    endless = helper.make_function("f", "F", ["a"], ["b"], [itself], imports)
    call = helper.make_node("F", ["x"], ["y"], domain="f")
    proto = model([call], X, Y, functions=[endless])
    proto.opset_import.append(helper.make_opsetid("f", 1))
    refused(path, proto, "too deep")


def test_sizes_are_checked_before_allocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, proto = (
        tmp_path / "m.onnx",
        model([node("Add", "x w", "y")], X, Y, {"w": np.zeros(3, "f")}),
    )
    tensor = proto.graph.initializer[0]
    for dims, text in (([1 << 40], "needs 4398046511104"), ([-1], "shape"), ([1] * 17, "shape")):
        tensor.dims[:] = dims
        refused(path, proto, text)
    tensor.dims[:] = [3]
    tensor.ClearField("raw_data")
    refused(path, proto, "'w' has 0 bytes")
    tensor.float_data.extend([1.0, 2.0])
    refused(path, proto, "'w' has 8 bytes")
    huge = [node("Constant", "", "n", value_ints=[1 << 20, 1 << 20]),
            node("ConstantOfShape", "n", "c"), node("Add", "x c", "y")]  # fmt: skip
    ours = tallystick.from_onnx(written(tmp_path / "h.onnx", huge, X, Y))
    with pytest.raises(UsageError, match=r"a constant of 4398046511104 bytes"):
        ours(torch.ones(2, 3))


def external(tmp_path: Path, **entries: str) -> Any:
    proto = model([node("Add", "x w", "y")], X, Y, {"w": np.arange(3, dtype=np.float32)})
    tensor = proto.graph.initializer[0]
    data = tensor.raw_data
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    (tmp_path / "below").mkdir(exist_ok=True)
    (tmp_path / "below" / "w.bin").write_bytes(b"12345678" + data)
    for key, value in ({"location": "below/w.bin", "offset": "8"} | entries).items():
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    return proto


def test_external_data_stay_below_the_models_directory(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(external(tmp_path).SerializeToString())
    ours = tallystick.from_onnx(path)
    assert ours(torch.zeros(2, 3)).tolist() == [[0.0, 1.0, 2.0]] * 2
    (tmp_path / "secret").write_bytes(bytes(64))
    model_path = tmp_path / "below" / "m.onnx"
    for location in ("../secret", str(tmp_path / "secret"), "", "a/../../secret", "C:\\secret"):
        refused(model_path, external(tmp_path, location=location), "outside of the model's")
    (tmp_path / "below" / "link.bin").symlink_to(tmp_path / "secret")
    refused(model_path, external(tmp_path, location="link.bin"), "a link")
    (tmp_path / "linked").symlink_to(tmp_path / "below")
    refused(path, external(tmp_path, location="linked/w.bin"), "a link")


def test_external_sizes_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    refused(path, external(tmp_path, offset="9"), "needs bytes 9 to 21 of w.bin, which has 20")
    refused(path, external(tmp_path, offset="-8"), "external data at '-8'")
    refused(path, external(tmp_path, offset="9" * 30), "external data at")
    refused(path, external(tmp_path, length="8"), "has 8 bytes where its shape needs 12")
    refused(path, external(tmp_path, location="gone.bin"), "missing")


# -- single rules: what the standard says and torch does not ---------------------------------------
def run_rule(op: str, version: int, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """The outputs of one rule on tensors (numpy arrays are known)."""
    ends = tuple(f"i{k}" for k in range(len(inputs))), tuple(f"o{k}" for k in range(outputs))
    one = Node(op, op, version, *ends, attributes)
    found = rules[op].run(Call(one, inputs, torch.device("cpu")))
    return found if isinstance(found, Tensor) else found[0] if outputs == 1 else found


def test_rules_follow_the_standard_where_torch_differs() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    i = torch.tensor([-7, 7])
    d = torch.tensor([2, -2])
    assert run_rule("Div", 14, i, d).tolist() == [-3, -3]
    assert run_rule("Mod", 13, i, torch.tensor([3, 3]), fmod=0).tolist() == [2, 1]
    assert run_rule("Mod", 13, i, torch.tensor([3, 3]), fmod=1).tolist() == [-1, 1]
    # Before version 13 softmax is over all axes from `axis` on.
    one = run_rule("Softmax", 11, x.reshape(1, 2, 3), axis=1)
    np.testing.assert_allclose(one.sum(), 1.0, rtol=1e-6)
    two = run_rule("Softmax", 13, x.reshape(1, 2, 3), axis=1)
    np.testing.assert_allclose(two.sum(), 3.0, rtol=1e-6)
    back = [np.array([-1]), np.array([-(1 << 63)]), np.array([1]), np.array([-1])]
    assert run_rule("Slice", 13, x, *back).tolist() == [[3.0, 2.0, 1.0], [6.0, 5.0, 4.0]]
    ties = torch.tensor([1.0, 3.0, 3.0, 0.0])
    values, places = run_rule("TopK", 11, ties, np.array([2]), outputs=2, axis=-1)
    assert values.tolist() == [3.0, 3.0] and places.tolist() == [1, 2]
    last = run_rule("ArgMax", 13, ties, axis=0, keepdims=0, select_last_index=1)
    assert int(last) == 2
    assert run_rule("Gather", 13, x, torch.tensor([-1]), axis=1).tolist() == [[3.0], [6.0]]
    shape = np.array([0, -1])
    assert run_rule("Reshape", 14, x, shape).shape == (2, 3)
    assert run_rule("Squeeze", 11, x.reshape(1, 2, 3), axes=[0]).shape == (2, 3)
    padded = run_rule("Pad", 13, x, np.array([0, 2, 0, 1]), mode="reflect")
    assert padded[0].tolist() == [3.0, 2.0, 1.0, 2.0, 3.0, 2.0]
    exclusive = run_rule("CumSum", 14, x, np.array(1), exclusive=1, reverse=1)
    assert exclusive[0].tolist() == [5.0, 3.0, 0.0]


def test_what_ceil_mode_adds_to_a_pool_never_counts() -> None:
    """The last window of 2 sees one element: its mean is that element, pads counted or not."""
    x = torch.tensor([[[1.0, 3.0, 5.0]]])
    for counted in (0, 1):
        shape = {"kernel_shape": [2], "strides": [2], "auto_pad": "NOTSET"}
        y = run_rule("AveragePool", 22, x, ceil_mode=1, count_include_pad=counted, **shape)
        assert y.tolist() == [[[2.0, 5.0]]]


def test_a_scalar_of_higher_rank_keeps_its_rank() -> None:
    known = np.ones((1, 1, 1), np.float32)
    assert run_rule("Mul", 14, torch.ones(3), known).shape == (1, 1, 3)


def test_recurrent_layers_are_torchs() -> None:
    """ONNX orders an LSTM's gates i, o, f, c and a GRU's z, r, h; torch i, f, g, o and r, z, n."""
    torch.manual_seed(0)
    x = torch.randn(4, 2, 3)
    for name, layer, order in (
        ("LSTM", nn.LSTM(3, 5), (0, 3, 1, 2)),
        ("GRU", nn.GRU(3, 5), (1, 0, 2)),
    ):
        parts = {}
        for key, tensor in layer.named_parameters():
            chunks = tensor.detach().chunk(len(order))
            parts[key] = torch.cat([chunks[j] for j in order]).unsqueeze(0)
        bias = torch.cat([parts["bias_ih_l0"], parts["bias_hh_l0"]], 1)
        more = {"linear_before_reset": 1} if name == "GRU" else {}
        y = run_rule(name, 14, x, parts["weight_ih_l0"], parts["weight_hh_l0"], bias,
                     direction="forward", hidden_size=5, **more)  # fmt: skip
        np.testing.assert_allclose(y[:, 0], layer(x)[0].detach(), rtol=1e-5, atol=1e-6)


def test_known_values_are_constants_of_the_program() -> None:
    """PROGRAM 5.13: nodes with the values' bits, and no slot of the state."""
    from tallystick.program.capture.onnx.constants import made_tensor

    class Made(nn.Module):
        def __init__(self, array: np.ndarray) -> None:
            super().__init__()
            self.make = lambda device: made_tensor(array, device)

        def forward(self, x: Tensor) -> Tensor:
            made = self.make(x.device)
            return made | (x > 9) if made.dtype == torch.bool else made * x.to(made.dtype)

    for array in (
        np.array([0, 0, 1, 1, 5, 6, 7, 3]),
        np.array([[0.5, 0.5, -0.0], [0.0, np.nan, np.inf]], np.float32),
        np.array([True, False, False]),
        np.arange(10, 0, -3),
        np.array(7),
    ):
        one = torch.ones(())
        program = capture_forward(Made(array), {"x": one}, lambda m, b: m(b["x"]))
        got = Executor(program).run_step({}, {"x": one.numpy()}).outputs["logits"]
        assert (got.dtype, got.shape, got.tobytes()) == (array.dtype, array.shape, array.tobytes())
