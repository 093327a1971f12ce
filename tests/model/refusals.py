"""Capture's refusals, collected from the code that raises them, and calls that are refused.

A refusal's words stand in one place, where it is raised. So the page docs/OPERATORS.md reads them
there: a literal stays as it is, and what a call computes is an ellipsis.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

import tallystick.program.capture as package
from tallystick.errors import TallystickError
from tallystick.program.capture.onnx.call import OnnxCall

CAPTURE = Path(package.__file__).parent
_CLASSES = ("UnsupportedOperatorError", "UsageError")
_KINDS_OF_USAGE = ("UntrainedError", "MovingStateError")
_GAP = "…"
# A message of fewer literal characters passes another refusal on, or says that we made a mistake.
_SPEAKS = 8


@dataclass(frozen=True)
class Refusal:
    """A raise of ours. `where` is "module.function"; `\x00` stands for what the call computes."""

    where: str
    kind: str
    template: str
    action: str

    @property
    def message(self) -> str:
        return re.sub(r"\x00+", _GAP, self.template)

    def fits(self, message: str) -> bool:
        parts = (re.escape(part) for part in self.template.split("\x00"))
        return re.fullmatch(".*".join(parts), message, re.S) is not None

    def tells(self, action: str) -> bool:
        """Whether `action` is the refusal's, or one of its choices, piece by piece."""
        choices = self.action.split(" Or: ")
        return any(all(part in action for part in c.split(_GAP)) for c in choices)

    @property
    def weight(self) -> int:
        """How much of the message is literal."""
        return len(self.template.replace("\x00", ""))


class _Reader:
    """Finds the raises of one module."""

    def __init__(self, path: Path) -> None:
        dotted = ".".join(path.relative_to(CAPTURE).with_suffix("").parts)
        self.name, self.tree = dotted, ast.parse(path.read_text("utf-8"))
        self.module = importlib.import_module(f"{package.__name__}.{dotted}")

    def text(self, node: ast.expr, local: dict[str, list[str]]) -> str:
        """The string that an expression makes; `\x00` where only a run knows it."""
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float)):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(self.text(value, local) for value in node.values)
        if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Name):
            return self.text(node.value, local)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self.text(node.left, local) + self.text(node.right, local)
        if isinstance(node, ast.Name) and node.id in local:
            return " Or: ".join(local[node.id])
        if isinstance(node, ast.Name):
            held = getattr(self.module, node.id, None)
            return str(held) if isinstance(held, (str, int, float)) else "\x00"
        if isinstance(node, ast.IfExp):
            return f"{self.text(node.body, local)} Or: {self.text(node.orelse, local)}"
        return "\x00"

    def texts(self, function: ast.AST) -> dict[str, list[str]]:
        """The texts that a function gives to a local name: one, or the choices of a `hint`."""
        found: dict[str, list[str]] = {}
        for n in ast.walk(function):
            if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name):
                made = isinstance(n.value, (ast.Constant, ast.JoinedStr))
                text = self.text(n.value, {}) if made else "\x00"
                found.setdefault(n.targets[0].id, []).append(text)
        return {k: v for k, v in found.items() if k == "hint" or len(v) == 1}

    def action(self, call: ast.Call, local: dict[str, list[str]]) -> str:
        if len(call.args) > 1:
            return re.sub(r"\x00+", _GAP, self.text(call.args[1], local))
        refuses = getattr(call.func, "attr", "") == "refuse"
        return str(signature(OnnxCall.refuse).parameters["action"].default) if refuses else ""

    def raised(self, call: ast.Call) -> str:
        """The class of the error that a call makes, if it makes one of ours."""
        name = getattr(call.func, "id", "")
        name = _CLASSES[1] if name in _KINDS_OF_USAGE else name
        if getattr(call.func, "attr", "") == "refusal":
            return _CLASSES[1]
        if getattr(getattr(call.func, "func", None), "id", "") == "_refusal":
            return _CLASSES[1]
        if getattr(call.func, "attr", "") == "refuse":
            return _CLASSES[0]
        return name if name in _CLASSES else ""

    def calls(self, node: ast.AST, path: tuple[str, ...]) -> Iterator[Refusal]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                yield from self.calls(child, (*path, child.name))
                continue
            if isinstance(child, ast.Call) and self.raised(child):
                local = self.texts(self.function(path))
                message = self.text(child.args[0], local)
                if getattr(child.func, "attr", "") == "refusal":
                    message = f"\x00, a tensor outside of the module, {message}\x00."
                yield Refusal(
                    ".".join((self.name, *path)),
                    self.raised(child),
                    message,
                    self.action(child, local),
                )
            yield from self.calls(child, path)

    def function(self, path: tuple[str, ...]) -> ast.AST:
        node: Any = self.tree
        for name in path:
            node = next(n for n in ast.walk(node) if getattr(n, "name", "") == name)
        return node


