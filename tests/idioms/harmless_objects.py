"""Harmless: state on modules, classes, criteria, hooks, decorators and module globals."""

import contextlib
import functools
import logging
import time
from dataclasses import dataclass
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from idioms.case import Idiom, harmless
from torch import nn

log = logging.getLogger("idioms")

CALLS = 0
REGISTRY = []
SETTINGS = {"verbose": True, "calls": 0}


def cross_entropy(module, batch):
    return F.cross_entropy(module(batch["x"]), batch["y"])


@harmless("global-statement-counter")
def _():
    global CALLS
    CALLS = 0

    def loss(module, batch):
        global CALLS
        CALLS += 1
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("global-list-registers-calls")
def _():
    REGISTRY.clear()

    def loss(module, batch):
        REGISTRY.append(type(module).__name__)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("global-verbose-flag-switched-off")
def _():
    SETTINGS.update(verbose=True, calls=0)

    def loss(module, batch):
        SETTINGS["calls"] += 1
        if SETTINGS["verbose"]:
            log.info("x is %s on %s", batch["x"].dtype, tuple(batch["x"].shape))
        if SETTINGS["calls"] >= 3:
            SETTINGS["verbose"] = False
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("module-counts-its-forwards")
def _():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return self.fc(x)

    return Idiom(Net(), cross_entropy)


@harmless("class-attribute-counts-forwards-of-all-instances")
def _():
    class Block(nn.Module):
        forwards = 0

        def __init__(self, n_in, n_out):
            super().__init__()
            self.fc = nn.Linear(n_in, n_out)

        def forward(self, x):
            Block.forwards += 1
            return torch.tanh(self.fc(x))

    return Idiom(nn.Sequential(Block(4, 6), Block(6, 3)), cross_entropy)


