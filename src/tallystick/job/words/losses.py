"""The loss and the random operators of a program, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tallystick.job.numbers import decimal
from tallystick.job.words.parts import DrawWords
from tallystick.numerics.operators.reduction import FOLD
from tallystick.program.ir import Node, Program, Value, op_spec

# A loss is followed so far through sums, factors and means of micro-batches.
_MOST = 8


def loss_of(program: Program) -> str:
    """The program's output `loss` in words: a known loss, or the operator that makes it."""
    return _Loss(program).words(program.output_values["loss"], _MOST)


class _Loss:
    def __init__(self, program: Program) -> None:
        self.program = program

    def _node(self, value: Value | None) -> Node | None:
        if value is None or value.is_input:
            return None
        return self.program.nodes[value.node]

    def words(self, value: Value | None, depth: int) -> str:
        node = self._node(value)
        if value is None or node is None:
            return "a value that the step is given"
        known = _KNOWN.get(node.op)
        found = known(self, node, depth) if known and depth and value.out == 0 else None
        return found or f"what {node.op} makes"

    # -- known losses ------------------------------------------------------------------------------
    def entropy(self, node: Node, _: int) -> str:
        left = node.attrs.get("ignore_index")
        return f"cross entropy ({node.attrs['reduction']}, without the label {left})"

    def likelihood(self, node: Node, _: int) -> str:
        source = self._node(node.inputs[0])
        if source is None or source.op != "aten._log_softmax":
            return "negative log likelihood"
        return "negative log likelihood of a log softmax: cross entropy"

    def squares(self, node: Node, _: int) -> str:
        return f"squared error ({node.attrs['reduction']})"

    def mean(self, node: Node, _: int) -> str | None:
        """The mean of the squares of a difference."""
        squared = self._node(node.inputs[0])
        if squared is None:
            return None
        is_square = (
            squared.op == "aten.square"
            or (squared.op == "aten.pow.Tensor_Scalar" and squared.attrs["exponent"] == 2.0)
            or (squared.op == "aten.mul.Tensor" and squared.inputs[0] == squared.inputs[1])
        )
        what = self._node(squared.inputs[0]) if is_square else None
        if what is None or what.op != "aten.sub.Tensor" or what.attrs["alpha"] != 1.0:
            return None
        return "mean squared error"

    # -- what is made of losses --------------------------------------------------------------------
    def fold(self, node: Node, depth: int) -> str:
        how = "mean" if node.attrs["mean"] else "sum"
        return f"{self.words(node.inputs[0], depth - 1)}; the {how} over micro-batches"

    def total(self, node: Node, depth: int) -> str:
        factor = float(node.attrs["alpha"])  # type: ignore[arg-type]
        times = "" if factor == 1.0 else f"{decimal(factor)} times "
        first, second = (self.words(v, depth - 1) for v in node.inputs)
        return f"{first}, plus {times}{second}"

    def times(self, node: Node, depth: int) -> str:
        factor = float(node.attrs["other"])  # type: ignore[arg-type]
        return f"{decimal(factor)} times {self.words(node.inputs[0], depth - 1)}"

    def over(self, node: Node, depth: int) -> str:
        divisor = float(node.attrs["other"])  # type: ignore[arg-type]
        inner = node.inputs[0]
        if inner is not None and inner.is_input:
            return f"{self.program.inputs[inner.out].name} divided by {decimal(divisor)}"
        return f"{self.words(inner, depth - 1)}, divided by {decimal(divisor)}"


_KNOWN: dict[str, Callable[[_Loss, Node, int], str | None]] = {
    "tallystick.cross_entropy": _Loss.entropy,
    "aten.nll_loss_forward": _Loss.likelihood,
    "aten.mse_loss": _Loss.squares,
    "aten.mean": _Loss.mean,
    FOLD: _Loss.fold,
    "aten.add.Tensor": _Loss.total,
    "aten.mul.Scalar": _Loss.times,
    "aten.div.Scalar": _Loss.over,
}


# -- random operators ------------------------------------------------------------------------------
def draws_of(program: Program) -> tuple[DrawWords, ...]:
    """The program's random operators, with the numbers of their distributions."""
    found = Counter[tuple[str, tuple[tuple[str, float], ...]]]()
    for node in program.nodes:
        if op_spec(node.op, program.contract).is_random:
            numbers = ((k, v) for k, v in sorted(node.attrs.items()) if isinstance(v, float))
            found[node.op, tuple(numbers)] += 1
    return tuple(DrawWords(*draw, times) for draw, times in sorted(found.items()))
