"""Evidence about weights of bf16 and f16: false bits where they are moved, false values where they
become float32, and a NaN that is not the canonical one (NUMERICS 1.14, 10.7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from evidence_operators import CONTRACTS, another
from language_values import SPECIAL
from unit.protocol.scenarios import Lie
from unit.protocol.simulator import Party

from tallystick.commit.tensor import DTYPES, Array, first_non_canonical
from tallystick.job.job import Job
from tallystick.job.save import save_job
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import STORED
from tallystick.program.ir import Node
from tallystick.program.state import ModuleNames
from tallystick.program.text import parse_text

_COPY = '{dtype="f32"}'
TEXT = f"""tallystick program 1
contract CONTRACT
input batch batch.x f32[1]
input state in.head f16[3,1200]
input state in.rows i64[3]
input state in.table bf16[5,1200]
input state out.0 f32[3,1200]
input state out.1 f32[1200,3]
input state out.2 f32[1200,3]
input state out.3 f32[5,600]
input state out.4 f32[3,3]
%0 = aten.index_select(@in.table, @in.rows){{dim=0}} : bf16[3,1200]
%1 = aten._to_copy(%0){_COPY} : f32[3,1200]
%2 = aten.permute(@in.head){{dims=[1,0]}} : f16[1200,3]
%3 = aten._to_copy(%2){_COPY} : f32[1200,3]
%4 = aten.view(@in.head){{size=[1200,3]}} : f16[1200,3]
%5 = aten._to_copy(%4){_COPY} : f32[1200,3]
%6 = aten.slice(@in.table){{dim=1, end=1200, start=1, step=2}} : bf16[5,600]
%7 = aten._to_copy(%6){_COPY} : f32[5,600]
%8 = aten.mm(%1, %3) : f32[3,3]
%9 = aten.sum(@batch.x) : f32[]
%10 = tallystick.commit(@in.head, @in.rows, @in.table, %1, %3, %5, %7, %8) : none
output in.head @in.head
output in.rows @in.rows
output in.table @in.table
output loss %9
output out.0 %1
output out.1 %3
output out.2 %5
output out.3 %7
output out.4 %8
end
"""


def _weights(dtype: str, *shape: int) -> Array:
    """Drawn bits with the special ones among them; every NaN is canonical."""
    bits = np.random.Generator(np.random.Philox(7)).integers(0, 1 << 16, shape).astype("<u2")
    bits.reshape(-1)[: len(SPECIAL[dtype])] = SPECIAL[dtype]
    bits.reshape(-1)[bits.size // 2] = SPECIAL[dtype][10]  # a subnormal, where the lies are told
    infinity, nan = (0x7F80, 0x7FC0) if dtype == "bf16" else (0x7C00, 0x7E00)
    bits[bits & 0x7FFF > infinity] = nan
    array: Array = bits.view(DTYPES[dtype])
    assert first_non_canonical(array) is None
    return array


def stored_job(path: Path, contract: str) -> Job:
    """One step over weights of both types."""
    program = parse_text(TEXT.replace("CONTRACT", contract).encode())
    slots = {
        "in.head": _weights("f16", 3, 1200),
        "in.rows": np.array([4, 0, 4], np.int64),
        "in.table": _weights("bf16", 5, 1200),
    }
    types = program.state_types
    slots |= {n: np.zeros(t.shape, np.float32) for n, t in types.items() if n.startswith("out.")}
    step = SimpleNamespace(
        program=program,
        batch=program.batch_types,
        initial_state=slots,
        scalars={},
        first_step=None,
        micro_batches=None,
        names=ModuleNames(),
        not_followed="",
    )
    return save_job(step, path, {"x": np.ones(1, np.float32)}, steps=1, checkpoint_interval=1)


Hook = Callable[[int, int, Node, Sequence[Array]], None]


def _bits(index: int, change: Callable[[int], int]) -> Hook:
    """A `node` hook: changes the bits of the middle element that node `index` moves."""

    def hook(_: int, at: int, node: Node, outputs: Sequence[Array]) -> None:
        if at == index:
            bits = outputs[0].view(np.uint16)
            place = np.unravel_index(bits.size // 2, bits.shape)
            bits[place] = change(int(bits[place]))

    return hook


# Of f16 and of bf16 a NaN, and the canonical one of neither.
_ODD_NAN = 0x7FC1


def stored(maker: Any) -> None:
    """Every node's false output, from both seats, under the contracts that have these types."""
    for contract in (CONTRACTS["ordered"], CONTRACTS["rounded"]):
        text = find_contract(contract).text
        job = stored_job(maker.scratch / contract.partition("/")[0], text)
        (program,) = job.texts
        honest = Party(job)
        for index, node in enumerate(program.nodes[:9]):
            is_moved = node.out_types[0].dtype in STORED
            told = {
                "another value": _bits(index, lambda bits: bits ^ 1)
                if is_moved
                else another(index, 0)
            }
            if is_moved:
                told["another NaN"] = _bits(index, lambda _: _ODD_NAN)
            for name, hook in told.items():
                what = f"{node.op}, node {index}, {contract}: {name}"
                maker.both_seats(job, what, honest, Party(job, Lie(node=hook)))
