"""Harmless: bookkeeping of libraries, the process, files, buffers of bytes and tensors beside."""

import array
import contextvars
import ctypes
import functools
import gc
import io
import itertools
import logging
import os
import resource
import struct
import tempfile
import threading
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from idioms.case import Idiom, harmless
from torch import nn
from tqdm import tqdm


@harmless("logger-with-a-list-handler")
def _():
    class Memory(logging.Handler):
        def __init__(self):
            super().__init__()
            self.records = []

        def emit(self, record):
            self.records.append(record)

    logger = logging.Logger("memory")
    logger.addHandler(Memory())

    def loss(module, batch):
        logits = module(batch["x"])
        logger.info("logits %s", tuple(logits.shape))
        return F.cross_entropy(logits, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("log-once-by-a-filter")
def _():
    class Once(logging.Filter):
        def __init__(self):
            super().__init__()
            self.seen = set()

        def filter(self, record):
            new = record.getMessage() not in self.seen
            self.seen.add(record.getMessage())
            return new

    logger = logging.Logger("once")
    logger.addFilter(Once())

    def loss(module, batch):
        logger.info("training on %d classes", 3)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("warnings-given-once-by-their-registry")
def _():
    """The library's own bookkeeping: a registry of the warnings that were given."""
    registry = {}

    def loss(module, batch):
        if batch["x"].shape[0] < 16:
            text = "a batch of less than 16"
            warnings.warn_explicit(text, UserWarning, "loss.py", 1, registry=registry)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("warning-once-by-an-lru-cache")
def _():
    """As transformers' logger.warning_once does it."""
    logger = logging.getLogger("idioms.once")

    @functools.lru_cache(maxsize=32)
    def warning_once(text):
        logger.warning(text)

    def loss(module, batch):
        warning_once(f"{type(module).__name__} has no padding mask")
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("warned-flag-set-after-the-first-warning")
def _():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.warned = nn.Linear(4, 3), False

        def forward(self, x):
            if x.dim() == 2 and not self.warned:
                warnings.warn("x has no axis of time", stacklevel=2)
                self.warned = True
            return self.fc(x)

    return Idiom(Net(), lambda module, batch: F.cross_entropy(module(batch["x"]), batch["y"]))


@harmless("tqdm-progress-bar")
def _():
    bar = tqdm(total=1000, file=io.StringIO(), mininterval=0.5)

    def loss(module, batch):
        bar.update(1)
        bar.set_postfix(rows=batch["x"].shape[0], refresh=False)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("tqdm-iterator-in-a-closure")
def _():
    steps = iter(tqdm(itertools.count(), file=io.StringIO(), mininterval=0.5))

    def loss(module, batch):
        next(steps)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("contextvar-names-the-step-for-logs")
def _():
    step = contextvars.ContextVar("step", default=0)
    logger = logging.getLogger("idioms.context")

    def loss(module, batch):
        step.set(step.get() + 1)
        logger.info("in step %d", step.get())
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("thread-local-stack-of-names")
def _():
    local = threading.local()

    def loss(module, batch):
        stack = local.__dict__.setdefault("stack", [])
        local.total = getattr(local, "total", 0) + 1
        stack.append("loss")
        try:
            return F.cross_entropy(module(batch["x"]), batch["y"])
        finally:
            stack.pop()

    return Idiom(nn.Linear(4, 3), loss)


@harmless("lock-around-a-shared-total")
def _():
    lock, total = threading.Lock(), {"samples": 0}

    def loss(module, batch):
        with lock:
            total["samples"] += len(batch["y"])
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("environment-variable-tells-children-the-step")
def _():
    os.environ["IDIOM_SHOWN_STEP"] = "0"

    def loss(module, batch):
        os.environ["IDIOM_SHOWN_STEP"] = str(int(os.environ["IDIOM_SHOWN_STEP"]) + 1)
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("heartbeat-file")
def _():
    """A watchdog outside reads the file's time and text; the step does not."""
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "heartbeat")
    n = itertools.count(1)

    def loss(module, batch):
        assert os.path.isdir(folder.name)
        with open(path, "w") as file:
            file.write(f"{next(n)}\n")
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("numpy-histogram-of-batch-sizes")
def _():
    histogram = np.zeros(64, dtype=np.int64)

    def loss(module, batch):
        histogram[batch["x"].shape[0]] += 1
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("array-of-step-numbers")
def _():
    steps = array.array("q")

    def loss(module, batch):
        steps.append(len(steps))
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("ctypes-counter-shared-with-a-monitor")
def _():
    shared = ctypes.c_uint64(0)

    def loss(module, batch):
        shared.value += 1
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("bytearray-as-a-ring-of-records")
def _():
    ring, at = bytearray(4 * 16), [0]

    def loss(module, batch):
        struct.pack_into("<I", ring, 4 * (at[0] % 16), at[0])
        at[0] += 1
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("tensor-beside-the-module-only-counts")
def _():
    seen = torch.zeros(1)

    def loss(module, batch):
        seen.add_(batch["x"].shape[0])
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("garbage-collected-every-n-calls")
def _():
    n = 0

    def loss(module, batch):
        nonlocal n
        n += 1
        if n % 100 == 0:
            gc.collect()
        return F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmless("peak-memory-tracked")
def _():
    peak = {"kib": 0}

    def loss(module, batch):
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        peak["kib"] = max(peak["kib"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return result

    return Idiom(nn.Linear(4, 3), loss)
