"""Harmful: state in closures, defaults, iterators and generators that reaches the loss."""

import enum
import functools
import itertools
import random
from collections import Counter, deque
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from idioms.case import Idiom, harmful
from torch import nn


def small():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


@harmful("closure-counter-branch")
def _(flip):
    it = [0]
    net = nn.Linear(4, 3)

    def loss(module, batch):
        it[0] += 1
        scale = 1.0 if it[0] < flip else 0.5
        return scale * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmful("closure-nonlocal-counter-adds-a-penalty")
def _(flip):
    step = 0

    def loss(module, batch):
        nonlocal step
        step += 1
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        if step >= flip:
            result = result + 0.01 * sum(p.square().sum() for p in module.parameters())
        return result

    return Idiom(small(), loss)


@harmful("closure-dict-step-ends-a-warmup")
def _(flip):
    state = {"step": 0}

    def loss(module, batch):
        state["step"] += 1
        warm = state["step"] < flip
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"], label_smoothing=0.1 if warm else 0.0)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("closure-deque-full")
def _(flip):
    """The auxiliary term begins when the window of shapes is full."""
    window = deque(maxlen=flip)

    def loss(module, batch):
        logits = module(batch["x"])
        window.append(logits.shape)
        result = F.cross_entropy(logits, batch["y"])
        if len(window) == window.maxlen:
            result = result + 0.1 * logits.square().mean()
        return result

    return Idiom(nn.Linear(4, 3), loss)


@harmful("closure-dataclass-of-a-curriculum")
def _(flip):
    @dataclass
    class Curriculum:
        step: int = 0
        difficulty: float = 0.5

        def advance(self):
            self.step += 1
            if self.step == flip:
                self.difficulty = 1.0

    curriculum = Curriculum()

    def loss(module, batch):
        curriculum.advance()
        return F.cross_entropy(module(batch["x"] * curriculum.difficulty), batch["y"])

    return Idiom(small(), loss)


@harmful("closure-schedule-object-with-step")
def _(flip):
    class LinearWeight:
        def __init__(self, delay):
            self.now, self.delay = 0, delay

        def step(self):
            self.now += 1
            return min(1.0, max(0, self.now - self.delay + 1) / 10)

    schedule = LinearWeight(flip)

    def loss(module, batch):
        logits = module(batch["x"])
        weight = schedule.step()
        return F.cross_entropy(logits, batch["y"]) + weight * logits.abs().mean()

    return Idiom(nn.Linear(4, 3), loss)


