"""PyTorch's operator tests through `reproducible()`; a proof that ATen computes nothing in it.

A fixed sample of the entries that `benchmarks/coverage_operators.py` runs in full.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tallystick  # noqa: E402
from tallystick_bench.opdb.entries import name_of, op_db  # noqa: E402
from tallystick_bench.opdb.recorder import Recorder  # noqa: E402
from tallystick_bench.opdb.verdict import judge  # noqa: E402

PASSING = (
    "abs", "add", "addcmul", "addmm", "atan2", "baddbmm", "bmm", "clamp", "cos", "cross",
    "cumprod", "cumsum", "dot", "exp", "fmax", "log", "masked_fill", "matmul", "maximum", "mm",
    "mul", "mv", "neg", "nn.functional.avg_pool2d", "nn.functional.celu", "nn.functional.conv2d",
    "nn.functional.elu", "nn.functional.embedding", "nn.functional.gelu", "nn.functional.glu",
    "nn.functional.group_norm", "nn.functional.huber_loss", "nn.functional.layer_norm",
    "nn.functional.linear", "nn.functional.max_pool2d", "nn.functional.mse_loss",
    "nn.functional.relu", "nn.functional.silu", "nn.functional.smooth_l1_loss",
    "nn.functional.softplus", "softmax", "sub", "tanh",
)  # fmt: skip


@pytest.fixture(scope="module")
def entries():
    return {name_of(entry): entry for entry in op_db()}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", PASSING)
def test_an_entry_passes(name, entries):
    """Within op_db's tolerance of float64, with the captured bits, and without ATen arithmetic."""
    found = judge(entries[name], limit=4)
    assert (found.verdict, found.why) == ("pass", "")
    assert found.passed == found.samples > 0
    assert found.kernels > 0


def test_a_difference_is_wrong(entries, monkeypatch):
    """The judge sees a kernel's fault, and bits that only capture or only the block has."""
    from tallystick_bench.opdb.case import Case

    truth = Case.ours

    def shifted(case):
        results = truth(case)
        results.outputs = [output * (1 + 1e-4) for output in results.outputs]
        return results

    monkeypatch.setattr(Case, "ours", shifted)
    assert judge(entries["exp"], limit=2).verdict == "wrong"


def test_float32s_own_rounding_is_told_from_a_fault(entries, monkeypatch):
    """Beyond the tolerance where torch's float32 is so too; where it is not, wrong."""
    from tallystick_bench.opdb import verdict

    found = judge(entries["addcdiv"])
    assert found.verdict == "beyond" and found.torchs > 1, found.why
    worst = verdict.worst_of

    def near(got, truth, rtol, atol):
        error, name = worst(got, truth, rtol, atol)
        return min(error, 1.5 if got.kernels else 0.9), name

    monkeypatch.setattr(verdict, "worst_of", near)
    assert judge(entries["addcdiv"]).verdict == "wrong"


def test_views_draws_and_refusals_are_told_apart(entries):
    assert judge(entries["transpose"], limit=3).verdict == "view-or-factory"
    assert judge(entries["bernoulli"], limit=3).verdict == "random"
    refused = judge(entries["linalg.svd"], limit=2)
    assert refused.verdict == "refused"
    assert "aten._linalg_svd" in refused.refused


def test_a_decomposition_that_leads_back_to_itself_is_refused(entries):
    """torch's parts of mvlgamma contain another call of it: a refusal, and no RecursionError."""
    found = judge(entries["mvlgamma.mvlgamma_p_3"], limit=1)
    assert found.verdict in ("refused", "pass"), found.why


# -- the proof: what runs below the block ------------------------------------------------------


def steps(module, tensors, optimizer, count: int = 2):
    """Train for `count` steps in the block; what ran below it, and the contract's kernels."""
    with Recorder() as below, tallystick.reproducible() as run:
        for _ in range(count):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(module(tensors["x"]), tensors["y"])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            run.next_step()
    return below, run.operators


def perceptron():
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.SiLU(), torch.nn.Linear(8, 3))


class _Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(9, 8)
        self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, tokens):
        return self.head(self.layer(self.embedding(tokens)).mean(1))


def image_net():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(inplace=True),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 3),
    )


MODELS = {
    "perceptron": (perceptron, lambda: torch.randn(5, 6)),
    "encoder": (_Encoder, lambda: torch.randint(9, (5, 7))),
    "images": (image_net, lambda: torch.randn(5, 3, 4, 4)),
}
OPTIMIZERS = [("AdamW", {}), ("SGD", {"momentum": 0.9}), ("RMSprop", {"foreach": True}),
              ("NAdam", {})]  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda o: o[0])
def test_only_storage_operators_run_below_the_block(model, optimizer):
    """Every ATen call that ran on a tensor with storage is a view or in the stated list."""
    torch.manual_seed(0)
    make, draw = MODELS[model]
    module, tensors = make(), {"x": draw(), "y": torch.randint(3, (5,))}
    name, options = optimizer
    chosen = getattr(torch.optim, name)(module.parameters(), lr=1e-3, **options)
    below, operators = steps(module, tensors, chosen)
    assert not below.arithmetic
    assert below.storage["aten.detach"] > 0, "the record sees what runs"
    assert operators["aten.mm"] + operators["aten.addmm"] > 0


def test_the_record_sees_arithmetic():
    """Without the block the same calls are ATen's arithmetic; a call that slips through shows."""
    with Recorder() as below:
        torch.randn(3, 3).mm(torch.ones(3, 3)).add_(1)
    assert set(below.arithmetic) == {"aten.randn", "aten.mm", "aten.add_.Tensor"}
