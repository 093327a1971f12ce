"""docs/OPERATORS.md, made from the code: `PYTHONPATH=src python tests/model/operators_page.py`."""

from __future__ import annotations

import inspect
import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from model.refusals import EXPRESSIONS, STATEMENTS, Refusal, listed, refusals, refused
from torch._decomp import decomposition_table
from vectors.kernel_format import CONTRACT, Case, groups, load

from tallystick.errors import TallystickError
from tallystick.numerics.registry import OpSpec, all_ops
from tallystick.numerics.types import DTYPE_NAMES, TensorType, type_of
from tallystick.program.capture import randomness
from tallystick.program.capture.composites import COMPOSITES
from tallystick.program.capture.decompose import composition
from tallystick.program.capture.functions import Lowering
from tallystick.program.capture.lower import lowering, op_name
from tallystick.program.capture.one_call import OneCall
from tallystick.program.capture.onnx.call import rules

PAGE = Path(__file__).resolve().parents[2] / "docs" / "OPERATORS.md"
TORCH = torch.__version__.split("+")[0]
_ORDER = ("f32", "i64", "bool", "i32", "u8", "f64")
_HEAD = """# Operators and refusals

Made from the code by `PYTHONPATH=src python tests/model/operators_page.py`;
`tests/model/test_operators_page.py` keeps it so. *An operator that is neither here nor made of
those that are is refused by name.* What an operator means to the bit stands in
[NUMERICS](../spec/NUMERICS.md); how capture lowers a model in [PROGRAM 5](../spec/PROGRAM.md); how
an operator is added in [ADD-AN-OPERATOR](ADD-AN-OPERATOR.md).

1. [Operators of the contracts](#1-operators-of-the-contracts)
2. [What capture lowers](#2-what-capture-lowers)
3. [What is refused](#3-what-is-refused)
4. [ONNX](#4-onnx)
"""


def code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


# -- 1. the contracts ------------------------------------------------------------------------------


def _swaps(case: Case) -> Iterator[tuple[TensorType | None, ...]]:
    """The types of a golden call, and the same with other dtypes for each of its dtypes."""
    types = tuple(None if x is None else type_of(x) for x in case.inputs)
    held = sorted({t.dtype for t in types if t is not None})
    for others in itertools.product(DTYPE_NAMES.values(), repeat=len(held)):
        to = dict(zip(held, others, strict=True))
        yield tuple(None if t is None else TensorType(to[t.dtype], t.shape) for t in types)


def operand_dtypes(spec: OpSpec, cases: list[Case]) -> str:
    """What the type rule takes for each operand, in the shapes of the golden calls."""
    taken: dict[str, set[str]] = {name: set() for name in spec.operands}
    last = len(spec.operands) - 1
    tried: set[Any] = set()
    for case in cases:
        # One call for each choice of dtypes and of operands that are there: shapes decide nothing.
        form = tuple(None if x is None else (x.dtype, x.size > 0) for x in case.inputs)
        if form in tried:
            continue
        tried.add(form)
        for types in _swaps(case):
            try:
                spec.infer(case.attrs, types)
            except TallystickError:
                continue
            for position, t in enumerate(types):
                if t is not None:
                    taken[spec.operands[min(position, last)]].add(t.dtype)
    return "; ".join(
        f"{name} {' '.join(d for d in _ORDER if d in found) or '?'}"
        for name, found in taken.items()
    )


def contract_operators() -> str:
    kinds = {name: {a: rule.kind for a, rule in s.attrs.items()} for name, s in all_ops().items()}
    calls: dict[str, list[Case]] = defaultdict(list)
    for group in groups():
        for case in load(group, kinds):
            calls[case.op].append(case)
    lines = [
        "## 1. Operators of the contracts",
        "",
        f"{len(kinds)} operators. All contracts have all of them, but those of which the last",
        "column says who has them. Under `rounded/1` and `replay/1`",
        "the f32 elements of those marked *rounded* are the true value, rounded once or by a log",
        "(NUMERICS 13.1, 14); the others are computed as under `ordered/1`. A `?` after an",
        "operand says that it may be absent, a `*` that any number may follow.",
        "",
        "| operator | clause | operands and their dtypes | `rounded/1`, `replay/1` |",
        "|---|---|---|---|",
    ]
    for name, spec in sorted(all_ops().items()):
        mark = "rounded" if spec.rounded else ""
        if spec.only_under:
            mark = f"{code(spec.only_under)} alone"
        dtypes = operand_dtypes(spec, calls[name])
        lines.append(f"| `{name}` | {spec.clause} | {dtypes} | {mark} |")
    return "\n".join(lines)


