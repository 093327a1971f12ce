"""Everything that a capture changed is put back, also after an error (PROGRAM 5.19)."""

from __future__ import annotations

import array
import io
import itertools
import logging
import os
import random
from collections import OrderedDict, deque
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tallystick.errors import UsageError
from tallystick.program.capture import capture
from tallystick.program.optimizers import SGD

BATCH = {"x": ((8, 4), "f32"), "y": ((8,), "i64")}
COUNT = 0


class Shared:
    made = 0


class Kept:
    """State of every kind; `look` gives it all."""

    def __init__(self) -> None:
        self.numbers, self.names, self.last = [1, 2], {"a": 1}, deque([1], maxlen=3)
        self.ordered = OrderedDict(x=1, y=2)
        self.members, self.bytes, self.cells = {1}, bytearray(b"ab"), array.array("q", [1])
        self.table, self.rng = np.zeros(3), random.Random(3)
        self.numpys, self.text = np.random.default_rng(3), io.StringIO("a")
        self.steps = itertools.count(5)
        self.cycle = itertools.cycle("ab")
        self.tensor = torch.zeros(2, dtype=torch.int64)

    def change(self) -> None:
        global COUNT
        COUNT += 1
        Shared.made += 1
        self.numbers.append(3)
        self.names["b"] = len(self.numbers)
        self.last.append(2)
        self.ordered.move_to_end("x")
        self.members.add(len(self.members) + 1)
        self.bytes[0] = 7
        self.cells.append(2)
        self.table[1] += 1
        self.tensor.add_(1)
        os.environ["TALLYSTICK_TEST_STEP"] = str(COUNT)
        self.text.write("b")
        self.last_drawn = self.rng.random() + self.numpys.random() + random.random()
        next(self.steps)
        next(self.cycle)

    def look(self) -> Any:
        held = {
            k: v
            for k, v in vars(self).items()
            if k not in ("rng", "numpys", "text", "steps", "cycle")
        }
        drawn = self.rng.getstate(), repr(self.numpys.bit_generator.state), random.getstate()
        text = self.text.getvalue(), self.text.tell(), os.environ.get("TALLYSTICK_TEST_STEP")
        return repr(held), drawn, text, COUNT, Shared.made


@pytest.mark.parametrize("refused", [False, True])
def test_state_of_every_kind_is_put_back(refused: bool) -> None:
    kept = Kept()

    def loss(module: Any, batch: Any) -> Any:
        kept.change()
        found = F.cross_entropy(module(batch["x"]), batch["y"])
        return found * 2 if refused and len(kept.numbers) > 900 else found

    before, code = kept.look(), loss.__code__
    if refused:
        with pytest.raises(UsageError, match="numbers"):
            capture(nn.Linear(4, 3), loss, BATCH, SGD(0.1))
    else:
        assert capture(nn.Linear(4, 3), loss, BATCH, SGD(0.1)).program.nodes
    assert kept.look() == before
    assert loss.__code__ is code
    assert next(kept.steps) == 5
    assert next(kept.cycle) == "a"


def test_what_a_step_says_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    calls = [0]
    log = logging.Logger("told-once")
    log.addHandler(logging.StreamHandler())

    def loss(module: Any, batch: Any) -> Any:
        calls[0] += 1
        print("call", calls[0])
        if calls[0] % 100 == 0:
            log.warning("a hundred")
        return F.cross_entropy(module(batch["x"]), batch["y"])

    capture(nn.Linear(4, 3), loss, BATCH, SGD(0.1))
    assert capsys.readouterr() == ("call 1\n", "")


def test_a_function_without_source_is_named_and_refused_at_moving_state() -> None:
    names: dict[str, Any] = {"F": F, "calls": [0]}
    text = "def loss(module, batch):\n    calls[0] += 1\n"
    text += "    return F.cross_entropy(module(batch['x']), batch['y'])\n"
    exec(compile(text, "nowhere.py", "exec"), names)
    with pytest.raises(
        UsageError, match=r"calls.*loss, whose source cannot be read.*nowhere\.py:1"
    ):
        capture(nn.Linear(4, 3), names["loss"], BATCH, SGD(0.1))
