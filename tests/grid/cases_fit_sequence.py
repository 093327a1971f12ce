"""Sequences and policies in a plain loop: carried states, random lengths, baselines, guards."""

from __future__ import annotations

import math
import random

import torch
from grid.case import Loop, Order, grid_case
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import tallystick

LETTERS = 20


def text(length: int) -> torch.Tensor:
    """A text whose next letter depends on the two before it."""
    letters = [1, 2]
    for n in range(length - 2):
        letters.append((3 * letters[-1] + letters[-2] + n % 3) % LETTERS)
    return torch.tensor(letters)


class WordModel(nn.Module):
    """Embedding, LSTM, and a decoder that shares the embedding's weight."""

    def __init__(self, width: int = 12, dropout: float = 0.0):
        super().__init__()
        self.embedding = nn.Embedding(LETTERS, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.decoder = nn.Linear(width, LETTERS)
        self.decoder.weight = self.embedding.weight

    def forward(self, tokens, hidden=None):
        out, hidden = self.lstm(self.dropout(self.embedding(tokens)), hidden)
        return self.decoder(self.dropout(out)), hidden


@grid_case(
    "fit-stateful-lstm",
    "fit",
    (
        "hidden state carried over batches",
        "shuffle=False",
        "drop_last",
        "weight tying",
        "StepLR each epoch",
        "clipping",
        "hidden state new at each epoch",
        "several epochs",
    ),
)
def stateful_lstm() -> Loop:
    """Follows pytorch/examples' word_language_model: repackage_hidden, clip 0.25, SGD, lr / 4."""
    rows, length, segments, epochs = 4, 6, 6, 5
    columns = text(rows * (length * segments + 1) + 3)[: rows * (length * segments + 1)]
    columns = columns.view(rows, -1)  # row r goes on in the next batch where it ended in this one
    pieces = [
        columns[r, s * length : (s + 1) * length + 1] for s in range(segments) for r in range(rows)
    ]
    pieces.append(columns[0, :7])  # a rest, which drop_last leaves out
    data = TensorDataset(torch.stack(pieces))
    updates = epochs * segments

    def net():
        torch.manual_seed(61)
        return WordModel()

    def loader():
        return DataLoader(data, batch_size=rows, shuffle=False, drop_last=True)

    def signed(out):
        carried = {"hidden": None, "batch": 0}

        def loss(model, batch):
            (tokens,) = batch
            if carried["batch"] % segments == 0:
                carried["hidden"] = None
            carried["batch"] += 1
            logits, hidden = model(tokens[:, :-1], carried["hidden"])
            carried["hidden"] = tuple(h.detach() for h in hidden)
            return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

        model = net().train()
        optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.25)
        return tallystick.fit(
            model,
            loss,
            loader(),
            optimizer,
            scheduler=scheduler,
            scheduler_every="epoch",
            epochs=epochs,
            clip_norm=0.25,
            out=out,
            progress=False,
        )

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.25)
        for _ in range(epochs):
            hidden = None
            for segment in range(segments):
                (tokens,) = next(batches)
                logits, hidden = model(tokens[:, :-1], hidden)
                hidden = tuple(h.detach() for h in hidden)
                optimizer.zero_grad()
                F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                optimizer.step()
                if segment == segments - 1:
                    scheduler.step()
                yield optimizer

    return Loop(
        net(), signed, plain, Order(False, len(pieces), rows, epochs, True), updates, loader
    )


@grid_case(
    "fit-awd-random-lengths",
    "fit",
    (
        "lengths drawn by python's random",
        "activation regularisation",
        "dropout",
        "weight tying",
        "structure changes by step",
        "Adagrad",
    ),
)
def awd_random_lengths() -> Loop:
    """Follows awd-lstm-lm: each batch is cut to a random length; large and jumpy outputs cost."""
    windows = torch.stack([text(400)[n * 9 : n * 9 + 13] for n in range(40)])
    updates = 20

    def net():
        torch.manual_seed(62)
        return WordModel(dropout=0.2)

    def loss_of(model, tokens, length):
        out, _ = model.lstm(model.dropout(model.embedding(tokens[:, :length])))
        dropped = model.dropout(out)
        logits = model.decoder(dropped)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1 : length + 1].flatten())
        loss = loss + 0.5 * dropped.pow(2).mean()
        return loss + 0.5 * (out[:, 1:] - out[:, :-1]).pow(2).mean()

    def length_of(dice):
        return max(4, min(12, int(dice.gauss(12 if dice.random() < 0.95 else 6, 2))))

    def loader():
        return DataLoader(TensorDataset(windows), batch_size=8, shuffle=True)

    def signed(out):
        dice = random.Random(1111)
        model = net().train()
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
        return tallystick.fit(
            model,
            lambda model, batch: loss_of(model, batch[0], length_of(dice)),
            loader(),
            optimizer,
            epochs=4,
            out=out,
            progress=False,
        )

    def plain(model, batches):
        model.train()
        dice = random.Random(1111)
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
        for _ in range(updates):
            optimizer.zero_grad()
            loss_of(model, next(batches)[0], length_of(dice)).backward()
            optimizer.step()
            yield optimizer

    return Loop(net(), signed, plain, Order(True, 40, 8, 4, False), updates, loader)


