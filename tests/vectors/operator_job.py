"""A job whose one step applies every operator to operands of the golden vectors.

Each golden call is a node: its operands are slots of the state, its outputs the next values of
slots of their own. So a false element of any output, of any operator, ends in another state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace

import kernel_format as fmt
import numpy as np

from tallystick.commit.tensor import first_non_canonical
from tallystick.job.job import Job
from tallystick.job.save import save_job
from tallystick.numerics.registry import all_ops
from tallystick.numerics.types import TensorType, type_of
from tallystick.program.ir import (
    COMMIT,
    Input,
    Node,
    Program,
    Value,
    input_value,
)
from tallystick.program.state import ModuleNames

KINDS = {name: {k: a.kind for k, a in spec.attrs.items()} for name, spec in all_ops().items()}
BATCH = TensorType("f32", (1,))


def golden(
    most: int,
    elements: int,
    only: Collection[str] | None = None,
    groups: Collection[str] | None = None,
) -> list[fmt.Case]:
    """At most `most` golden calls of each operator, of so many elements in all at most."""
    taken: Counter[str] = Counter()
    found = []
    for group in sorted(groups or fmt.groups()):
        for case in fmt.load(group, KINDS):
            size = sum(x.size for x in (*case.inputs, *case.outputs) if x is not None)
            if size > elements or taken[case.op] >= most or not all(y.size for y in case.outputs):
                continue
            if (only is None or case.op in only) and all(map(_canonical, case.inputs)):
                taken[case.op] += 1
                found.append(case)
    return found


def _canonical(x: np.ndarray | None) -> bool:
    """A state holds no other NaN (COMMITMENTS 3.3)."""
    return x is None or first_non_canonical(x) is None


def operator_job(path: Path, contract: str, cases: Sequence[fmt.Case]) -> Job:
    """The job; node number k is `cases[k]`, then come the loss and COMMIT."""
    slots: dict[str, np.ndarray] = {}
    calls: list[tuple[fmt.Case, list[str | None], list[str]]] = []
    scalars: dict[str, float] = {}
    for number, case in enumerate(cases):
        names: list[str | None] = []
        for at, x in enumerate(case.inputs):
            name = None
            if x is not None and x.dtype == np.float64 and x.ndim == 0:
                name = f"scalar.{number}.{at}"
                scalars[name[len("scalar.") :]] = float(x)
            elif x is not None:
                name = f"in.{number}.{at}"
                slots[name] = x
            names.append(name)
        outs = [f"out.{number}.{k}" for k in range(len(case.outputs))]
        slots.update({n: np.zeros_like(y) for n, y in zip(outs, case.outputs, strict=True)})
        calls.append((case, names, outs))
    types = {name: type_of(x) for name, x in slots.items()}
    inputs = [Input("state", name, type_) for name, type_ in types.items()]
    inputs += [Input("scalar", f"scalar.{n}", TensorType("f64", ())) for n in scalars]
    inputs.append(Input("batch", "batch.x", BATCH))
    inputs.sort(key=lambda spec: spec.name.encode())
    index = {spec.name: k for k, spec in enumerate(inputs)}
    outputs: dict[str, Value] = {name: input_value(index[name]) for name in slots}
    nodes = []
    for number, (case, names, outs) in enumerate(calls):
        given = tuple(None if n is None else input_value(index[n]) for n in names)
        made = tuple(types[n] for n in outs)
        nodes.append(Node(case.op, given, dict(case.attrs), made))
        outputs.update({n: Value(number, k) for k, n in enumerate(outs)})
    loss = Node("aten.sum", (input_value(index["batch.x"]),), {}, (TensorType("f32", ()),))
    nodes.append(loss)
    outputs["loss"] = Value(len(nodes) - 1, 0)
    ends = tuple(outputs[name] for name in sorted(slots))
    nodes.append(Node(COMMIT, ends, {}, ()))
    program = Program(contract, tuple(inputs), tuple(nodes), tuple(sorted(outputs.items())))
    step = SimpleNamespace(
        program=program,
        batch={"x": BATCH},
        initial_state=slots,
        scalars=scalars,
        first_step=None,
        micro_batches=None,
        names=ModuleNames(),
        not_followed="",
    )
    return save_job(
        step, path, {"x": np.ones((1, 1), np.float32)[:, 0]}, steps=1, checkpoint_interval=1,
    )  # fmt: skip
