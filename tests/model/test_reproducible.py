"""`tallystick.reproducible`: eager PyTorch with the contract's bits, on every code path."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tallystick  # noqa: E402
from tallystick import _core  # noqa: E402
from tallystick.errors import UnsupportedOperatorError, UnsupportedVersionError  # noqa: E402


@pytest.fixture(autouse=True)
def restore_torch_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def train(isa: str, threads: int, steps: int = 3, seed: int = 3) -> bytes:
    _core.set_isa(isa)
    _core.set_threads(threads)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(20, 32),
        torch.nn.GELU(),
        torch.nn.TransformerEncoderLayer(32, 4, 48, dropout=0.2, batch_first=True),
        torch.nn.Linear(32, 5),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False, fused=False)
    x, y = torch.randn(4, 6, 20), torch.randint(5, (24,))
    with tallystick.reproducible("ordered/1", seed=seed) as run:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x).reshape(-1, 5), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
            optimizer.step()
            run.next_step()
    assert np.isfinite(loss.item())
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


def test_same_bits_on_every_path_and_thread_count():
    expected = train("scalar", 1)
    for isa in _core.supported_isas():
        for threads in (1, 2):
            if (isa, threads) != ("scalar", 1):
                assert train(isa, threads) == expected, (isa, threads)


def test_the_seed_matters():
    assert train("scalar", 1, steps=1, seed=1) != train("scalar", 1, steps=1, seed=2)


def test_one_operator_equals_evaluate():
    a, b = np.float32(np.arange(12)).reshape(3, 4) / 7, np.float32(np.arange(20)).reshape(4, 5) / 3
    with tallystick.reproducible("ordered/1"):
        got = torch.mm(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    assert got.tobytes() == tallystick.evaluate("aten.mm", a, b).tobytes()


def test_in_place_and_views():
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    with tallystick.reproducible("ordered/1"):
        x.t()[1].mul_(3.0)
        x.add_(1.0)
    assert x.tolist() == [[1, 4, 3], [4, 13, 6]]


def test_other_randomness_and_unknown_operators_are_refused():
    square = torch.eye(3)
    with tallystick.reproducible("ordered/1"):
        with pytest.raises(UnsupportedOperatorError, match=r"poisson"):
            torch.poisson(square)
        with pytest.raises(UnsupportedOperatorError, match=r"svd"):
            torch.linalg.svd(square)


def test_an_operator_without_a_rule_is_taken_apart_below_the_dispatch_mode():
    """PROGRAM 5.2: torch's decomposition is traced while a call is being dispatched."""
    x = torch.linspace(-2, 2, 7, requires_grad=True)
    with tallystick.reproducible("ordered/1"):
        y = torch.nn.functional.celu(x, alpha=0.75)
        (gradient,) = torch.autograd.grad(y.sum(), x)
    double = x.detach().double().requires_grad_()
    wanted = torch.nn.functional.celu(double, alpha=0.75)
    (expected,) = torch.autograd.grad(wanted.sum(), double)
    torch.testing.assert_close(y.detach().double(), wanted.detach(), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-6, atol=1e-7)


def test_unknown_contract():
    with (
        pytest.raises(UnsupportedVersionError, match="ordered/9"),
        tallystick.reproducible("ordered/9"),
    ):
        pass


def test_the_true_value_rounded_once():
    a, b = torch.randn(30, 500), torch.randn(500, 20)
    with tallystick.reproducible("rounded/1;b=26"):
        got = torch.mm(a, b).numpy()
    wanted = tallystick.evaluate("aten.mm", a.numpy(), b.numpy(), contract="rounded/1;b=26")
    assert got.tobytes() == wanted.tobytes()
    assert not (got.view(np.uint32) & 63).any(), "26 of 32 bits are kept"
    with (
        pytest.raises(UnsupportedVersionError, match="rounding log"),
        tallystick.reproducible("replay/1"),
    ):
        pass


def test_capture_writes_the_contract_into_every_program():
    module = torch.nn.Linear(3, 2)
    captured = tallystick.capture(
        module,
        lambda m, b: torch.nn.functional.cross_entropy(m(b["x"]), b["y"]),
        {"x": torch.randn(4, 3), "y": torch.randint(2, (4,))},
        tallystick.SGD(0.1),
        forward=lambda m, b: m(b["x"]),
        contract="rounded/1;b=28",
    )
    for program in (captured.program, captured.evaluation, captured.forward):
        assert program.contract == "rounded/1-draft.1;b=28"
