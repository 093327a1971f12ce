"""Prefill and decoding of a model's directory, beside transformers' `generate` on as many threads.

    python benchmarks/answers.py MODEL [--threads 2] [--turns 5] [--case NAME ...] [--alone]
                                       [--json] [--out FILE]
    python benchmarks/answers.py MODEL --speculation [--turns 3]    lookup beside none

The sides take their turns one after the other, and medians are compared. Each turn has prompts of
its own, so no page is shared. Seconds are those of the wall; `cpu` are the processor's, which other
work on the machine disturbs less. One pass of decoding is an answer without its first token, by its
passes; several requests together are measured from their prompts to the last token.

Beside the cases: the memory that texts take, in ascending order and in a process that has computed
nothing longer; a second request that shares 1,000 tokens with the first; tokens a second of 16
requests beside those of one, for answers of 16 and of 200 tokens; and the share of the memory's
speed that decoding reaches. That is the bytes of all weights over the time of a token, beside the
bytes that a copy reads and writes. With `--alone`, transformers is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.answers.layout import Settings
from tallystick.answers.model import Model, open_model
from tallystick.answers.special import TOKENIZER, special_tokens
from tallystick.answers.template import Template
from tallystick.data.sources.tokenizer import tokenizer_of
from tallystick.generation.drafters import PromptLookup
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import ModelNetwork
from tallystick_bench.machine import machine
from tallystick_bench.memory import peak_bytes
from tallystick_bench.step_time import load

Prompts = list[list[int]]
Clock = tuple[float, float]  # seconds of the wall, and of the processor
Times = tuple[Clock, Clock]  # when the first tokens are there, and at the end


@dataclass(frozen=True)
class Case:
    """So many requests at once, with prompts and answers of so many tokens."""

    name: str
    requests: int
    prompt: int
    answer: int


MEMORY = (100, 1000, 4000)  # tokens
SHARED = 1000  # tokens that a second request shares with the first
CASES = (
    Case("prefill of 64", 1, 64, 1),
    Case("prefill of 512", 1, 512, 1),
    Case("decoding", 1, 50, 24),
    Case("1 alone", 1, 50, 16),
    Case("4 together", 4, 50, 16),
    Case("16 together", 16, 50, 16),
    # A request of usual size, as ANSWERS is measured by elsewhere (receipts.py).
    Case("1 of 200", 1, 50, 200),
    Case("16 of 200", 16, 50, 200),
)
# Several requests beside one of the same size: tokens a second.
PAIRS = {"sixteen": ("1 alone", "16 together"), "sixteen_of_200": ("1 of 200", "16 of 200")}


def clock() -> Clock:
    return time.perf_counter(), time.process_time()


class Ours:
    """The engine."""

    def __init__(self, model: Model, contract: str, threads: int) -> None:
        network = ModelNetwork(model, contract)
        self._engine = AnswerEngine(network, threads=threads, memory=1 << 30)
        self.weights = sum(int(array.nbytes) for array in network.weights().values())

    def __call__(self, prompts: Prompts, answer: int) -> Times:
        heard = [_First() for _ in prompts]
        for prompt, listener in zip(prompts, heard, strict=True):
            self._engine.submit(prompt, Settings(max_tokens=answer), listener=listener)
        self._engine.run()
        return max(listener.at for listener in heard), clock()


class _First:
    """A listener that notes when its answer's first token is there."""

    at = (0.0, 0.0)

    def token(self, token: int, logprob: np.float32) -> None:
        if self.at == (0.0, 0.0):
            self.at = clock()


class Theirs:
    """transformers, float32, greedy, with its own cache and attention."""

    def __init__(self, directory: Path, threads: int) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        self._torch = torch
        opened: Any = AutoModelForCausalLM.from_pretrained
        self._module = opened(directory, dtype=torch.float32).eval()

    def __call__(self, prompts: Prompts, answer: int) -> Times:
        ids = self._torch.tensor(prompts)
        marks: list[Clock] = []

        def mark(_ids: Any, _scores: Any, **_: Any) -> Any:
            marks.append(clock())
            return _scores

        with self._torch.no_grad():
            self._module.generate(
                ids,
                attention_mask=self._torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=answer,
                max_new_tokens=answer,
                pad_token_id=0,
                logits_processor=[mark],
            )
        return marks[0], clock()


def prompts_of(random: np.random.Generator, case: Case, vocabulary: int) -> Prompts:
    found = random.integers(0, vocabulary, (case.requests, case.prompt))
    return [[int(t) for t in row] for row in found]


def spans(case: Case, began: Clock, times: Times) -> Clock:
    """What a case is about: a prompt, one pass of decoding, or several answers from prompt to
    end."""
    first, end = times
    since, parts = (first, case.answer - 1) if case.name == "decoding" else (began, 1)
    return (end[0] - since[0]) / parts, (end[1] - since[1]) / parts


