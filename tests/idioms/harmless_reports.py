"""Harmless: counters that are read, compared and computed with, and only decide about a report."""

import bisect
import enum
import heapq
import io
import json
import logging
import math
import time

import torch.nn.functional as F
from idioms.case import Idiom, harmless
from torch import nn

log = logging.getLogger("idioms")


@harmless("print-every-n")
def _():
    step = 0
    net = nn.Linear(4, 3)

    def loss(module, batch):
        nonlocal step
        if step % 100 == 0:
            print(f"step {step}: batch of {batch['x'].shape[0]}")
        step += 1
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("print-at-powers-of-two")
def _():
    n = [0]
    out = io.StringIO()
    net = nn.Linear(4, 3)

    def loss(module, batch):
        n[0] += 1
        if n[0] & (n[0] - 1) == 0:
            print("call", n[0], file=out)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("print-interval-doubles")
def _():
    state = {"n": 0, "next": 1}
    net = nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 3))

    def loss(module, batch):
        state["n"] += 1
        if state["n"] >= state["next"]:
            log.info("still training at step %d", state["n"])
            state["next"] *= 2
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("bisect-names-the-phase-in-the-log")
def _():
    milestones, names = [10, 100, 1000], ["early", "middle", "late", "last"]
    n = 0
    net = nn.Linear(4, 3)

    def loss(module, batch):
        nonlocal n
        n += 1
        log.info("[%s] step %d", names[bisect.bisect(milestones, n)], n)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("moving-average-of-seconds-gives-an-eta")
def _():
    total = 1000
    state = {"n": 0, "ema": None, "last": time.perf_counter()}
    net = nn.Linear(4, 3)

    def loss(module, batch):
        now = time.perf_counter()
        took, state["last"] = now - state["last"], now
        state["ema"] = took if state["ema"] is None else 0.9 * state["ema"] + 0.1 * took
        state["n"] += 1
        log.info("eta %.0f s", state["ema"] * max(0, total - state["n"]))
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("fastest-and-slowest-step-tracked")
def _():
    fastest, slowest = math.inf, 0.0
    net = nn.Linear(4, 3)

    def loss(module, batch):
        nonlocal fastest, slowest
        began = time.perf_counter()
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        took = time.perf_counter() - began
        fastest, slowest = min(fastest, took), max(slowest, took)
        return result

    return Idiom(net, loss)


@harmless("standard-error-by-math-sqrt-of-the-count")
def _():
    seconds = []
    net = nn.Linear(4, 3)

    def loss(module, batch):
        began = time.perf_counter()
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        seconds.append(time.perf_counter() - began)
        mean = math.fsum(seconds) / len(seconds)
        log.debug("%.2g s, +- %.1g", mean, mean / math.sqrt(len(seconds)))
        return result

    return Idiom(net, loss)


@harmless("status-line-parsed-and-formatted-again")
def _():
    """The count lives in the text of a status line."""
    status = ["step 0 of 500"]
    net = nn.Linear(4, 3)

    def loss(module, batch):
        step = int(status[0].split()[1]) + 1
        status[0] = f"step {step} of 500".ljust(30)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("last-lines-sliced-from-a-log")
def _():
    lines = []
    net = nn.Linear(4, 3)

    def loss(module, batch):
        lines.append(f"{len(lines):>5} rows={batch['x'].shape[0]}")
        log.debug("\n".join(lines[-5:]))
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("string-mode-used-as-a-tag")
def _():
    """The phase becomes a part of the metric's name, and of nothing else."""
    mode, n, metrics = "warmup", 0, {}
    net = nn.Linear(4, 3)

    def loss(module, batch):
        nonlocal mode, n
        n += 1
        if n == 20:
            mode = "main"
        metrics[f"{mode}/batch_size"] = batch["x"].shape[0]
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("enum-phase-only-shown")
def _():
    class Phase(enum.Enum):
        COMPILING = 0
        RUNNING = 1

    phase = [Phase.COMPILING]
    net = nn.Linear(4, 3)

    def loss(module, batch):
        log.info("phase %s", phase[0].name)
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        phase[0] = Phase.RUNNING
        return result

    return Idiom(net, loss)


@harmless("match-on-the-count-chooses-the-log-level")
def _():
    n = 0
    net = nn.Linear(4, 3)

    def loss(module, batch):
        nonlocal n
        n += 1
        match n:
            case 1 | 2 | 3:
                level = logging.INFO
            case _ if n % 50 == 0:
                level = logging.INFO
            case _:
                level = logging.DEBUG
        log.log(level, "step %d", n)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("dict-of-announcements-by-step")
def _():
    n = [0]
    announcements = {1: "hello", 10: "the loader has caught up", 100: "a hundred steps"}
    net = nn.Linear(4, 3)

    def loss(module, batch):
        n[0] += 1
        text = announcements.get(n[0])
        if text:
            log.info(text)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("heartbeat-on-a-clock-of-ticks")
def _():
    class Clock:
        def __init__(self):
            self.ticks = 0

        def __call__(self):
            self.ticks += 1
            return 0.25 * self.ticks

    clock, last = Clock(), [0.0]
    net = nn.Linear(4, 3)

    def loss(module, batch):
        now = clock()
        if now - last[0] > 5.0:
            log.info("alive at %.2f", now)
            last[0] = now
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("heap-of-the-slowest-steps")
def _():
    slowest, n = [], [0]
    net = nn.Linear(4, 3)

    def loss(module, batch):
        n[0] += 1
        began = time.perf_counter()
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        heapq.heappush(slowest, (time.perf_counter() - began, n[0]))
        if len(slowest) > 5:
            heapq.heappop(slowest)
        return result

    return Idiom(net, loss)


@harmless("json-lines-with-a-global-step")
def _():
    out = io.StringIO()
    net = nn.Linear(4, 3)

    def loss(module, batch):
        row = {"step": out.getvalue().count("\n"), "rows": batch["x"].shape[0]}
        out.write(json.dumps(row) + "\n")
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("summary-writer-with-its-own-step")
def _():
    class Writer:
        def __init__(self):
            self.step, self.rows = 0, []

        def add_scalar(self, tag, value):
            self.rows.append((self.step, tag, value))

    writer = Writer()
    net = nn.Linear(4, 3)

    def loss(module, batch):
        logits = module(batch["x"])
        writer.add_scalar("train/classes", logits.shape[-1])
        writer.step += 1
        return F.cross_entropy(logits, batch["y"])

    return Idiom(net, loss)


@harmless("callbacks-told-the-step")
def _():
    class History:
        def __init__(self):
            self.steps = []

        def on_step(self, step):
            self.steps.append(step)

    callbacks, n = [History(), History()], 0
    net = nn.Linear(4, 3)

    def loss(module, batch):
        nonlocal n
        for callback in callbacks:
            callback.on_step(n)
        n += 1
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)


@harmless("percent-done-of-accumulated-float")
def _():
    done = [0.0]
    net = nn.Linear(4, 3)

    def loss(module, batch):
        done[0] += 1 / 700
        log.info("%5.1f %%", 100 * min(done[0], 1.0))
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(net, loss)