class Hyper:
    """Hyperparameters of the policy; the script lowers `entropy` as it goes."""

    entropy = 0.1


@grid_case(
    "fit-reinforce-baseline",
    "fit",
    (
        "REINFORCE baseline as an EMA tensor outside of the module",
        "class attribute that decays",
        "advantage without gradient",
        "RMSprop with momentum",
    ),
)
def reinforce_baseline() -> Loop:
    """Follows REINFORCE on logged bandit data: reward minus a running baseline; entropy falls."""
    made = torch.Generator().manual_seed(63)
    context = torch.randn(48, 5, generator=made)
    action = torch.randint(0, 4, (48,), generator=made)
    reward = (context[:, :4].argmax(1) == action).float() + 0.5
    updates = 24

    def net():
        torch.manual_seed(64)
        return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 4))

    def loss_of(policy, batch, baseline, entropy_weight):
        seen, taken, gain = batch
        log_probs = policy(seen).log_softmax(-1)
        chosen = log_probs.gather(1, taken[:, None]).squeeze(1)
        entropy = -(log_probs.exp() * log_probs).sum(1).mean()
        return -((gain - baseline) * chosen).mean() - entropy_weight * entropy

    def loader():
        return DataLoader(TensorDataset(context, action, reward), batch_size=8, shuffle=True)

    def signed(out):
        Hyper.entropy = 0.1
        baseline = torch.zeros(())

        def loss(policy, batch):
            value = loss_of(policy, batch, baseline.clone(), Hyper.entropy)
            baseline.mul_(0.9).add_(0.1 * batch[2].mean())
            Hyper.entropy *= 0.95
            return value

        model = net().train()
        optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-3, momentum=0.5)
        return tallystick.fit(model, loss, loader(), optimizer, epochs=4, out=out, progress=False)

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.RMSprop(model.parameters(), lr=5e-3, momentum=0.5)
        baseline = torch.zeros((), dtype=next(model.parameters()).dtype)
        entropy = 0.1
        for _ in range(updates):
            batch = next(batches)
            optimizer.zero_grad()
            loss_of(model, batch, baseline, entropy).backward()
            optimizer.step()
            baseline = 0.9 * baseline + 0.1 * batch[2].mean()
            entropy *= 0.95
            yield optimizer

    return Loop(net(), signed, plain, Order(True, 48, 8, 4, False), updates, loader)


@grid_case(
    "fit-logging-and-nan-guard",
    "fit",
    (
        "NaN guard",
        "losses in a python list by .item()",
        "best loss in python",
        "a line every tenth step",
        "shuffle=False",
        "a last short batch",
        "cyclical annealing by a closure counter",
    ),
)
def logging_and_guard() -> Loop:
    """Follows a sentence autoencoder: a cyclical penalty, a guard, and a log of losses."""
    made = torch.Generator().manual_seed(65)
    x = torch.randn(42, 6, generator=made)
    updates, epochs = 24, 4

    def net():
        torch.manual_seed(66)
        return nn.Sequential(nn.Linear(6, 16), nn.ELU(), nn.Linear(16, 3), nn.Linear(3, 6))

    def loss_of(model, batch, step):
        (seen,) = batch
        code = model[:3](seen)
        beta = 0.5 * (1 - math.cos(math.pi * min(1.0, (step % 12) / 6)))
        return F.smooth_l1_loss(model[3](code), seen) + 0.1 * beta * code.pow(2).mean()

    def loader():
        return DataLoader(TensorDataset(x), batch_size=7, shuffle=False)

    def signed(out):
        history, state = [], {"step": 0, "best": float("inf")}

        def loss(model, batch):
            value = loss_of(model, batch, state["step"])
            state["step"] += 1
            if torch.isnan(value):
                print("NaN loss, skipped")
                return value * 0.0
            history.append(value.item())
            if history[-1] < state["best"]:
                state["best"] = history[-1]
            if state["step"] % 10 == 0:
                print(
                    f"step {state['step']}: {sum(history[-10:]) / 10:.4f}, best {state['best']:.4f}"
                )
            return value

        model = net().train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        return tallystick.fit(
            model, loss, loader(), optimizer, epochs=epochs, clip_value=0.5, out=out, progress=False
        )

    def plain(model, batches):
        model.train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        history, best = [], float("inf")
        for step in range(updates):
            loss = loss_of(model, next(batches), step)
            optimizer.zero_grad()
            if not torch.isnan(loss):
                loss.backward()
                history.append(loss.item())
                best = min(best, history[-1])
                nn.utils.clip_grad_value_(model.parameters(), 0.5)
                optimizer.step()
            yield optimizer

    return Loop(net(), signed, plain, Order(False, 42, 7, epochs, False), updates, loader)
