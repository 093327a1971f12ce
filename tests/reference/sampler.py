"""The sampler of answers (ANSWERS 3), one row at a time, from its text alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from reference.floats import F32, canonical, rn32
from reference.nn import NN
from reference.rand import MASK, gumbel_of, philox
from reference.sums import SUMS, max_rows


@dataclass
class Asked:
    """Settings by name, as a request has them (3.1)."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    bias: dict[int, float] = field(default_factory=dict)

    def sampler(self) -> str:
        """3.2."""
        neutral = Asked(temperature=self.temperature)
        return "full" if self != neutral else "draw" if self.temperature > 0 else "greedy"


def seed_of_choice(seed: int, choice: int) -> int:
    """3.4."""
    layout = (
        b"tallystick/answer-seed/1\0" + seed.to_bytes(8, "little") + choice.to_bytes(4, "little")
    )
    return int.from_bytes(hashlib.sha256(layout).digest()[:8], "big") % 2**63


def places(prompt: int, answer: int, rows: int) -> list[int]:
    """t_r (3.3)."""
    return [prompt - 1 + min(r, answer - 1) for r in range(rows)]


def noise(seed: int, place: int, classes: int, c: int) -> np.float32:
    """N(c): NUMERICS 8.8 with draw 0 and step 0."""
    block = place * -(-classes // 4) + c // 4
    words = philox((block & MASK, block >> 32, 0, 0), (seed & MASK, seed >> 32))
    return F32(gumbel_of(words[c % 4]))


def argmax(y: np.ndarray) -> int:
    return int(SUMS["aten.argmax"]({"dim": 0, "keepdim": False}, [y])[0])


def along(op: str, y: np.ndarray) -> np.ndarray:
    return canonical(NN[op]({"dim": 0}, [y])[0])


def full(
    z: np.ndarray, text: Sequence[int], prompt: int, place: int, asked: Asked, seed: int
) -> np.ndarray:
    """The last y of 3.5.1 to 3.5.8. `text` is the whole text, of which the places 0 … place are
    seen."""
    classes, number = len(z), {k: rn32(v) for k, v in vars(asked).items() if isinstance(v, float)}
    so_far, answer = list(text[: place + 1]), list(text[prompt : place + 1])
    y = z.copy()
    for c in range(classes):
        if c in so_far:
            y[c] = z[c] * number["repetition"] if z[c] < 0 else z[c] / number["repetition"]
        n = F32(answer.count(c))
        h = F32(1 if n > 0 else 0)
        y[c] = (y[c] - number["frequency"] * n) - number["presence"] * h
        y[c] = y[c] + rn32(asked.bias.get(c, 0.0))
        if number["temperature"] > 0:
            y[c] = y[c] / number["temperature"]
    rank = SUMS["tallystick.rank"]({"dim": 0, "descending": True}, [y])[0]
    if asked.top_k != 0:
        y[rank >= asked.top_k] = -np.inf
    p = along("aten._softmax", y)
    order = np.argsort(rank)
    before, total = np.zeros(classes, F32), F32(0)
    for k, c in enumerate(order):
        before[c] = total
        total = p[c] if k == 0 else total + p[c]
    largest = max_rows(p)
    for c in range(classes):
        in_nucleus = bool(before[c] < number["top_p"]) or number["top_p"] >= 1
        likely = bool(p[c] >= number["min_p"] * largest) or number["min_p"] <= 0
        if not (in_nucleus and likely):
            y[c] = -np.inf
        if number["temperature"] > 0:
            y[c] = y[c] + noise(seed, place, classes, c)
    return canonical(y)


def row(
    z: np.ndarray, text: Sequence[int], prompt: int, place: int, asked: Asked, seed: int
) -> tuple[int, np.float32]:
    """The token of a row, and its log-probability (3.5, 3.6)."""
    with np.errstate(all="ignore"):
        kind, y = asked.sampler(), z
        if kind == "draw":
            t = rn32(asked.temperature)
            y = np.array([x / t + noise(seed, place, len(z), c) for c, x in enumerate(z)], F32)
        elif kind == "full":
            y = full(z, text, prompt, place, asked, seed)
        token = argmax(y)
        return token, along("aten._log_softmax", z)[token]
