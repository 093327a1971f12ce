"""From a traced ATen graph to program nodes: one rule per ATen operator (PROGRAM 5.2).

An operator that the contract defines under ATen's own name passes through, with its arguments
named by ATen's schema. Another operator has a rule or a composition in `rules_*.py`, or is taken
apart by torch's reference decomposition, or is refused by name, with all others that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from tallystick.errors import UnsupportedOperatorError, UsageError
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.registry import all_ops
from tallystick.numerics.types import AttrValue, TensorType
from tallystick.program.build import Builder
from tallystick.program.capture.decompose import Decomposition, Decompositions, defect, is_item
from tallystick.program.capture.schema import Arguments as Arguments
from tallystick.program.capture.schema import bind, convert_attr, fits_binary64, op_name
from tallystick.program.capture.schema import type_of_tensor as type_of_tensor
from tallystick.program.ir import Value

Results = Value | Sequence[Value | None]
Rule = Callable[["Lowerer", fx.Node, Arguments], Results]

# Arguments that name a place or a method, not a value; they change no bit.
_PLACEMENT = frozenset({"device", "layout", "pin_memory", "memory_format", "non_blocking"})

_OURS = "This is a fault of a lowering rule: report the operator, and leave it out until then."

# By the names of ATen's operators. A program has fewer operators than ATen.
lowering: Attachments[Rule] = Attachments("lowering", "tallystick.program.capture.rules_*")


def _needed(graph: fx.Graph) -> set[fx.Node]:
    """The nodes that the outputs depend on. What only Python asked for is in no program."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in found:
            found.add(node)
            found.update(node.all_input_nodes)
    return found


