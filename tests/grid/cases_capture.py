"""Scripts moved to `tallystick.capture`: nanoGPT, weight averages, a target network, DANN."""

from __future__ import annotations

import copy
import math

import torch
from grid.case import Loop, Order, grid_case
from torch import nn
from torch.nn import functional as F

import tallystick


def batches_of(data: dict[str, torch.Tensor], size: int):
    """One epoch in the order of the records; a rest is left out."""
    count = len(next(iter(data.values())))
    for start in range(0, count - size + 1, size):
        yield {name: column[start : start + size] for name, column in data.items()}


def first(data: dict[str, torch.Tensor], size: int) -> dict[str, torch.Tensor]:
    return {name: column[:size] for name, column in data.items()}


class Attention(nn.Module):
    """Causal self-attention with two heads."""

    def __init__(self, width: int):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (
            part.view(rows, length, 2, width // 2).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // 2)
        hidden = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
        mixed = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(rows, length, width))


class NanoGpt(nn.Module):
    """One block, learned positions, and the head tied to the embedding."""

    def __init__(self, letters: int = 24, length: int = 8, width: int = 16):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(letters, width), nn.Embedding(length, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )
        self.drop, self.final = nn.Dropout(0.1), nn.LayerNorm(width)
        self.head = nn.Linear(width, letters, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        x = self.drop(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1])))
        x = x + self.drop(self.attention(self.norm1(x)))
        x = x + self.drop(self.mlp(self.norm2(x)))
        return self.head(self.final(x))


@grid_case(
    "capture-nanogpt",
    "capture",
    (
        "warm-up and cosine by iteration",
        "micro_batches",
        "clipping",
        "weight decay groups by ndim",
        "weight tying",
        "dropout",
        "counter in a closure that only logs",
        "betas (0.9, 0.95)",
    ),
)
def nanogpt() -> Loop:
    """Follows nanoGPT's train.py: get_lr(it), two micro-batches an update, clip 1.0."""
    letters = [1, 2]
    for n in range(40 * 3 + 8):
        letters.append((2 * letters[-1] + letters[-2] + n % 5) % 24)
    text = torch.tensor(letters)
    data = {
        "x": torch.stack([text[3 * n : 3 * n + 8] for n in range(40)]),
        "y": torch.stack([text[3 * n + 1 : 3 * n + 9] for n in range(40)]),
    }
    updates, warm = 20, 5

    def net():
        torch.manual_seed(101)
        return NanoGpt()

    def configure_optimizers(model):
        decay = [p for p in model.parameters() if p.dim() >= 2]
        nodecay = [p for p in model.parameters() if p.dim() < 2]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": nodecay, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))

    def ratio(it):
        if it < warm:
            return (it + 1) / (warm + 1)
        return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (it - warm) / (updates - warm)))

    def signed(out):
        state = {"iter_num": 0, "lines": []}

        def loss(model, batch):
            logits = model(batch["x"])
            state["iter_num"] += 1
            if state["iter_num"] % 10 == 0:
                state["lines"].append(f"iter {state['iter_num']}: {tuple(logits.shape)}")
            return F.cross_entropy(logits.flatten(0, 1), batch["y"].flatten())

        model = net().train()
        optimizer = configure_optimizers(model)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, ratio)
        captured = tallystick.capture(
            model, loss, first(data, 8), optimizer, clip_norm=1.0, micro_batches=2
        )
        captured.save_job(out / "job", data, steps=updates, seed=3, schedules=scheduler)
        return tallystick.train(out / "job", out / "run", progress=False)

    def plain(model, batches):
        model.train()
        optimizer = configure_optimizers(model)
        for it in range(updates):
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 * ratio(it)
            optimizer.zero_grad()
            for _ in range(2):
                b = next(batches)
                loss = F.cross_entropy(model(b["x"]).flatten(0, 1), b["y"].flatten())
                (loss / 2).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield optimizer

    return Loop(
        net(), signed, plain, Order(True, 40, 4, 4, True), updates, lambda: batches_of(data, 4)
    )


