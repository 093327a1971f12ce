"""Kernels: those of `ordered/1` by family, and which one computes an operator under a contract."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from tallystick import _core
from tallystick.errors import RefusedOperandsError, UnsupportedVersionError
from tallystick.kernels.table import Run, run_of
from tallystick.numerics.contracts import Contract, find_contract
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs


def without_log(name: str) -> Contract:
    """The contract called `name`, under which a value follows from the operands alone.

    Raises UnsupportedVersionError for an unknown contract, and for one that keeps a log.
    """
    contract = find_contract(name)
    if contract.keeps_log:
        raise UnsupportedVersionError(
            f"Under {contract.name} a value needs a step's rounding log, which is not here.",
            "Use rounded/1 (the value of an element without an entry), or train a job.",
        )
    return contract


def refused_operands(error: BaseException) -> bool:
    """Whether `error`, raised by a kernel, says that its operands' content is none it takes.

    Every machine stops there. Anything else a kernel raises (MemoryError, an interrupt, a fault
    of this program) says nothing about the run.
    """
    return isinstance(error, RefusedOperandsError | _core.OperandError)


def check_products() -> None:
    """Raise EnvironmentRefusedError where products for rounded operators cannot be relied upon:
    by kernels that are not admissible (NUMERICS 14.3), or threads that flush (1.7)."""
    from tallystick.kernels.rounded.engines import current_engine

    current_engine()


@lru_cache(maxsize=1024)
def _rounded(op: str, bits: int, ordinary: Run) -> Run:
    def run(
        attrs: Attrs, inputs: Sequence[np.ndarray | None], outputs: Sequence[np.ndarray]
    ) -> None:
        # Imported late: numpy's BLAS is looked for only where a rounded operator runs.
        from tallystick.kernels.rounded.operators import is_rounded, run_rounded
        from tallystick.kernels.rounded.pieces import exactly

        if is_rounded(op, inputs):
            run_rounded(op, exactly(bits), attrs, inputs, outputs)
        else:
            ordinary(attrs, inputs, outputs)

    return run


def kernel_for(contract: Contract, spec: OpSpec) -> Run:
    """What computes `spec` under `contract`; of a contract that keeps a log, with an empty log:
    the rounded operators' elements are R(v*) then (NUMERICS 14.5). `spec` is no view."""
    run = run_of(spec.name)
    if spec.name in contract.rounded_operators:
        return _rounded(spec.name, contract.bits, run)
    return run
