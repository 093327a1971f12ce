"""Writes vectors/real: the real numbers and bounds of published elements (NUMERICS 14.11).

For each call of vectors/kernels whose operator has a published element, some elements of each
output: the value and the bound that both parties state, as 16 bytes each. A call keeps their
SHA-256. `python tests/vectors/make_real_vectors.py` rewrites the file, byte for byte the same.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent)]

import kernel_format as fmt  # noqa: E402

from tallystick.numerics.contracts import find_contract  # noqa: E402
from tallystick.numerics.registry import all_ops  # noqa: E402
from tallystick.numerics.types import DTYPES, TensorType  # noqa: E402
from tallystick.opening.quantity import REAL, Logged, Site, opening_rule  # noqa: E402
from tallystick.opening.values import WholeSource, needs_of  # noqa: E402

FORMAT = "tallystick-real-vectors/1"
PATH = HERE.parents[2] / "vectors" / "real" / "published.json"
ELEMENTS = 24  # of an output
_NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
_CONTRACT = find_contract("replay/1;form=published").text


def _stated(case: fmt.Case) -> bytes:
    """What a party states of the looked-at elements, one after the other."""
    types = tuple(None if x is None else TensorType(_NAMES[x.dtype], x.shape) for x in case.inputs)
    outs = tuple(TensorType(_NAMES[y.dtype], y.shape) for y in case.outputs)
    source, found = WholeSource(case.inputs), b""
    for out, made in enumerate(outs):
        for element in range(0, made.numel, max(1, made.numel // ELEMENTS)):
            quantity = opening_rule(Site(case.op, dict(case.attrs), types, outs, out, element,
                                         _CONTRACT))  # fmt: skip
            if not isinstance(quantity, Logged) or quantity.name != "R(x)":
                continue
            for need in needs_of(quantity, source):
                if np.asarray(need).dtype == REAL:
                    found += np.asarray(need).tobytes()
    return found


def cases() -> Iterator[tuple[str, str]]:
    """The name of each call, "GROUP[ORDINAL] OPERATOR", and the digest of what is stated of it."""
    kinds = {name: {k: a.kind for k, a in spec.attrs.items()} for name, spec in all_ops().items()}
    for group in sorted({*fmt.groups()} - {"stored"}):  # under no log (NUMERICS 1.14)
        for ordinal, case in enumerate(fmt.load(group, kinds)):
            if all_ops()[case.op].is_under(_CONTRACT) and (stated := _stated(case)):
                yield f"{group}[{ordinal}] {case.op}", hashlib.sha256(stated).hexdigest()


def text() -> str:
    """The file."""
    found = {"format": FORMAT, "contract": _CONTRACT, "calls": dict(cases())}
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    PATH.write_text(text())
