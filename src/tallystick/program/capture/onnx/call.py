"""What a rule is: the table of operators says which versions it covers, and a call what it sees of
its node: inputs as tensors or as known arrays, and attributes.

@rule("Add 7-14", "Sub 7-14", folds=True)
    def _add(c: Call) -> Tensor: ...

"7-14" are the operator's own versions, as the standard's changelog numbers them. A file's operator
of another version is refused by name.

A known value is a numpy array. Where an operator reads it as a tensor, the program makes it: by one
`full`, or from the buffer that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from tallystick.errors import TallystickError, UnsupportedOperatorError, UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.attachments import Attachments
from tallystick.program.capture.onnx.graph import DTYPES, GraphNode

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Rule:
    """What an operator means, and which of its inputs are more than tensors (by position).

    `static`: they fix shapes or the form of the program, so they are known before any data.
    `settings`: an initializer that only serves there is a constant of the file and no weight.
    `statistics`: an initializer there is a buffer. `folds`: of known inputs it makes known outputs,
    once. `of_shape`: its outputs depend on its inputs' shapes alone.
    """

    run: Callable[..., Any]
    first: int
    last: int
    static: tuple[int, ...] = ()
    settings: tuple[int, ...] = ()
    statistics: tuple[int, ...] = ()
    folds: bool = False
    of_shape: bool = False

    def covers(self, version: int) -> bool:
        return self.first <= version <= self.last


def _entry(name: str, run: Callable[..., Any], first: int, last: int, **marks: Any) -> Rule:
    return Rule(run, first, last, **marks)


rules: Attachments[Rule] = Attachments("ONNX rule", "tallystick.program.capture.onnx.ops_*", _entry)


def rule(*operators: str, named: bool = False, **marks: Any) -> Callable[[F], F]:
    """Attach a function to operators, each written as "Name FIRST-LAST".

    A `named` function serves several operators and gets the name as its first argument.
    """

    def attach(function: F) -> F:
        for operator in operators:
            name, versions = operator.split()
            first, _, last = versions.partition("-")
            covered = {"first": int(first), "last": int(last or first)}
            rules(name, named=named, **covered, **marks)(function)
        return function

    return attach


Known = np.ndarray

TORCH: dict[np.dtype[Any], torch.dtype] = {
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.int32): torch.int32,
    np.dtype(np.uint8): torch.uint8,
    np.dtype(np.bool_): torch.bool,
}


def is_plain(array: Known) -> bool:
    """Whether it is one number, repeated."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return array.size > 0 and flat.tobytes() == flat[:1].tobytes() * flat.size


def made_tensor(array: Known, device: torch.device) -> Tensor:
    """A tensor with the values of a known array: a constant of the program (PROGRAM 5.10)."""
    dtype = TORCH[array.dtype]
    if array.size == 0:
        return torch.zeros(array.shape, dtype=dtype, device=device)
    if is_plain(array):
        return torch.full(array.shape, array.flat[0].item(), dtype=dtype, device=device)
    return torch.tensor(array.tolist(), dtype=dtype, device=device)


Value = Tensor | Known | None
_COVERED = "docs/INTERFACE.md tells what from_onnx covers: export the node in another form."


