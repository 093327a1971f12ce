"""Tensors outside of the module that have a gradient: no program trains them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from tallystick.errors import UsageError
from tallystick.program.capture.source import here


class UntrainedError(UsageError):
    """A loss has a gradient by what no program trains."""


def refuse_untrained(loss: Tensor, leaves: Sequence[Tensor]) -> None:
    """Raises UsageError where a gradient of the loss would reach a tensor outside of the module."""
    wanted = {id(leaf) for leaf in leaves}
    seen: set[object] = set()
    stack = [loss.grad_fn] if wanted else []
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) in wanted:
            raise UntrainedError(
                f"The loss has a gradient by a tensor {tuple(leaf.shape)} that is kept outside of "
                f"the module{here()}. A program would not train it.",
                "detach() what is kept or read; or make it a torch.nn.Parameter of the module.",
            )
        stack.extend(part for part, _ in node.next_functions)
