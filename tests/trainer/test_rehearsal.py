"""What callbacks change at known steps is trained as written, beside plain torch in two widths."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from grid.case import Case, Loop, Order
from grid.measure import compared, measured
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

pytest.importorskip("transformers", reason="transformers is not installed (extra `hf`)")
pytest.importorskip("accelerate", reason="accelerate is not installed (extra `hf`)")

import transformers as hf
from trainer_parts import arguments

import tallystick
from tallystick.errors import CallbackError, UsageError
from tallystick.job.job_file import load_job

RECORDS, SIZE, UPDATES = 22, 4, 12  # six updates in an epoch, the last one of two records


class Net(nn.Module):
    """Two layers and a head, as transformers calls a model."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        return {"loss": F.cross_entropy(self.head(self.body(x)), labels)}


def rows() -> list[dict[str, Any]]:
    x = torch.randn(RECORDS, 6, generator=torch.Generator().manual_seed(6))
    return [{"x": row, "labels": int(row.argmax()) % 3} for row in x]


def collate(records: list[dict[str, Any]]) -> dict[str, Tensor]:
    return {
        "x": torch.stack([record["x"] for record in records]),
        "labels": torch.tensor([record["labels"] for record in records]),
    }


class Changes(hf.TrainerCallback):
    """Freezes, unfreezes, and writes the groups and the arguments, each in an event of its own."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        given["model"].body.requires_grad_(False)

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        given["model"].body[2].requires_grad_(state.global_step >= 2)
        given["model"].body[0].requires_grad_(state.global_step >= 4)
        given["model"].head.requires_grad_(state.global_step not in (7, 8))
        if state.global_step == 9:
            args.max_grad_norm = 0.1

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        given["optimizer"].param_groups[0]["weight_decay"] = 0.1 * (1 + round(state.epoch))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        for group in given["optimizer"].param_groups:
            group["lr"] = group["lr"] * (1 + state.global_step % 2)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if state.global_step == 5:
            given["optimizer"].param_groups[0]["lr"] = 3e-3


def trainer(out: Path, *callbacks: Any, **given: Any) -> Any:
    usual = {
        "max_steps": UPDATES, "learning_rate": 5e-3, "weight_decay": 0.01,
        "remove_unused_columns": False,
    } | given  # fmt: skip
    return tallystick.Trainer(
        Net(), arguments(out, **usual), train_dataset=rows(), data_collator=collate,
        callbacks=list(callbacks),
    )  # fmt: skip


def adamw(model: nn.Module) -> Any:
    weights = [p for n, p in model.named_parameters() if "bias" not in n]
    biases = [p for n, p in model.named_parameters() if "bias" in n]
    groups = [{"params": weights, "weight_decay": 0.01}, {"params": biases, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=5e-3)


def plain(model: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """The loop of transformers with what `Changes` does written into it."""
    optimizer, bound = adamw(model), 1.0
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: (UPDATES - t) / UPDATES)
    model.train()
    for step in range(UPDATES):
        if step == 2:  # of `Counts`; the scheduler sets the rate again
            optimizer.param_groups[0]["lr"] *= 0.5
        if step % 6 == 0:
            optimizer.param_groups[0]["weight_decay"] = 0.1 * (1 + step // 6)
        model.body[2].requires_grad_(step >= 2)
        model.body[0].requires_grad_(step >= 4)
        model.head.requires_grad_(step not in (7, 8))
        bound = 0.1 if step == 9 else bound
        model.zero_grad()
        model(**next(batches))["loss"].backward()
        nn.utils.clip_grad_norm_(model.parameters(), bound)
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * (1 + step % 2)
        optimizer.step()
        schedule.step()
        if step + 1 == 5:
            optimizer.param_groups[0]["lr"] = 3e-3
        yield optimizer


def trained(out: Path, *callbacks: Any) -> Any:
    one = trainer(out, *callbacks)
    one.train()
    return one.run


def case_of(*callbacks: Callable[[], Any]) -> Case:
    def loop() -> Loop:
        order = Order(True, RECORDS, SIZE, 2, False)
        return Loop(
            Net(), lambda out: trained(out, *(made() for made in callbacks)), plain, order, UPDATES,
            lambda: DataLoader(rows(), batch_size=SIZE, shuffle=True, collate_fn=collate),
        )  # fmt: skip

    return Case("changes", "Trainer", (), loop)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run with all of the changes, committed every 2 steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tallystick.job.parts.DEFAULT_INTERVAL", 2)
        return trained(tmp_path_factory.mktemp("whole"), Changes(), Counts())


def test_changes_at_known_steps_are_trained_as_written(whole: Any) -> None:
    found = compared(case_of(Changes, Counts), whole)
    assert (found.outcome, found.detail, found.steps) == ("as written", "", UPDATES)
    assert tallystick.audit(whole.directory).accepted


def test_the_measure_sees_a_change_that_is_left_out(tmp_path: Path) -> None:
    class Less(Changes):
        def on_pre_optimizer_step(self, *given: Any, **named: Any) -> None:
            pass

    assert measured(case_of(Less, Counts), tmp_path).outcome == "different"


def test_what_is_trained_in_the_same_steps_has_powers_of_its_own(whole: Any) -> None:
    job = load_job(Path(whole.directory) / "job")
    powers = sorted(n for n in job.program.state_types if n.startswith("opt.beta1_power"))
    # By group of the optimizer: the head, the last layer, the first layer.
    assert powers == [f"opt.beta1_power.{g}.{c}" for g in (0, 1) for c in (0, 1, 2)]
    # Settings begin at the steps 0, 2, 4, 6, 7 and 9; the batches of 5 and 11 are short.
    assert len(job.commitment.timetable.programs) == 8


class Counts(hf.TrainerCallback):
    """Halves the rate at its third step, by a count of its own."""

    def __init__(self) -> None:
        self.steps = 0
        self.losses: list[Any] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.steps += 1
        if self.steps == 3:
            given["optimizer"].param_groups[0]["lr"] *= 0.5

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.losses.append(logs.get("loss"))
        print(f"{logs.get('loss')}")


class Breaks(hf.TrainerCallback):
    """Notes where a run begins, and breaks it off after step 8."""

    def __init__(self, breaks: bool) -> None:
        self.breaks, self.begun = breaks, -1

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.begun = state.global_step if self.begun < 0 else self.begun

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if state.global_step == 8 and self.breaks and not given["model"].head.weight.is_meta:
            raise RuntimeError("the power goes out")


def test_a_resumed_run_ends_at_the_same_bits(
    whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick.job.parts.DEFAULT_INTERVAL", 2)
    first = trainer(tmp_path / "run", Changes(), Counts(), Breaks(True))
    with pytest.raises(RuntimeError, match="the power goes out"):
        first.train()
    # What the callbacks changed is taken back: the same call begins as this one did.
    assert all(p.requires_grad for p in first.model.parameters())
    assert first.args.max_grad_norm == 1.0
    breaks = Breaks(False)
    again = trainer(tmp_path / "run", Changes(), Counts(), breaks)
    again.train()
    assert breaks.begun > 3
    assert again.run.run_root == whole.run_root


def test_a_rehearsal_leaves_the_callbacks_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = Counts()
    one = trainer(tmp_path, counts, logging_steps=1)
    before = copy.deepcopy(one.model.state_dict())
    job = one.save_job()
    assert (counts.steps, counts.losses) == (0, [])
    assert capsys.readouterr().out == ""
    assert all(torch.equal(v, before[k]) for k, v in one.model.state_dict().items())
    rates, others = job.scalars["lr.0"], job.scalars["lr.1"]
    assert isinstance(rates, list) and isinstance(others, list)
    assert rates[2] == 0.5 * (5e-3 * (UPDATES - 2) / UPDATES)
    assert rates[3] == 5e-3 * (UPDATES - 3) / UPDATES  # the scheduler sets it again
    assert others[2] == 5e-3 * (UPDATES - 2) / UPDATES


def test_callbacks_that_change_nothing_leave_the_job_as_it_was(tmp_path: Path) -> None:
    class Hears(hf.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            assert given["optimizer"].param_groups

    trainer(tmp_path / "plain").save_job()
    trainer(tmp_path / "hears", Hears()).save_job()
    digests = [load_job(tmp_path / n / "job").digest for n in ("plain", "hears")]
    assert digests[0] == digests[1]


def reads_the_loss(self: Any, args: Any, state: Any, control: Any, logs: Any, **given: Any) -> None:
    if logs.get("loss", 0.0) > 0.0:
        given["optimizer"].param_groups[0]["lr"] = 1e-4


def reads_a_weight(self: Any, args: Any, state: Any, control: Any, logs: Any, **given: Any) -> None:
    if float(given["model"].head.weight.sum()) != 100.0:
        args.max_grad_norm = 0.5


def writes(self: Any, args: Any, state: Any, control: Any, logs: Any, **given: Any) -> None:
    (Path(args.output_dir) / "log.txt").open("a").close()
    args.max_grad_norm = 0.5


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (reads_the_loss, r"\['lr'\].*rehearsed.*it reads a loss, a metric or a best step"),
        (reads_a_weight, r"args\.max_grad_norm \(1\.0 → 0\.5\).*rehearsed.*raises"),
        (writes, r"args\.max_grad_norm \(1\.0 → 0\.5\).*rehearsed.*it writes a file"),
    ],
)
def test_what_cannot_be_known_before_ends_the_run(act: Any, words: str, tmp_path: Path) -> None:
    meddles = type("Meddles", (hf.TrainerCallback,), {"on_log": act})()
    one = trainer(tmp_path, meddles, Counts(), logging_steps=2)
    with pytest.raises(CallbackError, match=rf"Meddles\.on_log changes .*{words}"):
        one.train()
    assert not (tmp_path / "run" / "commitment.json").exists()
    # The other callback is rehearsed all the same.
    rates = load_job(tmp_path / "job").scalars["lr.0"]
    assert isinstance(rates, list) and rates[2] < 3e-3


def test_another_change_than_the_rehearsals_ends_the_run(tmp_path: Path) -> None:
    class Global(hf.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if state.global_step == 3:
                scale = 1.0 if given["model"].head.weight.is_meta else 2.0
                args.max_grad_norm = 0.5 * scale

    one = trainer(tmp_path, Global())
    words = r"Global\.on_step_begin changes args\.max_grad_norm .*at step 3.*In the rehearsal"
    with pytest.raises(CallbackError, match=words):
        one.train()


def test_a_setting_for_each_step_is_more_than_a_job_holds(tmp_path: Path) -> None:
    class Ramp(hf.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            given["optimizer"].param_groups[0]["weight_decay"] = 0.001 * state.global_step

    with pytest.raises(UsageError, match="has at most 64"):
        trainer(tmp_path, Ramp(), max_steps=80).save_job()


def test_betas_that_change_are_refused(tmp_path: Path) -> None:
    class Betas(hf.TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            if state.global_step == 2:
                given["optimizer"].param_groups[0]["betas"] = (0.8, 0.999)

    with pytest.raises(UsageError, match="betas of the optimizer's group 0 change"):
        trainer(tmp_path, Betas()).save_job()


MADE: list[int] = []


class Makes(dict[str, Any]):
    """What it gives is made anew, as transformers' ACT2FN gives activations."""

    def __getitem__(self, key: str) -> Any:
        return [super().__getitem__(key)]


KINDS = Makes(kind="a kind")


def test_what_code_shares_is_put_back(tmp_path: Path) -> None:
    calls = 0

    class Shares(hf.TrainerCallback):
        count = 0

        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            nonlocal calls
            calls += 1
            Shares.count += 1
            MADE.append(len(KINDS["kind"]))
            args.max_grad_norm = 0.5

    trainer(tmp_path, Shares()).save_job()
    assert (calls, Shares.count, MADE) == (0, 0, [])
    assert dict.__getitem__(KINDS, "kind") == "a kind"
