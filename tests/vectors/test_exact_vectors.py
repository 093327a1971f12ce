"""Golden vectors of `exact/1`, by both engines on every instruction set (NUMERICS 17)."""

from __future__ import annotations

import itertools

import kernel_format as fmt
import make_exact_vectors as maker
import numpy as np
import pytest

from tallystick import _core
from tallystick.contracts.exact.cpu.integers import ENGINES, using
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.registry import all_ops

KINDS = {name: {k: a.kind for k, a in spec.attrs.items()} for name, spec in all_ops().items()}
PATHS = list(itertools.product(ENGINES, _core.supported_isas()))


@pytest.mark.parametrize("group", sorted(maker.CONTRACTS))
def test_exact_operators(group: str) -> None:
    contract = maker.CONTRACTS[group]
    cases = fmt.load(group, KINDS, maker.ROOT, contract)
    assert {case.op for case in cases} == set(maker.OPERATORS)
    wrong = []
    for (ordinal, case), (engine, isa) in itertools.product(enumerate(cases), PATHS):
        _core.set_isa(isa)
        with using(engine):
            got = evaluate(case.op, *case.inputs, contract=contract, **dict(case.attrs))
        made = got if isinstance(got, tuple) else (got,)
        if len(made) != len(case.outputs) or not all(
            fmt.same_bits(np.asarray(x), y) for x, y in zip(made, case.outputs, strict=True)
        ):
            wrong.append(f"{ordinal} {case.op} {engine} {isa}")
    assert not wrong, wrong[:10]


def test_the_files_are_what_their_script_writes() -> None:
    for name, data in maker.files().items():
        assert (maker.ROOT / name).read_bytes() == data, name
