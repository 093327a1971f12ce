"""Harmful: what changes is the structure: the layers, the gradients' paths, the mode."""

import torch
import torch.nn.functional as F
from idioms.case import Idiom, harmful
from torch import nn


def small():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def cross_entropy(module, batch):
    return F.cross_entropy(module(batch["x"]), batch["y"])


@harmful("layer-chosen-by-index")
def _(flip):
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)])
            self.turn = 0

        def forward(self, x):
            self.turn += 1
            return self.experts[min(self.turn // flip, 1)](x)

    return Idiom(Experts(), cross_entropy)


@harmful("depth-grows")
def _(flip):
    """Progressive stacking: the second layer comes in later."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
            self.head, self.active, self.seen = nn.Linear(4, 3), 1, 0

        def forward(self, x):
            self.seen += 1
            if self.seen == flip:
                self.active = 2
            for layer in self.layers[: self.active]:
                x = x + torch.relu(layer(x))
            return self.head(x)

    return Idiom(Net(), cross_entropy)


@harmful("gradual-unfreezing")
def _(flip):
    """The value stays; the first layer has a gradient from call `flip` on."""
    net, n = small(), [0]
    net[0].requires_grad_(False)

    def loss(module, batch):
        n[0] += 1
        if n[0] == flip:
            module[0].requires_grad_(True)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmful("layer-frozen-later")
def _(flip):
    n = 0

    def loss(module, batch):
        nonlocal n
        n += 1
        if n >= flip:
            module[0].requires_grad_(False)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(small(), loss)


@harmful("backbone-without-gradient-at-first")
def _(flip):
    """wav2vec's freeze_finetune_updates: the body gets no gradient until then."""
    updates = [0]

    def loss(module, batch):
        updates[0] += 1
        with torch.set_grad_enabled(updates[0] >= flip):
            features = module[1](module[0](batch["x"]))
        return F.cross_entropy(module[2](features), batch["y"])

    return Idiom(small(), loss)


@harmful("detach-begins")
def _(flip):
    state = {"n": 0}

    def loss(module, batch):
        state["n"] += 1
        hidden = module[1](module[0](batch["x"]))
        if state["n"] >= flip:
            hidden = hidden.detach()
        return F.cross_entropy(module[2](hidden), batch["y"])

    return Idiom(small(), loss)


@harmful("batch-norm-set-to-eval")
def _(flip):
    """The statistics are frozen from call `flip` on, as detection codes do."""
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    n = [0]

    def loss(module, batch):
        n[0] += 1
        module.train()
        if n[0] >= flip:
            module[1].eval()
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmful("train-and-eval-toggled")
def _(flip):
    """Long phases of training mode and of eval mode in turn."""
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    n = 0

    def loss(module, batch):
        nonlocal n
        n += 1
        module.train(n // flip % 2 == 0)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmful("forward-reads-self-training-set-by-a-counter")
def _(flip):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.auxiliary = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x):
            y = self.fc(x)
            return y + 0.3 * self.auxiliary(x) if self.training else y

    calls = [0]

    def loss(module, batch):
        calls[0] += 1
        if calls[0] == flip:
            module.eval()
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(Net(), loss)


@harmful("submodule-swapped")
def _(flip):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 8)
            self.coarse, self.fine = nn.Linear(8, 3), nn.Linear(8, 3)
            self.head = self.coarse

        def forward(self, x):
            return self.head(torch.relu(self.body(x)))

    n = [0]

    def loss(module, batch):
        n[0] += 1
        if n[0] == flip:
            module.head = module.fine
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(Net(), loss)


@harmful("activation-module-replaced-in-a-sequential")
def _(flip):
    n = 0

    def loss(module, batch):
        nonlocal n
        n += 1
        if n == flip:
            module[1] = nn.Tanh()
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(small(), loss)


@harmful("activation-function-attribute-changed")
def _(flip):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 3)
            self.activation, self.calls = F.relu, 0

        def forward(self, x):
            self.calls += 1
            if self.calls == flip:
                self.activation = F.gelu
            return self.down(self.activation(self.up(x)))

    return Idiom(Net(), cross_entropy)


@harmful("forward-method-replaced")
def _(flip):
    """The patched forward of an instance, put in at call `flip`."""
    n = [0]

    def loss(module, batch):
        n[0] += 1
        if n[0] == flip:
            plain = module.forward
            module.forward = lambda x: plain(x).tanh()
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(small(), loss)


@harmful("layer-dropped-by-a-list-of-names")
def _(flip):
    """Names are added to a set of layers to skip."""
    skipped, n = set(), [0]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            for name, layer in self.named_children():
                x = x if name in skipped else layer(x).tanh()
            return x

    def loss(module, batch):
        n[0] += 1
        if n[0] == flip:
            skipped.add("b")
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(Net(), loss)


@harmful("loss-terms-appended")
def _(flip):
    """A list of terms, to which a callback adds one."""
    terms, n = [F.cross_entropy], [0]

    def confidence(logits, y):
        return 0.1 * logits.softmax(-1).square().sum(-1).mean()

    def loss(module, batch):
        n[0] += 1
        if n[0] == flip:
            terms.append(confidence)
        logits = module(batch["x"])
        return sum(term(logits, batch["y"]) for term in terms)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("weights-tied-later")
def _(flip):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)
            self.order, self.n = ["a", "b"], 0

        def forward(self, x):
            self.n += 1
            if self.n == flip:
                self.order[1] = "a"
            for name in self.order:
                x = torch.tanh(getattr(self, name)(x))
            return self.head(x)

    return Idiom(Net(), cross_entropy)
