"""An output's operator class and its place in the step, for tables."""

from __future__ import annotations

from tallystick.kernels.evaluate import view
from tallystick.program.ir import Program, Value, op_spec

# Operators with a line of their own; the others go by the registry's class.
_NAMED = {
    "aten.mm": "matrix products",
    "aten.addmm": "matrix products",
    "aten.bmm": "matrix products",
    "aten.convolution": "convolutions",
    "aten.convolution_backward": "convolutions",
    "aten.sum": "sums and means",
    "aten.sum.dim_IntList": "sums and means",
    "aten.mean": "sums and means",
    "aten.mean.dim": "sums and means",
}
_BY_CLASS = {
    "dot": "matrix products",
    "reduction": "other reductions",
    "scatter": "scatter",
    "elementwise": "elementwise",
    "random": "elementwise",
    "optimizer": "optimizer",
    "move": "data movement",
    "fold": "elementwise",
}
CLASSES = (
    "matrix products",
    "convolutions",
    "sums and means",
    "normalisation",
    "softmax, activations, losses",
    "elementwise",
    "scatter",
    "other reductions",
    "optimizer",
)
# Places in the step. The paper logs the first two.
PLACES = ("forward", "input gradients", "parameter gradients", "optimizer")


def class_of(operator: str) -> str:
    """One of `CLASSES` for an operator whose output is computed."""
    if operator in _NAMED:
        return _NAMED[operator]
    if "_norm" in operator:
        return "normalisation"
    kind = op_spec(operator).op_class
    return _BY_CLASS.get(kind, "softmax, activations, losses")


def loss_node(program: Program) -> int:
    """Index of the node that yields the loss; the later nodes are the backward pass."""
    return program.output_values["loss"].node


def places(program: Program) -> list[tuple[str, ...]]:
    """For each node, one of `PLACES` for each of its outputs."""
    last = loss_node(program)
    gradients = _parameter_gradients(program)
    found: list[tuple[str, ...]] = []
    for index, node in enumerate(program.nodes):
        if index <= last:
            found.append(("forward",) * len(node.out_types))
        elif op_spec(node.op).op_class == "optimizer" or node.op == "tallystick.sum_squares":
            found.append(("optimizer",) * len(node.out_types))
        else:
            found.append(
                tuple(
                    "parameter gradients" if (index, out) in gradients else "input gradients"
                    for out in range(len(node.out_types))
                )
            )
    return found


def _parameter_gradients(program: Program) -> set[tuple[int, int]]:
    """Outputs that reach an optimizer node through views and additions of gradients alone."""
    found: set[tuple[int, int]] = set()
    open_: list[Value] = [
        value
        for node in program.nodes
        if node.op.startswith("tallystick.") and node.op.endswith("_step")
        for value in node.inputs
        if value is not None
    ]
    while open_:
        value = open_.pop()
        if value.is_input or (value.node, value.out) in found:
            continue
        found.add((value.node, value.out))
        node = program.nodes[value.node]
        if node.op in view or node.op == "aten.add.Tensor":
            open_ += [v for v in node.inputs if v is not None]
    return found
