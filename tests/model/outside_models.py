"""Losses that keep tensors outside of the captured module, as training loops write them.

Each case is a function that returns a fresh `Outside`: module, loss, and the tensors that the loss
keeps, by the slot's name. `read` gives them as they are; `write` puts others in their places. Both
are written by hand, so that a test does not ask capture where they are.
"""

from __future__ import annotations

import copy
import functools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = Mapping[str, Tensor]
CASES: dict[str, Callable[[], Outside]] = {}
RECORDS, SIZE = 24, 4


@dataclass
class Outside:
    module: nn.Module
    loss: Callable[[nn.Module, Batch], Tensor]
    read: Callable[[], dict[str, Tensor]]
    write: Callable[[Mapping[str, Tensor]], None]
    frozen: tuple[str, ...] = ()  # of `read`, but no slots


def case(make: Callable[[], Outside]) -> Callable[[], Outside]:
    CASES[make.__name__] = make
    return make


def records(seed: int = 3) -> dict[str, Tensor]:
    made = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(RECORDS, 5, generator=made),
        "y": torch.randint(0, 3, (RECORDS,), generator=made),
        "t": torch.randint(0, 7, (RECORDS, 6), generator=made),
    }


def net(out: int = 3) -> nn.Sequential:
    torch.manual_seed(11)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, out))


def _log_chosen(module: nn.Module, batch: Batch) -> Tensor:
    scores: Tensor = module(batch["x"]).log_softmax(-1)
    return scores.gather(1, batch["y"][:, None]).squeeze(1)


@case
def baseline_by_nonlocal() -> Outside:
    """REINFORCE: reward minus its running mean."""
    baseline = torch.zeros(())

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        nonlocal baseline
        reward = batch["x"][:, 0]
        value = -((reward - baseline) * _log_chosen(module, batch)).mean()
        baseline = 0.9 * baseline + 0.1 * reward.mean()
        return value

    def write(tensors: Mapping[str, Tensor]) -> None:
        nonlocal baseline
        baseline = tensors["baseline"]

    return Outside(net(), loss, lambda: {"baseline": baseline}, write)


def _module_slots(name: str, module: nn.Module) -> Any:
    def read() -> dict[str, Tensor]:
        found = dict(module.named_parameters()) | dict(module.named_buffers())
        return {f"{name}.{k}": v.detach() for k, v in found.items()}

    def write(tensors: Mapping[str, Tensor]) -> None:
        for child_name, child in module.named_modules():
            at = f"{name}.{child_name}." if child_name else f"{name}."
            for held in (child._parameters, child._buffers):
                for key in list(held):
                    made = tensors[at + key]
                    grad = isinstance(held[key], nn.Parameter) and held[key].requires_grad
                    held[key] = nn.Parameter(made, grad) if held is child._parameters else made

    return read, write


@case
def teacher() -> Outside:
    """BYOL: a mean teacher, updated where the loss is taken."""
    student = net(4)
    mean = copy.deepcopy(student)
    for parameter in mean.parameters():
        parameter.requires_grad_(False)

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        with torch.no_grad():
            for slow, fast in zip(mean.parameters(), module.parameters(), strict=True):
                slow.mul_(0.9).add_(fast, alpha=0.1)
            aim = F.normalize(mean(batch["x"] + 0.1), dim=-1)
        return 2 - 2 * (F.normalize(module(batch["x"]), dim=-1) * aim).sum(-1).mean()

    read, write = _module_slots("mean", mean)
    return Outside(student, loss, read, write)


@case
def teacher_by_data() -> Outside:
    """As many scripts have it: through `.data`, of a copy that still requires gradients."""
    student = net(4)
    mean = copy.deepcopy(student)

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        aim = mean(batch["x"]).detach()
        value = F.mse_loss(module(batch["x"]), aim + 0.1)
        for slow, fast in zip(mean.parameters(), module.parameters(), strict=True):
            slow.data = slow.data * 0.8 + fast.data * 0.2
        return value

    read, write = _module_slots("mean", mean)
    return Outside(student, loss, read, write)


