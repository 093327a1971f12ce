"""Which rows the next pass computes.

Requests enter in the order of their submission, and never overtake one another. At most as many are
computed together as a pass has rows, and never more than MOST_TEXTS. So each that decodes has a row
in every pass, and at least one row is left where one of them has not computed its prompt yet: no
request waits for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from tallystick.generation.pages import PLACES, Pages
from tallystick.generation.sequences import Sequence, SubmittedRequest

# Texts that are computed together. Each takes a row of logits, which has the size of a vocabulary.
MOST_TEXTS = 64
# Rows of a pass that gives texts their next tokens, while prompts are computed beside them: they
# wait for all of it.
ROWS_BESIDE = 128


class Scheduler:
    """The queue, and the sequences that are computed, in the order in which they entered.

    `rows` is the most rows of a pass, `chunk` the most rows of one prompt in it.
    """

    def __init__(self, pages: Pages, rows: int, chunk: int) -> None:
        self.queue: deque[SubmittedRequest] = deque()
        self.running: list[Sequence] = []
        self._pages, self._rows, self._chunk = pages, rows, chunk
        # Who computes the page with this key: others with the same prefix wait for it.
        self._computing: dict[bytes, Sequence] = {}

    def enter(self) -> None:
        """Let requests of the queue enter, as long as there are rows and pages for them."""
        while self.queue and len(self.running) < min(self._rows, MOST_TEXTS):
            sequence = Sequence(self.queue[0], self._pages)
            if not sequence.enter():
                return
            self.queue.popleft()
            self.running.append(sequence)

    def plan(self) -> list[tuple[Sequence, int]]:
        """Sequences, and how many of its next places the pass computes of each. They have the pages
        for it."""
        found = [(sequence, 1) for sequence in self.running if sequence.decodes]
        for sequence, _ in found:
            sequence.extend(sequence.computed + 1)
        left = (min(self._rows, ROWS_BESIDE) if found else self._rows) - len(found)
        for sequence in [s for s in self.running if not s.decodes]:
            count = self._stretch(sequence, min(self._chunk, left))
            if count:
                found.append((sequence, count))
                left -= count
        return found

    def left(self, work: Iterable[tuple[Sequence, int]]) -> int:
        """How many rows this plan leaves, for drafts: they never take another's row. Texts wait for
        all rows of their pass."""
        return max(0, min(self._rows, ROWS_BESIDE) - sum(count for _, count in work))

    def _stretch(self, sequence: Sequence, most: int) -> int:
        """How many places of a prompt the pass computes, at most `most`: none that another sequence
        has computed or is computing."""
        at, end = sequence.computed, min(sequence.computed + most, sequence.prompt)
        while at < end:
            number, offset = divmod(at, PLACES)
            if offset == 0 and number < sequence.shareable:
                key = sequence.key(number)
                if key in self._pages:
                    if at > sequence.computed:
                        break
                    sequence.join()
                    at, end = sequence.computed, min(sequence.computed + most, sequence.prompt)
                    continue
                if self._computing.setdefault(key, sequence) is not sequence:
                    break
            at = min(end, (number + 1) * PLACES)
        sequence.extend(at)
        return at - sequence.computed

    def computed(self, sequence: Sequence, count: int) -> None:
        """The pass has computed these places."""
        first = sequence.computed // PLACES
        sequence.advance(count)
        for number in range(first, min(sequence.computed // PLACES, sequence.shareable)):
            self._computing.pop(sequence.key(number), None)

    def leave(self, sequence: Sequence) -> None:
        """The sequence ends, and what it was about to compute is another's task."""
        sequence.leave()
        self.running.remove(sequence)
        self._computing = {k: s for k, s in self._computing.items() if s is not sequence}