# -- 2. capture ------------------------------------------------------------------------------------


def refusing() -> set[str]:
    """Operators whose rule only refuses."""
    alone = {r.where for r in refusals() if r.where.count(".") == 1}
    found = set()
    for name, rule in lowering.items():
        body = re.sub(r'""".*?"""', "", inspect.getsource(rule), flags=re.S)
        where = f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"
        if where in alone and re.search(r"-> Results:\s+raise ", body):
            found.add(name)
    return found


def by_family(table: Any, names: Iterable[str]) -> list[str]:
    families: dict[str, list[str]] = defaultdict(list)
    for name in names:
        families[table[name].__module__].append(name)
    lines = ["| rules | operators |", "|---|---|"]
    for module, members in sorted(families.items()):
        lines.append(f"| `{module.rpartition('.')[2]}` | {code(sorted(members))} |")
    return lines


# The operands of a made-up call.
_TRIED = (
    ((4, 4), torch.float32), ((2, 4, 4, 4), torch.float32), ((2, 4, 4), torch.float32),
    ((4,), torch.float32), ((4, 4), torch.int64), ((4, 4), torch.bool),
    ((2, 4, 4, 4, 4), torch.float32),
)  # fmt: skip
_NUMBERS = {"int": 1, "float": 0.5, "number": 1, "bool": True, "Scalar": 1, "SymInt": 1}