@harmless("class-level-count-of-instances")
def _():
    """Each call makes an object; its class numbers them, for their repr."""

    class Batch:
        made = 0

        def __init__(self, fields):
            Batch.made += 1
            self.number, self.fields = Batch.made, fields

        def __repr__(self):
            return f"Batch {self.number}"

    def loss(module, batch):
        item = Batch(batch)
        log.debug("%r", item)
        return F.cross_entropy(module(item.fields["x"]), item.fields["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("criterion-object-keeps-a-count")
def _():
    class Criterion(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = 0

        def forward(self, logits, target):
            self.seen += target.numel()
            return F.cross_entropy(logits, target, label_smoothing=0.1)

    criterion = Criterion()

    def loss(module, batch):
        return criterion(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("shared-config-with-a-step-for-messages")
def _():
    config = SimpleNamespace(width=8, slope=0.1, step=0)

    class Part(nn.Module):
        def __init__(self, config, n_in, n_out):
            super().__init__()
            self.config = config
            self.fc = nn.Linear(n_in, n_out)

        def forward(self, x):
            log.debug("step %d: %s", self.config.step, tuple(x.shape))
            return F.leaky_relu(self.fc(x), self.config.slope)

    def loss(module, batch):
        config.step += 1
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Sequential(Part(config, 4, config.width), Part(config, config.width, 3)), loss)


@harmless("forward-hook-counts")
def _():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    counts = {}

    def hook(module, args, output):
        name = type(module).__name__
        counts[name] = counts.get(name, 0) + 1

    for child in net:
        child.register_forward_hook(hook)
    return Idiom(net, cross_entropy)


@harmless("forward-pre-hook-records-shapes")
def _():
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    trace = []
    net[2].register_forward_pre_hook(lambda module, args: trace.append(tuple(args[0].shape)))
    return Idiom(net, cross_entropy)


@harmless("hook-keeps-the-last-activations")
def _():
    """A feature extractor's hook: each call overwrites what the last one kept; no step reads it."""
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    features = {}

    def keep(name):
        def hook(module, args, output):
            features[name] = output.detach()

        return hook

    for name, child in net.named_children():
        child.register_forward_hook(keep(name))
    return Idiom(net, cross_entropy)


@harmless("module-keeps-its-last-attention-map")
def _():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = nn.Linear(4, 12), nn.Linear(4, 3)
            self.last_attention = None

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            weights = torch.softmax(q @ k.transpose(0, 1) / 2.0, dim=-1)
            self.last_attention = weights.detach()
            return self.out(weights @ v)

    return Idiom(Attention(), cross_entropy)


@harmless("decorator-counts-calls")
def _():
    def counted(function):
        @functools.wraps(function)
        def wrapper(*args):
            wrapper.calls += 1
            return function(*args)

        wrapper.calls = 0
        return wrapper

    @counted
    def loss(module, batch):
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("decorator-times-forward")
def _():
    def timed(function, spent=[]):  # noqa: B006
        def wrapper(self, x):
            began = time.perf_counter()
            try:
                return function(self, x)
            finally:
                spent.append(time.perf_counter() - began)

        return wrapper

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        @timed
        def forward(self, x):
            return self.fc(x)

    return Idiom(Net(), cross_entropy)


@harmless("context-manager-with-a-depth-indents-a-trace")
def _():
    depth, lines = [0], []

    @contextlib.contextmanager
    def span(name):
        lines.append("  " * depth[0] + name)
        depth[0] += 1
        try:
            yield
        finally:
            depth[0] -= 1

    def loss(module, batch):
        with span("step"):
            with span("forward"):
                logits = module(batch["x"])
            with span("loss"):
                return F.cross_entropy(logits, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("property-counts-its-reads")
def _():
    class Config:
        def __init__(self):
            self._temperature, self.reads = 2.0, 0

        @property
        def temperature(self):
            self.reads += 1
            return self._temperature

    config = Config()

    def loss(module, batch):
        return F.cross_entropy(module(batch["x"]) / config.temperature, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("descriptor-records-accesses")
def _():
    class Logged:
        def __init__(self, value):
            self.value, self.accesses = value, []

        def __get__(self, owner, kind=None):
            self.accesses.append(len(self.accesses))
            return self.value

    class Settings:
        smoothing = Logged(0.05)

    settings = Settings()

    def loss(module, batch):
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"], label_smoothing=settings.smoothing)

    return Idiom(nn.Linear(4, 3), loss)


@harmless("callable-object-with-a-history")
def _():
    class Step:
        def __init__(self):
            self.history = []

        def __call__(self, module, batch):
            self.history.append({"step": len(self.history), "rows": batch["x"].shape[0]})
            return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), Step())


@harmless("lazily-made-number")
def _():
    """The scale follows from the first input's width, and stays."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)
            self.scale = None

        def forward(self, x):
            if self.scale is None:
                self.scale = x.shape[-1] ** -0.5
            return self.fc(x) * self.scale

    return Idiom(Net(), cross_entropy)


@harmless("lazily-made-criterion")
def _():
    made = {}

    def loss(module, batch):
        if "criterion" not in made:
            made["criterion"] = nn.CrossEntropyLoss(label_smoothing=0.1)
        return made["criterion"](module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("hasattr-guards-a-lazy-activation")
def _():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            if not hasattr(self, "activation"):
                self.activation = nn.GELU()
            return self.down(self.activation(self.up(x)))

    return Idiom(Net(), cross_entropy)


@harmless("initialised-flag-prints-the-model-once")
def _():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)
            self.initialised = False

        def _setup(self, x):
            log.info("%s for %d features", self, x.shape[-1])
            self.width = x.shape[-1]
            self.initialised = True

        def forward(self, x):
            if not self.initialised:
                self._setup(x)
            return self.fc(x.view(-1, self.width))

    return Idiom(Net(), cross_entropy)


@harmless("debug-flag-checks-shapes-in-the-first-calls")
def _():
    checks = {"left": 5}

    def loss(module, batch):
        logits = module(batch["x"])
        if checks["left"] > 0:
            assert logits.shape == (batch["y"].shape[0], 3)
            checks["left"] -= 1
        return F.cross_entropy(logits, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("assertion-counts-balanced-calls")
def _():
    """Enter and leave are counted, and must balance."""
    counts = {"in": 0, "out": 0}

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            assert counts["in"] == counts["out"], "forward was left by an exception"
            counts["in"] += 1
            result = self.fc(x)
            counts["out"] += 1
            return result

    return Idiom(Net(), cross_entropy)


@harmless("setattr-of-what-was-last-seen")
def _():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            for name, value in {"last_shape": tuple(x.shape), "last_dtype": x.dtype}.items():
                setattr(self, name, value)
            self.forwards = getattr(self, "forwards", 0) + 1
            return self.fc(x)

    return Idiom(Net(), cross_entropy)


@harmless("train-mode-set-at-every-call")
def _():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    counted = {"train() calls": 0}

    def loss(module, batch):
        module.train()
        counted["train() calls"] += 1
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("visited-layers-recorded")
def _():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
            self.head = nn.Linear(4, 3)
            self.visited = []

        def forward(self, x):
            for i, layer in enumerate(self.layers):
                self.visited.append(f"{len(self.visited)}:layers.{i}")
                x = x + torch.tanh(layer(x))
            return self.head(x)

    return Idiom(Net(), cross_entropy)


@harmless("dataclass-output-with-a-number")
def _():
    """The output object carries the number of its call, as a request id does."""

    @dataclass
    class Output:
        logits: torch.Tensor
        call: int

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)
            self.call_number = 0

        def forward(self, x):
            self.call_number += 1
            return Output(self.fc(x), self.call_number)

    def loss(module, batch):
        output = module(batch["x"])
        log.debug("call %d", output.call)
        return F.cross_entropy(output.logits, batch["y"])

    return Idiom(Net(), loss)


@harmless("none-replaced-by-a-logger-object")
def _():
    class Monitor:
        def __init__(self, names):
            self.names, self.steps = names, 0

        def tick(self):
            self.steps += 1

    class Net(nn.Module):
        monitor = None

        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 3)

        def forward(self, x):
            if self.monitor is None:
                self.monitor = Monitor([name for name, _ in self.named_parameters()])
            self.monitor.tick()
            return self.fc(x)

    return Idiom(Net(), cross_entropy)
