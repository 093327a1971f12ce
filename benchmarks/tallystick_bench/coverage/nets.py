"""Networks as people write them by hand: generative, state-space, mixtures, graphs, RL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tallystick_bench.coverage.case import Batch, Case, floats, integers

_CLASSES = 4


class _Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.back = nn.Linear(12, 8), nn.Linear(4, 12)

    def forward(self, x: Tensor) -> Tensor:
        mean, logvar = self.encode(x).chunk(2, -1)
        z = mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)
        rebuilt = F.binary_cross_entropy_with_logits(self.back(z), torch.sigmoid(x))
        return rebuilt - 0.05 * (1 + logvar - mean.pow(2) - logvar.exp()).sum(-1).mean()


class _Quantised(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.codes, self.back = nn.Linear(12, 6), nn.Embedding(9, 6), nn.Linear(6, 12)

    def forward(self, x: Tensor) -> Tensor:
        z = self.encode(x)
        nearest = self.codes(torch.cdist(z, self.codes.weight).argmin(-1))
        kept = z + (nearest - z).detach()
        loss = F.mse_loss(self.back(kept), x) + F.mse_loss(z.detach(), nearest)
        return loss + 0.25 * F.mse_loss(z, nearest.detach())


class _Gan(nn.Module):
    """A generator's and a discriminator's loss in one step, each for its own parameters."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.generator = nn.Sequential(nn.Linear(5, 16), nn.LeakyReLU(0.2), nn.Linear(16, 8),
                                       nn.Tanh())  # fmt: skip
        self.critic = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))

    def forward(self, real: Tensor, z: Tensor) -> Tensor:
        fake = self.generator(z)
        on_real, on_fake = self.critic(real), self.critic(fake.detach())
        if self.kind == "minimax":
            ones, zeros = torch.ones_like(on_real), torch.zeros_like(on_fake)
            said = F.binary_cross_entropy_with_logits
            frozen = torch.func.functional_call(
                self.critic, {k: p.detach() for k, p in self.critic.named_parameters()}, (fake,)
            )
            return said(on_real, ones) + said(on_fake, zeros) + said(frozen, ones)
        if self.kind == "hinge":
            return F.relu(1 - on_real).mean() + F.relu(1 + on_fake).mean()
        mixed = (0.3 * real + 0.7 * fake.detach()).requires_grad_()
        slope = torch.autograd.grad(self.critic(mixed).sum(), mixed, create_graph=True)[0]
        penalty = (slope.norm(2, dim=-1) - 1).square().mean()
        return on_fake.mean() - on_real.mean() + 10 * penalty


class _Mixture(nn.Module):
    """A soft mixture, or the two best experts of each row, computed densely."""

    def __init__(self, best: int) -> None:
        super().__init__()
        self.best, self.gate = best, nn.Linear(8, 4)
        self.up = nn.Parameter(torch.randn(4, 8, 12) / 4)
        self.down = nn.Parameter(torch.randn(4, 12, 8) / 4)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.gate(x)
        weights = logits.softmax(-1)
        if self.best:
            top, index = weights.topk(self.best, -1)
            weights = torch.zeros_like(weights).scatter(-1, index, top / top.sum(-1, keepdim=True))
        y = F.silu(torch.einsum("bd,edh->beh", x, self.up))
        y = torch.einsum("beh,ehd->bed", y, self.down)
        balance = logits.logsumexp(-1).square().mean() + (weights.mean(0) * 4).square().mean()
        out = torch.einsum("bed,be->bd", y, weights)
        return (out - x.roll(1, 0)).square().mean() + 0.01 * balance


