"""Harmful: state on modules, classes, criteria, hooks, decorators and globals reaches the loss."""

import contextlib
import functools
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from idioms.case import Idiom, harmful
from torch import nn

STEP = 0
STATE = {"step": 0, "weight": 1.0}


def cross_entropy(module, batch):
    return F.cross_entropy(module(batch["x"]), batch["y"])


@harmful("global-statement-step")
def _(flip):
    global STEP
    STEP = 0

    def loss(module, batch):
        global STEP
        STEP += 1
        scale = 1.0 if flip > STEP else 0.5
        return scale * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("global-dict-of-weights")
def _(flip):
    STATE.update(step=0, weight=1.0)

    def advance():
        STATE["step"] += 1
        if STATE["step"] == flip:
            STATE["weight"] = 0.1

    def loss(module, batch):
        advance()
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"]) + STATE["weight"] * logits.square().mean()

    return Idiom(nn.Linear(4, 3), loss)


@harmful("class-attribute-shared-by-blocks")
def _(flip):
    class Block(nn.Module):
        forwards = 0

        def __init__(self, n_in, n_out):
            super().__init__()
            self.fc = nn.Linear(n_in, n_out)

        def forward(self, x):
            Block.forwards += 1
            y = self.fc(x)
            return torch.tanh(y) if Block.forwards <= 2 * (flip - 1) else torch.sigmoid(y)

    return Idiom(nn.Sequential(Block(4, 6), Block(6, 3)), cross_entropy)


@harmful("class-level-count-of-instances-read")
def _(flip):
    class Episode:
        made = 0

        def __init__(self):
            type(self).made += 1
            self.discount = 0.9 if type(self).made < flip else 0.99

    def loss(module, batch):
        return Episode().discount * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("module-counts-its-forwards-and-warms-up")
def _(flip):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.side = nn.Linear(4, 3), nn.Linear(4, 3)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            y = self.fc(x)
            return y if self.calls < flip else y + self.side(x)

    return Idiom(Net(), cross_entropy)


@harmful("criterion-object-anneals")
def _(flip):
    class Annealed(nn.Module):
        def __init__(self):
            super().__init__()
            self.iteration = 0

        def forward(self, logits, target):
            self.iteration += 1
            margin = 0.0 if self.iteration < flip else 0.35
            return F.cross_entropy(logits - margin * F.one_hot(target, 3), target)

    criterion = Annealed()
    return Idiom(nn.Linear(4, 3), lambda module, batch: criterion(module(batch["x"]), batch["y"]))


@harmful("shared-config-changes-all-parts")
def _(flip):
    config = SimpleNamespace(slope=0.2, step=0)

    class Part(nn.Module):
        def __init__(self, n_in, n_out):
            super().__init__()
            self.config, self.fc = config, nn.Linear(n_in, n_out)

        def forward(self, x):
            return F.leaky_relu(self.fc(x), self.config.slope)

    def loss(module, batch):
        config.step += 1
        if config.step == flip:
            config.slope = 0.01
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Sequential(Part(4, 8), Part(8, 3)), loss)


@harmful("property-computed-from-the-step")
def _(flip):
    class Schedule:
        def __init__(self):
            self.step = 0

        @property
        def beta(self):
            return 0.0 if self.step < flip else 0.5

    schedule = Schedule()

    def loss(module, batch):
        schedule.step += 1
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"]) + schedule.beta * logits.square().mean()

    return Idiom(nn.Linear(4, 3), loss)


@harmful("descriptor-changes-with-its-reads")
def _(flip):
    class Decayed:
        def __init__(self):
            self.reads = 0

        def __get__(self, owner, kind=None):
            self.reads += 1
            return 1.0 if self.reads < flip else 0.1

    class Weights:
        auxiliary = Decayed()

    weights = Weights()

    def loss(module, batch):
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"]) + weights.auxiliary * logits.abs().mean()

    return Idiom(nn.Linear(4, 3), loss)


