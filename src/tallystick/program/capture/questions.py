"""A model's questions about values while it is traced: answered by rule, or refused (PROGRAM 5.14).

A meta tensor has no values. Three kinds of questions have an answer that is right for every value:

1. The tensor depends on no input of the step. It is computed.
2. The question is a check: an `assert`, a branch that only raises or only warns, or torch's own
   check of a tensor. The check passes. A program has no place where it could raise; the comparison
   of the first step runs the module on real values, with its checks.
3. A library's branch that only saves work, which `shortcuts` answers for the general path.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable
from functools import lru_cache
from types import FrameType
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, fx

from tallystick.devices.environment import exact_environment
from tallystick.errors import UsageError
from tallystick.numerics.contracts import ORDERED_1
from tallystick.program.capture.constants import tensor_of
from tallystick.program.capture.eager import is_storage
from tallystick.program.capture.factories import node_of
from tallystick.program.capture.one_call import OneCall
from tallystick.program.capture.source import here, is_model
from tallystick.program.capture.transformers_calls import shortcut

_CONSTANT = torch.ops.tallystick.constant.default
_CPU = torch.device("cpu")
_LARGEST = 1 << 20
_TORCHS_CHECKS = frozenset({"_check_tensor_all_with", "_check_tensor_all"})
_TELLS = ("warn", "warning", "warning_once", "info", "debug", "error", "print")


def _on_cpu(argument: Any) -> Any:
    return _CPU if isinstance(argument, torch.device) else argument


def _computes_floats(node: fx.Node) -> bool:
    """Whether torch's own kernel would give bits that are this machine's."""
    made = pytree.tree_leaves(node.meta.get("val"))
    floats = any(isinstance(t, Tensor) and t.is_floating_point() for t in made)
    return floats and isinstance(node.target, torch._ops.OpOverload) and not is_storage(node.target)


class KnownValues:
    """Values of traced tensors that depend on no input; each is computed once per trace.

    Floats are computed by the contract's kernels, as `reproducible` computes them.
    """

    def __init__(self) -> None:
        self._found: dict[fx.Node, Any] = {}

    def of(self, tensor: Tensor) -> Tensor | None:
        """The tensor's value on the CPU, or None where it depends on an input."""
        node = node_of(tensor)
        if node is None or not self._compute(node):
            return None
        value = self._found[node]
        return value if isinstance(value, Tensor) else None

    def _compute(self, last: fx.Node) -> bool:
        needed: list[fx.Node] = []
        stack, seen = [last], set(self._found)
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if not self._can(node):
                return False
            needed.append(node)
            # A constant has the key of random numbers for its place only.
            stack.extend(() if node.target is _CONSTANT else node.all_input_nodes)
        order = {node: i for i, node in enumerate(last.graph.nodes)}
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            for node in sorted(needed, key=order.__getitem__):
                try:
                    self._found[node] = self._value(node)
                except UsageError:
                    return False  # no contract defines the value
        return True

    @staticmethod
    def _can(node: fx.Node) -> bool:
        if node.target is _CONSTANT:
            return True
        if node.op == "get_attr":
            held = getattr(node.graph.owning_module, str(node.target), None)
            return isinstance(held, Tensor) and not held.is_meta
        if node.op != "call_function":
            return False
        result = node.meta.get("val")
        # A change in place of what shares its memory leaves the node as it is.
        if isinstance(result, Tensor) and (result.numel() > _LARGEST or result._version):
            return False
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            return True
        # An operator in place would change what is kept here; a random one has no value.
        named = torch.Tag.nondeterministic_seeded in target.tags or target._schema.is_mutable
        return not named

    def _value(self, node: fx.Node) -> Any:
        if node.op == "get_attr":
            return getattr(node.graph.owning_module, str(node.target))
        if node.target is _CONSTANT:
            content: Any = node.args[1:]
            return tensor_of(*content)
        args = fx.node.map_aggregate(node.args, _on_cpu)
        kwargs = fx.node.map_aggregate(node.kwargs, _on_cpu)
        args = fx.node.map_arg(args, self._found.__getitem__)
        kwargs = fx.node.map_arg(kwargs, self._found.__getitem__)
        target: Any = node.target
        if not _computes_floats(node):
            return target(*args, **kwargs)
        tensors = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, Tensor)]
        with exact_environment():
            return OneCall(target, args, kwargs, ORDERED_1)(tensors)