class _StateSpace(nn.Module):
    """S4D by a scan, or Mamba's selective scan over time."""

    def __init__(self, selective: bool) -> None:
        super().__init__()
        self.selective, self.log_a = selective, nn.Parameter(torch.rand(8, 4))
        self.into, self.out = nn.Linear(8, 8 + 4 + 4), nn.Linear(8, 8)
        self.skip, self.conv = nn.Parameter(torch.ones(8)), nn.Conv1d(8, 8, 3, padding=2, groups=8)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        x = F.silu(self.conv(x.transpose(1, 2))[..., :length].transpose(1, 2))
        step, b, c = self.into(x).split([8, 4, 4], -1)
        step = F.softplus(step)
        decay = torch.exp(-step.unsqueeze(-1) * self.log_a.exp())
        if not self.selective:
            total = torch.cumsum(torch.log(decay), 1)
            added = (step * x).unsqueeze(-1) * b.unsqueeze(2)
            h = torch.exp(total) * torch.cumsum(added * torch.exp(-total), 1)
            return self.out((h * c.unsqueeze(2)).sum(-1) + self.skip * x).square().mean()
        h, found = torch.zeros_like(decay[:, 0]), []
        for t in range(length):
            h = decay[:, t] * h + (step[:, t] * x[:, t]).unsqueeze(-1) * b[:, t].unsqueeze(1)
            found.append((h * c[:, t].unsqueeze(1)).sum(-1))
        return self.out(torch.stack(found, 1) + self.skip * x).square().mean()


