"""Eager loops inside `tallystick.reproducible`: the loop of `plain` as it is, its states kept."""

from __future__ import annotations

import copy

import numpy as np
import torch
from grid.case import Loop, Order, grid_case
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

import tallystick


def states_of(model: nn.Module, loop, batches) -> list[dict[str, torch.Tensor]]:
    """The loop under the contract: the state after each update."""
    states = []
    with tallystick.reproducible("ordered/1", seed=0) as contract:
        for _ in loop(model, iter(batches)):
            states.append({n: t.detach().clone() for n, t in model.state_dict().items()})
            contract.next_step()
    return states


def epochs_of(columns, size: int, epochs: int, seed: int | None = None, drop_last: bool = False):
    """Batches of all epochs; with a seed each epoch is shuffled by a RandomState of one's own."""
    dice = None if seed is None else np.random.RandomState(seed)
    count = len(columns[0])
    for _ in range(epochs):
        order = np.arange(count) if dice is None else dice.permutation(count)
        for start in range(0, count, size):
            chosen = torch.from_numpy(order[start : start + size])
            if drop_last and len(chosen) < size:
                continue
            yield tuple(column[chosen] for column in columns)


class Mnist(nn.Module):
    """The net of pytorch/examples' mnist, shrunk."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, 1), nn.Conv2d(4, 8, 3, 1)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(32, 16), nn.Linear(16, 4)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = self.dropout1(F.max_pool2d(x, 2))
        x = self.dropout2(F.relu(self.fc1(torch.flatten(x, 1))))
        return F.log_softmax(self.fc2(x), dim=1)


@grid_case(
    "reproducible-mnist-adadelta",
    "reproducible",
    (
        "dropout",
        "Adadelta",
        "StepLR each epoch",
        "nll_loss",
        "a last short batch",
        "shuffled by numpy",
        "log each fifth step with .item()",
    ),
)
def mnist() -> Loop:
    """Follows pytorch/examples' mnist/main.py: Adadelta, StepLR with gamma 0.7."""
    made = torch.Generator().manual_seed(121)
    x, y = torch.randn(45, 1, 8, 8, generator=made), torch.randint(0, 4, (45,), generator=made)
    epochs, per_epoch = 3, 6

    def net():
        torch.manual_seed(122)
        return Mnist()

    def loader():
        return epochs_of((x, y), 8, epochs, seed=1)

    def plain(model, batches):
        model.train()
        lines = []
        optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0, foreach=False)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
        for epoch in range(epochs):
            for batch_idx in range(per_epoch):
                data, target = next(batches)
                optimizer.zero_grad()
                loss = F.nll_loss(model(data), target)
                loss.backward()
                optimizer.step()
                if batch_idx % 5 == 0:
                    lines.append(f"Train Epoch: {epoch} Loss: {loss.item():.6f}")
                if batch_idx == per_epoch - 1:
                    scheduler.step()
                yield optimizer

    return Loop(
        net(),
        lambda out: states_of(net(), plain, loader()),
        plain,
        Order(True, 45, 8, epochs, False),
        epochs * per_epoch,
        loader,
    )


@grid_case(
    "reproducible-lookahead-centralised",
    "reproducible",
    (
        "Lookahead every 5 steps",
        "gradient centralisation",
        "clipping",
        "BatchNorm",
        "slow weights in a python list",
        "SGD with momentum",
    ),
)
def lookahead() -> Loop:
    """Follows Ranger: centralised gradients; slow weights follow each fifth step."""
    made = torch.Generator().manual_seed(123)
    x = torch.randn(40, 6, generator=made)
    y = x[:, :3].argmax(1)
    epochs, updates = 5, 25

    def net():
        torch.manual_seed(124)
        return nn.Sequential(
            nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)
        )

    def loader():
        return epochs_of((x, y), 8, epochs, seed=2)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
        slow = [p.detach().clone() for p in model.parameters()]
        for step in range(updates):
            seen, target = next(batches)
            optimizer.zero_grad()
            F.cross_entropy(model(seen), target).backward()
            for p in model.parameters():
                if p.grad.dim() > 1:
                    p.grad.sub_(p.grad.mean(dim=tuple(range(1, p.grad.dim())), keepdim=True))
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
            optimizer.step()
            if (step + 1) % 5 == 0:
                with torch.no_grad():
                    for kept, p in zip(slow, model.parameters(), strict=True):
                        kept.add_(p - kept, alpha=0.5)
                        p.copy_(kept)
            yield optimizer

    return Loop(
        net(),
        lambda out: states_of(net(), plain, loader()),
        plain,
        Order(True, 40, 8, epochs, False),
        updates,
        loader,
    )


class Speaker(nn.Module):
    """Embedding, LSTM, decoder."""

    def __init__(self):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(16, 8), nn.LSTM(8, 12, batch_first=True)
        self.decoder = nn.Linear(12, 16)

    def forward(self, tokens, hidden):
        out, hidden = self.lstm(self.embedding(tokens), hidden)
        return self.decoder(out), hidden


