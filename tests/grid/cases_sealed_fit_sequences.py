"""Plain loops over sequences and decisions: carried states, curricula, baselines."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import tallystick
import torch
from grid.case import Loop, Order, grid_case
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class RNNModel(nn.Module):
    """pytorch/examples word_language_model: an LSTM with tied weights."""

    def __init__(self, tokens: int, width: int, drop: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(drop)
        self.encoder = nn.Embedding(tokens, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.Linear(width, tokens)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, x: Tensor, hidden: Any) -> tuple[Tensor, Any]:
        out, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return self.decoder(self.drop(out)), hidden

    def init_hidden(self, count: int) -> tuple[Tensor, Tensor]:
        weight = next(self.parameters())
        return weight.new_zeros(1, count, self.rnn.hidden_size), weight.new_zeros(1, count, self.rnn.hidden_size)


def repackage_hidden(hidden: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return tuple(h.detach() for h in hidden)  # type: ignore[return-value]


@grid_case(
    "fit_lstm_stateful",
    "fit",
    ("hidden states carried over batches, anew each epoch", "shuffle=False", "weight tying", "clipping", "dropout",
     "rate per epoch"),
)
def fit_lstm_stateful() -> Loop:
    """word_language_model/main.py: hidden states go on from batch to batch, and begin anew in an epoch."""
    batch, bptt, epochs, chunks, tokens = 4, 7, 4, 6, 15
    torch.manual_seed(50)
    model = RNNModel(tokens, 12, 0.2)
    generator = torch.Generator().manual_seed(51)
    text = (torch.arange(batch * chunks * bptt + batch) * 7 // 3 + torch.randint(0, 2, (batch * chunks * bptt + batch,),
                                                                                 generator=generator)) % tokens
    columns = text.view(batch, -1)  # batchify: each row is a piece of the text
    x = torch.cat([columns[:, i * bptt : (i + 1) * bptt] for i in range(chunks)])
    y = torch.cat([columns[:, i * bptt + 1 : (i + 1) * bptt + 1] for i in range(chunks)])

    def signed(out: Path) -> Any:
        carried: dict[str, Any] = {"hidden": None, "batch": 0}

        def loss(model: RNNModel, batch_: Any) -> Tensor:
            data, targets = batch_
            if carried["batch"] % chunks == 0:
                carried["hidden"] = model.init_hidden(data.shape[0])
            output, hidden = model(data, repackage_hidden(carried["hidden"]))
            carried["hidden"] = repackage_hidden(hidden)
            carried["batch"] += 1
            return F.cross_entropy(output.reshape(-1, tokens), targets.reshape(-1))

        optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
        return tallystick.fit(
            model, loss, DataLoader(TensorDataset(x, y), batch_size=batch, shuffle=False), optimizer,
            scheduler=torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7), scheduler_every="epoch", epochs=epochs,
            clip_norm=0.25, out=out,
        )

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=4.0)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
        for _ in range(epochs):
            hidden = model.init_hidden(batch)
            for i in range(chunks):
                data, targets = next(batches)
                optimizer.zero_grad()
                hidden = repackage_hidden(hidden)
                output, hidden = model(data, hidden)
                F.cross_entropy(output.reshape(-1, tokens), targets.reshape(-1)).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                optimizer.step()
                if i == chunks - 1:
                    scheduler.step()
                yield optimizer

    return Loop(model, signed, plain, Order(False, batch * chunks, batch, epochs, False), chunks * epochs)


class Forecaster(nn.Module):
    """A GRU cell that reads a series and goes on with its own forecasts."""

    horizon = 2  # grows while it learns

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(1, 12), nn.Linear(12, 1)

    def forward(self, past: Tensor, horizon: int) -> Tensor:
        h = past.new_zeros(past.shape[0], 12)
        for t in range(past.shape[1]):
            h = self.cell(past[:, t : t + 1], h)
        made, x = [], past[:, -1:]
        for _ in range(horizon):
            x = x + self.out(h)
            made.append(x)
            h = self.cell(x, h)
        return torch.cat(made, 1)


@grid_case(
    "fit_forecast_horizon",
    "fit",
    ("horizon that grows by epoch (class attribute; structure changes)", "OneCycleLR per step", "validation with a last short batch",
     "best model kept", "huber loss"),
)
def fit_forecast_horizon() -> Loop:
    """A forecasting notebook: the horizon is longer in later epochs, OneCycleLR, the best epoch is kept."""
    batch, epochs, count, held, longest = 8, 4, 48, 14, 5
    torch.manual_seed(52)
    model = Forecaster()
    generator = torch.Generator().manual_seed(53)
    phase = 6.28 * torch.rand(count + held, 1, generator=generator)
    series = torch.sin(phase + 0.5 * torch.arange(8 + longest)) + 0.05 * torch.randn(
        count + held, 8 + longest, generator=generator
    )
    past, future = series[:, :8].contiguous(), series[:, 8:].contiguous()
    per_epoch = count // batch
    updates = per_epoch * epochs

    def horizon_at(epoch: int) -> int:
        return min(longest, 2 + epoch)

    def optimizer_of(model: Forecaster) -> tuple[torch.optim.Optimizer, Any]:
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-2, total_steps=updates + 1)

    def signed(out: Path) -> Any:
        seen = [0]
        Forecaster.horizon = 2

        def loss(model: Forecaster, batch_: Any) -> Tensor:
            Forecaster.horizon = horizon_at(seen[0] // per_epoch)
            seen[0] += 1
            made = model(batch_[0], Forecaster.horizon)
            return F.huber_loss(made, batch_[1][:, : Forecaster.horizon], delta=0.5)

        def validation_loss(model: Forecaster, batch_: Any) -> Tensor:
            return F.mse_loss(model(batch_[0], longest), batch_[1])

        optimizer, scheduler = optimizer_of(model)
        return tallystick.fit(
            model, loss, DataLoader(TensorDataset(past[:count], future[:count]), batch_size=batch, shuffle=True),
            optimizer, scheduler=scheduler, epochs=epochs,
            validation=DataLoader(TensorDataset(past[count:], future[count:]), batch_size=batch),
            validation_loss=validation_loss, best=True, out=out,
        )

    def plain(model, batches):
        dtype = model.out.weight.dtype
        optimizer, scheduler = optimizer_of(model)
        best, kept = math.inf, None
        for epoch in range(epochs):
            model.train()
            for i in range(per_epoch):
                x, y = next(batches)
                horizon = horizon_at(epoch)
                optimizer.zero_grad()
                F.huber_loss(model(x, horizon), y[:, :horizon], delta=0.5).backward()
                optimizer.step()
                scheduler.step()
                if i == per_epoch - 1:
                    model.eval()
                    with torch.no_grad():
                        parts = [
                            F.mse_loss(model(past[a : a + batch].to(dtype), longest), future[a : a + batch].to(dtype)).item()
                            for a in range(count, count + held, batch)
                        ]
                    if sum(parts) / len(parts) < best:
                        best = sum(parts) / len(parts)
                        kept = {n: v.clone() for n, v in model.state_dict().items()}
                yield optimizer
        assert kept is not None  # the script goes on to test these weights

    return Loop(model, signed, plain, Order(True, count, batch, epochs, False), updates)


class Policy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 20), nn.Tanh())
        self.actor = nn.Linear(20, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.actor(self.body(x))


@grid_case(
    "fit_bandit_baseline",
    "fit",
    ("baseline as an EMA tensor outside of the module", "entropy bonus annealed by a counter", "accumulation",
     "groups with different rates"),
)
def fit_bandit_baseline() -> Loop:
    """REINFORCE on logged decisions (a contextual bandit), with a running mean of rewards as baseline."""
    batch, accumulate, epochs, count = 5, 2, 4, 60
    torch.manual_seed(54)
    model = Policy()
    generator = torch.Generator().manual_seed(55)
    state = torch.randn(count, 6, generator=generator)
    action = torch.randint(0, 4, (count,), generator=generator)
    reward = state.gather(1, action[:, None]).squeeze(1) + 1.0
    updates = count // batch // accumulate * epochs

    def step_loss(model: Policy, batch_: Any, baseline: Tensor, bonus: float) -> Tensor:
        s, a, r = batch_
        spread = torch.log_softmax(model(s), -1)
        chosen = spread.gather(1, a[:, None]).squeeze(1)
        weight = (chosen.detach().exp() * 4).clamp(max=2.0)
        entropy = -(spread.exp() * spread).sum(-1).mean()
        return -(weight * (r - baseline) * chosen).mean() - bonus * entropy

    def optimizer_of(model: Policy) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(
            [{"params": model.body.parameters()}, {"params": model.actor.parameters(), "lr": 2e-2}], lr=5e-3, alpha=0.95
        )

    def signed(out: Path) -> Any:
        baseline, it = torch.zeros(()), [0]

        def loss(model: Policy, batch_: Any) -> Tensor:
            value = step_loss(model, batch_, baseline.clone(), 0.05 * 0.95 ** it[0])
            baseline.mul_(0.9).add_(batch_[2].mean(), alpha=0.1)
            it[0] += 1
            return value

        data = DataLoader(TensorDataset(state, action, reward), batch_size=batch, shuffle=True)
        return tallystick.fit(
            model, loss, data, optimizer_of(model), epochs=epochs, accumulate=accumulate, clip_value=0.5, out=out
        )

    def plain(model, batches):
        model.train()
        optimizer = optimizer_of(model)
        baseline, it = torch.zeros((), dtype=model.actor.weight.dtype), 0
        for _ in range(updates):
            optimizer.zero_grad()
            for _ in range(accumulate):
                part = next(batches)
                (step_loss(model, part, baseline.clone(), 0.05 * 0.95**it) / accumulate).backward()
                baseline.mul_(0.9).add_(part[2].mean(), alpha=0.1)
                it += 1
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
            yield optimizer

    return Loop(model, signed, plain, Order(True, count, batch, epochs, False), updates)