@lru_cache(maxsize=256)
def _statements(filename: str) -> list[ast.stmt]:
    """Every statement of a file, the inner ones last."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except SyntaxError:
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]


def _raises(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(s, ast.Raise)
        or (
            isinstance(s, ast.Expr)
            and isinstance(s.value, ast.Call)
            and isinstance(s.value.func, (ast.Attribute, ast.Name))
            and getattr(s.value.func, "attr", getattr(s.value.func, "id", "")) in _TELLS
        )
        for s in body
    )


def _passing(test: ast.expr, wanted: bool) -> bool | None:
    """What every operand of `test` answers, so that the whole is `wanted`; None where unclear."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _passing(test.operand, not wanted)
    if isinstance(test, ast.BoolOp):
        answers = {_passing(value, wanted) for value in test.values}
        return answers.pop() if len(answers) == 1 else None
    return wanted


def _only_compares(test: ast.expr) -> bool:
    """Whether numbers read in `test` go into its comparisons and sums, and into no function."""
    calls = [node for node in ast.walk(test) if isinstance(node, ast.Call)]
    own = all(isinstance(call.func, ast.Attribute) and not call.keywords for call in calls)
    return own and not any(isinstance(node, (ast.NamedExpr, ast.Lambda)) for node in ast.walk(test))


@lru_cache(maxsize=1024)
def check_answer(filename: str, line: int, numbers: bool = False) -> bool | None:
    """How a check at `line` asks of its operands to pass, or None where there is no check.

    With `numbers`, only a check that does no more with a number than compare it.
    """
    for statement in reversed(_statements(filename)):
        if isinstance(statement, ast.Assert):
            if statement.lineno <= line <= (statement.end_lineno or line):
                if numbers and not _only_compares(statement.test):
                    return None
                return _passing(statement.test, True)
        elif isinstance(statement, ast.If):
            test = statement.test
            if not test.lineno <= line <= (test.end_lineno or line):
                continue
            fits = not numbers or _only_compares(test)
            if statement.body and not statement.orelse and _raises(statement.body) and fits:
                return _passing(test, False)
            return None
    return None


class Passing(int):
    """A number that a check asks for: every comparison with it answers as the check needs.

    Arithmetic on it gives it again. An `assert` and the condition of an `if` keep no value, so it
    goes nowhere else.
    """

    def __new__(cls, answer: bool) -> Passing:
        return super().__new__(cls, answer)

    def _answer(self, _: object) -> bool:
        return bool(int(self))

    def _same(self, _: object = None) -> Passing:
        return self

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _answer
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _same
    __neg__ = __abs__ = _same
    __hash__ = int.__hash__


def _asking() -> tuple[FrameType | None, bool]:
    """The model's frame that asks, and whether a check of torch asks for it."""
    frame: FrameType | None = sys._getframe(2)
    checks = False
    while frame is not None and not is_model(frame.f_code.co_filename):
        checks = checks or frame.f_code.co_name in _TORCHS_CHECKS
        frame = frame.f_back
    return frame, checks


def _answer(known: KnownValues, tensor: Tensor, element: bool) -> Any:
    """The tensor's value or the answer by rule; None where there is none."""
    value = known.of(tensor)
    if value is not None:
        return value
    if tensor.numel() != 1:
        return None
    frame, checks = _asking()
    is_truth = element or tensor.dtype == torch.bool
    if checks and is_truth:
        return True
    if frame is None:
        return None
    found = shortcut(frame) if is_truth else None
    if found is None:
        found = check_answer(frame.f_code.co_filename, frame.f_lineno, not is_truth)
    return found if is_truth or found is None else Passing(found)


def value_questions() -> dict[Any, Callable[..., Any]]:
    """Replacements for the methods by which Python asks for values, for one trace."""
    known = KnownValues()

    def replaced(method: Callable[..., Any], of: Callable[[Any], Any]) -> Callable[..., Any]:
        is_truth = method is Tensor.__bool__

        def ask(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            found = _answer(known, tensor, is_truth) if tensor.is_meta else None
            if isinstance(found, (bool, Passing)):
                return found
            if isinstance(found, Tensor):
                with torch._C.DisableTorchFunction():
                    return of(found)
            if method is Tensor.numpy and tensor.is_meta:
                raise UsageError(
                    f"The model reads a tensor through numpy{here()}, which capture cannot follow.",
                    "Use torch's operators.",
                )
            return method(tensor, *args, **kwargs)

        return ask

    truth = replaced(Tensor.__bool__, bool)

    def contains(tensor: Tensor, element: Any) -> Any:
        """`x in tensor`, by the operators that it stands for."""
        return truth((tensor == element).any())

    return {
        Tensor.__bool__: truth,
        Tensor.item: replaced(Tensor.item, Tensor.item),
        Tensor.__int__: replaced(Tensor.__int__, int),
        Tensor.__float__: replaced(Tensor.__float__, float),
        Tensor.__index__: replaced(Tensor.__index__, int),
        Tensor.tolist: replaced(Tensor.tolist, Tensor.tolist),
        Tensor.numpy: replaced(Tensor.numpy, Tensor.numpy),
        Tensor.__contains__: contains,
    }
