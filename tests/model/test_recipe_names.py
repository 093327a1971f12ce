"""The recipes' own modules have the names, shapes and values of transformers' and peft's classes.

So `export` gives a file that `load_state_dict(strict=True)` takes there.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
hf = pytest.importorskip("transformers", reason="transformers is not installed")

from tallystick.job.recipes import distilbert
from tallystick.job.recipes.settings import build

TINY = distilbert.PRESETS["tiny"]
# float32's error over two small blocks.
NEAR = {"rtol": 0.0, "atol": 2e-6}


def filled(module: torch.nn.Module) -> torch.nn.Module:
    """The module in evaluation mode, each weight a normal number of its own."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


def shapes(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(t.shape) for name, t in module.state_dict().items()}


def their_distilbert(s: Any) -> torch.nn.Module:
    kinds = {"classify": "SequenceClassification", "mlm": "MaskedLM"}
    config = hf.DistilBertConfig(
        vocab_size=s.vocab_size, max_position_embeddings=s.max_positions, n_layers=s.n_layers,
        n_heads=s.n_heads, dim=s.dim, hidden_dim=s.hidden_dim, num_labels=s.labels,
    )  # fmt: skip
    theirs: torch.nn.Module = getattr(hf, f"DistilBertFor{kinds[s.task]}")(config)
    return theirs


@pytest.mark.parametrize("task", ["classify", "mlm"])
def test_distilbert(task: str) -> None:
    s = build(distilbert.DistilbertSettings, {**TINY, "task": task}, "distilbert")
    ours = filled(distilbert.make_module(s))
    theirs = their_distilbert(s)
    assert shapes(ours) == shapes(theirs)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    ids = torch.randint(1, s.vocab_size, (3, 16), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    for attention in (None, mask):
        found, wanted = ours(ids, attention), theirs.eval()(ids, attention).logits
        assert float(wanted.abs().max()) > 0.1
        torch.testing.assert_close(found, wanted, **NEAR)


def test_distilberts_own_size_is_the_default() -> None:
    for task in ("classify", "mlm"):
        s = build(distilbert.DistilbertSettings, {"task": task}, "distilbert")
        with torch.device("meta"):
            ours, theirs = distilbert.make_module(s), their_distilbert(s)
            default = type(theirs)(hf.DistilBertConfig())
        assert shapes(ours) == shapes(theirs) == shapes(default)
