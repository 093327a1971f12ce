"""From the bytes of an ONNX file to a `Graph`. Nothing in the file is trusted.

Functions (the file's own, and the standard's bodies of operators without a rule here) are put in
the place of their calls. What is not covered is refused by name, all of it in one refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.disk.regular import read_file
from tallystick.errors import CorruptFileError, StorageError, UnsupportedOperatorError, UsageError
from tallystick.limits import LIMITS
from tallystick.program.capture.onnx.call import rules
from tallystick.program.capture.onnx.graph import CONTRACT_DTYPES, Graph, GraphNode, Port
from tallystick.program.capture.onnx.tensors import Tensors, dtype_name, onnx_package

_STANDARD = ("", "ai.onnx")
_DEPTH = 16
_BROKEN = "Check it with onnx.checker.check_model, and export it again."
Key = tuple[str, str, str]


def _domain(name: str) -> str:
    return "" if name in _STANDARD else name


def _check_names(*names: Any) -> None:
    """Refuse long names, which go into every name behind them and into messages, and what protobuf
    gives as bytes because it is not UTF-8. Raises UsageError."""
    for name in names:
        if not isinstance(name, str) or len(name) > LIMITS.name_bytes:
            raise UsageError(f"The file's name {name[:80]!r} is long, or no text.", _BROKEN)


@dataclass
class _Scope:
    """Where nodes stand: the file's graph, or a function's body with its call's names in it."""

    opsets: Mapping[str, int]
    prefix: str = ""
    names: dict[str, str] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    depth: int = 0

    def value(self, name: str) -> str:
        return self.names.get(name, self.prefix + name) if name else ""