@harmful("callable-object-switches")
def _(flip):
    class Step:
        def __init__(self, losses, at):
            self.losses, self.at, self.n = losses, at, 0

        def __call__(self, module, batch):
            self.n += 1
            logits = module(batch["x"])
            return self.losses[self.n >= self.at](logits, batch["y"])

    def squared(logits, y):
        return F.mse_loss(logits.softmax(-1), F.one_hot(y, 3).float())

    return Idiom(nn.Linear(4, 3), Step([squared, F.cross_entropy], flip))


@harmful("forward-hook-scales-later")
def _(flip):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    calls = [0]

    def hook(module, args, output):
        calls[0] += 1
        return output if calls[0] < flip else output * 0.5

    net[0].register_forward_hook(hook)
    return Idiom(net, cross_entropy)


@harmful("forward-hook-removed")
def _(flip):
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    handle, calls = net[1].register_forward_hook(lambda module, args, output: output + 0.1), [0]

    def loss(module, batch):
        calls[0] += 1
        if calls[0] == flip:
            handle.remove()
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmful("pre-hook-removes-itself")
def _(flip):
    """A warm-up hook that leaves after its last call."""
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    state = {"left": flip - 1}

    def hook(module, args):
        state["left"] -= 1
        if state["left"] == 0:
            state["handle"].remove()
        return (args[0] * 0.5,)

    state["handle"] = net[0].register_forward_pre_hook(hook)
    return Idiom(net, cross_entropy)


@harmful("decorator-with-a-warmup")
def _(flip):
    def warmup(calls, factor):
        def decorate(function):
            @functools.wraps(function)
            def wrapper(*args):
                wrapper.done += 1
                result = function(*args)
                return factor * result if wrapper.done < calls else result

            wrapper.done = 0
            return wrapper

        return decorate

    @warmup(flip, 0.1)
    def loss(module, batch):
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("context-manager-counts-its-entries")
def _(flip):
    class Smoothing:
        def __init__(self):
            self.depth, self.entries, self.value = 0, 0, 0.0

        def __enter__(self):
            self.depth += 1
            self.entries += 1
            self.value = 0.1 if self.entries < flip else 0.0
            return self

        def __exit__(self, *args):
            self.depth -= 1

    smoothing = Smoothing()

    def loss(module, batch):
        with smoothing as s:
            return F.cross_entropy(module(batch["x"]), batch["y"], label_smoothing=s.value)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("context-manager-depth-leaks")
def _(flip):
    """The depth is raised by a phase that is entered at call `flip` and never left."""
    depth, n, stack = [0], [0], contextlib.ExitStack()

    @contextlib.contextmanager
    def quantised():
        depth[0] += 1
        yield
        depth[0] -= 1

    def loss(module, batch):
        n[0] += 1
        if n[0] == flip:
            stack.enter_context(quantised())
        logits = module(batch["x"])
        return F.cross_entropy(logits.clamp(-0.1, 0.1) if depth[0] else logits, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("dropout-p-raised")
def _(flip):
    """Curriculum dropout: none at first."""
    net = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.0), nn.ReLU(), nn.Linear(32, 3))
    n = [0]

    def loss(module, batch):
        n[0] += 1
        if n[0] == flip:
            module[1].p = 0.5
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmful("module-attribute-by-setattr")
def _(flip):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.temperature = nn.Linear(4, 3), 2.0

        def forward(self, x):
            return self.fc(x) / self.temperature

    n, plan = [0], {flip: ("temperature", 1.0)}

    def loss(module, batch):
        n[0] += 1
        if n[0] in plan:
            setattr(module, *plan[n[0]])
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(Net(), loss)


@harmful("schedule-writes-a-submodule-attribute")
def _(flip):
    """A callback sets the epsilon of the norms at a milestone."""
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8, eps=1e-5), nn.Linear(8, 3))

    class Callback:
        step = 0

        def on_step(self, module):
            self.step += 1
            if self.step >= flip:
                module[1].eps = 0.1

    callback = Callback()

    def loss(module, batch):
        callback.on_step(module)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmful("flag-of-a-trainer-object")
def _(flip):
    """The model reads the step from the trainer that holds it."""

    class Trainer:
        global_step = 0

        @property
        def sanity_checking(self):
            return self.global_step < flip

    trainer = Trainer()

    def loss(module, batch):
        trainer.global_step += 1
        weight = 0.1 if trainer.sanity_checking else 1.0
        return weight * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)
