"""`reproducible`: in-place, out= and list forms, torch.optim (PROGRAM 5.2, NUMERICS 11)."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import tallystick  # noqa: E402
from tallystick import _core  # noqa: E402
from tallystick.errors import UnsupportedOperatorError, UsageError  # noqa: E402
from tallystick.program.capture.api import capture, capture_eval  # noqa: E402
from tallystick.program.executor import Executor  # noqa: E402


def bits(*tensors) -> list[bytes]:
    return [t.detach().contiguous().numpy().tobytes() for t in tensors]


@pytest.fixture
def operands():
    generator = torch.Generator().manual_seed(5)
    return [torch.rand(3, 4, generator=generator) + 0.5 for _ in range(3)]


IN_PLACE = [
    ("add", lambda y, z: ((y,), {"alpha": 0.3})),
    ("pow", lambda y, z: ((3,), {})),
    ("addcdiv", lambda y, z: ((y, z), {"value": -0.1})),
    ("clamp", lambda y, z: ((0.7, 1.1), {})),
    ("masked_fill", lambda y, z: ((y > 1, 2.0), {})),
]


@pytest.mark.parametrize(("name", "given"), IN_PLACE)
def test_an_operator_in_place_has_the_bits_of_its_other_form(name, given, operands):
    x, y, z = operands
    args, options = given(y, z)
    before = x.clone()
    with tallystick.reproducible():
        changed = getattr(x, f"{name}_")(*args, **options)
        wanted = getattr(before, name)(*args, **options)
    assert changed is x
    assert bits(x) == bits(wanted) != bits(before)


def test_metadata_changes_in_place_stay_views():
    """A product of a vector and a matrix ends with squeeze_: its result has one axis."""
    x, w = torch.arange(3.0), torch.arange(12.0).reshape(4, 3)
    with tallystick.reproducible():
        y = torch.nn.functional.linear(x, w)
        z = torch.zeros(1, 3).squeeze_(0).unsqueeze_(1).t_()
    assert y.tolist() == (w @ x).tolist()
    assert z.shape == (1, 3)


def test_out_forms_write_into_the_given_tensors(operands):
    x, y, _ = operands
    with tallystick.reproducible() as run:
        sums, largest, where = torch.empty(0), torch.empty(0), torch.empty(0, dtype=torch.int64)
        assert torch.add(x, y, out=sums) is sums
        found = torch.max(x, 1, out=(largest, where))
        counted = torch.arange(5, out=torch.empty(0))
        wanted, (values, indices) = x + y, torch.max(x, 1)
    assert found[0] is largest
    assert bits(sums, largest, where) == bits(wanted, values, indices)
    assert counted.dtype == torch.float32
    assert counted.tolist() == [0, 1, 2, 3, 4]
    assert run.operators["aten.add.Tensor"] == 2


def test_list_forms_are_their_operators_one_by_one(operands):
    """Torch's foreach operators, as its optimizers call them."""
    x, y, z = operands
    with tallystick.reproducible():
        sums = torch._foreach_add([x, y], [y, z], alpha=0.1)
        norms = torch._foreach_norm([x, y])
        changed = [x.clone(), y.clone()]
        torch._foreach_mul_(changed, [2.0, 3.0])
        torch._foreach_addcdiv_(changed, [y, z], [z, x], [0.1, 0.2])
        torch._foreach_sqrt_(changed)
        apart = [(x * 2.0).addcdiv(y, z, value=0.1), (y * 3.0).addcdiv(z, x, value=0.2)]
        wanted = [*(torch.add(a, b, alpha=0.1) for a, b in ((x, y), (y, z)))]
        wanted += [torch.linalg.vector_norm(x), torch.linalg.vector_norm(y)]
        wanted += [a.sqrt() for a in apart]
    assert bits(*sums, *norms, *changed) == bits(*wanted)


