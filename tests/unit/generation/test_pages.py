"""Pages and the scheduler, against a memory that knows what each page should hold."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tallystick.answers.layout import Settings
from tallystick.generation.pages import PLACES, Pages, page_key, pages_for
from tallystick.generation.scheduler import Scheduler
from tallystick.generation.sequences import (
    GONE,
    GenerationRequest,
    Sequence,
    SubmittedRequest,
    longest,
)


def handle(prompt: list[int], most: int) -> SubmittedRequest:
    return SubmittedRequest(GenerationRequest(tuple(prompt), Settings(max_tokens=most)), None)


def test_an_idle_page_is_found_until_its_memory_is_needed() -> None:
    pages = Pages(2)
    pages.promise(2)
    first, second = pages.take(), pages.take()
    assert {first, second} == {0, 1} and pages.held == 2 and pages.unpromised == 0
    pages.name(first, b"first")
    pages.name(second, b"second")
    pages.release(first)
    pages.release(second)
    assert pages.is_idle(b"first") and pages.held == 0
    assert pages.share(b"first") == first and not pages.is_idle(b"first")
    pages.release(first)  # now the last one used
    pages.promise(1)
    assert pages.take() == second
    assert b"first" in pages and b"second" not in pages


def test_a_page_has_several_holders_and_one_key() -> None:
    pages = Pages(2)
    pages.promise(2)
    one, other = pages.take(), pages.take()
    pages.name(one, b"same")
    pages.name(other, b"same")
    assert pages.share(b"same") == one
    pages.release(one)
    assert pages.held == 2
    pages.release(one)
    pages.release(other)
    assert pages.held == 0 and pages.share(b"same") == one


def test_a_key_is_one_of_all_tokens_before() -> None:
    tokens = list(range(PLACES))
    assert page_key(b"", tokens) == page_key(b"", tokens)
    assert len({page_key(b"", tokens), page_key(page_key(b"", tokens), tokens),
                page_key(b"", tokens[::-1])}) == 3  # fmt: skip
    assert [pages_for(n) for n in (0, 1, 16, 17)] == [0, 1, 1, 2]


class Machine:
    """The scheduler with passes that write tokens in the place of keys and values.

    It checks that a row finds the tokens of its own text in the pages, that each page of a shared
    prefix is written once while it lives, and that promises hold.
    """

    def __init__(self, pages: int, rows: int, chunk: int, window: int = 0) -> None:
        self.pages = Pages(pages)
        self.scheduler = Scheduler(self.pages, rows, chunk)
        self.rows, self.window = rows, window
        self.memory = np.full((pages, PLACES), -1)
        self.written = 0
        self.done: list[SubmittedRequest] = []

    def step(self) -> bool:
        scheduler = self.scheduler
        scheduler.enter()
        work = scheduler.plan()
        assert sum(count for _, count in work) <= self.rows
        assert bool(work) == bool(scheduler.running)
        decoding = [s for s in scheduler.running if s.decodes]
        assert all((s, 1) in work for s in decoding)
        for sequence, count in work:
            for place in range(sequence.computed, sequence.computed + count):
                page = sequence.table[place // PLACES]
                assert page != GONE
                self.memory[page, place % PLACES] = sequence.text[place]
                self.written += 1
                self.check(sequence, place)
        for sequence, count in work:
            scheduler.computed(sequence, count)
            if sequence.computed == len(sequence.text):
                sequence.text.append(len(sequence.text) % 3)
                sequence.logprobs.append(np.float32(0))
                if len(sequence.logprobs) == sequence.handle.request.settings.max_tokens:
                    scheduler.leave(sequence)
                    sequence.end("length")
                    self.done.append(sequence.handle)
        if self.window:
            for sequence in scheduler.running:
                sequence.pass_by(self.window)
        assert self.pages.held <= self.pages.count and self.pages.unpromised >= 0
        return bool(scheduler.running or scheduler.queue)

    def check(self, sequence: Sequence, place: int) -> None:
        low = max(0, place - self.window + 1) if self.window else 0
        for at in range(low, place + 1):
            page = sequence.table[at // PLACES]
            assert page != GONE
            assert self.memory[page, at % PLACES] == sequence.text[at]


@pytest.mark.parametrize("chunk", [1, 7, 64])
@pytest.mark.parametrize("window", [0, 5, 20])
def test_every_row_reads_its_own_text(chunk: int, window: int) -> None:
    """Whatever shares, joins, ends early or waits for memory, and all are answered."""
    texts = [(np.arange(70) * 7 % 11).tolist(), (np.arange(70) * 5 % 11).tolist()]
    for seed in range(40):
        random = Random(seed)
        late = [
            handle([*texts[random.randrange(2)][: random.randint(1, 70)], *[12] * (i % 2)],
                   random.randint(1, 40))
            for i in range(random.randint(1, 12))
        ]  # fmt: skip
        handles = [*late]
        pages = max(map(longest, handles)) + random.randint(0, 12)
        machine = Machine(pages, random.randint(1, 9), chunk, window)
        while machine.step() or late:
            while late and random.random() < 0.3:
                machine.scheduler.queue.append(late.pop())
            running = machine.scheduler.running
            if running and random.random() < 0.05:
                gone = random.choice(running)
                machine.scheduler.leave(gone)
                gone.end("cancelled")
        assert all(h.answer is not None for h in handles)
        assert machine.pages.held == 0 and machine.pages.unpromised == pages


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_a_shared_prefix_is_computed_once(chunk: int) -> None:
    prefix = list(range(40))
    machine = Machine(pages=60, rows=64, chunk=chunk)
    machine.scheduler.queue.extend(handle([*prefix, 50 + i], 1) for i in range(8))
    while machine.step():
        pass
    assert len(machine.done) == 8
    # Two full pages once; of the third page each has its own.
    assert machine.written == 32 + 8 * 9


def test_a_prefix_whose_maker_is_cancelled_is_computed_by_another() -> None:
    machine = Machine(pages=20, rows=8, chunk=4)
    machine.scheduler.queue.extend(handle([*range(20), 50 + i], 3) for i in range(3))
    machine.step()
    assert [s.computed for s in machine.scheduler.running] == [4, 0, 0]
    machine.scheduler.leave(machine.scheduler.running[0])
    while machine.step():
        pass
    assert len(machine.done) == 2


def test_requests_never_overtake_one_another() -> None:
    machine = Machine(pages=4, rows=8, chunk=8)
    long, short = handle([1] * 30, 30), handle([2] * 3, 3)
    machine.scheduler.queue.extend([handle([3] * 10, 10), long, short])
    machine.step()
    assert len(machine.scheduler.running) == 1  # the long one waits, and the short one behind it
    while machine.step():
        pass
    assert [h.request.prompt[0] for h in machine.done] == [3, 1, 2]


def test_a_window_frees_pages_and_renumbers_none() -> None:
    machine = Machine(pages=10, rows=8, chunk=8, window=20)
    machine.scheduler.queue.append(handle([1] * 30, 100))
    most = 0
    while machine.step():
        (sequence,) = machine.scheduler.running
        most = max(most, machine.pages.held)
        assert len(sequence.table) == pages_for(sequence.computed)
        passed = [page == GONE for page in sequence.table]
        assert passed == sorted(passed, reverse=True)
    assert most == 3  # of 9 that the text has