@cache
def refusals(room: str = "") -> tuple[Refusal, ...]:
    """Every refusal of `program/capture`, or of a room in it, in the order of the code."""
    found = []
    for path in sorted((CAPTURE / room).glob("*.py")):
        reader = _Reader(path)
        found += [r for r in reader.calls(reader.tree, ()) if r.weight >= _SPEAKS]
    return tuple(found)


def listed(error: TallystickError) -> Refusal | None:
    """The refusal that raised `error`: the fitting one with the most literal characters."""
    # A list of missing operators stands for its first; the lowering adds where the operator
    # stands, and source.py the line.
    message = re.sub(r"^\d+ operators of the model are missing:\n  - ([^\n]*).*", r"\1",
                     error.message, flags=re.S)  # fmt: skip
    plain = re.sub(r" \((?:operator |from module |outside )[^\n]*\)$", "", message)
    texts = {plain, error.message, re.sub(r" \(\S*:\d+\)", "", plain)}
    fitting = [
        r for r in refusals() if any(r.fits(text) for text in texts) and r.tells(error.next_action)
    ]
    return max(fitting, key=lambda r: r.weight, default=None)


# -- calls that are refused ------------------------------------------------------------------------

# The loss is the sum of the expression. `h` is f32[4, 6], the output of a linear layer `model`;
# `i` is i64[4], from the batch.
EXPRESSIONS = (
    "torch.special.i0(h)",
    "torch.fft.rfft(h).abs()",
    "h.half()",
    "h[h > 0]",
    "h * h.sum().item()",
    "h[:h.argmax()]",
    "h.index_put((h > 0,), h[:, 0], accumulate=True)",
    "torch.tensor([h.sum(), 1.0])",
    "h * nn.Parameter(torch.ones(6))",
    "h.detach()",
    "torch.poisson(h.exp())",
    "h * torch.randint(3, 3, (6,))",
    "h * torch.empty(6).random_(3, None)",
    "torch.multinomial(h.softmax(-1), 7) * h[:, :1]",
    "h * torch.rand(6, generator=torch.Generator())",
    "F.dropout(h, 1.5)",
    "nn.utils.rnn.pack_padded_sequence(h[None], torch.tensor([4]), batch_first=True).data",
    "F.embedding(i, h, max_norm=1.0)",
    "F.embedding_bag(i, model.weight, i[:1] * 0, sparse=True)",
    "torch.linalg.cholesky(torch.eye(65) * h.sum())",
    "h.scatter_reduce(0, i[:, None], h, 'prod')",
    "h[1:].as_strided((2, 2), (1, 1))",
    "torch.as_strided_scatter(h, h[:2, :2], (2, 2), (1, 1))",
    "F.scaled_dot_product_attention(h, h, h, h[:, :4] * 0, is_causal=True)",
    "F.batch_norm(h[:1], model.bias * 0, model.bias * 0 + 1, training=True)",
    "h.softmax(-1, dtype=torch.float16)",
)