class Lowerer:
    """Walks the graph in order; `env` maps each traced node to its value or values."""

    def __init__(
        self,
        builder: Builder,
        origin: Mapping[str, str] | None = None,
        lines: Mapping[str, str] | None = None,
    ) -> None:
        self.b = builder
        self.origin, self.lines = origin or {}, lines or {}
        self.env: dict[fx.Node, Results] = {}
        self.made: dict[Value, tuple[str, Value]] = {}
        self.ops = all_ops()
        self.decompositions = Decompositions()
        self.is_part = False  # whether it lowers the parts of an operator, not a model's calls
        # The operators that are being taken apart around this walk: none stands in its own parts.
        self.inside: frozenset[Any] = frozenset()
        # Writes update `number`, given parameters and gradients: the new parameters (updates.py).
        self.updates: Callable[[int, list[Value], list[Value]], list[Value]] | None = None
        # By a missing operator's message, where it stands: all are named in one refusal.
        self.missing: dict[str, list[tuple[str, UnsupportedOperatorError]]] = {}

    # -- helpers for rules ---------------------------------------------------------------

    def value(self, argument: Any) -> Value:
        """The value of a tensor argument."""
        found = self.env[argument]
        if not isinstance(found, Value):
            raise UsageError(f"{argument} is a list where one tensor is expected.", _OURS)
        return found

    def optional(self, argument: Any) -> Value | None:
        return None if argument is None else self.value(argument)

    def type(self, value: Value) -> TensorType:
        return self.b.type_of(value)

    def shape(self, value: Value) -> tuple[int, ...]:
        return self.b.type_of(value).shape

    def result(self, node: fx.Node) -> TensorType:
        """Type of the traced result of a node with one output."""
        return type_of_tensor(node.meta["val"], f"the result of {op_name(node.target)}")

    def emit(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        """One-output node; attributes converted to the kinds of the contract's operator."""
        return self.b.one(op, inputs, **self._attrs(op, attrs))

    def emit_all(self, op: str, *inputs: Value | None, **attrs: Any) -> list[Value]:
        """As `emit`, for operators with several outputs."""
        return self.b.emit(op, inputs, **self._attrs(op, attrs))

    def _attrs(self, op: str, attrs: Arguments) -> dict[str, AttrValue]:
        spec = self.ops.get(op)
        if spec is None:
            raise UnsupportedOperatorError(
                f"{op} is not defined by contract {self.b.contract}.", _OURS
            )
        known = {k: v for k, v in attrs.items() if k in spec.attrs or v is not None}
        for name in known:
            if name not in spec.attrs:
                raise UnsupportedOperatorError(f"{op} has no attribute {name!r}.", _OURS)
        return {k: convert_attr(spec, k, v) for k, v in known.items() if v is not None}

    def view(self, x: Value, shape: Sequence[int]) -> Value:
        """Reshape. A view of a view becomes one view; a view of the same shape disappears."""
        wanted = tuple(int(n) for n in shape)
        source = self._through(x, "aten.view")
        if self.shape(source) == wanted:
            return source
        return self._remember("aten.view", source, self.emit("aten.view", source, size=wanted))

    def permute(self, x: Value, dims: Sequence[int]) -> Value:
        """Permute axes; permutations of permutations are composed, identities dropped."""
        rank = len(self.shape(x))
        order = tuple(int(d) % max(rank, 1) for d in dims)
        if x in self.made and self.made[x][0] == "aten.permute":
            inner = self.b.attrs_of(x)["dims"]
            assert isinstance(inner, tuple)
            order, x = tuple(int(inner[d]) for d in order), self.made[x][1]
        if order == tuple(range(rank)):
            return x
        return self._remember("aten.permute", x, self.emit("aten.permute", x, dims=order))

    def _through(self, x: Value, op: str) -> Value:
        return self.made[x][1] if x in self.made and self.made[x][0] == op else x

    def _remember(self, op: str, source: Value, made: Value) -> Value:
        self.made[made] = (op, source)
        return made

    def swap(self, x: Value, i: int, j: int) -> Value:
        order = list(range(len(self.shape(x))))
        if order:
            order[i], order[j] = order[j], order[i]
        return self.permute(x, order)

    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        wanted = tuple(int(n) for n in shape)
        return x if self.shape(x) == wanted else self.emit("aten.expand", x, size=wanted)

    def slice(self, x: Value, dim: int, start: int, end: int, step: int = 1) -> Value:
        """`start` and `end` already normalised to [0, size]."""
        dim %= len(self.shape(x))
        if (start, step) == (0, 1) and end == self.shape(x)[dim]:
            return x
        return self.emit("aten.slice", x, dim=dim, start=start, end=max(start, end), step=step)

    def cast(self, x: Value, dtype: str) -> Value:
        """Convert; by way of i64 where NUMERICS 10.7 has no shorter one."""
        held = self.type(x).dtype
        if held == dtype:
            return x
        narrow = ("i32", "u8")
        if (held in narrow and dtype != "i64") or (held == "f32" and dtype in narrow):
            x = self.emit("aten._to_copy", x, dtype="i64")
        if held == "bool" and dtype in narrow:
            one, zero = (self.full((), n, dtype) for n in (1, 0))
            return self.emit("aten.where", x, one, zero)
        return self.emit("aten._to_copy", x, dtype=dtype)

    def negated(self, x: Value) -> Value:
        """−x; i64 wraps, as torch's does."""
        if self.type(x).dtype == "i64":
            return self.emit("aten.mul.Scalar", x, other=-1)
        return self.emit("aten.neg", x)

    def truths(self, x: Value, compute: Callable[[Value], Value]) -> Value:
        """`compute(x)`; of truth values by way of i64, where `compute` keeps 0 and 1."""
        if self.type(x).dtype != "bool":
            return compute(x)
        return self.cast(compute(self.cast(x, "i64")), "bool")

    def full(self, shape: Sequence[int], value: Any, dtype: str) -> Value:
        """A constant. A whole number that binary64 cannot hold is the sum of two that it can."""
        if dtype == "i64" and not fits_binary64(value):
            return self.in_halves(shape, value)
        return self.emit("aten.full", size=tuple(shape), value=float(value), dtype=dtype)

    def in_halves(self, shape: Sequence[int], value: int) -> Value:
        """i64: the upper 32 bits and the lower 32 bits, added."""
        low = value & 0xFFFFFFFF
        halves = [self.full(shape, part, "i64") for part in (value - low, low)]
        return self.emit("aten.add.Tensor", *halves, alpha=1)

    # -- the walk ------------------------------------------------------------------------

    def run(self, graph: fx.Graph, inputs: Sequence[Value]) -> list[Value]:
        """Lower every node; the values of the graph's outputs in order.

        Raises UnsupportedOperatorError that names every missing operator, UsageError.
        """
        results = self._walk(graph, inputs)
        if self.missing:
            raise self._all_missing()
        return results

    def _walk(self, graph: fx.Graph, inputs: Sequence[Value]) -> list[Value]:
        remaining = iter(inputs)
        needed = _needed(graph)
        for node in graph.nodes:
            if node.op == "placeholder":
                self.env[node] = next(remaining)
            elif node not in needed:
                continue
            elif node.op == "output":
                return [self.value(v) for v in node.args[0]]
            elif node.op == "call_function":
                self.env[node] = self._call(node)
            else:
                self.env[node] = self._content(graph, node)
        raise UsageError("The traced graph has no output.", "Return a tensor from the module.")

    def _content(self, graph: fx.Graph, node: fx.Node) -> Results:
        """A tensor that the graph itself holds."""
        found = getattr(graph.owning_module, str(node.target), None)
        try:
            return lowering["get_attr"](self, node, {"tensor": found})
        except UsageError as error:
            raise UsageError(f"{error.message} ({self._where(node)})", error.next_action) from error

    def _call(self, node: fx.Node) -> Results:
        if is_item(node):
            sequence: Any = self.env[node.args[0]]  # type: ignore[index]
            result: Value = sequence[node.args[1]]
            return result
        name = op_name(node.target)
        lower = lowering.get(name)
        try:
            results = lower(self, node, bind(node)) if lower else self._by_name(node)
            self._compare(node, results)
        except UnsupportedOperatorError as error:
            where = f"operator {name}, {self._where(node)}"
            self.missing.setdefault(error.message, []).append((where, error))
            return self._stand_in(node)
        except UsageError as error:
            raise type(error)(
                f"{error.message} (operator {name}, {self._where(node)})", error.next_action
            ) from error
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise defect(f"The rule of {name}, {self._where(node)},", error) from error
        return results

    def _where(self, node: fx.Node) -> str:
        path, line = self.origin.get(node.name), self.lines.get(node.name)
        where = f"from module {path}" if path else "outside every submodule"
        return f"{where}, {line}" if line else where

    def _stand_in(self, node: fx.Node) -> Results:
        """Values of the result's types, so that the walk finds what else is missing."""
        expected = node.meta.get("val")
        if expected is None:
            raise self._all_missing()
        tensors = [expected] if isinstance(expected, torch.Tensor) else list(expected)
        values = [
            None if t is None else self.full(t.shape, 0, type_of_tensor(t).dtype) for t in tensors
        ]
        if isinstance(expected, torch.Tensor):
            assert values[0] is not None
            return values[0]
        return values

    def _all_missing(self) -> UnsupportedOperatorError:
        """One refusal for every missing operator, the first one's next action with it."""
        texts = []
        for message, places in self.missing.items():
            more = f" and {len(places) - 1} more calls" if len(places) > 1 else ""
            texts.append(f"{message} ({places[0][0]}{more})")
        first = next(iter(self.missing.values()))[0][1]
        if len(texts) == 1:
            return UnsupportedOperatorError(texts[0], first.next_action)
        listed = "".join(f"\n  - {text}" for text in texts)
        return UnsupportedOperatorError(
            f"{len(texts)} operators of the model are missing:{listed}", first.next_action
        )

    def _by_name(self, node: fx.Node) -> Results:
        """An operator without a rule: our composition, the contract's own, or torch's parts."""
        name = op_name(node.target)
        if node.target in self.inside:
            return self._same(node)
        found = self.decompositions.ours(name, node)
        if found is None and name not in self.ops:
            found = self.decompositions.torchs(node)
        return self._same(node) if found is None else self._inline(node, *found)

    def composed(self, node: fx.Node) -> Results:
        """By the composition beside an operator's rule: what the rule does not know."""
        found = self.decompositions.ours(op_name(node.target), node)
        if found is None:
            raise UnsupportedOperatorError(
                f"{op_name(node.target)} is not defined for these types by {self.b.contract}.",
                "Convert the model and the batch to float32 and int64.",
            )
        return self._inline(node, *found)

    def _inline(self, node: fx.Node, parts: Decomposition, read: list[fx.Node]) -> Results:
        """The operator's parts in its place."""
        inner = Lowerer(self.b)
        inner.is_part = True
        inner.made, inner.decompositions = self.made, self.decompositions
        inner.inside = self.inside | {node.target}
        results: Results = parts.result(inner._walk(parts.graph, [self.value(n) for n in read]))
        if inner.missing:
            sentences = [f"{op_name(node.target)} is composed of other operators."]
            raise UnsupportedOperatorError(
                " ".join(sentences + sorted(inner.missing)),
                next(iter(inner.missing.values()))[0][1].next_action,
            )
        return results if isinstance(results, Value) else list(results)

    def _same(self, node: fx.Node) -> Results:
        """An operator that the contract has under ATen's name."""
        name = op_name(node.target)
        spec = self.ops.get(name)
        if spec is None or not isinstance(node.target, torch._ops.OpOverload):
            raise UnsupportedOperatorError(
                f"{name} is not defined by contract {self.b.contract}.",
                "spec/NUMERICS.md lists the operators there are; express the module by them.",
            )
        bound = bind(node)
        inputs: list[Value | None] = []
        attrs: dict[str, AttrValue] = {}
        for argument in node.target._schema.arguments:
            given = bound[argument.name]
            kind = str(argument.type)
            if kind in ("Tensor", "Optional[Tensor]"):
                inputs.append(self.optional(given))
            elif kind == "List[Tensor]":
                inputs.extend(self.value(v) for v in given)
            elif argument.name in spec.attrs:
                if given is not None:
                    attrs[argument.name] = convert_attr(spec, argument.name, given)
            else:
                self._must_be_default(name, argument, given)
        values = self.b.emit(name, inputs, **attrs)
        return values[0] if len(values) == 1 else values

    def _must_be_default(self, name: str, argument: Any, given: Any) -> None:
        if argument.name in _PLACEMENT or given is None or given is False:
            return
        if argument.has_default_value() and given == argument.default_value:
            return
        raise UnsupportedOperatorError(
            f"{name} with {argument.name}={given!r} is not defined by contract {self.b.contract}.",
            "Leave that argument at its default.",
        )

    def _compare(self, node: fx.Node, results: Results) -> None:
        """Check that the emitted value has torch's shape and dtype."""
        expected = node.meta["val"]
        pairs = (
            [(results, expected)]
            if isinstance(results, Value)
            else list(zip(results, expected, strict=True))
        )
        for value, tensor in pairs:
            if value is None or tensor is None:
                continue
            wanted = type_of_tensor(tensor, "the result")
            if self.type(value) != wanted:
                raise UsageError(
                    f"The lowering gave {self.type(value)} where torch has {wanted}.", _OURS
                )
