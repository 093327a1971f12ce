"""Capture of a step over micro-batches (PROGRAM 6.10)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.numerics.operators.reduction import FOLD
from tallystick.program.capture import CapturedStep, capture
from tallystick.program.capture.api import capture_eval
from tallystick.program.check import check_program
from tallystick.program.executor import Executor
from tallystick.program.expand import expand, split_batch
from tallystick.program.ir import Node
from tallystick.program.optimizers import SGD, Adam, AdamW
from tallystick.program.sectioned import SectionedExecutor
from tallystick.program.text import parse_text

SIZE = 4  # records of a micro-batch


class Net(nn.Module):
    """Convolution, batch normalisation, dropout, and a linear layer without bias."""

    def __init__(self, dropout: float = 0.25) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(dropout)
        self.out = nn.Linear(4 * 5 * 5, 3, bias=False)
        self.idle = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Any:
        h = self.drop(torch.relu(self.norm(self.conv(x))))
        return self.out(self.drop(h.flatten(1)))


def mean_loss(module: Any, batch: dict[str, Tensor]) -> Any:
    logits = module(batch["x"])
    right = (logits.argmax(1) == batch["y"]).sum()
    return F.cross_entropy(logits, batch["y"]), {"right": right, "first": batch["x"][0, 0, 0, 0]}


def sum_loss(module: Any, batch: dict[str, Tensor]) -> Any:
    """Some targets count for nothing, in some micro-batches more than in others."""
    logits = module(batch["x"])
    total = F.cross_entropy(logits, batch["y"], ignore_index=0, reduction="sum")
    return total, (batch["y"] != 0).sum(), {"size": logits.square().mean()}


def schema(records: int) -> dict[str, Any]:
    return {"x": ((records, 2, 5, 5), "f32"), "y": ((records,), "i64")}


def records(count: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((count, 2, 5, 5)).astype(np.float32),
            "y": rng.integers(0, 3, count)}  # fmt: skip


def captured(parts: int, loss: Any = mean_loss, **options: Any) -> CapturedStep:
    options = {"clip_norm": 0.5, **options}
    if loss is sum_loss:
        options["loss_over"] = "sum"
    optimizer = options.pop("optimizer", AdamW(0.01))
    module = options.pop("module", None) or Net()
    return capture(module, loss, schema(parts * SIZE), optimizer, micro_batches=parts, **options)


# -- the text --------------------------------------------------------------------------------------
@pytest.mark.parametrize("loss", [mean_loss, sum_loss])
def test_the_text_depends_on_the_size_of_a_micro_batch_alone(loss: Any) -> None:
    texts = {captured(parts, loss).program.text() for parts in (1, 2, 3, 8)}
    assert len(texts) == 1
    text = texts.pop()
    assert parse_text(text.encode()).text() == text and text.startswith("tallystick program 2\n")
    other = capture(Net(), loss, schema(2 * SIZE), AdamW(0.01), clip_norm=0.5, micro_batches=1,
                    loss_over="sum" if loss is sum_loss else "mean")  # fmt: skip
    assert other.program.text() != text


def test_without_micro_batches_the_text_is_as_it_was() -> None:
    plain = capture(Net(), mean_loss, schema(SIZE), AdamW(0.01))
    again = capture(Net(), mean_loss, schema(SIZE), AdamW(0.01), micro_batches=None)
    assert plain.program.text() == again.program.text()
    assert plain.program.text().startswith("tallystick program 1\n")
    assert plain.micro_batches is None and FOLD not in {n.op for n in plain.program.nodes}


def test_the_parts_of_the_program() -> None:
    step = captured(3)
    program = step.program
    check_program(program)
    assert step.micro_batches == 3 and step.untrained == ("idle",)
    assert {k: t.shape for k, t in step.batch.items()} == {"x": (12, 2, 5, 5), "y": (12,)}
    assert {k: t.shape for k, t in program.batch_types.items()} == {"x": (4, 2, 5, 5), "y": (4,)}
    assert [name for name, _ in program.carried] == [
        "buffer.norm.num_batches_tracked", "buffer.norm.running_mean", "buffer.norm.running_var",
    ]  # fmt: skip
    tail = [node.op for node in program.nodes[program.section :]]
    # The loss, two metrics, and five gradients: weight and bias of conv and norm, and out's.
    assert tail.count(FOLD) == 8 and tail.count("tallystick.clip_coef") == 1
    assert tail.count("tallystick.adamw_step") == 5 and tail[-1] == "tallystick.commit"
    section = {node.op for node in program.nodes[: program.section]}
    assert not {FOLD, "tallystick.sum_squares", "tallystick.adamw_step"} & section
    assert sorted(k for k in program.output_values if k.startswith("metric.")) == [
        "metric.first", "metric.grad_norm", "metric.right",
    ]  # fmt: skip


# -- execution -------------------------------------------------------------------------------------
def run(executor: Any, step: CapturedStep, steps: int, parts: int, cut: bool = False) -> Any:
    state = {k: v.copy() for k, v in (step.initial_state or {}).items()}
    found: list[Any] = []
    for t in range(steps):
        batch = records(parts * SIZE, t)
        given = split_batch(batch, parts) if cut else batch
        result = executor.run_step(state, given, {"lr": 0.01}, (3, t))
        found.append({k: v.copy() for k, v in result.outputs.items()})
    return found, state


@pytest.mark.sample(3)
@pytest.mark.parametrize("loss", [mean_loss, sum_loss])
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 8])
def test_bits_of_the_expanded_program(parts: int, loss: Any) -> None:
    step = captured(parts, loss, outputs_grads=True)
    plain = run(Executor(expand(step.program, parts)), step, 3, parts, cut=True)
    ours = run(SectionedExecutor(step.program, parts), step, 3, parts)
    for a, b in zip(plain[0], ours[0], strict=True):
        assert {k: v.tobytes() for k, v in a.items()} == {k: v.tobytes() for k, v in b.items()}
    assert all(plain[1][k].tobytes() == v.tobytes() for k, v in ours[1].items())
    assert int(ours[1]["buffer.norm.num_batches_tracked"]) == 3 * parts


@pytest.mark.parametrize("threads", [1, 2])
def test_a_tapped_step_holds_one_micro_batch(threads: int) -> None:
    step, seen = captured(4), list[int]()

    def tap(index: int, _node: Node, _inputs: Any, _outputs: Any) -> None:
        seen.append(index)

    state = {k: v.copy() for k, v in (step.initial_state or {}).items()}
    ours = SectionedExecutor(step.program, 4)
    ours.run_step(state, records(16), {"lr": 0.01}, (3, 0), tap, advance=False)
    assert seen == list(range(len(ours.program.nodes)))
    assert all(v.tobytes() == state[k].tobytes() for k, v in (step.initial_state or {}).items())


def test_draws_of_micro_batches_differ() -> None:
    step = captured(2)
    flat = expand(step.program, 2)
    masks = [n.attrs["draw"] for n in flat.nodes if n.op == "tallystick.dropout_mask"]
    assert masks == [0, 1, 2, 3]


# -- beside torch ----------------------------------------------------------------------------------
def torchs(
    dtype: torch.dtype, parts: int, steps: int, sums: bool, optimizer: str
) -> tuple[list[float], dict[str, np.ndarray]]:
    """A loop as people write it: backward once for each micro-batch, then one step."""
    module = Net(dropout=0.0).to(dtype)
    own: Any
    if optimizer == "sgd":
        own = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9)
    else:
        own = torch.optim.AdamW(module.parameters(), lr=0.01)
    losses = []
    for t in range(steps):
        batch = {k: torch.from_numpy(v) for k, v in records(parts * SIZE, t).items()}
        batch["x"] = batch["x"].to(dtype)
        own.zero_grad()
        total, count = 0.0, 0
        for v in range(parts):
            part = {k: x[v * SIZE : (v + 1) * SIZE] for k, x in batch.items()}
            if sums:
                loss, number, _ = sum_loss(module, part)
                count += int(number)
            else:
                loss, _ = mean_loss(module, part)
                count += 1
            loss.backward()
            total += float(loss.detach())
        for p in module.parameters():
            if p.grad is not None:
                p.grad /= count
        torch.nn.utils.clip_grad_norm_([p for p in module.parameters() if p.grad is not None], 0.5)
        own.step()
        losses.append(total / count)
    return losses, {k: v.detach().double().numpy() for k, v in module.state_dict().items()}


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_accumulation_beside_torchs_own(sums: bool, optimizer: str) -> None:
    """50 steps of 4 micro-batches: the distance from torch in float64 is of the size of that of
    torch in float32, which adds up and divides in the same way."""
    parts, steps = 4, 50
    rule = SGD(0.05, momentum=0.9) if optimizer == "sgd" else AdamW(0.01, no_decay=())
    module = Net(dropout=0.0)
    step = captured(parts, sum_loss if sums else mean_loss, module=module, optimizer=rule)
    state = {k: v.copy() for k, v in (step.initial_state or {}).items()}
    ours, executor = [], SectionedExecutor(step.program, parts)
    for t in range(steps):
        rate = {"lr": 0.05 if optimizer == "sgd" else 0.01}
        result = executor.run_step(state, records(parts * SIZE, t), rate, (0, t))
        ours.append(float(result.loss))  # type: ignore[arg-type]
    exact, wide = torchs(torch.float64, parts, steps, sums, optimizer)
    single, narrow = torchs(torch.float32, parts, steps, sums, optimizer)
    away = max(abs(a - b) for a, b in zip(single, exact, strict=True))
    assert max(abs(a - b) for a, b in zip(ours, exact, strict=True)) <= 16 * away + 1e-6
    assert max(exact[:5]) - min(exact[-5:]) > 0.05, "it has learnt something"
    for name, true in wide.items():
        slot = f"param.{name}" if f"param.{name}" in state else f"buffer.{name}"
        own = float(np.linalg.norm(narrow[name] - true))
        found = float(np.linalg.norm(state[slot].astype(np.float64) - true))
        assert found <= 16 * own + 2.0**-18 * float(np.linalg.norm(true)) + 1e-7, name


def test_a_sum_over_the_count_is_the_whole_batchs_mean() -> None:
    """Without batch statistics the number of micro-batches changes no more than rounding."""
    module = nn.Linear(3, 3)

    def loss(m: Any, batch: dict[str, Tensor]) -> Any:
        found = F.cross_entropy(m(batch["x"]), batch["y"], ignore_index=0, reduction="sum")
        return found, (batch["y"] != 0).sum()

    rng = np.random.default_rng(4)
    given = {"x": rng.standard_normal((24, 3)).astype(np.float32), "y": rng.integers(0, 3, 24)}
    types = {"x": ((24, 3), "f32"), "y": ((24,), "i64")}
    found = []
    for parts in (1, 2, 8, 24):
        step = capture(module, loss, types, SGD(0.1), micro_batches=parts, loss_over="sum",
                       outputs_grads=True)  # fmt: skip
        state = {k: v.copy() for k, v in (step.initial_state or {}).items()}
        found.append(SectionedExecutor(step.program, parts).run_step(state, given, {"lr": 0.1}))
    x, y = (torch.from_numpy(v) for v in given.values())
    true = F.cross_entropy(module(x), y, ignore_index=0)
    (gradient,) = torch.autograd.grad(true, [module.weight])
    for result in found:
        assert abs(float(result.loss) - true.item()) < 1e-6  # type: ignore[arg-type]
        assert np.allclose(result.outputs["grad.weight"], gradient.numpy(), atol=1e-6)


def test_the_evaluation_of_a_summed_loss_is_its_quotient() -> None:
    module = Net()
    program = capture_eval(module, sum_loss, schema(8), loss_over="sum")
    step = captured(2, sum_loss, module=module)
    state = {k: v for k, v in (step.initial_state or {}).items() if not k.startswith("opt.")}
    batch = records(8)
    result = Executor(program).run_step(state, batch)
    module.eval()
    total, count, _ = sum_loss(module, {k: torch.from_numpy(v) for k, v in batch.items()})
    assert abs(float(result.loss) - (total / count).item()) < 1e-5  # type: ignore[arg-type]
    assert "count" not in result.outputs


# -- the first step, compared (5.9) ----------------------------------------------------------------
def compare(step: CapturedStep, parts: int, seed: int = 0) -> str | None:
    assert step.first_step is not None and step.initial_state is not None
    return step.first_step.compare(
        "ordered/1", step.initial_state, records(parts * SIZE, seed), {"lr": 0.01}, (7, 0)
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("loss", [mean_loss, sum_loss])
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_the_first_step_is_compared(parts: int, loss: Any) -> None:
    for optimizer in (AdamW(0.01), Adam(0.01), SGD(0.1, momentum=0.9, nesterov=True)):
        assert compare(captured(parts, loss, optimizer=optimizer), parts) is None


def test_a_fold_that_does_not_divide_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from tallystick.program.capture.micro import SectionTail

    right = SectionTail.fold_value
    monkeypatch.setattr(
        SectionTail, "fold_value", lambda self, name, mean: right(self, name, mean=False)
    )
    with pytest.raises(UsageError, match="the loss differs from float64"):
        compare(captured(3), 3)


def test_draws_and_buffers_of_later_micro_batches_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other side of the comparison begins each micro-batch where the one before has ended."""
    from tallystick.program.capture import first_step, torch_step

    with monkeypatch.context() as patch:
        patch.setattr(first_step, "draws_of", lambda _: 0)
        with pytest.raises(UsageError, match="differs from float64"):
            compare(captured(3), 3)
    monkeypatch.setattr(torch_step, "kept_value", lambda before, after, dtype: before)
    with pytest.raises(UsageError, match=r"buffer norm\."):
        compare(captured(3), 3)


