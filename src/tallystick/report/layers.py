"""What people call the nodes of a step: by the layer of the model, and by what an operation does.

A program has no layers. But its state slots have the module's own names, so a node that reads one,
or whose operands come from such a node, is of that layer. Nodes of the backward part read what
forward nodes have made, and so are of the same layer.
"""

from __future__ import annotations

import re
from collections import deque

from tallystick.program.ir import COMMIT, Program

PARAMETER, BUFFER = "param.", "buffer."
# Nodes looked at before a name is given up: a far operand says little about a node.
_MOST = 64


def layer_of(program: Program, node: int) -> str | None:
    """The layer that a node most likely belongs to, by its module's name; None without one."""
    if program.nodes[node].op == COMMIT:
        return None
    seen, waiting = {node}, deque([node])
    while waiting and len(seen) <= _MOST:
        at = waiting.popleft()
        for value in program.nodes[at].inputs:
            if value is None:
                continue
            if not value.is_input:
                if value.node not in seen:
                    seen.add(value.node)
                    waiting.append(value.node)
                continue
            name = program.inputs[value.out].name
            for prefix in (PARAMETER, BUFFER):
                if name.startswith(prefix):
                    return name[len(prefix) :].rpartition(".")[0] or name[len(prefix) :]
    return None


# By the operator's name, the first that fits. The judge in a page says the same of each.
_WORDS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"^tallystick\.(?:adamw?|sgd)_step$", "the update of the model's numbers"),
        (
            r"^tallystick\.(?:beta_power|clip_coef|sum_squares)$",
            "a part of the update of the model's numbers",
        ),
        (r"^tallystick\.(?:uniform|normal|dropout_mask|mask_scale)$", "a use of random numbers"),
        (
            r"cross_entropy_backward|_loss_backward$",
            "the way back from that measure to the numbers behind it",
        ),
        (r"cross_entropy|mse_loss|nll_loss", "the measure of how far the model's guesses are off"),
        (r"_backward|embedding_dense", "the calculation of how each number should change"),
        (r"\.(?:mm|bmm|addmm)$", "a product of two tables of numbers"),
        (r"convolution|max_pool", "a filter that is moved over an image"),
        (r"batch_norm|layer_norm|var_mean", "a calculation that brings numbers to a common scale"),
        (r"\.(?:sum|mean|cumsum)(?:\.|$)|\.fold$", "a sum or an average"),
        (
            r"\.(?:amax|amin|argmax|max|min|maximum|minimum)$|\.rank$",
            "a search for the greatest or least number",
        ),
        (r"softmax", "the turning of scores into probabilities"),
        (
            r"\.(?:embedding|gather|index_select|index_add|scatter|slice|slice_scatter|cat)",
            "a look-up or a copy of numbers",
        ),
        (
            r"\.(?:view|permute|_to_copy|full|arange|where|tril|triu|masked_fill)(?:\.|$)",
            "an arranging of numbers",
        ),
        (
            r"\.(?:add|sub|mul|div|neg|floor_divide)(?:\.|$)",
            "a simple sum, difference, product or quotient",
        ),
        (r"\.(?:eq|ne|lt|le|gt|ge|logical_\w+|bitwise_\w+)(?:\.|$)", "a comparison"),
    )
)


def in_words(operator: str) -> str:
    """What an operator does."""
    if operator == COMMIT:
        return "the signed summary at the end of the step"
    found = (words for pattern, words in _WORDS if pattern.search(operator))
    return next(found, "a function of single numbers")
