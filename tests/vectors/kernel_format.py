"""Reading and writing vectors/kernels (see its README.md for the format)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from reference.move import DTYPES

FORMAT = "tallystick-kernel-vectors/1"
CONTRACT = "ordered/1-draft.1"
ALIGNMENT = 8
ROOT = Path(__file__).resolve().parents[2] / "vectors" / "kernels"
_NAMES = {np.dtype(t): name for name, t in DTYPES.items()}


@dataclass(frozen=True)
class Case:
    """One operator call: attributes, operands (None: absent) and the expected outputs."""

    op: str
    attrs: Mapping[str, Any]
    inputs: tuple[np.ndarray | None, ...]
    outputs: tuple[np.ndarray, ...]


def _attr_to_json(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()
    return list(value) if isinstance(value, tuple) else value


def attr_from_json(value: Any, kind: str) -> Any:
    """An attribute of the kind its operator declares."""
    if kind == "float":
        return float.fromhex(value)
    return tuple(value) if isinstance(value, list) else value


def encode(cases: Iterable[Case], group: str, contract: str = CONTRACT) -> tuple[str, bytes]:
    """(index text, data) of one group."""
    data = bytearray()
    seen: dict[bytes, int] = {}

    def place(x: np.ndarray | None) -> Any:
        if x is None:
            return None
        raw = np.ascontiguousarray(x).astype(x.dtype.newbyteorder("<")).tobytes()
        key = str(x.dtype).encode() + raw
        if key not in seen:
            data.extend(bytes(-len(data) % ALIGNMENT))
            seen[key] = len(data)
            data.extend(raw)
        return [_NAMES[x.dtype], list(x.shape), seen[key]]

    lines = []
    for case in cases:
        entry = {
            "op": case.op,
            "attrs": {k: _attr_to_json(v) for k, v in sorted(case.attrs.items())},
            "inputs": [place(x) for x in case.inputs],
            "outputs": [place(x) for x in case.outputs],
        }
        lines.append(json.dumps(entry, separators=(",", ":")))
    head = f'{{"format":"{FORMAT}","contract":"{contract}","data":"{group}.bin","cases":[\n'
    return head + ",\n".join(lines) + "\n]}\n", bytes(data)


# Of types that only a processor holds (NUMERICS 1.14).
_ON_PROCESSORS = frozenset({"quantised", "stored"})


def groups() -> list[str]:
    """Names of the groups that are stored."""
    return sorted(p.stem for p in ROOT.glob("*.json"))


def device_groups() -> list[str]:
    """Those whose calls a GPU has too."""
    return [group for group in groups() if group not in _ON_PROCESSORS]


@cache
def _files(root: Path, group: str) -> tuple[Any, bytes]:
    index = json.loads((root / f"{group}.json").read_text())
    return index, (root / index["data"]).read_bytes()


def load(
    group: str,
    kinds: Mapping[str, Mapping[str, str]],
    root: Path = ROOT,
    contract: str = CONTRACT,
    op: str | None = None,
) -> list[Case]:
    """The cases of one group, or of one operator in it; `kinds` gives each operator's attribute
    kinds."""
    index, data = _files(root, group)
    assert index["format"] == FORMAT and index["contract"] == contract

    def array(place: Any) -> np.ndarray | None:
        if place is None:
            return None
        dtype, shape, offset = place
        wanted = np.dtype(DTYPES[dtype])
        count = math.prod(shape)
        # copied: operands must be aligned and writable arrays as callers have them
        flat = np.frombuffer(data, wanted.newbyteorder("<"), count, offset)
        return flat.astype(wanted).reshape(shape)

    cases = []
    for entry in index["cases"]:
        if op not in (None, entry["op"]):
            continue
        own = kinds[entry["op"]]
        attrs = {k: attr_from_json(v, own[k]) for k, v in entry["attrs"].items()}
        outputs = tuple(x for p in entry["outputs"] if (x := array(p)) is not None)
        cases.append(Case(entry["op"], attrs, tuple(map(array, entry["inputs"])), outputs))
    return cases


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal dtype, shape and bytes."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