class Criterion(nn.Module):
    """DINO's: cross-entropy against a centred, sharpened aim."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(1, 4))

    def forward(self, seen: Tensor, raw: Tensor) -> Tensor:
        aim = F.softmax((raw - self.centre) / 0.5, dim=-1).detach()
        self.update(raw)
        return -(aim * F.log_softmax(seen, dim=-1)).sum(-1).mean()

    @torch.no_grad()
    def update(self, raw: Tensor) -> None:
        self.centre = self.centre * 0.9 + raw.mean(dim=0, keepdim=True) * 0.1


@case
def criterion_with_a_buffer() -> Outside:
    criterion = Criterion()

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        return criterion(module(batch["x"]), module(batch["x"] * 0.9))

    def write(tensors: Mapping[str, Tensor]) -> None:
        criterion._buffers["centre"] = tensors["criterion.centre"]

    return Outside(net(4), loss, lambda: {"criterion.centre": criterion.centre}, write)


@case
def bank_with_a_pointer() -> Outside:
    """MoCo's queue of keys: rows are written at a pointer that goes round."""
    torch.manual_seed(5)
    queue = F.normalize(torch.randn(12, 4), dim=1)
    ptr = torch.zeros((), dtype=torch.int64)

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        nonlocal ptr
        z = F.normalize(module(batch["x"]), dim=1)
        negatives = z @ queue.clone().detach().T
        value = torch.logsumexp(negatives, dim=1).mean() - z[:, 0].mean()
        with torch.no_grad():
            queue[ptr : ptr + SIZE] = z
            ptr = (ptr + SIZE) % 12
        return value

    def write(tensors: Mapping[str, Tensor]) -> None:
        nonlocal queue, ptr
        queue, ptr = tensors["queue"], tensors["ptr"]

    return Outside(net(4), loss, lambda: {"queue": queue, "ptr": ptr}, write)


@case
def through_data() -> Outside:
    scale = torch.ones(3)

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        value = F.cross_entropy(module(batch["x"]) * scale, batch["y"])
        scale.data.mul_(0.95)
        return value

    def write(tensors: Mapping[str, Tensor]) -> None:
        nonlocal scale
        scale = tensors["scale"]

    return Outside(net(), loss, lambda: {"scale": scale}, write)


@case
def in_a_dict() -> Outside:
    state = {"mean": torch.zeros(5), "steps": torch.tensor(0)}

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        state["steps"] += 1
        state["mean"] = state["mean"] + (batch["x"].mean(0) - state["mean"]) / state["steps"]
        return F.cross_entropy(module(batch["x"] - state["mean"]), batch["y"])

    def write(tensors: Mapping[str, Tensor]) -> None:
        for key in state:
            state[key] = tensors[f"state.{key}"]

    return Outside(net(), loss, lambda: {f"state.{k}": v for k, v in state.items()}, write)


@case
def in_a_list() -> Outside:
    """The features of the last three batches, the newest at the end."""
    bank = [torch.zeros(3) for _ in range(3)]

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        scores = module(batch["x"])
        value = F.cross_entropy(scores, batch["y"]) + (scores * torch.stack(bank).mean(0)).mean()
        bank.pop(0)
        bank.append(batch["x"].mean(0)[:3])
        return value

    def write(tensors: Mapping[str, Tensor]) -> None:
        bank[:] = [tensors[f"bank.{i}"] for i in range(3)]

    return Outside(net(), loss, lambda: {f"bank.{i}": v for i, v in enumerate(bank)}, write)


class Held:
    centre = torch.zeros(3)


@case
def class_attribute() -> Outside:
    Held.centre = torch.zeros(3)

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        scores = module(batch["x"])
        value = F.cross_entropy(scores - Held.centre, batch["y"])
        Held.centre = 0.7 * Held.centre + 0.3 * scores.detach().mean(0)
        return value

    def write(tensors: Mapping[str, Tensor]) -> None:
        Held.centre = tensors["Held.centre"]

    return Outside(net(), loss, lambda: {"Held.centre": Held.centre}, write)


GLOBAL = torch.zeros(5)


@case
def global_name() -> Outside:
    global GLOBAL
    GLOBAL = torch.zeros(5)

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        global GLOBAL
        GLOBAL = torch.lerp(GLOBAL, batch["x"].mean(0), 0.25)
        return F.cross_entropy(module(batch["x"] - GLOBAL), batch["y"])

    def write(tensors: Mapping[str, Tensor]) -> None:
        global GLOBAL
        GLOBAL = tensors["GLOBAL"]

    return Outside(net(), loss, lambda: {"GLOBAL": GLOBAL}, write)


