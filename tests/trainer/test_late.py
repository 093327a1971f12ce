"""Hidden states that are None at first, in loops that are known (PROGRAM 5.20 g)."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from grid.case import Case, Loop, Order
from grid.measure import compared
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import tallystick
from tallystick.errors import UsageError
from tallystick.job.job_file import load_job
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.listener import Silent
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.declaration import Declaration

RECORDS, BATCH, EPOCHS, WIDTH, TOKENS = 24, 4, 3, 6, 9
PER_EPOCH = RECORDS // BATCH
STEPS = EPOCHS * PER_EPOCH
Make = Callable[[], Callable[..., Tensor]]


class Reader(nn.Module):
    """An embedding, a recurrent layer and a decoder; `hidden` is for a loss that keeps it here."""

    hidden: Any = None

    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.embedding = nn.Embedding(TOKENS, WIDTH)
        self.rnn = kind(WIDTH, WIDTH, batch_first=True)  # type: ignore[call-arg]
        self.decoder = nn.Linear(WIDTH, TOKENS)

    def forward(self, tokens: Tensor, hidden: Any = None) -> Any:
        out, hidden = self.rnn(self.embedding(tokens), hidden)
        return self.decoder(out), hidden


def text(count: int = RECORDS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return list(torch.randint(0, TOKENS, (count, 6), generator=generator))


def told(scores: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())


def closure() -> Any:
    hidden: Any = None

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        nonlocal hidden
        scores, found = module(tokens[:, :-1], hidden)
        hidden = tuple(h.detach() for h in found)
        return told(scores, tokens)

    return loss


def attribute_of_the_module() -> Any:
    def loss(module: Any, tokens: Tensor) -> Tensor:
        scores, found = module(tokens[:, :-1], module.__dict__.get("kept"))
        module.kept = tuple(h.detach() for h in found)
        return told(scores, tokens)

    return loss


def items_of_a_list() -> Any:
    kept: list[Any] = [None, None]

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        hidden = None if kept[0] is None else (kept[0], kept[1])
        scores, (h, c) = module(tokens[:, :-1], hidden)
        kept[:] = [h.detach(), c.detach()]
        return told(scores, tokens)

    return loss


def absent_item_that_is_a_list() -> Any:
    kept: dict[str, Any] = {}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores, found = module(tokens[:, :-1], tuple(kept["state"]) if "state" in kept else None)
        kept["state"] = [h.detach() for h in found]
        return told(scores, tokens)

    return loss


def anew_in_each_epoch() -> Any:
    carried: dict[str, Any] = {"hidden": None, "batch": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        if carried["batch"] % PER_EPOCH == 0:
            carried["hidden"] = None
        carried["batch"] += 1
        scores, found = module(tokens[:, :-1], carried["hidden"])
        carried["hidden"] = tuple(h.detach() for h in found)
        return told(scores, tokens)

    return loss


def emptied_after_an_epoch() -> Any:
    carried: dict[str, Any] = {"hidden": None, "batch": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores, found = module(tokens[:, :-1], carried["hidden"])
        carried["batch"] += 1
        ends = carried["batch"] % PER_EPOCH == 0
        carried["hidden"] = None if ends else tuple(h.detach() for h in found)
        return told(scores, tokens)

    return loss


def attribute_of_a_class() -> Any:
    class Keeper:
        state: Any = None

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores, found = module(tokens[:, :-1], Keeper.state)
        Keeper.state = tuple(h.detach() for h in found)
        return told(scores, tokens)

    return loss


def changed_in_place() -> Any:
    kept: dict[str, Any] = {"mean": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores, _ = module(tokens[:, :-1])
        mean = scores.detach().mean((0, 1))
        if kept["mean"] is None:
            kept["mean"] = mean
        else:
            kept["mean"].mul_(0.5).add_(mean)
        return told(scores - kept["mean"], tokens)

    return loss


def zeros_that_a_later_call_changes() -> Any:
    """The zeros depend on no batch: they would be made anew, without the change, at each step."""
    kept: dict[str, Any] = {"count": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        if kept["count"] is None:
            kept["count"] = torch.zeros(TOKENS)
        else:
            kept["count"].add_(torch.linspace(0.0, 1.0, TOKENS))
        return told(module(tokens[:, :-1])[0] * (1 + kept["count"]), tokens)

    return loss


def handler_around_the_read() -> Any:
    """A refusal within `try` is not the loss's own affair."""
    kept: dict[str, Any] = {"mean": None, "calls": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        kept["calls"] += 1
        try:
            scores = scores + kept["mean"]
        except Exception:
            scores = 1.5 * scores
        kept["mean"] = scores.detach().mean((0, 1))
        return kept["calls"] * 0.1 * told(scores, tokens)

    return loss


def last_ones_in_a_deque() -> Any:
    kept: deque[Tensor] = deque(maxlen=3)

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        for old in kept:
            scores = scores + 0.2 * old
        kept.append(scores.detach().mean((0, 1)))
        return told(scores, tokens)

    return loss


def last_batches() -> Any:
    """The batch before and the one before that."""
    kept: dict[str, Any] = {"one": None, "two": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        value = told(module(tokens[:, :-1])[0], tokens)
        for old in (kept["one"], kept["two"]):
            value = value if old is None else value + 0.5 * told(module(old[:, :-1])[0], old)
        kept["two"], kept["one"] = kept["one"], tokens
        return value

    return loss


def one_object_in_two_places() -> Any:
    kept: dict[str, Any] = {"hidden": None, "best": None, "calls": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        kept["calls"] += 1
        if kept["hidden"] is not None:
            same = kept["hidden"] is kept["best"]
            scores = scores + (kept["hidden"] if same else 0.5 * kept["best"])
        kept["hidden"] = scores.detach().mean((0, 1))
        if kept["calls"] % 2:
            kept["best"] = kept["hidden"]
        return told(scores, tokens)

    return loss


def one_object_in_a_list() -> Any:
    kept: dict[str, Any] = {"hidden": None, "all": []}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        if kept["hidden"] is not None:
            scores = (
                scores
                + (2.0 if any(kept["hidden"] is a for a in kept["all"]) else 1.0) * (kept["hidden"])
            )
        kept["hidden"] = scores.detach().mean((0, 1))
        kept["all"] = [kept["hidden"]]
        return told(scores, tokens)

    return loss


def one_object_that_was_two() -> Any:
    """Both are there before the training: as two tensors, which the first call makes one."""
    kept = {"hidden": torch.ones(TOKENS), "best": torch.zeros(TOKENS)}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        factor = 0.3 if kept["hidden"] is kept["best"] else 1.0
        scores = scores + factor * kept["hidden"] - 0.1 * kept["best"]
        kept["hidden"] = kept["best"] = scores.detach().mean((0, 1))
        return told(scores, tokens)

    return loss


def two_that_nobody_compares() -> Any:
    kept = {"hidden": torch.ones(TOKENS), "best": torch.zeros(TOKENS)}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0] + 0.5 * kept["hidden"] - 0.1 * kept["best"]
        kept["hidden"] = kept["best"] = scores.detach().mean((0, 1))
        return told(scores, tokens)

    return loss


def one_tensor_in_two_places() -> Any:
    kept: dict[str, Any] = {"a": None, "b": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        if kept["a"] is None:
            kept["a"] = kept["b"] = scores.detach().mean((0, 1))
        else:
            kept["a"].mul_(0.5)
        return told(scores + kept["b"], tokens)

    return loss


def zeros_that_change_places() -> Any:
    """The zeros of the first call depend on nothing: a slot gets them by a swap."""
    kept: dict[str, Any] = {"a": None, "b": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        if kept["a"] is None:
            kept["a"], kept["b"] = scores.detach().mean((0, 1)), torch.zeros(TOKENS)
        else:
            kept["a"], kept["b"] = kept["b"], kept["a"]
            scores = scores + kept["a"] + 0.1 * kept["b"]
        return told(scores, tokens)

    return loss


def signed(make: Make, out: Path, accumulate: int = 1, epochs: int = EPOCHS, **given: Any) -> Any:
    module = Reader()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    return tallystick.fit(
        module, make(), text(), optimizer, batch_size=BATCH, epochs=epochs, out=out,
        progress=False, accumulate=accumulate, **given,
    )  # fmt: skip


def loop_of(make: Make, accumulate: int = 1) -> Loop:
    def plain(module: nn.Module, batches: Iterator[Any]) -> Iterator[Any]:
        loss, optimizer = make(), torch.optim.SGD(module.parameters(), lr=0.5)
        while True:
            optimizer.zero_grad()
            for _ in range(accumulate):
                (loss(module, next(batches)) / accumulate).backward()
            optimizer.step()
            yield optimizer

    order, form = Order(True, RECORDS, BATCH, EPOCHS, False), torch.zeros(BATCH, 6).long()
    made = lambda out: signed(make, out, accumulate)  # noqa: E731
    return Loop(Reader(), made, plain, order, STEPS // accumulate, lambda: [form])


def programs(run: Any) -> int:
    return len(load_job(Path(run.directory) / "job").commitment.timetable.programs)


TRAINED = {
    closure: 2,
    attribute_of_the_module: 2,
    items_of_a_list: 2,
    absent_item_that_is_a_list: 2,
    anew_in_each_epoch: 2,
    emptied_after_an_epoch: 3,
    attribute_of_a_class: 2,
    changed_in_place: 2,
    zeros_that_a_later_call_changes: 2,
    handler_around_the_read: 2,
    last_ones_in_a_deque: 4,
    last_batches: 3,
    one_object_in_two_places: 3,
    one_object_in_a_list: 2,
    one_object_that_was_two: 2,
    two_that_nobody_compares: 1,
    one_tensor_in_two_places: 2,
    zeros_that_change_places: 2,
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("make", TRAINED)
def test_each_step_is_that_of_the_plain_loop(make: Make, tmp_path: Path) -> None:
    run = loop_of(make).signed(tmp_path)
    found = compared(Case(make.__name__, "fit", (), lambda: loop_of(make)), run)
    assert (found.outcome, found.steps) == ("as written", STEPS), found
    assert programs(run) == TRAINED[make]
    assert tallystick.audit(tmp_path / "run", threads=1).accepted


@pytest.mark.parametrize("make", [closure, anew_in_each_epoch])
def test_batches_of_one_update_hand_it_on(make: Make, tmp_path: Path) -> None:
    run = loop_of(make, accumulate=2).signed(tmp_path)
    found = compared(Case(make.__name__, "fit", (), lambda: loop_of(make, 2)), run)
    assert (found.outcome, found.steps) == ("as written", STEPS // 2), found


def test_the_slots_begin_with_zeros_and_the_places_end_with_tensors(tmp_path: Path) -> None:
    module, kept = Reader(), {"hidden": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores, found = module(tokens[:, :-1], kept["hidden"])
        kept["hidden"] = tuple(h.detach() for h in found)
        return told(scores, tokens)

    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    tallystick.fit(
        module, loss, text(), optimizer, batch_size=BATCH, steps=4, out=tmp_path, progress=False
    )
    first = load_job(tmp_path / "job").genesis().slots
    names = sorted(name for name in first if "outside" in name)
    assert names == ["buffer.outside.kept.hidden.0", "buffer.outside.kept.hidden.1"]
    assert not any(first[name].any() for name in names)
    hidden: Any = kept["hidden"]
    assert isinstance(hidden, tuple) and [h.shape for h in hidden] == 2 * [(1, BATCH, WIDTH)]
    assert all(not h.is_meta and bool(h.abs().sum() > 0) for h in hidden)


def test_a_resumed_run_ends_at_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallystick.job.parts.DEFAULT_INTERVAL", 2)
    whole = signed(anew_in_each_epoch, tmp_path / "whole")

    class Breaks(Silent):
        def step(self, step: int, loss: float, seconds: float) -> None:
            if step == 9:
                raise RuntimeError("the power goes out")

    with pytest.raises(RuntimeError, match="the power goes out"):
        signed(anew_in_each_epoch, tmp_path / "run", listener=Breaks())
    assert signed(anew_in_each_epoch, tmp_path / "run").run_root == whole.run_root


def test_a_lie_about_a_later_program_is_convicted(tmp_path: Path) -> None:
    run = signed(anew_in_each_epoch, tmp_path / "honest")
    job = load_job(tmp_path / "honest" / "job")
    maker = declared_cheat(job, Declaration("lie-output", {"step": 8}))
    train_job(job, tmp_path / "cheat", Options(maker=maker))
    found = tallystick.dispute(
        run.directory, tmp_path / "cheat", job, as_attack=["B"], out=tmp_path / "evidence"
    )
    assert found.convicted == ("B",)
    assert found.verdict.place.step == 8
    assert tallystick.judge(tmp_path / "evidence", job).verdict == found.verdict


class Buffered(nn.Module):
    hidden: Any

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.reader = Reader()
        self.register_buffer("hidden", None)

    def forward(self, tokens: Tensor) -> Tensor:
        scores = self.reader(tokens)[0]
        scores = scores if self.hidden is None else scores + self.hidden
        self.hidden = scores.detach().mean((0, 1))
        return scores  # type: ignore[no-any-return]


def test_a_buffer_that_is_none_at_first(tmp_path: Path) -> None:
    module, plain = Buffered(), Buffered()
    loss = lambda module, tokens: told(module(tokens[:, :-1]), tokens)  # noqa: E731
    tallystick.fit(
        module, loss, DataLoader(text(), BATCH), torch.optim.SGD(module.parameters(), lr=0.5),
        epochs=1, out=tmp_path, progress=False,
    )  # fmt: skip
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.5)
    for begin in range(0, RECORDS, BATCH):
        optimizer.zero_grad()
        loss(plain, torch.stack(text()[begin : begin + BATCH])).backward()
        optimizer.step()
    torch.testing.assert_close(module.state_dict(), plain.state_dict(), rtol=1e-5, atol=1e-5)
    assert "hidden" in plain.state_dict()


# -- refused by name -------------------------------------------------------------------------------
def grows() -> Any:
    hidden: Any = None

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        nonlocal hidden
        scores = module(tokens[:, :-1])[0]
        scores = scores if hidden is None else scores + hidden.mean()
        new = scores.detach().mean((0, 1))
        hidden = new if hidden is None else torch.cat([hidden, new])
        return told(scores, tokens)

    return loss


def another_form() -> Any:
    kept: dict[str, Any] = {"hidden": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        old, calls = kept["hidden"], kept.get("calls", 0)
        old = old[0] if isinstance(old, tuple) else old
        scores = module(tokens[:, :-1])[0]
        scores = scores if old is None else scores + old
        new = scores.detach().mean((0, 1))
        kept.update(hidden=new if calls > 3 else (new,), calls=calls + 1)
        return told(scores, tokens)

    return loss


def one_memory_from_another_step_on() -> Any:
    """The tensors are there before the training; step 2 lets them be one."""
    kept: dict[str, Any] = {"a": torch.zeros(TOKENS), "b": torch.zeros(TOKENS), "calls": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        kept["calls"] += 1
        if kept["calls"] == 3:
            kept["a"] = kept["b"]
        kept["a" if kept["calls"] % 2 else "b"].add_(torch.ones(TOKENS))
        return told(module(tokens[:, :-1])[0] * kept["a"] + kept["b"], tokens)

    return loss


def object_of_each_call() -> Any:
    class Held:
        def __init__(self, mean: Tensor) -> None:
            self.mean = mean

    kept: dict[str, Any] = {"held": None, "calls": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        kept["calls"] += 1
        scores = module(tokens[:, :-1])[0]
        try:
            scores = scores + kept["held"].mean
        except Exception:
            scores = 1.5 * scores
        kept["held"] = Held(scores.detach().mean((0, 1)))
        return kept["calls"] * told(scores, tokens)

    return loss


def object_of_the_first_call() -> Any:
    class Held:
        def __init__(self) -> None:
            self.count = torch.zeros(TOKENS)

    kept: dict[str, Any] = {"held": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        if kept["held"] is None:
            kept["held"] = Held()
        else:
            kept["held"].count.add_(torch.ones(TOKENS))
        return told(module(tokens[:, :-1])[0] * (1 + kept["held"].count), tokens)

    return loss


def list_that_grows() -> Any:
    kept: list[Tensor] = []

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        scores = scores + kept[-1] if kept else scores
        kept.append(scores.detach().mean((0, 1)))
        return told(scores, tokens)

    return loss


def graph_that_goes_on() -> Any:
    hidden: Any = None

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        nonlocal hidden
        scores, hidden = module(tokens[:, :-1], hidden)
        return told(scores, tokens)

    return loss


def constant_that_changes() -> Any:
    kept: dict[str, Any] = {"scale": None, "calls": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        kept["calls"] += 1
        if kept["scale"] is None:
            kept["scale"] = torch.tensor([1.0 + i for i in range(TOKENS)])
        else:
            kept["scale"].mul_(0.9)
        return kept["calls"] * told(module(tokens[:, :-1])[0] * kept["scale"], tokens)

    return loss


def number_of_an_object() -> Any:
    kept: dict[str, Any] = {"hidden": None, "seen": set()}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        if kept["hidden"] is not None:
            scores = scores + (2 if id(kept["hidden"]) in kept["seen"] else 1) * kept["hidden"]
        kept["hidden"] = scores.detach().mean((0, 1))
        kept["seen"] = {id(kept["hidden"])}
        return told(scores, tokens)

    return loss


def copy_of_the_module() -> Any:
    kept: dict[str, Any] = {"target": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        if kept["target"] is None:
            kept["target"] = copy.deepcopy(module)
        with torch.no_grad():
            target = kept["target"](tokens[:, :-1])[0]
        return told(module(tokens[:, :-1])[0] - 0.5 * target, tokens)

    return loss


REFUSED = {
    grows: r"hidden in the closure of loss .* changes its type from float32\[9\]",
    another_form: r"kept\['hidden'\]\[0\] in the closure of loss .* another form",
    one_memory_from_another_step_on: r"kept\['[ab]'\] in the closure of loss .* shares memory",
    copy_of_the_module: r"reads a tensor of an earlier call \(",
    object_of_each_call: "reads a tensor of an earlier call",
    object_of_the_first_call: "changes a tensor in place that an earlier call has made",
    list_that_grows: "reads a tensor of an earlier call",
    graph_that_goes_on: "gradient",
    number_of_an_object: r"asks for id\(...\) \(.*test_late.py",
    constant_that_changes: "changes a tensor in place that capture finds nowhere",
}


LONG = {list_that_grows}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "make",
    [pytest.param(m, marks=[pytest.mark.long] if m in LONG else []) for m in REFUSED],
)
def test_what_has_no_exact_state_is_refused_by_name(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=REFUSED[make]):
        # A short list of tensors is state that the job carries.
        signed(make, tmp_path, epochs=EPOCHS if make in LONG else 1)
    assert not (tmp_path / "job").exists()


def test_a_short_batch_is_refused_by_name(tmp_path: Path) -> None:
    module = Reader()

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        kept = vars(module).get("kept")
        kept = None if kept is None or kept.shape[0] != tokens.shape[0] else kept
        scores = module(tokens[:, :-1])[0]
        scores = scores if kept is None else scores + kept[:, None]
        module.kept = scores.detach().mean(1)  # type: ignore[assignment]
        return told(scores, tokens)

    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with pytest.raises(UsageError, match=r"kept.* changes its type from float32\[4, 9\]"):
        tallystick.fit(
            module, loss, text(22), optimizer, batch_size=BATCH, epochs=2, out=tmp_path,
            progress=False,
        )  # fmt: skip
    assert "kept" not in vars(module)
