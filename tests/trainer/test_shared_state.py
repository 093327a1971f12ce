"""Python state that a pass of validation and the training loss share is seen (PROGRAM 5.19 f)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import tallystick
from tallystick.errors import UsageError

Loss = Callable[..., Tensor]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(4, 3)
        self.passes = 0
        self.annealed = False
        self.log: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


def rows(count: int = 16) -> list[Any]:
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(count, 4, generator=generator), torch.randn(count, 3, generator=generator)
    return list(zip(x, y, strict=True))


def fit(out: Path, loss: Loss, **given: Any) -> Any:
    module = Net()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    return tallystick.fit(
        module, loss, rows(), optimizer, out=out, batch_size=4, progress=False,
        **({"steps": 6, "validation": rows(10), "evaluate_every": 2} | given),
    )  # fmt: skip


def mse(m: Any, b: Any) -> Tensor:
    return F.mse_loss(m(b[0]), b[1])


def counts_passes() -> Loss:
    def loss(m: Any, b: Any) -> Tensor:
        if not m.training:
            m.passes += 1
        return mse(m, b) * (0.5**m.passes if m.training else 1.0)

    return loss


def closure() -> Loss:
    passes = 0

    def loss(m: Any, b: Any) -> Tensor:
        nonlocal passes
        if not m.training:
            passes += 1
            return mse(m, b)
        return mse(m, b) * (0.5**passes)

    return loss


def late_flag() -> Loss:
    """The third pass sets a flag, which no two traces would."""

    def loss(m: Any, b: Any) -> Tensor:
        if not m.training:
            m.passes += 1
            if m.passes == 3:
                m.annealed = True
            return mse(m, b)
        return mse(m, b) * 0.5 if m.annealed else mse(m, b)

    return loss


def flag_once() -> Loss:
    def loss(m: Any, b: Any) -> Tensor:
        if not m.training:
            m.annealed = True
            return mse(m, b)
        return mse(m, b) * 0.5 if m.annealed else mse(m, b)

    return loss


def threshold() -> Loss:
    def loss(m: Any, b: Any) -> Tensor:
        if not m.training:
            m.passes += 1
            return mse(m, b)
        return mse(m, b) * 0.5 if m.passes >= 5 else mse(m, b)

    return loss


def steps_in_validation() -> Loss:
    """The other way round: training counts, and validation reads."""

    def loss(m: Any, b: Any) -> Tensor:
        if m.training:
            m.passes += 1
            return mse(m, b)
        return mse(m, b) * 0.5**m.passes

    return loss


def flag_of_training() -> Loss:
    def loss(m: Any, b: Any) -> Tensor:
        if m.training:
            m.annealed = True
            return mse(m, b)
        return mse(m, b) * 0.5 if m.annealed else mse(m, b)

    return loss


def by_length() -> Loss:
    def loss(m: Any, b: Any) -> Tensor:
        if not m.training:
            m.log.append("a pass")
            return mse(m, b)
        return mse(m, b) / (1 + len(m.log))

    return loss


SHARED = [
    counts_passes, closure, flag_once, late_flag, threshold, by_length, steps_in_validation,
    flag_of_training,
]  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("made", SHARED, ids=lambda f: f.__name__)
def test_shared_state_is_refused_by_name(made: Callable[[], Loss], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"passes|annealed|log") as error:
        fit(tmp_path, made())
    assert "test_shared_state.py:" in str(error.value)
    assert "validation" in str(error.value)
    assert not (tmp_path / "run" / "commitment.json").exists()


def test_two_losses_that_share_an_object(tmp_path: Path) -> None:
    class Schedule:
        factor = 1.0

    schedule = Schedule()

    def held_out(m: Any, b: Any) -> Tensor:
        schedule.factor *= 0.5
        return mse(m, b)

    with pytest.raises(UsageError, match=r"schedule\.factor"):
        fit(tmp_path, lambda m, b: mse(m, b) * schedule.factor, validation_loss=held_out)


def test_a_tensor_that_validation_changes_and_training_reads(tmp_path: Path) -> None:
    scale = torch.ones(())

    def held_out(m: Any, b: Any) -> Tensor:
        scale.mul_(0.5)
        return mse(m, b)

    with pytest.raises(UsageError, match="scale"):
        fit(tmp_path, lambda m, b: mse(m, b) * scale, validation_loss=held_out)


def test_a_tensor_that_validation_replaces_and_training_reads(tmp_path: Path) -> None:
    class Held:
        scale = torch.ones(())

    held = Held()

    def held_out(m: Any, b: Any) -> Tensor:
        found = mse(m, b)
        held.scale = found.detach()
        return found

    with pytest.raises(UsageError, match="scale"):
        fit(tmp_path, lambda m, b: mse(m, b) * held.scale, validation_loss=held_out)


def test_a_flag_that_a_later_path_of_training_reads(tmp_path: Path) -> None:
    def loss(m: Any, b: Any, at: Any) -> Tensor:
        if not m.training:
            m.annealed = True
            return mse(m, b)
        if at.step < 3:
            return mse(m, b)
        return mse(m, b) * 2.0 if m.annealed else mse(m, b) * 3.0

    with pytest.raises(UsageError, match="annealed"):
        fit(tmp_path, loss)


# -- harmless ----------------------------------------------------------------------------------
def logs() -> Loss:
    log: list[str] = []

    def loss(m: Any, b: Any) -> Tensor:
        log.append("training" if m.training else "a pass")
        m.log.append(len(log))
        return mse(m, b)

    return loss


def prints() -> Loss:
    def loss(m: Any, b: Any) -> Tensor:
        m.passes += 1
        if m.passes % 3 == 0:
            print(f"call {m.passes}")
        return mse(m, b)

    return loss


class Metric:
    """As those of torchmetrics: sums, in tensors and numbers."""

    def __init__(self) -> None:
        self.total, self.count, self.updates = torch.zeros(()), 0, 0

    def update(self, value: Tensor, count: int) -> None:
        self.total = self.total + value.detach() * count
        self.count += count
        self.updates += 1


def metric() -> Loss:
    metrics = {True: Metric(), False: Metric()}

    def loss(m: Any, b: Any) -> Tensor:
        found = mse(m, b)
        metrics[m.training].update(found, len(b[0]))
        return found

    return loss


def one_metric() -> Loss:
    metric = Metric()

    def loss(m: Any, b: Any) -> Tensor:
        found = mse(m, b)
        metric.updates += 1
        metric.count += len(b[0])
        return found

    return loss


def cache() -> Loss:
    held: dict[str, Tensor] = {}

    def loss(m: Any, b: Any) -> Tensor:
        if "table" not in held:
            held["table"] = torch.ones(3)
        return mse(m, b) + (held["table"] * m.layer.bias).sum()

    return loss


def last_mode() -> Loss:
    """Both set what they read."""

    def loss(m: Any, b: Any) -> Tensor:
        m.passes = 1 if m.training else 2
        return mse(m, b) * m.passes

    return loss


HARMLESS = [logs, prints, metric, one_metric, cache, last_mode]


@pytest.mark.sample(3)
@pytest.mark.parametrize("made", HARMLESS, ids=lambda f: f.__name__)
def test_state_that_decides_nothing_passes(made: Callable[[], Loss], tmp_path: Path) -> None:
    assert fit(tmp_path, made(), steps=4).finished


def test_shared_state_without_validation_is_no_matter(tmp_path: Path) -> None:
    assert fit(tmp_path, counts_passes(), validation=None, evaluate_every=None).finished


# -- capture -----------------------------------------------------------------------------------
def captured(loss: Loss) -> Any:
    module = Net()
    batch = {"0": torch.zeros(4, 4), "1": torch.zeros(4, 3)}
    named = lambda m, b: loss(m, [b["0"], b["1"]])  # noqa: E731
    return tallystick.capture(module, named, batch, tallystick.SGD(0.1))


def arrays(count: int) -> dict[str, Any]:
    x, y = zip(*rows(count), strict=True)
    return {"0": torch.stack(x).numpy(), "1": torch.stack(y).numpy()}


def test_capture_refuses_validation_alone(tmp_path: Path) -> None:
    step = captured(counts_passes())
    step.save_job(tmp_path / "without", arrays(16), steps=6)
    with pytest.raises(UsageError, match=r"passes.*validation"):
        step.save_job(
            tmp_path / "with", arrays(16), steps=6, validation=arrays(8), evaluate_every=2
        )
    with pytest.raises(UsageError, match=r"passes.*validation"):
        tallystick.save_job(
            tmp_path / "several", arrays(16), programs={"one": step}, steps=6,
            validation=arrays(8), evaluate_every=2,
        )  # fmt: skip


def test_capture_takes_harmless_state(tmp_path: Path) -> None:
    step = captured(logs())
    step.passes.calls.module.eval()  # as its owner may have done since
    step.save_job(tmp_path, arrays(16), steps=6, validation=arrays(8), evaluate_every=2)


# -- buffers -----------------------------------------------------------------------------------
class Buffered(Net):
    scale: Tensor
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(()))
        self.register_buffer("seen", torch.zeros(()))


def fit_buffered(out: Path, loss: Loss) -> Any:
    module = Buffered()
    return tallystick.fit(
        module, loss, rows(), torch.optim.SGD(module.parameters(), lr=0.1), out=out, steps=6,
        batch_size=4, progress=False, validation=rows(10), evaluate_every=2,
    )  # fmt: skip


def test_a_buffer_that_validation_changes_and_training_reads(tmp_path: Path) -> None:
    def loss(m: Any, b: Any) -> Tensor:
        if not m.training:
            m.scale.mul_(0.5)
            return mse(m, b)
        return mse(m, b) * m.scale

    with pytest.raises(UsageError, match=r"changes the buffer scale"):
        fit_buffered(tmp_path, loss)


def test_a_buffer_that_only_counts(tmp_path: Path) -> None:
    def loss(m: Any, b: Any) -> Tensor:
        m.seen.add_(1.0)
        return mse(m, b)

    assert fit_buffered(tmp_path, loss).finished


# -- the other loops ---------------------------------------------------------------------------
class Lit(nn.Module):
    """Of the form of a LightningModule."""

    def __init__(self, reads: bool) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer, self.passes, self.reads = nn.Linear(4, 3), 0, reads

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = F.mse_loss(self.layer(batch[0]), batch[1])
        return loss * 0.5**self.passes if self.reads else loss

    def validation_step(self, batch: Any, batch_idx: int) -> Tensor:
        self.passes += 1
        return F.mse_loss(self.layer(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("reads", [True, False])
def test_a_lightning_module(reads: bool, tmp_path: Path) -> None:
    def run() -> Any:
        loaders = (DataLoader(rows(n), batch_size=4) for n in (16, 8))
        return tallystick.fit_lightning(
            Lit(reads), *loaders, out=tmp_path, max_steps=6, val_check_interval=2, progress=False
        )

    if not reads:
        assert run().finished
        return
    with pytest.raises(UsageError, match=r"passes is changed by the pass of validation"):
        run()


@pytest.mark.parametrize("reads", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_transformers_trainer(reads: bool, tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed (extra `hf`)")
    from trainer_parts import Small, arguments, padded, sentences

    class Counts(tallystick.Trainer):
        passes = 0

        def compute_loss(self, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
            if not model.training:
                self.passes += 1
            loss = super().compute_loss(model, inputs, *given, **named)
            return loss * 0.5**self.passes if reads and model.training else loss

    one = Counts(
        Small(), arguments(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2),
        train_dataset=sentences(), eval_dataset=sentences(8, seed=1), data_collator=padded,
    )  # fmt: skip
    if not reads:
        one.train()
        assert one.run is not None and one.run.finished
        return
    with pytest.raises(UsageError, match=r"passes.* is changed by the pass of validation"):
        one.train()


def test_passes_and_the_step_of_another_program(tmp_path: Path) -> None:
    module = Net()
    batch = {"0": torch.zeros(4, 4), "1": torch.zeros(4, 3)}

    def one(m: Any, b: Any) -> Tensor:
        if not m.training:
            m.passes += 1
        return F.mse_loss(m(b["0"]), b["1"])

    def other(m: Any, b: Any) -> Tensor:
        return F.mse_loss(m(b["0"]), b["1"]) * 0.5**m.passes

    programs = {
        name: tallystick.capture(module, loss, batch, tallystick.SGD(0.1), trains=trains)
        for name, loss, trains in (("one", one, "layer.weight"), ("other", other, "layer.bias"))
    }
    with pytest.raises(UsageError, match=r"passes is changed by the pass of validation"):
        tallystick.save_job(
            tmp_path, arrays(16), programs=programs, steps=6, validation=arrays(8),
            evaluate_every=2,
        )  # fmt: skip


def test_what_one_program_changes_and_another_reads(tmp_path: Path) -> None:
    module, flags, calls = Net(), {"on": False}, {"one": 0}
    batch = {"0": torch.zeros(4, 4), "1": torch.zeros(4, 3)}

    def one(m: Any, b: Any) -> Tensor:
        calls["one"] += 1
        return F.mse_loss(m(b["0"]), b["1"])

    def sets(m: Any, b: Any) -> Tensor:
        flags["on"] = True
        return one(m, b)

    def other(m: Any, b: Any) -> Tensor:
        return F.mse_loss(m(b["0"]), b["1"]) * (3.0 if flags["on"] else 1.0)

    def save(first: Any) -> None:
        programs = {
            name: tallystick.capture(module, loss, batch, tallystick.SGD(0.1), trains=trains)
            for name, loss, trains in (
                ("one", first, "layer.weight"),
                ("other", other, "layer.bias"),
            )
        }
        tallystick.save_job(tmp_path / "job", arrays(16), programs=programs, steps=6)

    with pytest.raises(
        UsageError, match=r"flags\['on'\].* is changed by the step of the program one"
    ):
        save(sets)
    assert not (tmp_path / "job").exists() and flags == {"on": False}
    save(one)


def test_a_capture_whose_passes_change_what_its_steps_read(tmp_path: Path) -> None:
    def halves(m: Any, b: Any) -> Tensor:
        if not m.training:
            m.scale.mul_(0.5)
            return mse(m, b)
        return mse(m, b) * m.scale

    hidden = {"mean": torch.zeros(())}

    def keeps(m: Any, b: Any) -> Tensor:
        found = mse(m, b) * (1 + hidden["mean"])
        hidden["mean"] = found.detach()
        return found

    scales = {"short": 1.0}

    def short_pass(m: Any, b: Any) -> Tensor:
        if not m.training and len(b[0]) == 2:
            scales["short"] = 3.0
        return mse(m, b) * (scales["short"] if m.training else 1.0)

    for loss, words in (
        (halves, "changes the buffer scale"),
        (keeps, r"changes the buffer outside\.b?.*mean"),
        (short_pass, r"scales\['short'\].* is changed by the pass of validation"),
    ):
        module = Buffered()
        named = lambda m, b, loss=loss: loss(m, [b["0"], b["1"]])  # noqa: E731
        whole, short = (
            tallystick.capture(
                module,
                named,
                {"0": torch.zeros(size, 4), "1": torch.zeros(size, 3)},
                tallystick.SGD(0.1),
            )
            for size in (4, 2)
        )
        given: dict[str, Any] = {"validation": arrays(10), "evaluate_every": 2}
        if loss is short_pass:
            given["validation_short"] = short
        with pytest.raises(UsageError, match=words):
            whole.save_job(tmp_path / "job", arrays(16), steps=6, **given)
        whole.save_job(tmp_path / loss.__name__, arrays(16), steps=6)
