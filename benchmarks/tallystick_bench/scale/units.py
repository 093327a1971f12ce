"""The measured unit costs and the counted shapes, as the formulas read them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tallystick.errors import UsageError

UNITS, SHAPES, LOGS = "units.json", "shapes.json", "ovt-storage-gpt2-124m.json"


@dataclass(frozen=True)
class Units:
    """What `unit_costs.py` measured. Bytes a second, and seconds of one call."""

    digest_bytes_s: Mapping[str, float]
    checksum_bytes_s: Mapping[str, float]
    fold_bytes_s: float
    fold_threads: int
    write_bytes_s: float
    read_bytes_s: float
    sign_s: float
    verify_s: float
    node_s: float
    append_s: float
    journal_s: float
    dispute_bytes_a_round: float
    audit_ratio: float
    gloo_bytes_s: float
    gloo_message_s: float

    @property
    def digest_of_one(self) -> float:
        """Bytes a second that one core hashes, beside as many others as were measured."""
        threads = max(self.digest_bytes_s, key=int)
        return self.digest_bytes_s[threads] / int(threads)

    @property
    def checksum_of_one(self) -> float:
        """Bytes a second whose checksum one core makes, beside as many others as were measured."""
        threads = max(self.checksum_bytes_s, key=int)
        return self.checksum_bytes_s[threads] / int(threads)

    @property
    def fold_of_one(self) -> float:
        """Bytes of operands a second that one core folds, beside the others."""
        return self.fold_bytes_s / self.fold_threads


@dataclass(frozen=True)
class Shape:
    """The counts of a model's step (`measure/shapes.py`)."""

    parameters: int
    layers: int
    tokens: int
    slots: int
    state_bytes: int
    section_nodes: int
    tail_nodes: int
    folds: int
    most_micro_batches: int
    node_output_bytes: int
    product_elements: int
    largest_tensor_bytes: int
    tensors: Sequence[tuple[int, int]]

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the gradients of one micro-batch, and so of the parameters: float32."""
        return 4 * self.parameters


@dataclass(frozen=True)
class Measured:
    """All that the page's formulas read, and what is told about it.

    `log_bytes` are bytes of a bounded rounding log for one element of a product.
    """

    units: Units
    about: Mapping[str, Any]
    extra: Mapping[str, Any]
    shapes: Mapping[str, Shape]
    log_bytes: float


def read(scale: Path, ovt: Path) -> Measured:
    """From the results in `scale` and, of the logs, those of `bench ovt` in `ovt`."""
    found = _json(scale / UNITS)
    given: dict[str, Any] = found["units"]
    names = {field.name for field in fields(Units)}
    logs = _json(ovt / LOGS)["entries"]["classes"]["matrix products"]
    return Measured(
        units=Units(**{name: given[name] for name in names}),
        about=found["about"],
        extra={name: value for name, value in given.items() if name not in names},
        shapes={name: Shape(**shape) for name, shape in _json(scale / SHAPES).items()},
        # The naive form has one byte for each element.
        log_bytes=logs["bounded"] / logs["naive"],
    )


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"There are no results at {path}: {error}.", "Run benchmarks/unit_costs.py --out."
        ) from None
