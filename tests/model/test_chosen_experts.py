"""The engine computes of each expert the rows that chose it, with the bits of computing all."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from answer_models import VOCABULARY, config_of

from tallystick.answers.model import Model, open_model, weights
from tallystick.answers.programs import engine_program
from tallystick.devices.cpu import CPU
from tallystick.generation.forward import chosen_only
from tallystick.numerics.contracts import ORDERED_1, parse_contract
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.executor import Executor
from tallystick.program.ir import Node, Program, Value
from tallystick.program.runner import StepInputs

EXPERTS, CHOSEN = 8, 2
CONTRACTS = ("ordered/1", "rounded/1")


def saved(place: Path, dtype: str = "float32") -> Model:
    """Mixtral with ties: experts 0 and 5 have equal routers in the first layer, all of them in the
    second one."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(11)
    config = config_of("mixtral", num_local_experts=EXPERTS, num_experts_per_tok=CHOSEN)
    module = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
        routers = [layer.mlp.gate.weight for layer in module.model.layers]
        routers[0][5] = routers[0][0]
        routers[1][:] = routers[1][2].clone()
    module.to(getattr(torch, dtype)).save_pretrained(place)
    return open_model(place)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return saved(tmp_path_factory.mktemp("experts"))


def executed(program: Program, held: dict[str, Any], only_chosen: bool) -> tuple[np.ndarray, Any]:
    """The logits of random rows, and how many rows each product of an expert has computed. Memory
    is full of NaN before."""
    own = chosen_only(program) if only_chosen else {}
    table = CPU.kernels(parse_contract(program.contract))
    counted: dict[int, int] = defaultdict(int)
    poison = np.uint32(0xFFC0DEAD)

    def hook(index: int, node: Node, _spec: object) -> Any:
        run = own.get(index, table[node.op].run)

        def watched(attrs: Any, inputs: Any, outputs: Any) -> None:
            if index not in own or node.op != "aten.mm":
                return run(attrs, inputs, outputs)
            outputs[0].view(np.uint32)[...] = poison
            run(attrs, inputs, outputs)
            counted[index] = int((outputs[0].view(np.uint32) != poison).any(1).sum())
            return None

        return watched

    executor = Executor(program, kernels=hook, narrow=True)
    arena = CPU.allocate(executor.arena_bytes)
    np.asarray(arena)[...] = 0xFF
    executor.use_arena(arena)
    rows = program.batch_types["token"].shape[0]
    tokens = np.random.default_rng(rows).integers(0, VOCABULARY, (rows, 1))
    batch = {"token": tokens, "place": np.arange(rows)[:, None] % 60}
    return executor.execute(held, StepInputs(batch)).outputs["logits"], counted


def compare(model: Model, held: dict[str, Any], rows: int, contract: str) -> None:
    program = engine_program(model, rows, contract)
    found, counted = executed(program, held, only_chosen=True)
    due, none = executed(program, held, only_chosen=False)
    assert not none and found.tobytes() == due.tobytes()
    # Two products for each expert of two layers; each row is computed by the experts it chose.
    assert len(counted) == 2 * 2 * EXPERTS
    assert sum(counted.values()) == 2 * 2 * CHOSEN * rows


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("rows", [1, 2, 7, 64, 200])
def test_bits_are_those_of_all_experts(model: Model, rows: int, contract: str) -> None:
    compare(model, weights(model), rows, contract)


def test_of_equal_routers_the_lowest_experts_are_chosen(model: Model) -> None:
    program = engine_program(model, 64, "ordered/1")
    _, counted = executed(program, weights(model), only_chosen=True)
    second = [counted[index] for index in sorted(counted)][2 * EXPERTS :: 2]
    assert second == [64, 64, *[0] * (EXPERTS - 2)]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite_reach_the_same_rows(model: Model, value: float) -> None:
    """A row is cleared before and behind an expert that it has not chosen, so that not even an
    infinite weight reaches it."""
    held = {name: array.copy() for name, array in weights(model).items()}
    experts = held["param.model.layers.0.mlp.experts.gate_up_proj"]
    experts[4, 0, 0] = value
    held["param.model.layers.1.mlp.experts.down_proj"][7, 3, 2] = value
    program = engine_program(model, 64, "ordered/1")
    found, _ = executed(program, held, only_chosen=True)
    due, _ = executed(program, held, only_chosen=False)
    assert found.tobytes() == due.tobytes()
    odd = ~np.isfinite(found).all(1)
    assert odd.any() and not odd.all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_stored_experts(dtype: str, tmp_path: Path) -> None:
    half = saved(tmp_path, dtype)
    compare(half, weights(half), 7, "ordered/1")


def test_rows_that_somebody_reads_are_computed() -> None:
    b = Builder(ORDERED_1)
    x, w = b.batch("x", TensorType("f32", (4, 3))), b.state("param.w", TensorType("f32", (3, 5)))
    mask = b.one("aten.gt.Scalar", [b.batch("m", TensorType("f32", (4, 1)))], other=0.0)
    inverse = b.one("aten.logical_not", [mask])
    y = b.one("aten.mm", [b.one("aten.masked_fill", [x, mask], value=0.0), w])
    cleared = b.one("aten.masked_fill", [y, mask], value=0.0)
    others = b.one("aten.masked_fill", [y, inverse], value=0.0)
    turned = b.one("aten.mm", [b.one("aten.permute", [y], dims=(1, 0)), x])

    def nodes(**outputs: Value) -> int:
        return len(chosen_only(canonicalize(b.finish(outputs))))

    assert nodes(z=cleared) == 2
    assert nodes(y=y) == nodes(z=others) == nodes(z=cleared, y=y) == 0
    assert nodes(z=cleared, t=turned) == nodes(z=cleared, o=others) == 0