def _example(kind: str, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    """An argument of a schema's type; None where a call is hard to make up."""
    if kind == "Tensor":
        return torch.empty(shape, dtype=dtype, device="meta")
    if kind == "List[Tensor]":
        return [torch.empty(shape, dtype=dtype, device="meta")] * 2
    if kind in ("List[int]", "List[SymInt]"):
        return [1] * max(len(shape) - 2, 1)
    return _NUMBERS.get(kind)


def is_captured(func: Any) -> bool:
    """Whether a call of `func`, made up from its schema, becomes a program."""
    for shape, dtype in _TRIED:
        positional, named = [], {}
        for argument in func._schema.arguments:
            if argument.has_default_value():
                continue
            made = _example(str(argument.type), shape, dtype)
            if argument.kwarg_only:
                named[argument.name] = made
            else:
                positional.append(made)
        try:
            OneCall(func, tuple(positional), named, CONTRACT)
        except Exception:  # torch refuses the call in its own words, or we do
            continue
        return True
    return False


def candidates() -> dict[str, Any]:
    """What torch has a decomposition of, and neither a rule nor the contract knows, by name."""
    found = {}
    for func in decomposition_table:
        if not isinstance(func, torch._ops.OpOverload) or func._schema.is_mutable:
            continue
        name = op_name(func)
        if name in lowering or name in composition or name in all_ops():
            continue
        if name.startswith("aten."):
            found[name] = func
    return found


def decomposed() -> list[str]:
    """Operators without a rule that torch's decompositions bring to ours, by one call each."""
    return sorted(name for name, func in candidates().items() if is_captured(func))


def functional_names() -> tuple[list[str], list[str]]:
    """torch's functions that are replaced by draws and by parts of ours."""
    table = Lowering(torch.zeros(2, dtype=torch.int64)).table

    def named(functions: Iterable[Any]) -> list[str]:
        resolved = (torch.overrides.resolve_name(f) or f.__name__ for f in functions)
        return sorted({str(name) for name in resolved})

    refused_here = [f for f in table if f in randomness.REFUSED_DRAWS]
    others = [f for f in table if f not in COMPOSITES and f not in refused_here]
    return named(others), named(f for f in COMPOSITES if f in table)


def lowered(by_torch: list[str]) -> str:
    without = refusing() | {"get_attr"}
    ruled = [name for name in lowering if name not in without]
    # A prim is a part of torch's decompositions; no model calls one.
    ours = [n for n in composition if n not in lowering and n.startswith("aten.")]
    own = [n for n in all_ops() if n not in lowering and n not in composition]
    reached = [n for n in own if n.startswith("aten.")]
    functions, composed = functional_names()
    return "\n".join([
        "## 2. What capture lowers",
        "",
        "A call of torch becomes ATen operators, forward and backward; these go, in this order,",
        "by a rule, by a composition of ours, by the contract's own operator of that name, or by",
        "torch's reference decomposition. Names are ATen's, with the overload unless it is",
        "`default`.",
        "",
        f"### By a rule ({len(ruled)})",
        "",
        *by_family(lowering, ruled),
        "",
        f"### By a composition of other operators ({len(ours)})",
        "",
        *by_family(composition, ours),
        "",
        f"### By their own name ({len(reached)})",
        "",
        code(sorted(reached)),
        "",
        "### By torch's reference decomposition",
        "",
        f"With torch {TORCH}, each of these became a program in one call that was made as this",
        "page was made. A decomposition may take other calls, and torch has more of them; where a",
        "part is missing, the part is refused by name.",
        "",
        code(by_torch),
        "",
        "In-place forms (`add_`), `out=` forms and `_foreach_` forms go by the operator that they",
        "are made of.",
        "",
        "### Torch functions that are replaced before they are traced",
        "",
        "By the contract's generator, or by the contract's form of them: " + code(functions) + ".",
        "",
        "By parts whose gradient a program can hold: " + code(composed) + ".",
    ])  # fmt: skip


# -- 3. refusals -----------------------------------------------------------------------------------


def _calls(refusal: Refusal) -> str:
    """The operators or functions that a refusal is about, where the code tells."""
    module, _, function = refusal.where.rpartition(".")
    if refusal.where.startswith("randomness._refuse."):
        return code(sorted(randomness.REFUSED_DRAWS.values()))
    names = [
        n
        for n, rule in lowering.items()
        if (rule.__module__.rpartition(".")[2], rule.__name__) == (module, function)
    ]
    return code(sorted(names))


def examples() -> dict[Refusal, list[str]]:
    """Examples that are refused as this is called, by the refusal that they meet."""
    found: dict[Refusal, list[str]] = defaultdict(list)
    for example in (*EXPRESSIONS, *STATEMENTS):
        error = refused(example)
        refusal = None if error is None else listed(error)
        if refusal is not None:
            found[refusal].append(example)
    return found


def refused_calls() -> str:
    shown = examples()
    lines = [
        "## 3. What is refused",
        "",
        "Every refusal of capture and of `reproducible()`, in the words of the code that raises",
        "it; `…` is what a call puts in. Each is an error of `tallystick.errors`, with `.message`",
        "and `.next_action`; it names the module and the line of the model where one is known. In",
        "the examples, `h` is `f32[4, 6]`, the output of `model = nn.Linear(6, 6)`, `i` is",
        "`i64[4]`, `batch` holds `x` and `i`, and the loss is the sum.",
        "",
    ]
    titles = {
        "UnsupportedOperatorError": "Operators and calls",
        "UsageError": "Models, batches and surroundings",
    }
    for kind, title in titles.items():
        lines += [f"### {title} (`{kind}`)", "", "| refused | next action | example | raised in |",
                  "|---|---|---|---|"]  # fmt: skip
        for refusal in dict.fromkeys(r for r in refusals() if r.kind == kind):
            about_ = _calls(refusal)
            message = cell(refusal.message) + (f" ({about_})" if about_ else "")
            given = "<br>".join(f"`{e}`" for e in shown.get(refusal, []))
            action = cell(refusal.action)
            lines.append(f"| {message} | {action} | {given} | `{refusal.where}` |")
        lines.append("")
    return "\n".join(lines).rstrip()


# -- 4. ONNX ---------------------------------------------------------------------------------------


def onnx_operators() -> str:
    def versions(first: int, last: int) -> str:
        return f"{first}" if first == last else f"{first}–{last}"

    known = ", ".join(f"`{n}` {versions(r.first, r.last)}" for n, r in sorted(rules.items()))
    lines = [
        "## 4. ONNX",
        "",
        f"`from_onnx` has rules for {len(rules)} operators, each with the versions that the rule",
        "covers; an operator without one is replaced by the standard's own body, where it has",
        "one. Any other is refused with its node ([INTERFACE](INTERFACE.md#onnx-files)).",
        "",
        known + ".",
        "",
        "Where no next action stands here, the list of all nodes that are not covered has one.",
        "",
        "| refused | next action | raised in |",
        "|---|---|---|",
    ]
    for refusal in dict.fromkeys(refusals("onnx")):
        lines.append(f"| {cell(refusal.message)} | {cell(refusal.action)} | `{refusal.where}` |")
    return "\n".join(lines)


def sections() -> dict[str, str]:
    """The page by heading."""
    made = (contract_operators(), lowered(decomposed()), refused_calls(), onnx_operators())
    return {text.splitlines()[0]: text for text in made}


def page() -> str:
    return "\n\n".join([_HEAD.rstrip("\n"), *sections().values()]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