def test_results_have_torchs_strides():
    x = torch.arange(12.0).reshape(3, 4).t()
    with tallystick.reproducible():
        y = x + 1
        assert y.stride() == x.stride()
        assert y.t().view(-1).tolist() == list(range(1, 13))


def test_conversions_are_the_contracts():
    """A copy between dtypes rounds, so that it is no movement of storage (NUMERICS 10.7)."""
    exact = torch.tensor([2**24 + 1, 3])
    with tallystick.reproducible() as run:
        copied = torch.empty(2).copy_(exact)
    assert copied.tolist() == [2.0**24, 3.0]
    assert run.operators["aten._to_copy"] == 1


def test_uninitialised_memory_is_zero():
    with tallystick.reproducible():
        found = [torch.empty(9), torch.empty_like(torch.ones(9)), torch.ones(9).new_empty(9)]
    assert all(not tensor.any() for tensor in found)


def test_scalars_come_out():
    x = torch.tensor([1.5, 2.5])
    with tallystick.reproducible():
        assert x.sum().item() == 4.0
        assert torch.equal(x, x.clone())
        assert not torch.equal(x, x + 1)
        assert x.sum() > 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.complex64])
def test_other_dtypes_are_refused_by_name(dtype):
    x = torch.ones(3, dtype=dtype)
    with tallystick.reproducible(), pytest.raises(UsageError, match=str(dtype)[6:]):
        x + x


def test_what_torch_refuses_is_refused():
    with tallystick.reproducible():
        with pytest.raises(UnsupportedOperatorError, match=r"aten.add_.Tensor"):
            torch.zeros(3).add_(torch.zeros(2, 3))
        with pytest.raises(UnsupportedOperatorError, match=r"aten.add_.Tensor"):
            torch.zeros(3, dtype=torch.int64).add_(1.5)
        with pytest.raises(UnsupportedOperatorError, match=r"sparse"):
            torch.eye(3).to_sparse() * 2


# -- torch.optim ------------------------------------------------------------------------------


def network():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.Linear(8, 3))


def batch():
    generator = torch.Generator().manual_seed(4)
    return {"x": torch.randn(5, 6, generator=generator), "y": torch.tensor([0, 2, 1, 1, 0])}


def loss_of(module, tensors):
    return torch.nn.functional.cross_entropy(module(tensors["x"]), tensors["y"])


def trained(make, steps: int = 3, **options) -> list[bytes]:
    module, tensors = network(), batch()
    optimizer = make(module.parameters(), **options)
    with tallystick.reproducible() as run:
        for _ in range(steps):
            optimizer.zero_grad()
            loss_of(module, tensors).backward()
            optimizer.step()
            run.next_step()
    return bits(*dict(sorted(module.named_parameters())).values())


STOCK = [
    ("AdamW", {"lr": 1e-2, "weight_decay": 0.1}, {"lr": 1e-2, "weight_decay": 0.1}),
    ("Adam", {"lr": 1e-2, "weight_decay": 0.1}, {"lr": 1e-2, "weight_decay": 0.1}),
    ("Adam", {"lr": 1e-2, "foreach": True}, {"lr": 1e-2}),
    ("AdamW", {"lr": 1e-2, "fused": True}, {"lr": 1e-2}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "fused": True}, {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1}, {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}, {"lr": 0.1, "momentum": 0.9,
                                                              "nesterov": True}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.2}, {"lr": 0.1, "weight_decay": 0.2}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "torchs", "ours"), STOCK)
def test_a_stock_step_is_the_captured_step(name, torchs, ours):
    """NUMERICS 11.2 - 11.4: the block and the captured program end with the same parameters."""
    step = capture(network(), loss_of, batch(), getattr(tallystick, name)(**ours))
    executor, tensors = Executor(step.program), {k: v.numpy() for k, v in batch().items()}
    for _ in range(3):
        executor.run_step(step.initial_state, tensors, {"lr": ours["lr"]})
    captured = [v.tobytes() for k, v in step.initial_state.items() if k.startswith("param.")]
    assert trained(getattr(torch.optim, name), **torchs) == captured