# -- refusals --------------------------------------------------------------------------------------
class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(3, 1)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Any:
        self.seen += x.mean()  # type: ignore[operator]
        return self.line(x).mean() + self.seen.mean()  # type: ignore[operator]


def test_another_buffer_that_changes_is_refused() -> None:
    def loss(m: Any, batch: dict[str, Tensor]) -> Tensor:
        found: Tensor = m(batch["x"])
        return found

    types = {"x": ((6, 3), "f32")}
    with pytest.raises(UsageError, match="changes the buffer seen"):
        capture(Counter(), loss, types, SGD(0.1), micro_batches=2)
    one = capture(Counter(), loss, types, SGD(0.1), micro_batches=1)
    assert [name for name, _ in one.program.carried] == ["buffer.seen"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"micro_batches": 3}, "'x' has 8 records, which 3 micro-batches do not divide"),
        ({"micro_batches": 0}, "micro_batches is 0"),
        ({"micro_batches": True}, "micro_batches is True"),
        ({"micro_batches": 65537}, "micro_batches is 65537"),
        ({"micro_batches": 2, "loss_over": "max"}, "loss_over is 'max'"),
        ({"loss_over": "sum"}, "needs micro_batches"),
        ({"micro_batches": 2, "loss_over": "sum"}, r"must return \(sum, count\)"),
    ],
)
def test_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        capture(Net(), mean_loss, schema(8), SGD(0.1), **options)