# `loss` is the sum of the model's output; `batch` has `x` and `i`; `sgd` is an optimizer.
STATEMENTS = (
    "capture(nn.Linear, loss, batch, sgd)",
    "capture(nn.LazyLinear(2), loss, batch, sgd)",
    "capture(model.half(), loss, batch, sgd)",
    "capture(model.eval(), loss, batch, sgd)",
    "capture(model, loss, batch, sgd, mode='eval')",
    "capture(model, loss, batch, sgd, mode='test')",
    "capture(model.requires_grad_(False), loss, batch, sgd)",
    "capture(model, nn.MSELoss(), batch, sgd)",
    "capture(model, 'mse', batch, sgd)",
    "capture(model, lambda m, b: m(b['x']), batch, sgd)",
    "capture(model, lambda m, b: (m(b['x']).sum(), 'accuracy'), batch, sgd)",
    "capture(model, loss, (batch['x'], batch['i']), sgd)",
    "capture(model, loss, [batch], sgd)",
    "capture(model, loss, 7, sgd)",
    "capture(model, loss, {'x': [[1.0], [2.0, 3.0]]}, sgd)",
    "capture(model, loss, {'x': [1.0, 2.0]}, sgd)",
    "capture(model, loss, {'x': ((4, 6), 'real')}, sgd)",
    "capture(model, loss, {'x': batch['x'].to_sparse()}, sgd)",
    "capture(model, loss, {'x': batch['x'][:, :5]}, sgd)",
    "with torch.autocast('cpu'): capture(model, loss, batch, sgd)",
    "with torch.inference_mode(): capture(model, loss, batch, sgd)",
    "model.weight.register_post_accumulate_grad_hook(print); capture(model, loss, batch, sgd)",
    "model.register_forward_hook(lambda m, a, y: y * random.random()); "
    "capture(model, loss, batch, sgd).program",
    "model.register_forward_hook(lambda m, a, y: y * time.time()); "
    "capture(model, loss, batch, sgd).program",
    "model.n = []; model.register_forward_hook(lambda m, a, y: m.n.append(1) or y * len(m.n)); "
    "capture(model, loss, batch, sgd).program",
    "model.register_forward_hook(lambda m, a, y: m.register_buffer('last', y)); "
    "capture(model, loss, batch, sgd)",
    "model.register_forward_hook(lambda m, a, y: y.sum() * torch.tensor([0.5] * 9999)); "
    "capture(model, loss, batch, sgd)",
    "model.last = torch.ones(2); "
    "model.register_forward_hook(lambda m, a, y: setattr(m, 'last', y.detach()) or y + m.last[0]); "
    "capture(model, loss, batch, sgd)",
    "model.bank = []; model.register_forward_hook("
    "lambda m, a, y: m.bank.append(y.detach()) or y * (2 if len(m.bank) > 9 else 1)); "
    "capture(model, loss, batch, sgd)",
    "with reproducible(): torch.ones(3).to_sparse() * 2",
    "with reproducible(): torch.unique(torch.ones(3))",
    "with reproducible(): torch.bincount(batch['i'], torch.ones(4))",
)  # fmt: skip


def _names() -> dict[str, Any]:
    import random
    import time

    import torch
    from torch import nn

    import tallystick

    torch.manual_seed(0)
    return {
        "torch": torch, "nn": nn, "F": nn.functional, "random": random, "time": time,
        "capture": tallystick.capture, "reproducible": tallystick.reproducible,
        "model": nn.Linear(6, 6), "loss": lambda m, b: m(b["x"]).sum(),
        "batch": {"x": torch.ones(4, 6), "i": torch.tensor([3, 0, 1, 1])},
        "sgd": tallystick.SGD(lr=0.1),
    }  # fmt: skip


def refused(example: str) -> TallystickError | None:
    """The error that an example raises; None where nothing is refused."""
    names = _names()
    code = example
    if example in EXPRESSIONS:
        code = (
            "def body(model, batch):\n    h, i = model(batch['x']), batch['i']\n"
            f"    return ({example}).sum()\ncapture(model, body, batch, sgd)\n"
        )
    with contextlib.suppress(ImportError):
        try:
            exec(compile(code, "example.py", "exec"), names)
        except TallystickError as error:
            return error
    return None