def memory(ours: Ours, random: np.random.Generator, model: Model) -> list[dict[str, int]]:
    """The peak of the process after a prompt of so many tokens, less that after one of 16."""
    found = []
    for tokens in (16, *(tokens for tokens in MEMORY if tokens < model.longest)):
        ours(prompts_of(random, Case("", 1, tokens, 1), model.vocabulary), 1)
        found.append({"tokens": tokens, "bytes": peak_bytes()})
    return [row | {"bytes": row["bytes"] - found[0]["bytes"]} for row in found[1:]]


def shared_prefix(ours: Ours, random: np.random.Generator, model: Model, turns: int) -> Any:
    """Seconds to the first token of a request, and of a second one that shares its beginning."""
    seen: list[tuple[float, float]] = []
    for _ in range(turns):
        [prompt, end] = prompts_of(random, Case("", 2, SHARED + 16, 1), model.vocabulary)
        both = []
        for tokens in (prompt, prompt[:SHARED] + end[SHARED:]):
            began = time.perf_counter()
            both.append(ours([tokens], 1)[0][0] - began)
        seen.append((both[0], both[1]))
    first, second = (statistics.median(pair[i] for pair in seen) for i in range(2))
    ratio = statistics.median(pair[1] / pair[0] for pair in seen)
    return {"tokens": SHARED, "first": first, "second": second, "ratio": ratio}


def copy_speed(threads: int, turns: int) -> float:
    """Bytes a second that a copy of 256 MiB reads and writes, on so many threads: the median."""
    source = np.ones(1 << 26, np.float32)
    target = np.zeros_like(source)
    parts = list(zip(np.array_split(source, threads), np.array_split(target, threads), strict=True))
    seen = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(turns + 1):
            began = time.perf_counter()
            list(pool.map(lambda part: np.copyto(part[1], part[0]), parts))
            seen.append(2 * source.nbytes / (time.perf_counter() - began))
    return statistics.median(seen[1:])


def measure(
    directory: Path,
    contract: str,
    threads: int,
    turns: int,
    cases: Sequence[Case] = CASES,
    alone: bool = False,
) -> dict[str, Any]:
    """Each case, with both sides in turns, and what is measured of the engine alone."""
    model, before = open_model(directory), load()
    random = np.random.default_rng(0)
    ours = Ours(model, contract, threads)
    sides: dict[str, Callable[[Prompts, int], Times]] = {"tallystick": ours}
    texts, shared = memory(ours, random, model), None
    if model.longest >= SHARED + 17:
        shared = shared_prefix(ours, random, model, turns)
    if not alone:
        sides["transformers"] = Theirs(directory, threads)
    rows = list(_rows(cases, sides, random, model.vocabulary, turns))
    speed = copy_speed(threads, turns)
    seconds = {row["case"]: row["seconds"]["tallystick"] for row in rows}
    found: dict[str, Any] = {"memory": texts, "shared": shared, "copy": speed}
    if "decoding" in seconds:
        found["share"] = ours.weights / seconds["decoding"] / speed
    for name, (one, sixteen) in PAIRS.items():
        if {one, sixteen} <= seconds.keys():
            found[name] = 16 * seconds[one] / seconds[sixteen]
    return {
        "format": 2,
        "bench": "answers",
        "about": {
            "machine": machine() | {"threads": threads},
            "contract": contract,
            "turns": turns,
            "weights": ours.weights,
        },
        "cases": rows,
        **found,
        "load": [before, load()],
    }


def _rows(
    cases: Sequence[Case],
    sides: dict[str, Callable[[Prompts, int], Times]],
    random: np.random.Generator,
    vocabulary: int,
    turns: int,
) -> Iterator[dict[str, Any]]:
    for case in cases:
        seen: dict[str, list[Clock]] = {side: [] for side in sides}
        for turn in range(turns + 1):  # the first one warms up
            for side, call in sides.items():
                prompts = prompts_of(random, case, vocabulary)
                began = clock()
                took = spans(case, began, call(prompts, case.answer))
                if turn:
                    seen[side].append(took)
        wall, cpu = (
            {side: statistics.median(t[i] for t in took) for side, took in seen.items()}
            for i in range(2)
        )
        row = {
            "case": case.name,
            "requests": case.requests,
            "prompt": case.prompt,
            "seconds": wall,
            "cpu": cpu,
        }
        if "transformers" in sides:
            row["ratio"] = wall["tallystick"] / wall["transformers"]
            row["cpu_ratio"] = cpu["tallystick"] / cpu["transformers"]
        yield row