class OnnxReader:
    """One file on its way to a graph."""

    def __init__(self, model: Any, directory: Path | None) -> None:
        self.onnx = onnx_package()
        self.model, self.tensors = model, Tensors(directory)
        self.initializers: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.nodes: list[GraphNode] = []
        self.defined: set[str] = set()
        self.names: dict[str, int] = {}  # of each name, the next number to try
        self.missing: dict[str, str] = {}
        self.expanded = 0
        self.functions: dict[Key, Any] = {}
        for f in model.functions:
            _check_names(f.domain, f.name, *f.input, *f.output, *f.attribute)
            self.functions[_domain(f.domain), f.name, getattr(f, "overload", "")] = f

    def graph(self) -> Graph:
        model, graph = self.model, self.model.graph
        if model.training_info:
            raise UsageError("The file has training_info.", "Export the inference graph alone.")
        if graph.sparse_initializer:
            raise UsageError("The file has sparse initializers.", "Export them as dense tensors.")
        for proto in graph.initializer:
            self._define(proto.name)
            array = self.tensors.array(proto, f"Initializer {proto.name!r}")
            if proto.data_type not in CONTRACT_DTYPES:
                raise UsageError(
                    f"Initializer {proto.name!r} has the ONNX dtype {dtype_name(proto.data_type)}.",
                    "Export the model in float32.",
                )
            self.initializers[proto.name] = array
        inputs = tuple(self._port(v) for v in graph.input if v.name not in self.initializers)
        for port in inputs:
            self._define(port.name)
        outputs = tuple(self._port(v) for v in graph.output)
        self._walk(graph.node, _Scope(self._opsets(model.opset_import)))
        if self.missing:
            self._refuse()
        for name in (port.name for port in outputs):
            if name not in self.defined:
                raise UsageError(f"No node gives the file's output {name!r}.", _BROKEN)
        return Graph(inputs, outputs, self.initializers, self.constants, tuple(self.nodes))

    @staticmethod
    def _opsets(imports: Any) -> dict[str, int]:
        found: dict[str, int] = {}
        for entry in imports:
            _check_names(entry.domain)
            if not 0 <= entry.version < 1 << 31:
                raise UsageError(f"The file imports opset {entry.version}.", _BROKEN)
            found[_domain(entry.domain)] = entry.version
        return found

    def _unique(self, name: str) -> str:
        """The node's name, with a number where the file has it twice or leaves it out."""
        made, number = name, self.names.get(name, 1)
        while made in self.names:
            made, number = f"{name}_{number}", number + 1
        self.names[name] = number
        self.names.setdefault(made, 1)
        return made

    def _define(self, name: str) -> None:
        _check_names(name)
        if name in self.defined or not name:
            raise UsageError(f"The file's name {name!r} is empty or there twice.", _BROKEN)
        self.defined.add(name)

    def _port(self, value: Any) -> Port:
        _check_names(value.name)
        what, kind = f"The graph's value {value.name!r}", value.type.WhichOneof("value")
        if kind != "tensor_type":
            raise UsageError(f"{what} is a {kind}.", "A program has tensors only.")
        tensor = value.type.tensor_type
        if tensor.elem_type not in CONTRACT_DTYPES:
            raise UsageError(
                f"{what} has the ONNX dtype {dtype_name(tensor.elem_type)}.",
                "Export the model in float32, with int64, int32, uint8 or bool beside it.",
            )
        shape = None
        if tensor.HasField("shape"):
            shape = tuple(
                d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim
            )
        return Port(value.name, tensor.elem_type, shape)

    # -- nodes -------------------------------------------------------------------------------------
    def _walk(self, nodes: Any, scope: _Scope) -> None:
        for proto in nodes:
            self.expanded += 1
            if self.expanded > LIMITS.nodes:
                raise UsageError(
                    f"The file has more than {LIMITS.nodes} nodes.", "Use a smaller model."
                )
            _check_names(proto.name, proto.op_type, proto.domain, *proto.input, *proto.output)
            _check_names(scope.prefix + proto.name, *(a.name for a in proto.attribute))
            name = self._unique(scope.prefix + (proto.name or proto.op_type))
            inputs = tuple(scope.value(n) for n in proto.input)
            for value in inputs:
                if value and value not in self.defined:
                    raise UsageError(
                        f"ONNX node {name!r} ({proto.op_type}) reads {value!r}, which nothing "
                        "before it gives.",
                        _BROKEN,
                    )
            self._node(proto, name, inputs, scope)

    def _node(self, proto: Any, name: str, inputs: tuple[str, ...], scope: _Scope) -> None:
        outputs = tuple(scope.value(n) for n in proto.output)
        if not any(outputs):
            raise UsageError(f"ONNX node {name!r} ({proto.op_type}) has no outputs.", _BROKEN)
        domain = _domain(proto.domain)
        own = self.functions.get((domain, proto.op_type, getattr(proto, "overload", "")))
        if own is not None:
            given = self._attributes(proto, name, scope)
            stated = {a.name: self._attribute(a, name, scope) for a in own.attribute_proto}
            self._inline(own, name, inputs, outputs, stated | given, scope, own.opset_import)
            return
        try:
            given = self._attributes(proto, name, scope)
            version, defaults, body = self._schema(proto, name, given, scope)
        except UnsupportedOperatorError as error:
            self.missing.setdefault(name, error.message)
            self._outputs(outputs)
            return
        if body is not None:
            imports = body.opset_import or [
                self.onnx.helper.make_opsetid("", scope.opsets.get("", 1))
            ]
            self._inline(body, name, inputs, outputs, defaults | given, scope, imports)
            return
        self._outputs(outputs)
        if proto.op_type == "Constant" and domain == "":
            self.constants[outputs[0]] = _constant(given, name)
            return
        self.nodes.append(
            GraphNode(
                name, proto.op_type, version, inputs, outputs, defaults | given, frozenset(given)
            )
        )

    def _outputs(self, outputs: tuple[str, ...]) -> None:
        for output in outputs:
            if output:
                self._define(output)

    def _schema(
        self, proto: Any, name: str, given: Mapping[str, Any], scope: _Scope
    ) -> tuple[int, dict[str, Any], Any]:
        """The operator's version and defaults; and its standard body where it has no rule here."""
        domain, op = _domain(proto.domain), proto.op_type
        opset = scope.opsets.get(domain)
        what = f"ONNX node {name!r} ({f'{domain}.' if domain else ''}{op}"
        if opset is None:
            raise UsageError(f"{what}) is of a domain that the file does not import.", _BROKEN)
        try:
            if opset > self.onnx.defs.onnx_opset_version() and not domain:
                raise UnsupportedOperatorError(f"{what}) is of opset {opset}, newer than onnx's.")
            schema = self.onnx.defs.get_schema(op, opset, domain)
        except self.onnx.defs.SchemaError:
            raise UnsupportedOperatorError(f"{what} of opset {opset}) is not known.") from None
        version = int(schema.since_version)
        defaults = {
            key: self._attribute(a.default_value, name, scope)
            for key, a in schema.attributes.items()
            if a.default_value.name
        }
        for key in given:
            if key not in schema.attributes:
                raise UnsupportedOperatorError(f"{what} of version {version}) has {key!r}.")
        for a in proto.attribute:
            if a.name in given and a.type != int(schema.attributes[a.name].type.value):
                raise UsageError(f"{what}) has {a.name!r} of another type.", _BROKEN)
        rule = rules.get(op) if not domain else None
        if rule is not None and rule.covers(version):
            return version, defaults, None
        if schema.has_function and not domain:
            return version, defaults, schema.function_body
        if rule is not None:
            raise UnsupportedOperatorError(
                f"{what} of version {version}): the versions {rule.first} to {rule.last} are "
                "covered."
            )
        raise UnsupportedOperatorError(f"{what} of version {version}) has no rule.")

    def _inline(
        self,
        body: Any,
        name: str,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        attributes: Mapping[str, Any],
        scope: _Scope,
        imports: Any,
    ) -> None:
        """The body's nodes in the place of a call."""
        if scope.depth == _DEPTH:
            raise UsageError(f"ONNX node {name!r}: functions call each other too deep.", _BROKEN)
        if len(inputs) > len(body.input) or len(outputs) > len(body.output):
            raise UsageError(f"ONNX node {name!r} does not fit its function.", _BROKEN)
        prefix = f"{name}/"
        absent = [""] * (len(body.input) - len(inputs))
        names = dict(zip(body.input, [*inputs, *absent], strict=True))
        names |= {inner: outer for inner, outer in zip(body.output, outputs, strict=False) if outer}
        inner = _Scope(
            {**scope.opsets, **self._opsets(imports)}, prefix, names, attributes, scope.depth + 1
        )
        self._walk(body.node, inner)

    # -- attributes --------------------------------------------------------------------------------
    def _attributes(self, proto: Any, name: str, scope: _Scope) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for attribute in proto.attribute:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in scope.attributes:
                    found[attribute.name] = scope.attributes[attribute.ref_attr_name]
                continue
            found[attribute.name] = self._attribute(attribute, name, scope)
        return found

    def _attribute(self, proto: Any, name: str, scope: _Scope) -> Any:
        kinds = self.onnx.AttributeProto
        where = f"Attribute {proto.name!r} of ONNX node {name!r}"
        if proto.type == kinds.TENSOR:
            return self.tensors.array(proto.t, where, in_body=scope.depth > 0)
        if proto.type == kinds.FLOAT:
            return float(proto.f)
        if proto.type == kinds.INT:
            return int(proto.i)
        if proto.type == kinds.STRING:
            return proto.s.decode("utf-8", "replace")
        if proto.type == kinds.FLOATS:
            return list(proto.floats)
        if proto.type == kinds.INTS:
            return list(proto.ints)
        if proto.type == kinds.STRINGS:
            return [text.decode("utf-8", "replace") for text in proto.strings]
        raise UnsupportedOperatorError(f"{where} is a {kinds.AttributeType.Name(proto.type)}.")

    def _refuse(self) -> None:
        texts = list(self.missing.values())
        action = "docs/INTERFACE.md tells what from_onnx covers; export with another opset."
        if len(texts) == 1:
            raise UnsupportedOperatorError(texts[0], action)
        shown = "".join(f"\n  - {text}" for text in texts[:50])
        more = f"\n  - and {len(texts) - 50} more" if len(texts) > 50 else ""
        raise UnsupportedOperatorError(
            f"{len(texts)} nodes of the file are not covered:{shown}{more}", action
        )


