"""A share of a step, computed again by another worker (docs/adr/0024)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tallystick.devices.device import Device, Tensor
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.operators.fold import FOLD
from tallystick.program.ir import Value
from tallystick.program.partial_sums import PartialSums
from tallystick.program.pieces import value_name
from tallystick.program.section_share import SectionShare
from tallystick.program.share import Tree, parts_of


def computed_again(
    tree: Tree,
    section: SectionShare,
    device: Device,
    state: Mapping[str, Tensor],
    records: Callable[[int], Mapping[str, np.ndarray]],
    scalars: Mapping[str, float],
    rng: Any,
) -> tuple[dict[Value, Tensor], list[dict[Value, np.ndarray]]]:
    """Sums and statistics of the share `tree`, in memory of their own.

    `records` gives the records of a micro-batch.
    """
    program = section.program
    run = device.kernels(parse_contract(program.contract))[FOLD].run
    sums = {v: PartialSums(device, run, program.type_of(v), []) for v in section.values}
    statistics = []
    for part in parts_of(tree):
        results = section.turn(part, state, records(part), scalars, rng)
        statistics.append(
            {v: np.array(device.host(results[value_name(v)])) for v in section.carrying.sent}
        )
        for value, partial in sums.items():
            partial.add(part, results[value_name(value)])
    return {value: partial.held[0][1] for value, partial in sums.items()}, statistics
