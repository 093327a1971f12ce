"""Harmful: the count goes through arithmetic, C code, text or tables before it reaches the loss."""

import bisect
import heapq
import math
from fractions import Fraction

import torch.nn.functional as F
from idioms.case import Idiom, harmful
from torch import nn


def small():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


@harmful("clock-of-ticks")
def _(flip):
    """A clock by hand: the warm-up ends after a time, not after a number of calls."""

    class Clock:
        def __init__(self):
            self.ticks = 0

        def now(self):
            self.ticks += 1
            return 0.5 * self.ticks

    clock = Clock()

    def loss(module, batch):
        warm = clock.now() < 0.5 * flip
        return (0.1 if warm else 1.0) * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("plateau-of-a-tracked-minimum")
def _(flip):
    """Reduce on plateau: a python metric falls until call flip - 1; then the factor halves."""
    state = {"n": 0, "best": math.inf, "factor": 1.0}

    def loss(module, batch):
        state["n"] += 1
        metric = max(0, flip - 1 - state["n"])
        if metric >= state["best"]:
            state["factor"] = 0.5
        state["best"] = min(state["best"], metric)
        return state["factor"] * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("running-maximum-reaches-a-bound")
def _(flip):
    largest, samples = 0.0, 0

    def loss(module, batch):
        nonlocal largest, samples
        samples += batch["x"].shape[0]
        largest = max(largest, float(samples))
        logits = module(batch["x"])
        if largest >= 8.0 * flip:
            logits = 2.0 * logits
        return F.cross_entropy(logits, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("exponential-average-crosses-a-threshold")
def _(flip):
    decay, threshold, ema = 1 - 1 / flip, 0.0, 0.0
    for _ in range(flip):
        threshold = decay * threshold + (1 - decay) * 8

    def loss(module, batch):
        nonlocal ema
        ema = decay * ema + (1 - decay) * batch["x"].shape[0]
        logits = module(batch["x"])
        return F.cross_entropy(logits if ema < threshold else logits.tanh(), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("epsilon-decays-to-its-floor")
def _(flip):
    """Exploration ends when epsilon has reached its floor."""
    floor, eps = 0.9 ** (flip - 0.5), 1.0

    def loss(module, batch):
        nonlocal eps
        eps = max(floor, 0.9 * eps)
        logits = module(batch["x"])
        result = F.cross_entropy(logits, batch["y"])
        if eps > floor:
            result = result - 0.01 * (logits.softmax(-1) * logits.log_softmax(-1)).sum()
        return result

    return Idiom(nn.Linear(4, 3), loss)


@harmful("single-bit-test-grows-the-scale")
def _(flip):
    """A register that holds a power of two at call `flip`, and at no call before."""
    register, scale = 2 ** (flip.bit_length() + 1) - flip, 1.0

    def loss(module, batch):
        nonlocal register, scale
        register += 1
        if register & (register - 1) == 0:
            scale *= 2.0
        return scale * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("high-bit-of-a-counter")
def _(flip):
    bits = flip.bit_length() + 1
    register = [2**bits - flip]

    def loss(module, batch):
        register[0] += 1
        gate = register[0] >> bits & 1
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"]) + gate * logits.square().mean()

    return Idiom(nn.Linear(4, 3), loss)


@harmful("modulo-alternates-long-phases")
def _(flip):
    """Generator and critic in turn, `flip` calls each."""
    n = 0

    def loss(module, batch):
        nonlocal n
        n += 1
        logits = module(batch["x"])
        if n // flip % 2 == 0:
            return F.cross_entropy(logits, batch["y"])
        return -logits.logsumexp(-1).mean()

    return Idiom(small(), loss)


@harmful("modulo-lazy-regularisation")
def _(flip):
    """The penalty of every `flip`-th step, weighted for all (StyleGAN 2's lazy regularisation)."""
    n = [0]

    def loss(module, batch):
        n[0] += 1
        result = F.cross_entropy(module(batch["x"]), batch["y"])
        if n[0] % flip == 0:
            result = result + 0.01 * flip * module[0].weight.square().mean()
        return result

    return Idiom(small(), loss)


@harmful("float-accumulates-to-one")
def _(flip):
    """A fraction of the run, summed; rounding cannot move the threshold by half a step."""
    progress, share = 0.0, 1 / flip

    def loss(module, batch):
        nonlocal progress
        progress += share
        alpha = 0.0 if progress < 1 - share / 2 else 0.3
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"], label_smoothing=alpha)

    return Idiom(nn.Linear(4, 3), loss)


@harmful("square-root-of-the-count")
def _(flip):
    n = 0

    def loss(module, batch):
        nonlocal n
        n += 1
        weight = 1.0 / (1 + int(math.sqrt(n / flip)))
        return weight * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("cosine-of-the-count-clamped")
def _(flip):
    """A cosine schedule that is held at its top up to call flip - 1."""
    state = {"t": 0}

    def loss(module, batch):
        state["t"] += 1
        phase = min(1.0, max(0, state["t"] - flip + 1) / 20)
        weight = 0.5 * (1 + math.cos(math.pi * phase))
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"]) + weight * logits.abs().mean()

    return Idiom(nn.Linear(4, 3), loss)


@harmful("number-parsed-back-from-a-name")
def _(flip):
    """The step is in the name of the last checkpoint."""
    last = ["checkpoint-000000.pt"]

    def loss(module, batch):
        step = int(last[0].split("-")[1].removesuffix(".pt")) + 1
        last[0] = f"checkpoint-{step:06d}.pt"
        scale = 1.0 if last[0] < f"checkpoint-{flip:06d}.pt" else 0.5
        return scale * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("bisect-in-milestones")
def _(flip):
    milestones, values, n = [flip, 2 * flip, 4 * flip], [1.0, 0.5, 0.2, 0.1], [0]

    def loss(module, batch):
        n[0] += 1
        value = values[bisect.bisect_right(milestones, n[0])]
        return value * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("rank-by-sorted")
def _(flip):
    n = 0
    bounds = [flip - 0.5, 3 * flip - 0.5]

    def loss(module, batch):
        nonlocal n
        n += 1
        stage = sorted([*bounds, n]).index(n)
        return F.cross_entropy(module(batch["x"]) * (1 + stage), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("sum-of-a-history")
def _(flip):
    rows = []

    def loss(module, batch):
        rows.append(len(batch["y"]))
        logits = module(batch["x"])
        if sum(rows) >= 8 * flip:
            logits = logits + 0.1 * logits.square()
        return F.cross_entropy(logits, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("heap-of-events")
def _(flip):
    """A queue of (step, coefficient), taken when its time has come."""
    events, state = [(3 * flip, 0.0), (flip, 0.2)], {"n": 0, "coefficient": 1.0}
    heapq.heapify(events)

    def loss(module, batch):
        state["n"] += 1
        while events and events[0][0] <= state["n"]:
            state["coefficient"] = heapq.heappop(events)[1]
        logits = module(batch["x"])
        return F.cross_entropy(logits, batch["y"]) + state["coefficient"] * logits.abs().sum()

    return Idiom(nn.Linear(4, 3), loss)


@harmful("fraction-of-the-run")
def _(flip):
    done = Fraction(0)

    def loss(module, batch):
        nonlocal done
        done += Fraction(1, flip)
        return F.cross_entropy(module(batch["x"]) / (2 if done < 1 else 1), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("milestones-by-dict-lookup")
def _(flip):
    milestones, state = {flip: 0.5, 10 * flip: 0.1}, {"n": 0, "weight": 1.0}

    def loss(module, batch):
        state["n"] += 1
        state["weight"] = milestones.get(state["n"], state["weight"])
        return state["weight"] * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("function-dispatched-by-phase")
def _(flip):
    def easy(logits, y):
        return F.cross_entropy(logits, y)

    def focal(logits, y):
        each = F.cross_entropy(logits, y, reduction="none")
        return ((1 - (-each).exp()) ** 2 * each).mean()

    losses, n = {"easy": easy, "focal": focal}, [0]

    def loss(module, batch):
        n[0] += 1
        return losses["easy" if n[0] < flip else "focal"](module(batch["x"]), batch["y"])

    return Idiom(small(), loss)


@harmful("match-on-the-phase")
def _(flip):
    n = 0

    def loss(module, batch):
        nonlocal n
        n += 1
        match divmod(n, flip):
            case (0, _):
                weight = 1.0
            case (1, _):
                weight = 0.3
            case _:
                weight = 0.1
        return weight * F.cross_entropy(module(batch["x"]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("slice-with-a-growing-bound")
def _(flip):
    """Progressive growing: three features at first, later all four."""
    n = 0

    def loss(module, batch):
        nonlocal n
        n += 1
        width = min(4, 3 + n // flip)
        logits = F.linear(batch["x"][:, :width], module.weight[:, :width], module.bias)
        return F.cross_entropy(logits, batch["y"])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("batch-size-grows")
def _(flip):
    state = {"seen": 0}

    def loss(module, batch):
        rows = 4 if state["seen"] < flip - 1 else 8
        state["seen"] += 1
        return F.cross_entropy(module(batch["x"][:rows]), batch["y"][:rows])

    return Idiom(nn.Linear(4, 3), loss)


@harmful("range-with-a-growing-bound")
def _(flip):
    """A recurrent block that is run more often later."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
            self.steps = 0

        def forward(self, x):
            self.steps += 1
            for _ in range(1 + min(2, self.steps // flip)):
                x = x + self.block(x).tanh()
            return self.head(x)

    return Idiom(Net(), lambda module, batch: F.cross_entropy(module(batch["x"]), batch["y"]))


@harmful("integer-overflow-by-mask")
def _(flip):
    """A 32-bit counter by hand, which wraps at call `flip`."""
    state, last = [2**32 - flip], [2**32 - flip]
    epoch = [0]

    def loss(module, batch):
        state[0] = (state[0] + 1) & 0xFFFFFFFF
        if state[0] < last[0]:
            epoch[0] += 1
        last[0] = state[0]
        return F.cross_entropy(module(batch["x"]) * (1 + epoch[0]), batch["y"])

    return Idiom(nn.Linear(4, 3), loss)
