"""What receipts cost, and what checking an answer costs beside giving it.

    python benchmarks/receipts.py MODEL STATEMENT [--threads 2] [--turns 3] [--json] [--out FILE]

STATEMENT is what `tallystick model statement MODEL --bucket …` wrote. Sides take turns, and medians
are compared. *Receipts*: 16 answers together, from request to text, with receipts and without; both
sides answer the same request, and so draw the same tokens. Programs are compared with the model's
before, once. *Checks*: one answer, or 16 that were given
together, checked one by one: with a statement of the checker's own (derived once, by `model
verify`), and with the answer's program derived again each time. `cpu` are seconds of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from answers import Clock, clock
from tallystick.answers.layout import Settings
from tallystick.answers.request import ModelRequest, new_nonce, new_secret
from tallystick.api.answering import Answering, GivenAnswer
from tallystick.api.answers import check
from tallystick.commit.signing import PrivateKey
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import ModelNetwork
from tallystick_bench.machine import machine
from tallystick_bench.step_time import load

TOGETHER = 16
Sides = Mapping[str, Callable[[], object]]


def timed(call: Callable[[], object]) -> Clock:
    began = clock()
    call()
    end = clock()
    return end[0] - began[0], end[1] - began[1]


def in_turns(
    sides: Sides, turns: int, before: Callable[[], None] = lambda: None
) -> dict[str, list[Clock]]:
    """The times of each side, in turns after one that warms up, each begun by another side.
    `before` is called before a turn."""
    seen: dict[str, list[Clock]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        before()
        order = list(sides.items())
        for name, call in order if turn % 2 else order[::-1]:
            took = timed(call)
            if turn:
                seen[name].append(took)
    return seen


def medians(seen: Mapping[str, Sequence[Clock]]) -> dict[str, dict[str, float]]:
    """Seconds of each side, by the clock and of the processor."""
    return {
        name: {
            "seconds": statistics.median(t[0] for t in took),
            "cpu": statistics.median(t[1] for t in took),
        }
        for name, took in seen.items()
    }


TEXT = Path(__file__).parent.parent / "spec" / "PROTOCOL.md"


class Bench:
    """A model that answers, each time after another part of a text."""

    def __init__(self, model: Path, statement: Path, threads: int) -> None:
        self.model, self.statement, self.threads = model, statement, threads
        self.answering = Answering(model, statement, threads)
        self.key = PrivateKey.generate()
        network = ModelNetwork(self.answering.model, self.answering.statement.contract)
        self.bare = AnswerEngine(network, threads=threads)
        text = TEXT.read_bytes()[: 1 << 18]
        self._text = self.answering.words.tokenizer.encode(text, TEXT.name).tolist()
        self._random = np.random.default_rng(0)

    def prompt(self, count: int) -> tuple[int, ...]:
        first = int(self._random.integers(len(self._text) - count))
        return tuple(self._text[first : first + count])

    def request(self, prompt: int, tokens: int, choices: int = 1) -> ModelRequest:
        """A request for answers that are drawn with temperature 1; they may end early."""
        return ModelRequest(
            self.answering.statement.digest,
            Settings(temperature=1.0, max_tokens=tokens),
            tokens=self.prompt(prompt),
            nonce=new_nonce(),
            choices=choices,
            secret=new_secret(),
        )

    def given(self, prompt: int, tokens: int, choices: int = 1) -> list[GivenAnswer]:
        """Answers with receipts."""
        return self.answering.answer(self.request(prompt, tokens, choices), self.key)

    def without(self, request: ModelRequest) -> int:
        """The same answers without receipts; the number of their tokens."""
        prepared = self.answering.prepare(request)
        handles = [
            self.bare.submit(prepared.prompt, prepared.asked, choice)
            for choice in range(request.choices)
        ]
        self.bare.run()
        return sum(len(one.answer.tokens) for one in handles if one.answer is not None)

    def whole(self, prompt: int, tokens: int, choices: int = 1) -> tuple[list[GivenAnswer], Clock]:
        """Answers that hardly ended early, and the time that they took."""
        for _ in range(20):
            began = clock()
            made = self.given(prompt, tokens, choices)
            end = clock()
            if sum(len(answer.tokens) for answer in made) > 0.9 * tokens * choices:
                return made, (end[0] - began[0], end[1] - began[1])
        raise SystemExit(f"No answer of {tokens} tokens in 20 requests.")

    def receipts(self, turns: int) -> dict[str, Any]:
        asked, counts = list[ModelRequest](), list[int]()

        def with_() -> None:
            made = self.answering.answer(asked[-1], self.key)
            counts.append(sum(len(answer.tokens) for answer in made))

        sides: Sides = {
            "with": with_,
            "without": lambda: counts.append(self.without(asked[-1])),
        }
        seen = in_turns(sides, turns, lambda: asked.append(self.request(50, 64, TOGETHER)))
        assert counts[::2] == counts[1::2], counts
        pairs = list(zip(seen["with"], seen["without"], strict=True))
        ratios = {
            key: statistics.median(a[i] / b[i] for a, b in pairs)
            for i, key in enumerate(("seconds", "cpu"))
        }
        return {"case": "receipts", "requests": TOGETHER, **medians(seen), "ratio": ratios}

    def checks(self, prompt: int, tokens: int, choices: int, turns: int) -> dict[str, Any]:
        self.given(prompt, tokens, choices)  # the program is compared, the passes are planned
        pairs = [self.whole(prompt, tokens, choices) for _ in range(turns)]
        answers = pairs[-1][0]

        def all_of(statement: Path | None) -> Callable[[], object]:
            def call() -> None:
                for answer in answers:
                    report = check(answer, self.model, statement=statement, threads=self.threads)
                    assert report.accepted

            return call

        sides = {"own statement": all_of(self.statement), "derived": all_of(None)}
        found = medians(in_turns(sides, turns))
        giving = {
            key: statistics.median(took[i] for _, took in pairs)
            for i, key in enumerate(("seconds", "cpu"))
        }
        return {
            "case": "check", "prompt": prompt, "tokens": tokens, "requests": choices,
            "giving": giving, **found,
            "ratio": {
                name: {key: side[key] / giving[key] for key in side} for name, side in found.items()
            },
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("statement", type=Path, help="with room for 50 and 200, 1,000 and 64")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write them to this file too")
    given = parser.parse_args()
    before = load()
    bench = Bench(given.model, given.statement, given.threads)
    rows = [
        bench.receipts(given.turns),
        bench.checks(50, 200, 1, given.turns),
        bench.checks(1000, 64, 1, given.turns),
        bench.checks(50, 64, TOGETHER, given.turns),
    ]
    found = {
        "format": 1,
        "bench": "receipts",
        "about": {"machine": machine() | {"threads": given.threads}, "turns": given.turns},
        "cases": rows,
        "load": [before, load()],
    }
    text = json.dumps(found, indent=1, allow_nan=False)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")
    print(text if given.json else "\n".join(json.dumps(row) for row in rows))


if __name__ == "__main__":
    main()