OTHERS = [
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
    ("AdamW", {"lr": 1e-2, "amsgrad": True}),
    ("RMSprop", {"lr": 1e-2, "momentum": 0.5}),
    ("Adagrad", {"lr": 1e-2}),
    ("NAdam", {"lr": 1e-2}),
    ("Adamax", {"lr": 1e-2}),
    ("Adadelta", {"lr": 1.0}),
    ("ASGD", {"lr": 1e-2}),
    ("RAdam", {"lr": 1e-2}),
    ("Rprop", {"lr": 1e-2}),
]


@pytest.fixture
def restored_machine():
    before = torch.get_num_threads(), _core.isa()
    yield
    torch.set_num_threads(before[0])
    _core.set_isa(before[1])


@pytest.mark.sample(3)
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize(("name", "options"), OTHERS)
def test_other_optimizers_give_the_same_bits_on_every_path(
    name, options, foreach, restored_machine
):
    make, found = getattr(torch.optim, name), []
    for isa, threads in ((_core.supported_isas()[0], 1), (_core.supported_isas()[-1], 2)):
        _core.set_isa(isa)
        _core.set_threads(threads)
        torch.set_num_threads(threads)
        found.append(trained(make, foreach=foreach, **options))
    assert found[0] == found[1]
    near = network()
    optimizer = make(near.parameters(), **options)
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(near, batch()).backward()
        optimizer.step()
    for parameter, got in zip(
        dict(sorted(near.named_parameters())).values(), found[0], strict=True
    ):
        array = np.frombuffer(got, np.float32).reshape(parameter.shape)
        np.testing.assert_allclose(array, parameter.detach().numpy(), rtol=2e-4, atol=2e-5)


def test_fused_changes_no_bit_of_what_goes_operator_by_operator():
    for name, options in OTHERS[:2]:
        make = getattr(torch.optim, name)
        assert trained(make, fused=True, **options) == trained(make, **options)


def test_a_fused_operator_without_parts_is_refused():
    with pytest.raises(UnsupportedOperatorError, match=r"_fused_adagrad_"):
        trained(torch.optim.Adagrad, lr=1e-2, fused=True)
    given = {"lr": 0.1, "beta1": 0.9, "beta2": 0.9, "weight_decay": 0.0, "eps": 1e-8}
    x, y, z, v, step = ([torch.ones(2)] for _ in range(5))
    with (
        tallystick.reproducible(),
        pytest.raises(UnsupportedOperatorError, match=r"_fused_adam.*fused=False"),
    ):
        torch._fused_adam_(x, y, z, v, [], step, **given, amsgrad=False, maximize=False)


COMPOSITE = {
    "binary_cross_entropy_with_logits": lambda x: (
        torch.nn.functional.binary_cross_entropy_with_logits(x, torch.full_like(x, 0.25))
    ),
    "celu": lambda x: torch.nn.functional.celu(x, 1.5).mean(),
    "special_xlog1py": lambda x: torch.special.xlog1py(x, x.abs()).mean(),
    "norm": lambda x: torch.linalg.vector_norm(x, 3.0),
}


@pytest.mark.parametrize("name", COMPOSITE)
def test_an_in_place_change_elsewhere_takes_no_operator_apart(name):
    """Such a model is traced a second time, where torch took operators of composite kind apart. So
    its program was another one, and had not the bits of `reproducible`."""
    module = torch.nn.Linear(5, 7)
    batch = {"x": ((9, 5), "f32")}
    plain = capture_eval(module, lambda m, b: COMPOSITE[name](m(b["x"]) * 1.5), batch)
    changed = capture_eval(module, lambda m, b: COMPOSITE[name](m(b["x"]).mul_(1.5)), batch)
    assert changed.digest() == plain.digest()
