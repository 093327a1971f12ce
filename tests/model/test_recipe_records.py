"""Records of the larger recipes: frozen ones that fit or are refused, masks, synthetic data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tallystick.data.freeze import freeze
from tallystick.devices.environment import exact_environment
from tallystick.errors import UsageError
from tallystick.job.recipes import classify, find_recipe, new_job, settings_for
from tallystick.job.recipes.base import Sources, normal
from tallystick.job.recipes.text_records import masked_loss


def texts(rows: int = 40) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(1).integers(1, 60, (rows, 8))
    mask = np.ones_like(ids)
    mask[::3, 5:] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": np.arange(rows) % 3}


def test_distilbert_takes_padded_records(tmp_path: Path) -> None:
    """Names as in transformers; the first step is compared with torch by `save_job`."""
    freeze(texts(), tmp_path / "d", hold_out=0.2)
    given = {"size": "tiny", "labels": "3", "batch_size": "4"}
    sources = Sources(data=tmp_path / "d")
    job = new_job("distilbert", tmp_path / "job", given, sources, steps=2)
    assert "first step" not in job.about
    assert set(job.program.batch_types) == {"input_ids", "attention_mask", "labels"}
    for more, match in (
        ({"labels": "2"}, "Add --set labels=3"),
        ({"vocab_size": "50"}, "Add --set vocab_size="),
        ({"max_positions": "7"}, "Add --set max_positions=8"),
        ({"task": "mlm"}, "The recipe needs input_ids"),
    ):
        with pytest.raises(UsageError, match=match):
            new_job("distilbert", tmp_path / "no", {**given, **more}, sources, steps=2)


class _Seen(torch.nn.Module):
    """Keeps what it is shown; its logits are those of the last word whatever it sees."""

    def forward(self, ids: torch.Tensor, attention: Any) -> torch.Tensor:
        self.ids = ids
        return torch.nn.functional.one_hot(torch.full_like(ids, 9), 10).float()


def test_masked_words() -> None:
    torch.manual_seed(1)
    words = torch.randint(0, 9, (200, 50))
    attention = torch.ones_like(words)
    attention[:, 40:] = 0
    module = _Seen()
    masked_loss(module, words, attention, 9, 0.2, 9)
    assert (module.ids[:, 40:] == words[:, 40:]).all()
    shown, true = module.ids[:, :40], words[:, :40]
    masked = float((shown == 9).float().mean())
    other = float(((shown != true) & (shown < 9)).float().mean())
    assert masked == pytest.approx(0.16, abs=0.01)  # eight tenths of a fifth
    assert other == pytest.approx(0.02 * 8 / 9, abs=0.005)  # a tenth, a ninth of which is the same
    module.eval()
    for _ in range(2):
        loss = masked_loss(module, words, None, 9, 0.2, 9)
        places = np.flatnonzero((module.ids == 9)[0])
        assert places.tolist() == list(range(2, 50, 5))
        # Logit 1 for the word 9, which never is the true one, and 0 for the other nine.
        assert float(loss) == pytest.approx(np.log(9 + np.e), rel=1e-6)


@exact_environment()
def test_synthetic_vectors_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classify, "SUM_BYTES", 7 * 5 * 4 + 3)
    found = classify.synthetic(5, 3, 40, 4)
    centres = normal(4, 1 << 20, (3, 5), 1.0)
    whole = centres[found["y"]] + normal(4, (1 << 20) + 1, (40, 5), 1.0)
    assert found["x"].tobytes() == whole.tobytes()


def test_the_largest_logistic_regression_trains_on_two_to_the_eighteenth_records() -> None:
    s = settings_for(find_recipe("logreg"), {"size": "zk"})
    assert (s.records - max(s.batch_size, round(s.records * s.validation)), s.features) == (
        1 << 18,
        1024,
    )


def test_vgg_of_cifar_has_ten_million_parameters() -> None:
    from tallystick.job.recipes import vgg11

    for size, parameters in (("11", 9_750_922), ("imagenet", 132_863_336)):
        with torch.device("meta"):
            module = vgg11.make_module(settings_for(vgg11.RECIPE, {"size": size}))
        assert sum(p.numel() for p in module.parameters()) == parameters
    with pytest.raises(UsageError, match="poolings reduce images"):
        new_job("vgg11", Path("nowhere"), {"image": "16"}, steps=2)