class _Contrast(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.left, self.right = kind, nn.Linear(8, 6), nn.Linear(10, 6)
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = F.normalize(self.left(x), dim=-1), F.normalize(self.right(y), dim=-1)
        scores = self.scale.exp() * a @ b.t()
        places = torch.arange(len(x), device=x.device)
        if self.kind == "clip":
            return (F.cross_entropy(scores, places) + F.cross_entropy(scores.t(), places)) / 2
        if self.kind == "sigmoid":
            signs = 2 * torch.eye(len(x), device=x.device) - 1
            return -F.logsigmoid(signs * scores).sum(-1).mean()
        if self.kind == "barlow":
            cross = (a - a.mean(0)).t() @ (b - b.mean(0)) / len(x)
            off = cross - torch.diag(cross.diagonal())
            return (cross.diagonal() - 1).square().sum() + 0.01 * off.square().sum()
        both = torch.cat([a, b])
        scores = (both @ both.t() / 0.5).masked_fill(
            torch.eye(len(both), dtype=torch.bool, device=x.device), float("-inf")
        )
        return F.cross_entropy(scores, torch.cat([places + len(x), places]))


class _Policy(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.body = kind, nn.Linear(6, 16)
        self.actor, self.value = nn.Linear(16, 3), nn.Linear(16, 1)

    def forward(self, b: Batch) -> Tensor:
        h = torch.tanh(self.body(b["x"]))
        logits, value = self.actor(h), self.value(h).squeeze(-1)
        if self.kind == "dqn":
            chosen = logits.gather(-1, b["action"][:, None]).squeeze(-1)
            best = self.actor(torch.tanh(self.body(b["next"]))).max(-1).values.detach()
            return F.smooth_l1_loss(chosen, b["reward"] + 0.9 * best)
        spread = torch.distributions.Categorical(logits=logits)
        ratio = torch.exp(spread.log_prob(b["action"]) - b["old"])
        gain = torch.min(ratio * b["gain"], ratio.clamp(0.8, 1.2) * b["gain"])
        entropy = spread.entropy().mean()
        return -gain.mean() + F.mse_loss(value, b["reward"]) - 0.01 * entropy


class _Graph(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.one, self.two = kind, nn.Linear(6, 8), nn.Linear(8, _CLASSES)
        self.score = nn.Linear(16, 1)

    def _spread(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        if self.kind == "gcn":
            degree = (
                torch.zeros(len(x), device=x.device).index_add(
                    0, target, torch.ones_like(target, dtype=x.dtype)
                )
                + 1
            )
            weight = (degree[source] * degree[target]).rsqrt()[:, None]
            return x + torch.zeros_like(x).index_add(0, target, x[source] * weight)
        score = F.leaky_relu(self.score(torch.cat([x[source], x[target]], -1)), 0.2).exp()
        total = torch.zeros(len(x), 1, device=x.device).scatter_add(0, target[:, None], score)
        return torch.zeros_like(x).index_add(0, target, x[source] * score / (total[target] + 1e-6))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        found: Tensor = self.two(F.relu(self._spread(self.one(x), edges)))
        return found


class _PointNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(3, 8, 1), nn.BatchNorm1d(8), nn.ReLU(),
                                  nn.Conv1d(8, 16, 1))  # fmt: skip
        self.head = nn.Linear(16, _CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.body(x.transpose(1, 2)).max(-1)[0])
        return found


class _TagNet(nn.Module):
    """A bidirectional LSTM over packed-free padding, with a mean over the real words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 6, padding_idx=0)
        self.body = nn.LSTM(6, 5, batch_first=True, bidirectional=True)
        self.head = nn.Linear(10, _CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        mask = (x != 0).unsqueeze(-1)
        y = self.body(self.words(x))[0] * mask
        found: Tensor = self.head(y.sum(1) / mask.sum(1).clamp(min=1))
        return found


class _Wide(nn.Module):
    """Recommendation: embeddings of several fields, their products, and a deep part."""

    def __init__(self) -> None:
        super().__init__()
        self.fields, self.linear = nn.Embedding(30, 4), nn.Embedding(30, 1)
        self.deep = nn.Sequential(nn.Linear(12, 8), nn.PReLU(), nn.Linear(8, 1))
        self.register_buffer("starts", torch.tensor([0, 10, 20]))

    def forward(self, x: Tensor) -> Tensor:
        e = self.fields(x + self.starts)
        product = 0.5 * (e.sum(1).square() - e.square().sum(1)).sum(-1)
        found: Tensor = self.linear(x + self.starts).sum((1, 2)) + product
        return found + self.deep(e.flatten(1)).squeeze(-1)


def _classified(module: nn.Module, b: Batch) -> Tensor:
    return F.cross_entropy(module(b["x"]), b["y"])


def _own(module: nn.Module, b: Batch) -> Tensor:
    loss: Tensor = module(*(b[k] for k in sorted(b)))
    return loss


def _transitions(g: torch.Generator) -> Batch:
    return {
        "x": floats(g, 7, 6), "next": floats(g, 7, 6), "action": integers(g, 3, 7),
        "reward": floats(g, 7), "old": -1 + 0.1 * floats(g, 7), "gain": floats(g, 7),
    }  # fmt: skip


def cases() -> Iterator[Case]:
    """The families of point 5 of the issue, and what else was tried by hand."""

    def one(*shape: int) -> Any:
        return lambda g: {"x": floats(g, *shape)}

    yield Case("generative", "vae", _Vae, _own, one(5, 12), drawn=True)
    yield Case("generative", "vq-vae", _Quantised, _own, one(5, 12))
    for kind in ("minimax", "hinge", "gradient penalty"):
        yield Case("generative", f"gan {kind}", lambda kind=kind: _Gan(kind), _own,
                   lambda g: {"x": floats(g, 6, 8), "z": floats(g, 6, 5)})  # fmt: skip
    for best in (0, 2):
        yield Case("mixture", f"of experts, {best or 'all'}", lambda best=best: _Mixture(best),
                   _own, one(6, 8))  # fmt: skip
    for selective in (False, True):
        yield Case("state space", "mamba" if selective else "scan",
                   lambda s=selective: _StateSpace(s), _own, one(2, 6, 8))  # fmt: skip
    for kind in ("clip", "sigmoid", "barlow", "simclr"):
        yield Case("contrastive", kind, lambda kind=kind: _Contrast(kind), _own,
                   lambda g: {"x": floats(g, 5, 8), "y": floats(g, 5, 10)})  # fmt: skip
    for kind in ("dqn", "ppo"):
        yield Case("reinforcement", kind, lambda kind=kind: _Policy(kind), lambda m, b: m(b),
                   _transitions)  # fmt: skip
    for kind in ("gcn", "gat"):
        yield Case("graph", kind, lambda kind=kind: _Graph(kind),
                   lambda m, b: F.cross_entropy(m(b["x"], b["edges"]), b["y"]),
                   lambda g: {"x": floats(g, 9, 6), "edges": integers(g, 9, 2, 20),
                              "y": integers(g, _CLASSES, 9)})  # fmt: skip
    yield Case("points", "pointnet", _PointNet, _classified,
               lambda g: {"x": floats(g, 4, 10, 3), "y": integers(g, _CLASSES, 4)})  # fmt: skip
    yield Case("text", "bidirectional lstm", _TagNet, _classified,
               lambda g: {"x": integers(g, 20, 4, 7), "y": integers(g, _CLASSES, 4)})  # fmt: skip
    yield Case("tables", "deep factorisation", _Wide,
               lambda m, b: F.binary_cross_entropy(torch.sigmoid(m(b["x"])), b["y"]),
               lambda g: {"x": integers(g, 10, 6, 3),
                          "y": integers(g, 2, 6).float()})  # fmt: skip