class OnnxCall:
    """One use of a node. Positions of inputs and names of attributes are the standard's."""

    def __init__(
        self,
        node: GraphNode,
        values: Sequence[Value],
        device: torch.device,
        held: Mapping[str, Tensor] | None = None,
        training: bool = False,
    ) -> None:
        self.node, self.values, self.device = node, values, device
        self.held = held or {}
        # Whether the caller asked for torch's modes, and this module is in training mode.
        self.training = training
        self.read: set[str] = set()

    @property
    def version(self) -> int:
        return self.node.version

    def refuse(self, text: str, action: str = _COVERED) -> UnsupportedOperatorError:
        """The refusal of this node: `raise c.refuse(...)`."""
        return UnsupportedOperatorError(f"{self.node}: {text}", action)

    # -- inputs ------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return len(self.values)

    def has(self, i: int) -> bool:
        return i < len(self.values) and self.values[i] is not None

    def tensor(self, i: int) -> Tensor:
        """Input `i`, which the operator needs."""
        if not self.has(i):
            raise UsageError(f"{self.node} has no input {i}.", "Export the model again.")
        value = self.values[i]
        if isinstance(value, Tensor):
            return value
        held = self.held.get(self.node.inputs[i])
        if held is not None:
            return held
        assert isinstance(value, np.ndarray)
        return made_tensor(value, self.device)

    def optional(self, i: int) -> Tensor | None:
        return self.tensor(i) if self.has(i) else None

    def tensors(self) -> list[Tensor]:
        return [self.tensor(i) for i in range(len(self.values))]

    def known(self, i: int) -> Known | None:
        """Input `i` where its value is known, else None."""
        value = self.values[i] if self.has(i) else None
        return value if isinstance(value, np.ndarray) else None

    def array(self, i: int) -> Known:
        """Input `i`, which must be known."""
        value = self.known(i)
        if value is None:
            raise self.refuse(f"input {i} is not known before the data.")
        return value

    def ints(self, i: int) -> list[int]:
        """A known input of integers, flat."""
        return [int(n) for n in self.array(i).reshape(-1)]

    def number(self, i: int) -> int | float | bool | None:
        """The one number of a known input, else None."""
        value = self.known(i)
        if value is None or value.size != 1:
            return None
        found: int | float | bool = value.reshape(-1)[0].item()
        return found

    def one(self, i: int) -> int | float | bool:
        """The one number of an input that must be known."""
        value = self.number(i)
        if value is None:
            raise self.refuse(f"input {i} is not one number known before the data.")
        return value

    def outputs(self) -> list[bool]:
        """Which outputs the file asks for."""
        return [bool(name) for name in self.node.outputs]

    # -- attributes --------------------------------------------------------------------------------
    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute as the file or the standard's default gives it."""
        self.read.add(name)
        return self.node.attributes.get(name, default)

    def torch_dtype(self, number: int) -> torch.dtype:
        """The torch dtype of a TensorProto.DataType."""
        if number not in DTYPES:
            raise self.refuse(f"the ONNX dtype number {number} is none of a contract's.")
        return TORCH[DTYPES[number]]

    def check_read(self) -> None:
        """Raises UnsupportedOperatorError for an attribute of the file that no rule looked at."""
        ignored = sorted(self.node.given - self.read)
        if ignored:
            raise self.refuse(f"the attribute {ignored[0]!r} is not covered.")


def run(rule: Rule, call: OnnxCall) -> tuple[Any, ...]:
    """The node's outputs. Raises UsageError and UnsupportedOperatorError, which name the node."""
    try:
        found = rule.run(call)
    except TallystickError:
        raise
    except NotImplementedError as error:
        raise call.refuse(f"torch: {_line(error)}") from error
    except _OF_THE_FILE as error:
        raise UsageError(
            f"{call.node}: {type(error).__name__}: {_line(error)}", "Check the inputs' shapes."
        ) from error
    call.check_read()
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


# What torch and the rules raise where a file's shapes or attributes do not fit.
_OF_THE_FILE = (
    RuntimeError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError,
    AssertionError, StopIteration, MemoryError,
)  # fmt: skip


def _line(error: Exception) -> str:
    text = str(error)
    return text.splitlines()[0] if text else "no message"


def folded(rule: Rule, node: GraphNode, values: Sequence[Value]) -> tuple[Known | None, ...]:
    """The known outputs of a node with known inputs, computed at once and outside of any trace."""
    if rule.of_shape:
        return run(rule, OnnxCall(node, values, torch.device("cpu")))
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
        cpu = [torch.from_numpy(v) if isinstance(v, np.ndarray) else None for v in values]
        call = _FoldedCall(node, values, cpu)
        found = run(rule, call)
        return tuple(None if t is None else t.contiguous().numpy() for t in found)


class _FoldedCall(OnnxCall):
    def __init__(self, node: GraphNode, arrays: Sequence[Value], cpu: list[Tensor | None]) -> None:
        super().__init__(node, arrays, torch.device("cpu"))
        self.cpu = cpu

    def tensor(self, i: int) -> Tensor:
        found = self.cpu[i] if i < len(self.cpu) else None
        return super().tensor(i) if found is None else found


def broadcast(one: Sequence[int], two: Sequence[int]) -> tuple[int, ...]:
    """The shape that both broadcast to. Raises ValueError."""
    return tuple(np.broadcast_shapes(tuple(one), tuple(two)))


def allow(c: OnnxCall, shape: Sequence[int], dtype: torch.dtype) -> None:
    """Raises UsageError where a constant of this shape is larger than any model's should be."""
    size = torch.empty(0, dtype=dtype).element_size()
    for n in shape:
        size *= max(int(n), 0)
    limit = LIMITS.onnx_folded_bytes
    if size > limit and isinstance(c, _FoldedCall):
        raise UsageError(f"{c.node}: a constant of {size} bytes exceeds {limit}.", "Export less.")
