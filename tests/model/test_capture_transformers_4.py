"""What transformers 4.50 writes otherwise than 5.x, in small (PROGRAM 5.14).

The library itself is not needed: a place is known by the names of its module and class, and by
its lines.
"""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from capture_models import Case
from test_first_step import saved
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.program.capture import capture
from tallystick.program.optimizers import SGD

MIXTURE = """
class {name}(nn.Module):
    def __init__(self, shared, router):
        super().__init__()
        self.num_experts, self.top_k = 4, 2
        setattr(self, router, nn.Linear(6, 4, bias=False))
        self.router_name = router
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6))
                                      for _ in range(4)])
        if shared is not None:
            self.norm_topk_prob = shared
            self.shared_expert, self.shared_expert_gate = nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, hidden_states):
        batch_size, sequence_length, hidden_dim = hidden_states.shape
        hidden_states = hidden_states.view(-1, hidden_dim)
        router_logits = getattr(self, self.router_name)(hidden_states)
        routing_weights = F.softmax(router_logits, dim=1, dtype=torch.float)
        routing_weights, selected_experts = torch.topk(routing_weights, self.top_k, dim=-1)
        if getattr(self, "norm_topk_prob", self.router_name == "gate"):
            routing_weights /= routing_weights.sum(dim=-1, keepdim=True)
        final_hidden_states = torch.zeros_like(hidden_states)
        expert_mask = F.one_hot(selected_experts, num_classes=self.num_experts).permute(2, 1, 0)
        for expert_idx in range(self.num_experts):
            idx, top_x = torch.where(expert_mask[expert_idx])
            current_state = hidden_states[None, top_x].reshape(-1, hidden_dim)
            current = self.experts[expert_idx](current_state) * routing_weights[top_x, idx, None]
            final_hidden_states.index_add_(0, top_x, current)
        if hasattr(self, "shared_expert"):
            shared = self.shared_expert(hidden_states)
            final_hidden_states += F.sigmoid(self.shared_expert_gate(hidden_states)) * shared
        return final_hidden_states.reshape(batch_size, sequence_length, hidden_dim), router_logits
"""
LAYERS = """
class Layers(nn.Module):
    def __init__(self, layerdrop):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.layerdrop = layerdrop

    def forward(self, x):
        for layer in self.layers:
            if self.training:
                dropout_probability = torch.rand([])
                if dropout_probability < self.layerdrop:  # skip the layer
                    continue
{SKIPPED}
                if skip_the_layer:
                    continue
            x = torch.tanh(layer(x))
        return x
""".replace(
    "{SKIPPED}",
    " " * 16 + "skip_the_layer = True if self.training and "
    "(dropout_probability < self.layerdrop) else False",
)
PLACES = """
class Places(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.zeros(9, 6))

    def forward(self, x):
        pos = torch.arange(0, x.shape[1], dtype=torch.int64, device=x.device)
        pos = torch.cat([pos.new_tensor([-1]), pos])
        places = torch.arange(pos[-1] - pos[0], pos[0] - 1, -2, device=pos.device)
        mask = torch.full((x.shape[1], pos[-1] + 1), 0.5)
        return mask @ x + self.table[places.abs()].sum(0)
"""


def written(source: str, module: str, name: str) -> Any:
    """The class `name` of a source that is said to be of `module`."""
    file = f"/{module}/{name}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space: dict[str, Any] = {"nn": nn, "torch": torch, "F": F, "__name__": module}
    exec(compile(source, file, "exec"), space)
    return space[name]


def squared(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    found = module(batch["x"])
    return (found[0] if isinstance(found, tuple) else found).square().mean()


def agrees(module: nn.Module, where: Path) -> None:
    """Captured, and the first step is the module's in float64, which runs as it is written."""
    case = Case(lambda: module, squared, {"x": ((2, 5, 6), "f32")})
    step = capture(module, squared, case.schema(), SGD(0.1))
    assert "forward" not in vars(module)
    assert "first step" not in saved(step, case, where).about


@pytest.mark.parametrize(
    ("kind", "shared", "router"),
    [
        ("mixtral.modeling_mixtral.MixtralSparseMoeBlock", None, "gate"),
        ("qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock", False, "gate"),
        ("qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock", True, "gate"),
        ("jamba.modeling_jamba.JambaSparseMoeBlock", None, "router"),
    ],
)
def test_a_mixture_of_modules(kind: str, shared: bool | None, router: str, tmp_path: Path) -> None:
    module, _, name = kind.rpartition(".")
    torch.manual_seed(1)
    block = written(MIXTURE.format(name=name), f"transformers.models.{module}", name)
    agrees(block(shared, router), tmp_path)


def test_another_mixture_is_refused() -> None:
    block = written(MIXTURE.format(name="Other"), "transformers.models.other", "Other")
    with pytest.raises(UsageError, match="by a mask, with a shape that depends on the mask"):
        capture(block(None, "gate"), squared, {"x": ((2, 5, 6), "f32")}, SGD(0.1))


def test_layers_that_are_never_left_out(tmp_path: Path) -> None:
    torch.manual_seed(2)
    agrees(written(LAYERS, "transformers.models.opt.modeling_opt", "Layers")(0.0), tmp_path)


def test_layers_that_may_be_left_out_are_refused() -> None:
    layers = written(LAYERS, "transformers.models.opt.modeling_opt", "Layers")(0.1)
    with pytest.raises(UsageError, match=r"Layers\.py:12"):
        capture(layers, squared, {"x": ((2, 5, 6), "f32")}, SGD(0.1))


def test_sizes_and_bounds_of_tensors_that_depend_on_no_input(tmp_path: Path) -> None:
    """As Funnel's positions and Jamba's mask have them."""
    agrees(written(PLACES, "model", "Places")(), tmp_path)
