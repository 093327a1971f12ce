# ruff: noqa: E402
"""ONNX files that nobody should trust: damaged, broken, too large, with data elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("onnx", reason="the package onnx is not installed (extra `onnx`)")

from onnx import TensorProto, helper
from onnx_models import model, node, written

import tallystick
from tallystick.errors import UsageError
from tallystick.limits import Limits
from tallystick.program.capture.onnx import read, tensors

X = ["x f 2,3"]
Y = ["y f"]


def refused(path: Path, proto: Any, match: str) -> None:
    path.write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
    with pytest.raises(UsageError, match=match):
        tallystick.from_onnx(path)


def test_damaged_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, good = tmp_path / "m.onnx", model([node("Relu", "x", "y")], X, Y)
    with pytest.raises(UsageError, match=r"missing"):
        tallystick.from_onnx(path)
    refused(path, b"no model at all", "not an ONNX file")
    refused(path, b"", "no graph")
    refused(path, good.SerializeToString()[:-20], "is not an ONNX file")
    monkeypatch.setattr(read, "LIMITS", Limits(onnx_file_bytes=10))
    refused(path, good, "more than the limit of 10")
    monkeypatch.setattr(read, "LIMITS", Limits(nodes=1))
    refused(path, model([node("Relu", "x", "t"), node("Relu", "t", "y")], X, Y), "1 nodes")


def test_broken_graphs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    refused(path, model([node("Relu", "z", "y")], X, Y), "reads 'z'")
    refused(path, model([node("Relu", "x", "x")], X, Y), "'x' is empty or there twice")
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


# --- small files that cost much, and files that are no text --------------------------------------
def _imports(version: int, domain: str = "") -> Any:
    proto = model([node("Relu", "x", "y")], X, Y)
    proto.opset_import[0].version, proto.opset_import[0].domain = version, domain
    return proto


def test_names_are_found_in_little_time(tmp_path: Path) -> None:
    """It took 37 s for 16,000 nodes without a name, four times as long for twice as many."""
    path = tmp_path / "m.onnx"
    nodes = [helper.make_node("Relu", ["x"], [f"y{i}"]) for i in range(20_000)]
    path.write_bytes(model(nodes, X, ["y0 f"]).SerializeToString())
    began = time.process_time()
    assert len(read.read_graph(path).nodes) == 20_000
    assert time.process_time() - began < 20


def test_long_names_are_refused(tmp_path: Path) -> None:
    """A name of a megabyte before each of 500 nodes in a function took 500 megabytes and 45 s."""
    path, name = tmp_path / "m.onnx", "n" * (1 << 20)
    body = [helper.make_node("Relu", ["a"], ["b"])]
    imports = [helper.make_opsetid("f", 1), helper.make_opsetid("", 18)]
    function = helper.make_function("f", "F", ["a"], ["b"], body, imports[1:])
    call = helper.make_node("F", ["x"], ["y"], domain="f", name=name)
    proto = model([call], X, Y, functions=[function])
    proto.opset_import.append(imports[0])
    refused(path, proto, "is long")
    refused(path, model([helper.make_node(name, ["x"], ["y"])], X, Y), "is long")
    refused(path, model([helper.make_node("Relu", ["x"], ["y"], **{name: 1})], X, Y), "is long")
    refused(path, model([node("Relu", "x", "y")], [f"{name} f 2,3"], Y), "is long")


def test_calls_cannot_multiply_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """200 calls of a function with a constant of 4 MiB took 800 MiB."""
    path = tmp_path / "m.onnx"
    constant = helper.make_node("Constant", [], ["c"], value_floats=[1.0])
    constant.attribute[0].CopyFrom(
        helper.make_attribute("value", helper.make_tensor("v", TensorProto.FLOAT, [64], [0.0] * 64))
    )
    body = [constant, helper.make_node("Relu", ["a"], ["b"])]
    function = helper.make_function("f", "F", ["a"], ["b"], body, [helper.make_opsetid("", 18)])
    calls = [helper.make_node("F", ["x"], [f"y{i}"], domain="f") for i in range(9)]
    proto = model(calls, X, ["y0 f"], functions=[function])
    proto.opset_import.append(helper.make_opsetid("f", 1))
    path.write_bytes(proto.SerializeToString())
    assert tallystick.from_onnx(path)(torch.ones(2, 3)).tolist() == [[1.0] * 3] * 2
    monkeypatch.setattr(tensors, "LIMITS", Limits(onnx_file_bytes=8 * 256))
    refused(path, proto, "more than 2048 bytes of constants")


def test_a_data_file_is_read_once(tmp_path: Path) -> None:
    """Every initializer named the same bytes: a file of a few kilobytes gave any number of them."""
    proto = external(tmp_path)
    for i in range(3):
        tensor = proto.graph.initializer.add()
        tensor.CopyFrom(proto.graph.initializer[0])
        tensor.name = f"w{i}"
    refused(tmp_path / "m.onnx", proto, "more bytes of w.bin than it has")


def test_what_is_no_text_or_of_another_type(tmp_path: Path) -> None:
    """These ended in TypeError, IndexError, ValueError and ZeroDivisionError."""
    path = tmp_path / "m.onnx"
    good = model([helper.make_node("Relu", ["x"], ["y"], name="abcd")], X, Y).SerializeToString()
    for text in (b"abcd", b"Relu"):
        refused(path, good.replace(text, b"\xff\xfe\xfd\xfc"), "no text")
    external(tmp_path)
    data = external(tmp_path, location="abcd").SerializeToString()
    refused(path, data.replace(b"abcd", b"\xff\xfe\xfd\xfc"), "in no text")
    for version in (-1, 1 << 31, 1 << 62, -(1 << 63)):
        for domain in ("", "ai.onnx.ml", "other"):
            refused(path, _imports(version, domain), f"imports opset {version}")
    constant = helper.make_node("Constant", [], [], value_int=1)
    refused(path, model([constant, node("Relu", "x", "y")], X, Y), "has no outputs")
    constant = helper.make_node("Constant", [], ["c"], value_int=1)
    constant.attribute[0].CopyFrom(helper.make_attribute("value_int", "one"))
    refused(path, model([constant, node("Relu", "x", "y")], X, Y), "of another type")


@pytest.mark.parametrize(
    ("op", "inputs", "given", "match"),
    [
        ("SpaceToDepth", "x", {"blocksize": 0}, "ZeroDivisionError"),
        ("GlobalLpPool", "x", {"p": 0}, "ZeroDivisionError"),
        ("Unsqueeze", "w w", {}, "StopIteration"),
        ("Split", "x", {"axis": 3, "num_outputs": 1 << 31}, "1 outputs, and num_outputs"),
        ("LRN", "x", {"size": 1 << 31}, "over 2147483648 channels"),
    ],
)
def test_attributes_that_make_no_sense(
    tmp_path: Path, op: str, inputs: str, given: dict[str, Any], match: str
) -> None:
    """Found by drawing attributes: untyped errors, and two loops over 2^31 things."""
    nodes, weights = [node(op, inputs, "y", **given)], {"w": np.ones((1, 1, 3, 3), np.float32)}
    path = written(tmp_path / "m.onnx", nodes, ["x f 1,1,4,4"], Y, weights)
    ours = tallystick.from_onnx(path)
    with pytest.raises(UsageError, match=match):
        ours(torch.ones(1, 1, 4, 4))
