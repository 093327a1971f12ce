"""The kernels of a GPU under each contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from tallystick.contracts.exact.cuda.table import exact_kernel
from tallystick.contracts.ordered.cuda.table import cuda_kernel
from tallystick.contracts.rounded.cuda.table import rounded_kernel
from tallystick.devices.cuda.operands import Outputs, Tensors
from tallystick.devices.cuda.tensor import DeviceTensor
from tallystick.devices.kernel import Kernel, Run
from tallystick.numerics.contracts import Contract
from tallystick.numerics.types import Attrs
from tallystick.products.cuda.marks import Rounding

_COMPLETE = ("ordered/1", "rounded/1", "exact/1")


def _rounded(exact: Run, ordinary: Run) -> Run:
    """`exact` where the operands are those of a rounded operator (NUMERICS 13.1), else
    `ordinary`."""

    def run(
        attrs: Attrs, inputs: Sequence[DeviceTensor | None], outputs: Sequence[DeviceTensor]
    ) -> None:
        floats = all(x is None or x.dtype == "f32" for x in inputs)
        (exact if floats else ordinary)(attrs, inputs, outputs)

    return run


def _alone(how: Rounding, op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    rounded_kernel[op](how, attrs, inputs, outputs)


def _by_integers(width: int, op: str, attrs: Attrs, inputs: Tensors, outputs: Outputs) -> None:
    exact_kernel[op](width, attrs, inputs, outputs)


@lru_cache(maxsize=64)
def kernels_of(contract: Contract) -> Mapping[str, Kernel]:
    """Operator name to kernel; none under a contract that has no kernels here.

    Of the contracts that keep a log, the published form computes in `replay/stock`. Those of the
    bounded form are those of an empty log (NUMERICS 14.5); replay/bounded/resident.py has the
    others.
    """
    if contract.name not in _COMPLETE and contract.form != "bounded":
        return {}
    table = dict(cuda_kernel)
    for op in contract.rounded_operators & table.keys() & rounded_kernel.keys():
        exact = partial(_alone, Rounding(contract.bits), op)
        table[op] = replace(table[op], run=_rounded(exact, table[op].run))
    for op in contract.exact_operators & table.keys() & exact_kernel.keys():
        table[op] = replace(table[op], run=partial(_by_integers, contract.width, op))
    return table