def test_a_batch_without_records_is_refused() -> None:
    def loss(m: Any, batch: dict[str, Tensor]) -> Tensor:
        return m(batch["x"]).mean() * batch["scale"]  # type: ignore[no-any-return]

    types = {"x": ((4, 3), "f32"), "scale": ((), "f32")}
    with pytest.raises(UsageError, match="'scale' has no first axis"):
        capture(nn.Linear(3, 1), loss, types, SGD(0.1), micro_batches=2)


def test_several_optimizers_are_refused() -> None:
    def step(m: Any, batch: dict[str, Tensor], update: Any) -> Any:
        found = m(batch["x"]).mean()
        update("weight", found)
        return found

    with pytest.raises(UsageError, match="several optimizers cannot have micro-batches"):
        capture(nn.Linear(3, 1, bias=False), step, {"x": ((4, 3), "f32")}, {"weight": SGD(0.1)},
                micro_batches=2)  # fmt: skip


def test_a_gradient_or_loss_that_no_node_makes() -> None:
    """The gradient of a sum of products is the batch's own tensor; the fold needs a node."""

    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(4))

    def loss(m: Any, batch: dict[str, Tensor]) -> Any:
        return (m.w * batch["x"]).sum(), {"x": batch["x"], "y": batch["y"]}

    types = {"x": ((4,), "f32"), "y": ((4,), "u8")}
    step = capture(Scale(), loss, types, SGD(0.1), micro_batches=1, outputs_grads=True)
    check_program(step.program)
    batch = {"x": np.arange(4, dtype=np.float32), "y": np.arange(4, dtype=np.uint8)}
    state = dict(step.initial_state or {})
    found = SectionedExecutor(step.program, 1).run_step(state, batch, {"lr": 0.5})
    assert found.outputs["grad.w"].tolist() == [0, 1, 2, 3] == found.outputs["metric.y"].tolist()