_PARAGRAPH = (
    "The lighthouse on the northern cape was built in 1874, after three ships had been lost on the "
    "reef in one winter. Its keepers lived there with their families until 1962, when the lamp was "
    "made automatic. Today the tower belongs to the village, and visitors may climb its 214 steps "
    "from May to October. From the gallery they see the islands, the old harbour and, on clear "
    "days, the mountains of the mainland forty miles away."
)
SPECULATED = {
    "repeat": f"Repeat this text word for word:\n\n{_PARAGRAPH}",
    "summarise": f"Summarise this text in three sentences:\n\n{_PARAGRAPH}",
    "write": "Write a short story about a dog who learns to swim.",
}


def measure_speculation(
    directory: Path, contract: str, threads: int, turns: int, cases: Sequence[str], answer: int = 96
) -> Iterator[dict[str, Any]]:
    """Tokens a second after an answer's first one, by lookup and without, in turns on one engine.
    Raises RuntimeError where a bit differs."""
    model = open_model(directory)
    assert model.chat_template is not None
    tokenizer = tokenizer_of(model.files[TOKENIZER], Path(TOKENIZER))
    template = Template(model.chat_template)
    special = {name: one.text for name, one in special_tokens(model.files, tokenizer).items()}
    engine = AnswerEngine(
        ModelNetwork(model, contract), threads=threads, drafter=PromptLookup(), memory=1 << 29
    )
    lookup = engine.speculation
    assert lookup is not None
    for name in cases:
        asked = SPECULATED[name]
        text = template.render([{"role": "user", "content": asked}], special, None)
        prompt = tokenizer.encode(text.encode(), "the prompt", False).tolist()
        settings = Settings(max_tokens=answer, stop=model.stop)
        seen: dict[str, list[Clock]] = {"lookup": [], "none": []}
        passes, answers = {}, set()
        for turn in range(turns + 1):  # the first one warms up, and computes the prompt's pages
            for side, took in seen.items():
                engine.speculation = lookup if side == "lookup" else None
                first = _First()
                handle = engine.submit(prompt, settings, listener=first)
                passes[side] = 1
                while engine.step():
                    passes[side] += 1
                end, begin = clock(), first.at
                assert handle.answer is not None
                given = handle.answer
                answers.add((given.tokens, given.logprobs.tobytes(), given.finish))
                if turn:
                    drawn = max(1, len(given.tokens) - 1)
                    took.append((drawn / (end[0] - begin[0]), drawn / (end[1] - begin[1])))
        if len(answers) != 1:
            raise RuntimeError(f"Speculation has changed a bit of the answer to {name!r}.")
        wall, cpu = (
            {side: statistics.median(t[i] for t in took) for side, took in seen.items()}
            for i in range(2)
        )
        yield {
            "case": name,
            "prompt": len(prompt),
            "answer": len(next(iter(answers))[0]),
            "passes": passes,
            "tokens_a_second": wall,
            "of_the_processor": cpu,
            "ratio": wall["lookup"] / wall["none"],
            "cpu_ratio": cpu["lookup"] / cpu["none"],
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", type=Path, help="a transformers directory")
    parser.add_argument("--contract", default="ordered/1")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument(
        "--case", action="append", choices=[*(case.name for case in CASES), *SPECULATED]
    )
    parser.add_argument("--alone", action="store_true", help="without transformers")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--out", type=Path, help="write them to this file too")
    parser.add_argument("--speculation", action="store_true", help="lookup beside none")
    given = parser.parse_args()
    if given.speculation:
        names = [name for name in SPECULATED if given.case is None or name in given.case]
        about = given.model, given.contract, given.threads, given.turns
        for row in measure_speculation(*about, names):
            print(json.dumps(row), flush=True)
        return
    cases = [case for case in CASES if given.case is None or case.name in given.case]
    found = measure(given.model, given.contract, given.threads, given.turns, cases, given.alone)
    text = json.dumps(found, indent=1, allow_nan=False)
    if given.out:
        given.out.write_text(text + "\n", encoding="utf-8")
    if given.json:
        print(text)
        return
    for row in found["cases"]:
        line = f"{row['case']:16} {row['seconds']['tallystick'] * 1e3:9.1f} ms"
        if "ratio" in row:
            line += f" {row['seconds']['transformers'] * 1e3:9.1f} ms {row['ratio']:6.2f}"
            line += f"   of the processor {row['cpu_ratio']:6.2f}"
        print(line)
    for text in found["memory"]:
        print(f"memory of {text['tokens']:6} tokens {text['bytes'] / 1e6:9.1f} MB")
    if found["shared"]:
        shared = found["shared"]
        print(f"{shared['tokens']} tokens shared: {shared['ratio']:.3f} of the first one's time")
    print(f"a copy reads and writes {found['copy'] / 1e9:.1f} GB/s")
    if "share" in found:
        print(
            f"decoding reads {found['share'] * found['copy'] / 1e9:.1f} GB/s: {found['share']:.2f}"
        )
    for name, (_, sixteen) in PAIRS.items():
        if name in found:
            print(f"{sixteen}: {found[name]:.2f} times the tokens a second of one")


if __name__ == "__main__":
    main()
