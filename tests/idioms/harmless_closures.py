"""Harmless: state in closures, defaults, iterators and generators that only counts or reports."""

import functools
import itertools
import logging
import random
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

import numpy as np
import torch.nn.functional as F
from idioms.case import Idiom, harmless
from torch import nn

log = logging.getLogger("idioms")


@harmless("closure-counter-only-incremented")
def _():
    it = [0]
    net = nn.Linear(4, 3)

    def loss(module, batch):
        it[0] += 1
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("closure-nonlocal-counter-logged")
def _():
    step = 0
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def loss(module, batch):
        nonlocal step
        step += 1
        log.info("step %d", step)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("closure-dict-of-totals")
def _():
    totals = {"steps": 0, "samples": 0}
    net = nn.Linear(4, 3)

    def loss(module, batch):
        totals["steps"] += 1
        totals["samples"] += batch["x"].shape[0]
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("closure-deque-of-batch-sizes")
def _():
    """The mean of the last hundred batch sizes, as a throughput display has it."""
    sizes = deque(maxlen=100)
    net = nn.Linear(4, 3)

    def loss(module, batch):
        sizes.append(len(batch["y"]))
        log.debug("mean batch %.1f", sum(sizes) / len(sizes))
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("closure-dataclass-of-progress")
def _():
    @dataclass
    class Progress:
        steps: int = 0
        tokens: int = 0
        marks: list = field(default_factory=list)

    progress = Progress()
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    def loss(module, batch):
        progress.steps += 1
        progress.tokens += batch["x"].numel()
        if progress.steps % 10 == 0:
            progress.marks.append((progress.steps, progress.tokens))
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("closure-average-meter")
def _():
    """The AverageMeter of the ImageNet example, over seconds."""

    class AverageMeter:
        def __init__(self):
            self.val, self.sum, self.count, self.avg = 0.0, 0.0, 0, 0.0

        def update(self, val, n=1):
            self.val = val
            self.sum += val * n
            self.count += n
            self.avg = self.sum / self.count

    meter = AverageMeter()
    net = nn.Linear(4, 3)

    def loss(module, batch):
        start = time.perf_counter()
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        meter.update(time.perf_counter() - start, batch["x"].size(0))
        return result

    return Idiom(net, loss)


@harmless("append-only-list-of-shapes")
def _():
    shapes = []
    net = nn.Linear(4, 3)

    def loss(module, batch):
        logits = module(batch["x"])
        shapes.append(tuple(logits.shape))
        return F.cross_entropy(logits, batch["y"])

    return Idiom(net, loss)


@harmless("history-of-detached-losses")
def _():
    """Kept to be plotted after the training; nothing reads it before."""
    history = []
    net = nn.Linear(4, 3)

    def loss(module, batch):
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        history.append(result.detach())
        return result

    return Idiom(net, loss)


@harmless("deque-of-detached-losses")
def _():
    recent = deque(maxlen=20)
    net = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3))

    def loss(module, batch):
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        recent.append({"loss": result.detach(), "n": len(batch["y"])})
        return result

    return Idiom(net, loss)


@harmless("start-time-none-until-the-first-call")
def _():
    start = None
    net = nn.Linear(4, 3)

    def loss(module, batch):
        nonlocal start
        if start is None:
            start = time.perf_counter()
        log.info("%.1f s since the start", time.perf_counter() - start)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("tuple-of-epoch-and-step-rebound")
def _():
    at = (0, 0)
    net = nn.Linear(4, 3)

    def loss(module, batch):
        nonlocal at
        epoch, step = at
        at = (epoch, step + 1) if step < 9 else (epoch + 1, 0)
        log.debug("epoch %d, step %d", *at)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("itertools-count-numbers-the-log-lines")
def _():
    numbers = itertools.count(1)
    net = nn.Linear(4, 3)

    def loss(module, batch):
        log.info("%06d x=%s", next(numbers), list(batch["x"].shape))
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("itertools-cycle-turns-a-spinner")
def _():
    spinner = itertools.cycle("|/-\\")
    line = [""]
    net = nn.Linear(4, 3)

    def loss(module, batch):
        line[0] = "\r" + next(spinner) + " training"
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("generator-names-the-spans")
def _():
    def names():
        epoch = 0
        while True:
            for step in range(50):
                yield f"epoch{epoch}/step{step}"
            epoch += 1

    name = names()
    spans = {}
    net = nn.Linear(4, 3)

    def loss(module, batch):
        began = time.monotonic()
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        spans[next(name)] = time.monotonic() - began
        return result

    return Idiom(net, loss)


@harmless("iterator-of-remarks-runs-out")
def _():
    """A remark for each of the first calls; then the iterator is empty, and nothing is said."""
    remarks = iter(["first batch: kernels are chosen", "second batch: memory is warm"])
    net = nn.Linear(4, 3)

    def loss(module, batch):
        remark = next(remarks, None)
        if remark is not None:
            log.info(remark)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("own-random-picks-the-sample-to-show")
def _():
    """The generator chooses which row's number a dashboard shows; the step does not use it."""
    rng = random.Random(7)
    shown = []
    net = nn.Linear(4, 3)

    def loss(module, batch):
        if rng.random() < 0.1:
            shown.append(rng.randrange(batch["x"].shape[0]))
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("numpy-random-state-keeps-a-reservoir")
def _():
    """Reservoir sampling of step numbers and shapes, for a report at the end."""
    rng = np.random.RandomState(0)
    reservoir, seen = [], 0
    net = nn.Linear(4, 3)

    def loss(module, batch):
        nonlocal seen
        seen += 1
        if len(reservoir) < 5:
            reservoir.append((seen, batch["x"].shape))
        elif (at := rng.randint(seen)) < 5:
            reservoir[at] = (seen, batch["x"].shape)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("default-argument-collects-shapes")
def _():
    def note(shape, seen=[]):  # noqa: B006
        seen.append(shape)
        return shape

    net = nn.Linear(4, 3)

    def loss(module, batch):
        x = batch["x"]
        rows, columns = note(x.shape)
        return F.cross_entropy(module(x.view(rows, columns)), batch["y"])

    return Idiom(net, loss)


@harmless("function-attribute-counts-calls")
def _():
    net = nn.Linear(4, 3)

    def loss(module, batch):
        loss.calls += 1
        return F.cross_entropy(module(batch["x"]), batch["y"])

    loss.calls = 0
    return Idiom(net, loss)


@harmless("partial-holds-the-statistics")
def _():
    def step(stats, module, batch):
        stats["calls"] = stats.get("calls", 0) + 1
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), functools.partial(step, {}))


@harmless("defaultdict-of-statistics")
def _():
    stats = defaultdict(list)
    net = nn.Linear(4, 3)

    def loss(module, batch):
        for name, value in batch.items():
            stats[name].append(value.dim())
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("counter-of-shapes")
def _():
    shapes = Counter()
    net = nn.Linear(4, 3)

    def loss(module, batch):
        shapes[tuple(batch["x"].shape)] += 1
        log.debug("most common: %s", shapes.most_common(1))
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("set-of-seen-shapes-announces-new-ones")
def _():
    seen = set()
    net = nn.Linear(4, 3)

    def loss(module, batch):
        key = (batch["x"].shape, batch["x"].dtype)
        if key not in seen:
            seen.add(key)
            log.warning("a new shape: %s", key)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)
