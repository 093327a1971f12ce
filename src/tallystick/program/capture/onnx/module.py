"""The torch module of an ONNX file: `from_onnx`.

It has the file's names as names of attributes, without collisions.

The rule. A name's dots part it into modules, as in a state_dict, so `conv.weight` stays what it
is. A character that is no ASCII letter, digit or underscore becomes `_xHH_`, its code point in
hexadecimal. So does an underscore before an `x`, every dot of a name with an empty part (`a..b`),
and the first character of a part that every module has as an attribute (`type`, `forward`). A name
that is a module of another one's (`a` beside `a.b`) ends with `_x_`, and so does the empty name.
`original` finds the file's name again: so two names never become one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.program.capture.onnx.call import TORCH, Known, OnnxCall, Rule, folded, rules, run
from tallystick.program.capture.onnx.graph import DTYPES, Graph, GraphNode, Port
from tallystick.program.capture.onnx.read import read_graph
from tallystick.program.capture.onnx.roles import Roles, roles_of

_PLAIN = re.compile(r"[A-Za-z0-9_]", re.ASCII)
_ESCAPED = re.compile(r"_x([0-9a-f]*)_")
# The module of the nodes, the other attributes of `OnnxModule`, and the name of a call's module.
NODES = "onnx_nodes"
_OWN = (NODES, "plan", "parameter_names", "self")
_TAKEN = frozenset({*dir(nn.Module()), *vars(nn.Module()), *_OWN})


def _escape(character: str) -> str:
    return f"_x{ord(character):x}_"


def _part(text: str) -> str:
    """One part of a name; a dot in it has no meaning."""
    made = []
    for i, character in enumerate(text):
        before_x = character == "_" and text[i + 1 : i + 2] == "x"
        reserved = i == 0 and text in _TAKEN
        plain = _PLAIN.match(character) and not before_x and not reserved
        made.append(character if plain else _escape(character))
    return "".join(made)


def flat_name(name: str) -> str:
    """A name without modules: of inputs, outputs and nodes."""
    return _part(name) or "_x_"


def _parts(name: str) -> list[str]:
    parts = name.split(".")
    return parts if all(parts) else [name]


def attribute_names(names: Iterable[str]) -> dict[str, str]:
    """By a file's name, the dotted attribute name of its parameter or buffer."""
    found = {name: [flat_name(part) for part in _parts(name)] for name in names}
    modules = {tuple(parts[:n]) for parts in found.values() for n in range(1, len(parts))}
    made = {
        name: ".".join(parts) + ("_x_" if tuple(parts) in modules else "")
        for name, parts in found.items()
    }
    assert len(set(made.values())) == len(made)
    return made


def original(attribute: str) -> str:
    """The file's name behind an attribute name."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", attribute)


class _Step:
    """A node with its rule, ready to be called; no tensor lies in it."""

    def __init__(self, node: GraphNode, follow_mode: bool) -> None:
        self.node, self.follow_mode = node, follow_mode
        self.rule: Rule = rules[node.op]

    def fold(self, env: Mapping[str, Any]) -> tuple[Known | None, ...]:
        return folded(self.rule, self.node, self.inputs(env))

    def inputs(self, env: Mapping[str, Any]) -> list[Any]:
        return [env[name] if name else None for name in self.node.inputs]

    def run(
        self, values: list[Any], device: torch.device, held: Mapping[str, Tensor], training: bool
    ) -> tuple[Any, ...]:
        in_training = self.follow_mode and training
        return run(self.rule, OnnxCall(self.node, values, device, held, in_training))


class OnnxNode(nn.Module):
    """A node of the file, so that messages about the module name the node."""

    def __init__(self, step: _Step) -> None:
        super().__init__()
        self.step = step.run  # a method: what capture sees of it is only that it can be called

    def forward(
        self, values: list[Any], device: torch.device, held: Mapping[str, Tensor]
    ) -> tuple[Any, ...]:
        return self.step(values, device, held, self.training)


class _ModulePlan:
    """The graph in order: which nodes are modules, which are computed once.

    It can be called, so that capture's look at a module's attributes does not go into it.
    """

    def __init__(self, graph: Graph, roles: Roles, fixed: Iterable[str], check_sizes: bool) -> None:
        self.inputs = [port for port in graph.inputs if port.name not in fixed]
        self.outputs = [port.name for port in graph.outputs]
        self.known, self.check_sizes = roles.known, check_sizes
        self.steps: list[tuple[_Step, str | None]] = []

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor]:
        """The inputs by the file's names. Raises UsageError for a wrong one."""
        names = [flat_name(port.name) for port in self.inputs]
        if len(args) > len(names):
            raise UsageError(
                f"The model has {len(names)} inputs, but {len(args)} were given.",
                "Pass one value for each input.",
            )
        named = dict(zip(names, args, strict=False))
        for name in [*kwargs]:
            if name not in names or name in named:
                raise UsageError(
                    f"The model has no input {name!r}, or it was given twice.",
                    f"Its inputs are {', '.join(names)}.",
                )
        named |= kwargs
        found = {}
        for port, name in zip(self.inputs, names, strict=True):
            if name not in named:
                raise UsageError(f"The input {name!r} is missing.", f"Give {', '.join(names)}.")
            self._check(port, named[name])
            found[port.name] = named[name]
        return found

    def _check(self, port: Port, tensor: Any) -> None:
        wanted = TORCH[DTYPES[port.dtype]]
        if not isinstance(tensor, Tensor):
            raise UsageError(
                f"The input {port.name!r} is a {type(tensor).__name__}.", "Give a torch tensor."
            )
        other = tensor.dtype != wanted
        if other and not (wanted.is_floating_point and tensor.is_floating_point()):
            raise UsageError(
                f"The input {port.name!r} is {tensor.dtype}, but the file states {wanted}.",
                "Convert it to that type.",
            )
        if port.shape is None:
            return
        fits = len(port.shape) == tensor.dim() and all(
            n is None or not self.check_sizes or n == m
            for n, m in zip(port.shape, tensor.shape, strict=True)
        )
        if not fits:
            raise UsageError(
                f"The input {port.name!r} has the shape {tuple(tensor.shape)}, and the file says "
                f"{port.shape}.",
                "Export the model with dynamic axes, or give check_sizes=False where every size "
                "that the file states of inputs may change.",
            )


