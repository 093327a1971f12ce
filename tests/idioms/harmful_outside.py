"""Harmful: the count is in the process, a file, numpy, bytes, a thread, or a tensor beside."""

import array
import contextvars
import ctypes
import os
import struct
import tempfile
import threading

import numpy as np
import torch
import torch.nn.functional as F
from idioms.case import Idiom, harmful
from torch import nn


def scaled(weight, module, batch):
    return weight * F.cross_entropy(module(batch["x"]), batch["y"])


@harmful("thread-local-step")
def _(flip):
    local = threading.local()

    def loss(module, batch):
        local.step = getattr(local, "step", 0) + 1
        return scaled(1.0 if local.step < flip else 0.5, module, batch)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("contextvar-step")
def _(flip):
    step = contextvars.ContextVar("step", default=0)

    def loss(module, batch):
        step.set(step.get() + 1)
        return scaled(1.0 if step.get() < flip else 0.5, module, batch)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("environment-variable-step")
def _(flip):
    os.environ["IDIOM_STEP"] = "0"

    def loss(module, batch):
        step = int(os.environ["IDIOM_STEP"]) + 1
        os.environ["IDIOM_STEP"] = str(step)
        return scaled(1.0 if step < flip else 0.5, module, batch)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("file-holds-the-step")
def _(flip):
    folder = tempfile.TemporaryDirectory()
    path = os.path.join(folder.name, "step.txt")
    with open(path, "w") as file:
        file.write("0")

    def loss(module, batch):
        assert os.path.isdir(folder.name)
        with open(path, "r+") as file:
            step = int(file.read()) + 1
            file.seek(0)
            file.write(str(step))
        return scaled(1.0 if step < flip else 0.5, module, batch)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("file-size-as-the-step")
def _(flip):
    """An append-only log, whose size in bytes decides."""
    log = tempfile.TemporaryFile()  # noqa: SIM115

    def loss(module, batch):
        log.write(b"x")
        return scaled(1.0 if log.tell() < flip else 0.5, module, batch)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("numpy-array-counter")
def _(flip):
    step = np.zeros(1)

    def loss(module, batch):
        step[0] += 1
        return scaled(float(np.where(step[0] < flip, 1.0, 0.5)), module, batch)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("numpy-view-shared-with-a-sampler")
def _(flip):
    """Two views of one array: a sampler counts through one, the loss reads the other."""
    memory = np.zeros(4, dtype=np.int64)
    writer, reader = memory[1:], memory[::2]

    def loss(module, batch):
        writer[1] += 1
        return scaled(1.0 if int(reader[1]) < flip else 0.25, module, batch)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("array-module-counter")
def _(flip):
    counts = array.array("q", [0])

    def loss(module, batch):
        counts[0] += 1
        return scaled(1.0 if counts[0] < flip else 0.5, module, batch)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("ctypes-counter")
def _(flip):
    """As multiprocessing.Value has it, shared with the workers of a loader."""
    step = ctypes.c_long(0)

    def loss(module, batch):
        step.value += 1
        return scaled(1.0 if step.value < flip else 0.5, module, batch)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("bytearray-counter")
def _(flip):
    state = bytearray(8)

    def loss(module, batch):
        step = int.from_bytes(state, "little") + 1
        state[:] = step.to_bytes(8, "little")
        return scaled(1.0 if step < flip else 0.5, module, batch)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("struct-packed-in-a-memoryview")
def _(flip):
    header = memoryview(bytearray(12))

    def loss(module, batch):
        (step,) = struct.unpack_from("<Q", header, 4)
        struct.pack_into("<Q", header, 4, step + 1)
        return scaled(1.0 if step + 1 < flip else 0.5, module, batch)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("tensor-counter-read-by-item")
def _(flip):
    step = torch.zeros(1)

    def loss(module, batch):
        step.add_(1)
        return scaled(1.0 if step.item() < flip else 0.5, module, batch)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("tensor-counter-in-arithmetic")
def _(flip):
    """A tensor that is no buffer of the module, and enters the loss."""
    step = torch.zeros(1)

    def loss(module, batch):
        step.add_(1)
        weight = torch.where(step < flip, 1.0, 0.5).sum()
        return weight * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("tensor-attribute-that-is-no-buffer")
def _(flip):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.count = nn.Linear(4, 3), torch.tensor(0)

        def forward(self, x):
            self.count = self.count + 1
            return self.fc(x) * (1.0 + (self.count >= flip).float())

    return Idiom(Net(), lambda module, batch: scaled(1.0, module, batch))


@harmful("tensor-bank-grows")
def _(flip):
    """A memory bank of the features of earlier batches, used once it is long enough."""
    bank = []

    def loss(module, batch):
        logits = module(batch["x"])
        bank.append(batch["x"].mean(0)[:3])
        result = F.cross_entropy(logits, batch["y"])
        if len(bank) >= flip:
            result = result + (logits * torch.stack(bank[-3:]).mean(0)).mean()
        return result

    return Idiom(nn.Linear(4, 3), loss)


@harmful("tensor-queue-grows-by-cat")
def _(flip):
    """MoCo's queue before it is full: its length decides whether the contrast is taken."""
    state = {"queue": torch.zeros(0, 3)}

    def loss(module, batch):
        logits = module(batch["x"])
        result = F.cross_entropy(logits, batch["y"])
        state["queue"] = torch.cat([state["queue"], batch["x"][:1, :3]])[-flip:]
        if state["queue"].shape[0] == flip:
            result = result + 0.1 * (logits @ state["queue"].transpose(0, 1)).logsumexp(1).mean()
        return result

    return Idiom(nn.Linear(4, 3), loss)