@grid_case(
    "capture-wrn-ema-class-weights",
    "capture",
    (
        "weight EMA",
        "class weights in a closure",
        "BatchNorm",
        "dropout",
        "label smoothing",
        "committed validation, not divisible by the batch",
        "lr by a function of the step",
    ),
)
def ema_class_weights() -> Loop:
    """Follows timm's train.py: ModelEmaV2 after each update, class weights, a step decay."""
    made = torch.Generator().manual_seed(102)
    x = torch.randn(58, 1, 6, 6, generator=made)
    y = (x.flatten(1)[:, :3].argmax(1) * torch.randint(0, 2, (58,), generator=made)).long()
    data, held = {"x": x[:48], "y": y[:48]}, {"x": x[48:], "y": y[48:]}
    weights = torch.tensor([0.5, 1.0, 2.0])
    updates = 24

    def net():
        torch.manual_seed(103)
        return nn.Sequential(
            nn.Conv2d(1, 6, 3, bias=False),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(24, 3),
        )

    def loss(model, batch):
        kind = batch["x"].dtype
        return F.cross_entropy(
            model(batch["x"]), batch["y"], weight=weights.to(kind), label_smoothing=0.1
        )

    def rate(step):
        return 0.1 * 0.3 ** (step // 8)

    def signed(out):
        captured = tallystick.capture(
            net().train(),
            loss,
            first(data, 8),
            tallystick.SGD(lr="lr", momentum=0.9, weight_decay=1e-3),
            ema=0.95,
        )
        captured.save_job(
            out / "job",
            data,
            steps=updates,
            seed=4,
            schedules={"lr": rate},
            validation=held,
            evaluate_every=6,
            stop_rule=tallystick.StopRule(),
        )
        return tallystick.train(out / "job", out / "run", progress=False)

    def plain(model, batches):
        model.train()
        averaged = [p.detach().clone() for p in model.parameters()]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        for step in range(updates):
            for group in optimizer.param_groups:
                group["lr"] = rate(step)
            optimizer.zero_grad()
            loss(model, next(batches)).backward()
            optimizer.step()
            with torch.no_grad():
                for kept, new in zip(averaged, model.parameters(), strict=True):
                    kept.mul_(0.95).add_(new, alpha=0.05)
            yield optimizer

    return Loop(
        net(), signed, plain, Order(True, 48, 8, 4, True), updates, lambda: batches_of(data, 8)
    )


@grid_case(
    "capture-dqn-target-network",
    "capture",
    (
        "target network copied every 5 steps",
        "target outside of the module",
        "double DQN",
        "Huber loss",
        "clip_value",
        "replay as records",
    ),
)
def dqn() -> Loop:
    """Follows cleanrl's dqn.py on a stored replay: the target is loaded each fifth step."""
    made = torch.Generator().manual_seed(108)
    seen = torch.randn(60, 4, generator=made)
    data = {
        "observation": seen,
        "action": torch.randint(0, 3, (60,), generator=made),
        "reward": torch.rand(60, generator=made),
        "next": seen.roll(-1, 0),
        "done": (torch.rand(60, generator=made) < 0.1).float(),
    }
    updates, every = 24, 5

    def net():
        torch.manual_seed(109)
        return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))

    def td_loss(q, target, batch):
        with torch.no_grad():
            best = q(batch["next"]).argmax(1, keepdim=True)
            later = target(batch["next"]).gather(1, best).squeeze(1)
            aim = batch["reward"] + 0.9 * later * (1 - batch["done"])
        old = q(batch["observation"]).gather(1, batch["action"][:, None]).squeeze(1)
        return F.smooth_l1_loss(old, aim)

    def signed(out):
        model = net().train()
        target = copy.deepcopy(model)
        step = 0

        def loss(q, batch):
            nonlocal step
            if step % every == 0:
                target.load_state_dict(q.state_dict())
            step += 1
            return td_loss(q, target, batch)

        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        captured = tallystick.capture(model, loss, first(data, 10), optimizer, clip_value=0.1)
        captured.save_job(out / "job", data, steps=updates, seed=7)
        return tallystick.train(out / "job", out / "run", progress=False)

    def plain(model, batches):
        model.train()
        target = copy.deepcopy(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for step in range(updates):
            if step % every == 0:
                target.load_state_dict(model.state_dict())
            optimizer.zero_grad()
            td_loss(model, target, next(batches)).backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.1)
            optimizer.step()
            yield optimizer

    return Loop(
        net(), signed, plain, Order(True, 60, 10, 4, True), updates, lambda: batches_of(data, 10)
    )


class Reverse(torch.autograd.Function):
    """The gradient reversal layer of fungtion/DANN."""

    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.neg() * ctx.alpha, None


class Dann(nn.Module):
    """Features, a classifier of labels, and one of domains."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.label, self.domain = nn.Linear(16, 3), nn.Linear(16, 2)

    def forward(self, x, alpha):
        features = self.features(x)
        return self.label(features), self.domain(Reverse.apply(features, alpha))


@grid_case(
    "capture-dann-alpha-ramp",
    "capture",
    (
        "autograd.Function",
        "alpha = 2 / (1 + exp(-10 p)) - 1 by the step",
        "counter in an object",
        "pseudo-labels from epoch 2",
        "loss changes structure by epoch",
    ),
)
def dann() -> Loop:
    """Follows fungtion/DANN: reversed gradients grow with the progress p; pseudo-labels."""
    made = torch.Generator().manual_seed(110)
    x = torch.randn(48, 6, generator=made)
    data = {"x": x, "y": x[:, :3].argmax(1), "t": torch.randn(48, 6, generator=made) + 0.5}
    updates, per_epoch = 24, 6

    def net():
        torch.manual_seed(111)
        return Dann()

    class Progress:
        def __init__(self):
            self.step = 0

        def alpha(self):
            p = self.step / updates
            return 2.0 / (1.0 + math.exp(-10 * p)) - 1

    def loss_of(model, batch, progress):
        label, source = model(batch["x"], progress.alpha())
        guessed, target = model(batch["t"], progress.alpha())
        zeros = torch.zeros(len(source), dtype=torch.long)
        loss = F.cross_entropy(label, batch["y"])
        loss = loss + F.cross_entropy(source, zeros) + F.cross_entropy(target, zeros + 1)
        if progress.step // per_epoch >= 2:
            loss = loss + 0.3 * F.cross_entropy(guessed, guessed.detach().argmax(1))
        progress.step += 1
        return loss

    def signed(out):
        progress = Progress()
        model = net().train()
        captured = tallystick.capture(
            model,
            lambda model, batch: loss_of(model, batch, progress),
            first(data, 8),
            torch.optim.Adam(model.parameters(), lr=5e-3),
        )
        captured.save_job(out / "job", data, steps=updates, seed=8)
        return tallystick.train(out / "job", out / "run", progress=False)

    def plain(model, batches):
        model.train()
        progress = Progress()
        optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
        for _ in range(updates):
            optimizer.zero_grad()
            loss_of(model, next(batches), progress).backward()
            optimizer.step()
            yield optimizer

    return Loop(
        net(), signed, plain, Order(True, 48, 8, 4, True), updates, lambda: batches_of(data, 8)
    )