class OnnxModule(nn.Module):
    """A torch module that computes the graph of an ONNX file.

    Call it with the file's inputs in their order, or by name. It returns the one output, or a dict
    of all by name. `parameter_names` maps the file's names of weights to the module's.
    """

    def __init__(
        self,
        graph: Graph,
        roles: Roles,
        fixed: Iterable[str],
        training: bool,
        check_sizes: bool,
    ) -> None:
        super().__init__()
        self.parameter_names = attribute_names([*roles.parameters, *roles.buffers])
        for name, path in self.parameter_names.items():
            owner, leaf = self._owner(path)
            if name in roles.buffers:
                owner.register_buffer(leaf, torch.from_numpy(roles.buffers[name]))
            else:
                owner.register_parameter(
                    leaf, nn.Parameter(torch.from_numpy(roles.parameters[name]))
                )
        plan = _ModulePlan(graph, roles, fixed, check_sizes)
        nodes = nn.Module()
        for node in graph.nodes:
            step, child = _Step(node, training), None
            if node.name not in roles.folded:
                child = flat_name(node.name)
                nodes.add_module(child, OnnxNode(step))
            plan.steps.append((step, child))
        self.add_module(NODES, nodes)
        self.plan = plan

    def _owner(self, path: str) -> tuple[nn.Module, str]:
        owner: nn.Module = self
        *modules, leaf = path.split(".")
        for name in modules:
            if name not in owner._modules:
                owner.add_module(name, nn.Module())
            child = owner._modules[name]
            assert child is not None
            owner = child
        return owner, leaf

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The graph's outputs; shapes and dtypes as the file says.

        Raises UsageError for inputs that do not fit, UnsupportedOperatorError by the node's name.
        """
        plan = self.plan
        given = plan(args, kwargs)
        held: dict[str, Any] = {
            name: reduce(getattr, path.split("."), self)
            for name, path in self.parameter_names.items()
        }
        env: dict[str, Any] = {**held, **plan.known, **given}
        tensors: list[Tensor] = [*given.values(), *held.values()]
        device = tensors[0].device if tensors else torch.device("cpu")
        nodes = getattr(self, NODES)
        for step, child in plan.steps:
            if child is None:
                found = step.fold(env)
            else:
                found = getattr(nodes, child)(step.inputs(env), device, held)
            env.update(zip(step.node.outputs, found, strict=False))
            for name in step.node.outputs[len(found) :]:
                if name:
                    raise UsageError(
                        f"{step.node} gives no output {name!r}.", "Export the model again."
                    )
        results = {
            flat_name(name): OnnxCall(_OUTPUT, [env[name]], device).tensor(0)
            if name not in held
            else held[name]
            for name in plan.outputs
        }
        return next(iter(results.values())) if len(results) == 1 else results


_OUTPUT = GraphNode("the graph's outputs", "", 0, ("",), ())


def _fixed(graph: Graph, fixed: Mapping[str, Any]) -> dict[str, np.ndarray]:
    ports = {port.name: port for port in graph.inputs}
    found = {}
    for name, value in fixed.items():
        if name not in ports:
            raise UsageError(
                f"The file has no input {name!r}.", f"It has {', '.join(ports) or 'none'}."
            )
        found[name] = np.array(value, dtype=DTYPES[ports[name].dtype])
    return found


def module_of(
    graph: Graph,
    *,
    frozen: Iterable[str] = (),
    fixed: Mapping[str, Any] | None = None,
    training: bool = False,
    check_sizes: bool = True,
) -> OnnxModule:
    """The module of a graph that was read; arguments as `from_onnx`."""
    values = _fixed(graph, fixed or {})
    frozen = (frozen,) if isinstance(frozen, str) else tuple(frozen)
    return OnnxModule(graph, roles_of(graph, frozen, values), values, training, check_sizes)


def from_onnx(
    file: str | Path,
    *,
    frozen: Iterable[str] = (),
    fixed: Mapping[str, Any] | None = None,
    training: bool = False,
    check_sizes: bool = True,
) -> OnnxModule:
    """A trainable torch module from an ONNX file; `tallystick.from_onnx` has the arguments."""
    return module_of(
        read_graph(Path(file)),
        frozen=frozen,
        fixed=fixed,
        training=training,
        check_sizes=check_sizes,
    )