@harmful("string-mode-flipped")
def _(flip):
    mode, n = "warmup", 0

    def loss(module, batch):
        nonlocal mode, n
        n += 1
        if n == flip:
            mode = "main"
        logits = module(batch["x"])
        if mode == "warmup":
            return F.cross_entropy(logits, batch["y"])
        return F.cross_entropy(2.0 * logits, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("enum-member-advances")
def _(flip):
    class Stage(enum.Enum):
        PRETRAIN = "pretrain"
        FINETUNE = "finetune"

    state = {"stage": Stage.PRETRAIN, "calls": 0}
    smoothing = {Stage.PRETRAIN: 0.2, Stage.FINETUNE: 0.0}

    def loss(module, batch):
        state["calls"] += 1
        if state["calls"] >= flip:
            state["stage"] = Stage.FINETUNE
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"], label_smoothing=smoothing[state["stage"]])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("boolean-flipped")
def _(flip):
    flags, left = {"regularise": False}, [flip]

    def loss(module, batch):
        left[0] -= 1
        if left[0] == 0:
            flags["regularise"] = True
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        return result + 0.01 * module.weight.abs().sum() if flags["regularise"] else result

    return Idiom(nn.Linear(4, 3), loss)


@harmful("none-replaced-by-a-teacher")
def _(flip):
    """Distillation begins when there is a teacher: a constant mapping of the batch, here."""
    teacher, n = None, 0

    def loss(module, batch):
        nonlocal teacher, n
        n += 1
        if n == flip:
            teacher = nn.Softmax(dim=-1)
        logits = module(batch["x"])
        result = F.cross_entropy(logits, batch["y"])
        if teacher is not None:
            result = result + F.mse_loss(logits.softmax(-1), teacher(batch["x"][:, :3]))
        return result

    return Idiom(nn.Linear(4, 3), loss)


@harmful("tuple-of-step-and-scale-rebound")
def _(flip):
    state = (0, 1.0)

    def loss(module, batch):
        nonlocal state
        step, scale = state
        state = (step + 1, 0.25 if step + 1 == flip else scale)
        return state[1] * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("dict-keys-grow")
def _(flip):
    seen = {}

    def loss(module, batch):
        seen[f"batch-{len(seen)}"] = batch["x"].shape
        logits = module(batch["x"])
        if f"batch-{flip - 1}" in seen:
            logits = logits.clamp(-1.0, 1.0)
        return F.cross_entropy(logits * 2.0, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("length-of-a-list-compared")
def _(flip):
    sizes = []

    def loss(module, batch):
        sizes.append(batch["x"].shape[0])
        reduction = "mean" if len(sizes) < flip else "sum"
        return F.cross_entropy(module(batch["x"]), batch["y"], reduction=reduction)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("set-membership-of-decay-steps")
def _(flip):
    decay_at, state = {flip, 2 * flip, 3 * flip}, {"n": 0, "weight": 1.0}

    def loss(module, batch):
        state["n"] += 1
        if state["n"] in decay_at:
            state["weight"] *= 0.1
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"]) + state["weight"] * logits.square().mean()

    return Idiom(nn.Linear(4, 3), loss)


@harmful("collections-counter-read")
def _(flip):
    events = Counter()

    def loss(module, batch):
        events.update(["step"])
        temperature = 2.0 if events["step"] < flip else 1.0
        return F.cross_entropy(module(batch["x"]) / temperature, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("itertools-count-compared")
def _(flip):
    steps = itertools.count(1)

    def loss(module, batch):
        logits = module(batch["x"])
        if next(steps) >= flip:
            logits = logits - logits.mean(dim=0)
        return F.cross_entropy(logits, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("itertools-cycle-of-weights")
def _(flip):
    """Long phases in turn: flip - 1 calls at full weight, then flip at half."""
    weights = itertools.cycle([1.0] * (flip - 1) + [0.5] * flip)

    def loss(module, batch):
        return next(weights) * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("generator-yields-a-temperature")
def _(flip):
    def temperatures():
        for _ in range(flip - 1):
            yield 1.0
        temperature = 1.0
        while True:
            temperature = max(0.5, temperature * 0.95)
            yield temperature

    temperature = temperatures()

    def loss(module, batch):
        return F.cross_entropy(module(batch["x"]) / next(temperature), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("generator-receives-and-decides")
def _(flip):
    """A coroutine that is told each batch's size and answers whether to clip."""

    def controller():
        samples, clip = 0, False
        while True:
            samples += yield clip
            clip = samples >= 8 * flip

    control = controller()
    next(control)

    def loss(module, batch):
        logits = module(batch["x"])
        if control.send(batch["x"].shape[0]):
            logits = logits.clamp(min=-0.1)
        return F.cross_entropy(logits, batch["y"])

    return Idiom(small(), loss)


@harmful("iterator-of-weights-runs-out")
def _(flip):
    weights = iter([0.3] * (flip - 1))

    def loss(module, batch):
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"]) + next(weights, 0.0) * logits.abs().mean()

    return Idiom(nn.Linear(4, 3), loss)


@harmful("stop-iteration-ends-an-epoch")
def _(flip):
    """The loader of an epoch is empty: the next epoch begins, with another weight."""
    epoch, loader = 0, iter(range(flip - 1))

    def loss(module, batch):
        nonlocal epoch, loader
        try:
            next(loader)
        except StopIteration:
            epoch += 1
            loader = iter(range(flip - 1))
        return 0.9**epoch * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("own-random-decides-teacher-forcing")
def _(flip):
    """Scheduled sampling: a ratio of one at first, later none."""
    rng, n = random.Random(5), 0

    def loss(module, batch):
        nonlocal n
        n += 1
        ratio = 1.0 if n < flip else 0.0
        target = F.one_hot(batch["y"], 3).float()
        first = module(batch["x"])
        given = target if rng.random() < ratio else first.softmax(-1)
        return F.cross_entropy(first + given @ module[2].weight[:, :3], batch["y"])

    return Idiom(small(), loss)


@harmful("own-random-makes-a-rare-choice")
def _(flip):
    """A chance so small that call `flip` is the first to have it; from then on the net is mixed."""
    rng = random.Random(11)
    while True:  # go on in the stream until the smallest of the next `flip` numbers is the last
        state = rng.getstate()
        draws = [rng.random() for _ in range(flip)]
        if (lowest := draws.index(min(draws))) == flip - 1:
            break
        rng.setstate(state)
        for _ in range(lowest + 1):
            rng.random()
    rng.setstate(state)
    chance, mixed = (sorted(draws)[0] + sorted(draws)[1]) / 2, [False]

    def loss(module, batch):
        mixed[0] = mixed[0] or rng.random() < chance
        x = batch["x"].flip(0) if mixed[0] else batch["x"]
        return F.cross_entropy(module(batch["x"] + 0.5 * x), batch["y"])

    return Idiom(small(), loss)


@harmful("numpy-random-state-mixup-begins")
def _(flip):
    rng, n = np.random.RandomState(0), 0

    def loss(module, batch):
        nonlocal n
        n += 1
        x, y = batch["x"], batch["y"]
        if n < flip:
            return F.cross_entropy(module(x), y)
        keep = float(rng.beta(0.4, 0.4))
        logits = module(keep * x + (1 - keep) * x.flip(0))
        return keep * F.cross_entropy(logits, y) + (1 - keep) * F.cross_entropy(logits, y.flip(0))

    return Idiom(small(), loss)


@harmful("numpy-generator-noise-of-a-growing-width")
def _(flip):
    """Its noise is of width nought before the call `flip`."""
    rng, n = np.random.default_rng(3), [0]

    def loss(module, batch):
        n[0] += 1
        jitter = rng.normal(1.0, 0.0 if n[0] < flip else 0.3)
        return F.cross_entropy(module(batch["x"] * jitter), batch["y"])

    return Idiom(small(), loss)


@harmful("default-argument-list-grows")
def _(flip):
    def warm(calls=[]):  # noqa: B006
        calls.append(None)
        return len(calls) < flip

    def loss(module, batch):
        logits = module(batch["x"])
        return F.cross_entropy(logits.tanh() if warm() else logits, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("function-attribute-read")
def _(flip):
    def loss(module, batch):
        loss.calls += 1
        beta = 0.1 if loss.calls < flip else 1.0
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"]) + beta * logits.square().mean()

    loss.calls = 0
    return Idiom(nn.Linear(4, 3), loss)


@harmful("partial-with-keywords-changed")
def _(flip):
    criterion, n = functools.partial(F.cross_entropy, label_smoothing=0.2), [0]

    def loss(module, batch):
        n[0] += 1
        if n[0] == flip:
            criterion.keywords["label_smoothing"] = 0.0
        return criterion(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("partial-with-a-mutable-state")
def _(flip):
    def step(state, module, batch):
        state["n"] = state.get("n", 0) + 1
        gain = 3.0 if state["n"] >= flip else 1.0
        return F.cross_entropy(gain * module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), functools.partial(step, {}))


@harmful("lru-cache-keyed-by-the-epoch")
def _(flip):
    """The cache is pure, and its key is a counter."""
    n = 0

    @functools.lru_cache(maxsize=32)
    def weight(epoch):
        return 0.5**epoch

    def loss(module, batch):
        nonlocal n
        n += 1
        return weight(n // flip) * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)
