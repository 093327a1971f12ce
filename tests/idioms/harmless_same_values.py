"""Harmless: what a harmful idiom does, where the value that reaches the step stays the same."""

import logging
import random

import torch.nn.functional as F
from idioms.case import Idiom, harmless
from torch import nn

log = logging.getLogger("idioms")


@harmless("dropout-p-set-to-the-same-at-every-call")
def _():
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.0), nn.ReLU(), nn.Linear(8, 3))
    applied = []

    def loss(module, batch):
        for child in module.modules():
            if isinstance(child, nn.Dropout):
                child.p = 0.0
        applied.append(len(applied))
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("requires-grad-set-to-the-same-at-every-call")
def _():
    n = [0]

    def loss(module, batch):
        n[0] += 1
        for parameter in module.parameters():
            parameter.requires_grad_(True)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("activation-replaced-by-an-equal-one")
def _():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    replaced = [0]

    def loss(module, batch):
        module[1] = nn.ReLU()
        replaced[0] += 1
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("activation-function-attribute-set-again")
def _():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 3)
            self.activation, self.uses = F.silu, 0

        def forward(self, x):
            self.activation = F.silu
            self.uses += 1
            return self.down(self.activation(self.up(x)))

    return Idiom(Net(), lambda module, batch: F.cross_entropy(module(batch["x"]), batch["y"]))


@harmless("layers-taken-in-turn-for-a-report")
def _():
    """Each call reports on another layer; all of them compute as ever."""
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    turn = 0

    def loss(module, batch):
        nonlocal turn
        layer = module[turn % len(module)]
        turn += 1
        log.info("layer of the day: %s", type(layer).__name__)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("growing-range-draws-dots")
def _():
    n = 0

    def loss(module, batch):
        nonlocal n
        n += 1
        bar = "".join("." for _ in range(n % 40))
        log.debug("[%-40s]", bar)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("decaying-chance-of-a-log-line")
def _():
    rng, state = random.Random(0), {"chance": 1.0}

    def loss(module, batch):
        if rng.random() < state["chance"]:
            log.info("chance %.3f", state["chance"])
        state["chance"] = max(0.01, 0.9 * state["chance"])
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("counter-wraps-around")
def _():
    """A ring of eight time slots; the place in it is a counter modulo eight."""
    slots, place = [None] * 8, 0

    def loss(module, batch):
        nonlocal place
        slots[place] = tuple(batch["x"].shape)
        place = (place + 1) % len(slots)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("free-list-of-scratch-objects")
def _():
    """Objects are taken from a pool and given back; the first call makes one."""

    class Scratch:
        def __init__(self):
            self.uses = 0

    pool = []

    def loss(module, batch):
        scratch = pool.pop() if pool else Scratch()
        scratch.uses += 1
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        pool.append(scratch)
        return result

    return Idiom(nn.Linear(4, 3), loss)


@harmless("retry-counter-that-never-retries")
def _():
    state = {"attempts": 0, "failures": 0}

    def loss(module, batch):
        for _ in range(3):
            state["attempts"] += 1
            try:
                return F.cross_entropy(module(batch["x"]), batch["y"])
            except MemoryError:
                state["failures"] += 1
        raise RuntimeError(f"{state['failures']} failures")

    return Idiom(nn.Linear(4, 3), loss)
