"""ONNX's own backend tests of nodes, through `from_onnx` and capture under ordered/1.

    python benchmarks/coverage_onnx.py [--json] [--only Conv] [--failures]

The tests come with the package onnx, which makes their data. They are limited to the contract's
dtypes (float32, int64, int32, uint8, bool), without sequences, optionals and control flow. A test
passes if the captured program's outputs have the expected dtypes and shapes and lie within the
test's own tolerance. It is refused if an error of the package names what is missing. Everything
else is wrong. An input that fixes a shape or the form of the program (the axes of a sum, the shape
of a Reshape) is given to `from_onnx` as `fixed`, and the others are the batch. Tests whose inputs
are all fixed check the reader alone; they are counted as `constant` among the passed ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tallystick
from tallystick.errors import TallystickError
from tallystick.program.capture import capture_forward
from tallystick.program.capture.onnx.read import read_graph
from tallystick.program.capture.onnx.roles import needed_inputs
from tallystick.program.executor import Executor

CONTROL = {"If", "Loop", "Scan", "SequenceMap"}
# TensorProto: FLOAT, UINT8, INT32, INT64, BOOL.
DTYPES = {1, 2, 6, 7, 9}
TARGET = 70.0


def within(model: Any) -> bool:
    """Whether a test is one of the contract's dtypes, of tensors alone, without control flow."""
    for value in [*model.graph.input, *model.graph.output]:
        tensor = value.type.WhichOneof("value") == "tensor_type"
        if not tensor or value.type.tensor_type.elem_type not in DTYPES:
            return False
    return not any(node.op_type in CONTROL for node in model.graph.node)


def cases(only: str) -> Iterator[Any]:
    """The backend's tests of nodes that count here."""
    from onnx.backend.test.loader import load_node_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_node_model_tests()
    for case in found:
        if case.model is None:
            continue
        named = only in case.name or any(only == node.op_type for node in case.model.graph.node)
        if named and within(case.model):
            yield case


def arrays(values: Any) -> list[np.ndarray]:
    """A test's data; some are TensorProtos."""
    from onnx import numpy_helper

    return [v if isinstance(v, np.ndarray) else numpy_helper.to_array(v)
            if hasattr(v, "dims") else np.asarray(v) for v in values]  # fmt: skip


def difference(got: np.ndarray, wanted: np.ndarray, case: Any) -> str:
    """What speaks against an output, or nothing."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{got.shape} where {wanted.dtype}{wanted.shape} is expected"
    if np.issubdtype(wanted.dtype, np.floating):
        if np.allclose(got, wanted, rtol=case.rtol, atol=case.atol, equal_nan=True):
            return ""
        return f"largest error {np.nanmax(np.abs(got.astype(np.float64) - wanted)):.3g}"
    return "" if np.array_equal(got, wanted) else f"{int((got != wanted).sum())} values differ"


def outputs_of(file: Path, given: dict[str, np.ndarray]) -> tuple[list[np.ndarray], bool]:
    """The captured program's outputs in the file's order, and whether no input was left."""
    graph = read_graph(file)
    fixed = {name: given[name] for name in needed_inputs(graph)}
    module = tallystick.from_onnx(file, fixed=fixed)
    batch = {k: v for k, v in given.items() if k not in fixed}
    keys = {f"x{i}": name for i, name in enumerate(batch)}

    def forward(m: Any, b: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        found = m(*(b[f"x{i}"] for i in range(len(keys))))
        values = found.values() if isinstance(found, dict) else [found]
        return {f"y{i:02d}": value for i, value in enumerate(values)}

    arrays = {key: np.ascontiguousarray(batch[name]) for key, name in keys.items()}
    shaped = {key: a.reshape(batch[keys[key]].shape) for key, a in arrays.items()}
    program = capture_forward(module, shaped, forward)
    slots: dict[str, torch.Tensor] = {f"param.{k}": v for k, v in module.named_parameters()}
    slots |= {f"buffer.{k}": v for k, v in module.named_buffers()}
    state = {k: slots[k].detach().numpy() for k in program.state_types}
    used = {k: v for k, v in shaped.items() if k in program.batch_types}
    outputs = Executor(program).run_step(state, used).outputs
    return [outputs[name] for name in sorted(outputs)], not keys


def outcome(case: Any, directory: Path) -> dict[str, Any]:
    """One row: passed, refused or wrong, with the reason."""
    row: dict[str, Any] = {"name": case.name}
    file = directory / "model.onnx"
    file.write_bytes(case.model.SerializeToString())
    names = [value.name for value in case.model.graph.input]
    try:
        for inputs, wanted in case.data_sets:
            got, constant = outputs_of(file, dict(zip(names, arrays(inputs), strict=True)))
            row["constant"] = constant
            for one, expected in zip(got, arrays(wanted), strict=True):
                text = difference(one, expected, case)
                if text:
                    return row | {"value": "wrong", "why": text}
    except TallystickError as error:
        return row | {"value": "refused", "why": f"{type(error).__name__}: {error.message}"}
    except Exception as error:  # whatever it is, it is no refusal
        return row | {"value": "wrong", "why": f"{type(error).__name__}: {error}"}
    return row | {"value": "passed"}


def totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Numbers of the table."""
    counted = Counter(row["value"] for row in rows)
    passed = counted["passed"]
    return {
        "tests": len(rows),
        "passed": passed,
        "constant": sum(row["value"] == "passed" and row["constant"] for row in rows),
        "refused": counted["refused"],
        "wrong": counted["wrong"],
        "percent": round(100 * passed / max(len(rows), 1), 1),
        "target": TARGET,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="tests with this in their name, or operator")
    parser.add_argument("--failures", action="store_true", help="show only what did not pass")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for case in cases(args.only):
            rows.append(outcome(case, Path(directory)))
            if not args.json and not (args.failures and rows[-1]["value"] == "passed"):
                row = rows[-1]
                print(f"{row['name']:70s} {row['value']:8s} {row.get('why', '')[:400]}", flush=True)
    found = totals(rows)
    if args.json:
        from onnx import __version__

        machine = {"torch": torch.__version__, "onnx": __version__}
        table = {"bench": "coverage_onnx", "machine": machine, "totals": found, "rows": rows}
        print(json.dumps(table))
    else:
        print(", ".join(f"{value} {name}" for name, value in found.items()))
    return 1 if found["wrong"] or (not args.only and found["percent"] < TARGET) else 0


if __name__ == "__main__":
    sys.exit(main())