@grid_case(
    "reproducible-lstm-carried-rate-halved",
    "reproducible",
    (
        "hidden state carried over batches",
        "lr changed every 6 steps in param_groups",
        "NaN guard with continue",
        "short batches skipped",
        "shuffle=False",
        "best loss in python",
    ),
)
def lstm_carried() -> Loop:
    """Follows char-rnn scripts: the state goes on, the rate is halved by assignment."""
    letters = [1, 2]
    for n in range(400):
        letters.append((3 * letters[-1] + letters[-2] + n % 3) % 16)
    columns = torch.tensor(letters[: 4 * 31]).view(4, 31)
    pieces = [columns[r, 6 * s : 6 * s + 7] for s in range(5) for r in range(4)]
    tokens = torch.stack([*pieces, *pieces[:2]])  # 22 records: two are a short batch, skipped
    epochs, updates = 4, 20

    def net():
        torch.manual_seed(125)
        return Speaker()

    def loader():
        return epochs_of((tokens,), 4, epochs)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=False)
        hidden, step, best = None, 0, float("inf")
        while step < updates:
            (seen,) = next(batches)
            if len(seen) < 4:
                hidden = None  # the end of the epoch
                continue
            logits, hidden = model(seen[:, :-1], hidden)
            hidden = tuple(h.detach() for h in hidden)
            loss = F.cross_entropy(logits.flatten(0, 1), seen[:, 1:].flatten())
            if not torch.isfinite(loss):
                continue
            best = min(best, loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 6 == 0:
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"] / 2
            yield optimizer

    return Loop(
        net(),
        lambda out: states_of(net(), plain, loader()),
        plain,
        Order(False, 22, 4, epochs, False),
        updates,
        loader,
    )


class Wgan(nn.Module):
    """A critic and a generator."""

    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
        self.critic = nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 1))


@grid_case(
    "reproducible-wgan-gp",
    "reproducible",
    (
        "gradient penalty (double backward)",
        "several optimizers",
        "n_critic = 2",
        "mixing weights of a numpy RandomState of one's own",
        "Adam with betas (0, 0.9)",
        "drop_last",
    ),
)
def wgan_gp() -> Loop:
    """Follows WGAN-GP scripts: two steps of the critic with a penalty, one of the generator."""
    made = torch.Generator().manual_seed(126)
    angle = torch.rand(50, generator=made) * 6.2832
    x = torch.stack([angle.cos(), angle.sin()], 1)
    z = torch.randn(50, 3, generator=made)
    epochs, updates = 4, 24  # 16 of the critic, 8 of the generator

    def net():
        torch.manual_seed(127)
        return Wgan()

    def loader():
        return epochs_of((x, z), 8, epochs, seed=3, drop_last=True)

    def plain(model, batches):
        model.train()
        kind, dice = next(model.parameters()).dtype, np.random.RandomState(9)
        usual = {"lr": 5e-3, "betas": (0.0, 0.9), "foreach": False}
        of_critic = torch.optim.Adam(model.critic.parameters(), **usual)
        of_generator = torch.optim.Adam(model.generator.parameters(), **usual)
        for step in range(updates):
            real, noise = next(batches)
            if step % 3 == 2:
                of_generator.zero_grad()
                (-model.critic(model.generator(noise)).mean()).backward()
                of_generator.step()
            else:
                fake = model.generator(noise).detach()
                share = torch.from_numpy(dice.rand(len(real), 1).astype(np.float32)).to(kind)
                between = (share * real + (1 - share) * fake).requires_grad_(True)
                (slope,) = torch.autograd.grad(
                    model.critic(between).sum(), between, create_graph=True
                )
                penalty = (slope.norm(2, dim=1) - 1).pow(2).mean()
                loss = model.critic(fake).mean() - model.critic(real).mean() + 10 * penalty
                of_critic.zero_grad()
                loss.backward()
                of_critic.step()
            yield of_critic, of_generator

    return Loop(
        net(),
        lambda out: states_of(net(), plain, loader()),
        plain,
        Order(True, 50, 8, epochs, True),
        updates,
        loader,
    )


@grid_case(
    "reproducible-unit-rows-swa-best",
    "reproducible",
    (
        "weight normalisation after the step",
        "SWA from epoch 2",
        "AMP disabled paths",
        "per-epoch validation with the best state kept",
        "NaN guard",
        "weight_norm",
        "gradient accumulation",
    ),
)
def unit_rows() -> Loop:
    """Follows metric-learning scripts: unit rows, late SWA, autocast and scaler disabled."""
    made = torch.Generator().manual_seed(128)
    x = torch.randn(61, 6, generator=made)
    y = x[:, :3].argmax(1)
    held_x, held_y = x[48:], y[48:]
    epochs, per_epoch, window = 4, 6, 2
    updates = epochs * per_epoch // window

    def net():
        torch.manual_seed(129)
        return nn.Sequential(
            nn.utils.parametrizations.weight_norm(nn.Linear(6, 16)),
            nn.Tanh(),
            nn.Linear(16, 3, bias=False),
        )

    def loader():
        return epochs_of((x[:48], y[:48]), 8, epochs, seed=4)

    def plain(model, batches):
        kind = next(model.parameters()).dtype
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, foreach=False)
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        averaged = AveragedModel(model, avg_fn=lambda kept, new, n: kept + (new - kept) / (n + 1))
        best, best_state = float("inf"), None
        for epoch in range(epochs):
            for batch_idx in range(per_epoch):
                model.train()
                seen, target = next(batches)
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
                    loss = F.cross_entropy(8.0 * model(seen), target) / window
                assert not torch.isnan(loss), "the loss is NaN"
                scaler.scale(loss).backward()
                if (batch_idx + 1) % window != 0:
                    continue
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad(set_to_none=True)
                with torch.no_grad():
                    model[2].weight.copy_(F.normalize(model[2].weight, dim=1))
                if batch_idx == per_epoch - 1:
                    if epoch >= 2:
                        averaged.update_parameters(model)
                    model.eval()
                    with torch.no_grad():
                        held = F.cross_entropy(8.0 * model(held_x.to(kind)), held_y).item()
                    if held < best:
                        best, best_state = held, copy.deepcopy(model.state_dict())
                yield optimizer
        assert best_state is not None

    return Loop(
        net(),
        lambda out: states_of(net(), plain, loader()),
        plain,
        Order(True, 48, 8, epochs, False),
        updates,
        loader,
    )