def _constant(given: Mapping[str, Any], name: str) -> np.ndarray:
    """The value of a Constant node (versions 1 to 25)."""
    for key, dtype in (("value_int", np.int64), ("value_ints", np.int64),
                       ("value_float", np.float32), ("value_floats", np.float32)):  # fmt: skip
        if key in given:
            return np.asarray(given[key], dtype)
    if isinstance(given.get("value"), np.ndarray):
        array: np.ndarray = given["value"]
        return array
    raise UsageError(
        f"ONNX node {name!r} (Constant) has {', '.join(sorted(given)) or 'no value'}.",
        "Export it as a dense numeric tensor.",
    )


def read_graph(path: Path) -> Graph:
    """The model in the file `path`. Raises UsageError, UnsupportedOperatorError."""
    onnx = onnx_package()
    try:
        data = read_file(path, LIMITS.onnx_file_bytes, "ONNX file")
    except (CorruptFileError, StorageError) as error:
        raise UsageError(error.message, error.next_action) from error
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf has several classes for it, by its implementation
        if not type(error).__module__.startswith("google.protobuf"):
            raise
        raise UsageError(f"{path} is not an ONNX file: {error}.", "Check the path.") from error
    if not model.HasField("graph"):
        raise UsageError(f"{path} is not an ONNX file: it has no graph.", "Check the path.")
    return read_model(model, path.parent)


def read_model(model: Any, directory: Path | None = None) -> Graph:
    """As `read_graph`, of a ModelProto; without a directory it may have no external data."""
    return OnnxReader(model, directory).graph()