@case
def default_argument() -> Outside:
    def loss(module: nn.Module, batch: Batch, seen: Tensor = torch.ones(3)) -> Tensor:  # noqa: B008
        value = F.cross_entropy(module(batch["x"]) / seen.sqrt(), batch["y"])
        seen.mul_(0.5).add_(F.one_hot(batch["y"], 3).float().mean(0) + 0.2)
        return value

    def write(tensors: Mapping[str, Tensor]) -> None:
        loss.__defaults__ = (tensors["loss.seen"],)

    return Outside(net(), loss, lambda: {"loss.seen": loss.__defaults__[0]}, write)


class Language(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(8)
        self.embedding, self.lstm = nn.Embedding(7, 4), nn.LSTM(4, 5, batch_first=True)
        self.decoder = nn.Linear(5, 7)

    def forward(self, tokens: Tensor, hidden: Any) -> Any:
        out, hidden = self.lstm(self.embedding(tokens), hidden)
        return self.decoder(out), hidden


@case
def hidden_states() -> Outside:
    """A language model whose states go on from batch to batch."""
    hidden = (torch.zeros(1, SIZE, 5), torch.zeros(1, SIZE, 5))

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        nonlocal hidden
        scores, hidden = module(batch["t"][:, :-1], hidden)
        hidden = tuple(h.detach() for h in hidden)
        return F.cross_entropy(scores.reshape(-1, 7), batch["t"][:, 1:].reshape(-1))

    def write(tensors: Mapping[str, Tensor]) -> None:
        nonlocal hidden
        hidden = (tensors["hidden.0"], tensors["hidden.1"])

    return Outside(
        Language(), loss, lambda: {f"hidden.{i}": h for i, h in enumerate(hidden)}, write
    )


class Counting(nn.Module):
    """A plain attribute of the module itself, which is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.mean = net(), torch.zeros(5)

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.8 * self.mean + 0.2 * x.detach().mean(0)
        found: Tensor = self.inner(x - self.mean)
        return found


@case
def attribute_of_the_module() -> Outside:
    module = Counting()

    def write(tensors: Mapping[str, Tensor]) -> None:
        module.mean = tensors["module.mean"]

    return Outside(
        module,
        lambda m, batch: F.cross_entropy(m(batch["x"]), batch["y"]),
        lambda: {"module.mean": module.mean},
        write,
    )


class Agent:
    """The loss is a method, and what it keeps is in its object."""

    def __init__(self) -> None:
        self.mean, self.square = torch.zeros(()), torch.ones(())

    def loss(self, module: nn.Module, batch: Batch) -> Tensor:
        reward = batch["x"][:, 0]
        gain = (reward - self.mean) / (self.square - self.mean.square() + 0.1).sqrt()
        self.mean = self.mean + 0.2 * (reward.mean() - self.mean)
        self.square.mul_(0.8).add_(0.2 * reward.square().mean())
        return -(gain * _log_chosen(module, batch)).mean()


@case
def method_of_an_object() -> Outside:
    agent = Agent()

    def write(tensors: Mapping[str, Tensor]) -> None:
        agent.mean, agent.square = tensors["self.mean"], tensors["self.square"]

    return Outside(
        net(), agent.loss, lambda: {"self.mean": agent.mean, "self.square": agent.square}, write
    )


@case
def in_a_deque() -> Outside:
    last = deque([torch.zeros(3), torch.ones(3)], maxlen=2)

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        scores = module(batch["x"])
        value = F.cross_entropy(scores + last[0] - last[1], batch["y"])
        last.append(scores.detach().mean(0))
        return value

    def write(tensors: Mapping[str, Tensor]) -> None:
        last.extend(tensors[f"last.{i}"] for i in range(2))

    return Outside(net(), loss, lambda: {f"last.{i}": v for i, v in enumerate(last)}, write)


class Memory(NamedTuple):
    mean: Tensor
    rest: tuple[Tensor, int]


@case
def named_tuple() -> Outside:
    memory = Memory(torch.zeros(3), (torch.ones(3), 7))

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        nonlocal memory
        scores = module(batch["x"])
        value = F.cross_entropy((scores - memory.mean) / memory.rest[0], batch["y"])
        spread = scores.detach().std(0) + 0.5
        memory = Memory(0.5 * (memory.mean + scores.detach().mean(0)), (spread, 7))
        return value

    def write(tensors: Mapping[str, Tensor]) -> None:
        nonlocal memory
        memory = Memory(tensors["memory.0"], (tensors["memory.1.0"], 7))

    return Outside(
        net(), loss, lambda: {"memory.0": memory.mean, "memory.1.0": memory.rest[0]}, write
    )


@case
def teacher_with_statistics() -> Outside:
    """A mean teacher in training mode: its own statistics and weights change, and a buffer."""
    torch.manual_seed(11)
    student = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 4))
    mean = nn.Sequential(nn.BatchNorm1d(5), copy.deepcopy(student)).requires_grad_(False)

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        with torch.no_grad():
            aim = mean(batch["x"])
            fast = dict(module.named_parameters())
            for name, slow in mean[1].named_parameters():
                slow.lerp_(fast[name], 0.2)
        return F.mse_loss(module(batch["x"]), aim)

    read, write = _module_slots("mean", mean)
    return Outside(student, loss, read, write, ("mean.0.weight", "mean.0.bias"))


@case
def partial_arguments() -> Outside:
    """The tensor is bound before: a keyword of functools.partial."""

    def keeps(module: nn.Module, batch: Batch, scale: Tensor) -> Tensor:
        value = F.cross_entropy(module(batch["x"]) * scale.clone(), batch["y"])
        scale[1:] *= 0.9
        scale[:1] += 0.1
        return value

    loss = functools.partial(keeps, scale=torch.ones(3))

    def write(tensors: Mapping[str, Tensor]) -> None:
        loss.keywords["scale"] = tensors["loss.scale"]

    return Outside(net(), loss, lambda: {"loss.scale": loss.keywords["scale"]}, write)


@case
def two_views_of_one_memory() -> Outside:
    """No tensor here is the whole memory, which is the slot."""
    whole = torch.zeros(8)
    low, high = whole[:3], whole[4:7]
    del whole

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        scores = module(batch["x"])
        value = F.cross_entropy(scores - low + high, batch["y"])
        low.mul_(0.5).add_(scores.detach().mean(0))
        high.copy_(low.flip(0))
        return value

    def write(tensors: Mapping[str, Tensor]) -> None:
        nonlocal low, high
        low, high = tensors["high"][:3], tensors["high"][4:7]

    def read() -> dict[str, Tensor]:
        return {"high": torch.as_strided(high, (8,), (1,), 0)}

    return Outside(net(), loss, read, write)


@case
def bank_along_columns() -> Outside:
    """As facebookresearch/moco lays it out: keys are columns, the pointer has one axis."""
    torch.manual_seed(6)
    queue, ptr = F.normalize(torch.randn(4, 12), dim=0), torch.zeros(1, dtype=torch.int64)

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        z = F.normalize(module(batch["x"]), dim=1)
        value = torch.logsumexp(z @ queue.clone().detach(), dim=1).mean() - z[:, 0].mean()
        with torch.no_grad():
            queue[:, ptr : ptr + SIZE] = z.T
            ptr[0] = (ptr + SIZE) % 12
        return value

    def write(tensors: Mapping[str, Tensor]) -> None:
        nonlocal queue, ptr
        queue, ptr = tensors["queue"], tensors["ptr"]

    return Outside(net(4), loss, lambda: {"queue": queue, "ptr": ptr}, write)


@case
def transposed_memory() -> Outside:
    """No tensor is the memory row by row: the slot has one axis."""
    kept = torch.zeros(3, SIZE).t()

    def loss(module: nn.Module, batch: Batch) -> Tensor:
        scores = module(batch["x"])
        value = F.cross_entropy(scores - kept.clone(), batch["y"])
        kept.mul_(0.9).add_(0.3 * scores.detach())
        return value

    def write(tensors: Mapping[str, Tensor]) -> None:
        nonlocal kept
        kept = tensors["kept"].view(3, SIZE).t()

    return Outside(net(), loss, lambda: {"kept": kept.t().reshape(-1)}, write)
