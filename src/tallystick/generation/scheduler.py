"""Which rows the next pass computes, and how many proposed tokens are among them.

Requests enter in the order of their submission, and never overtake one another. At most as many are
computed together as a pass has rows, and never more than MOST_TEXTS. So each that decodes has a row
in every pass, and at least one row is left where one of them has not computed its prompt yet: no
request waits for ever.

Drafts take the rows that a pass has left over. So no request waits for another one's drafts, and a
full pass has none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from tallystick.errors import UsageError
from tallystick.generation.drafters import DraftAsked, Drafter
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


_FIRST = 3
_LONGEST_PAUSE = 15


class Pace:
    """How many drafts a text gets, by the share of its last ones that was right.

    The next pass gets one more than twice those that were right in the last one, so from 1 to 3, 7
    and on to the drafter's own limit. After the nth pass in a row with none right, 2ⁿ − 1 passes go
    without, at most 15.
    """

    def __init__(self) -> None:
        self.most = _FIRST
        self._misses = self._pause = 0

    def next(self) -> int:
        """How many drafts the next pass gets at most."""
        if self._pause:
            self._pause -= 1
            return 0
        return self.most

    def learn(self, right: int) -> None:
        """Note how many drafts of a pass were right; the pass had some."""
        self.most = 2 * right + 1
        self._misses = 0 if right else self._misses + 1
        if self._misses:
            self._pause = min((1 << self._misses) - 1, _LONGEST_PAUSE)


class Speculation:
    """Gives texts their drafts. `proposed` and `right` count them. Raises UsageError for a drafter
    with another vocabulary."""

    def __init__(self, drafter: Drafter, vocabulary: int) -> None:
        if drafter.vocabulary not in (None, vocabulary):
            raise UsageError(
                f"The drafter's vocabulary counts {drafter.vocabulary} tokens, the model's "
                f"{vocabulary}.",
                "Use a smaller model of the same family, with the same tokenizer.",
            )
        self.proposed = self.right = 0
        self._drafter, self._vocabulary = drafter, vocabulary
        self._paces: WeakKeyDictionary[Sequence, Pace] = WeakKeyDictionary()

    def draft(self, work: Iterable[tuple[Sequence, int]], left: int) -> None:
        """Give drafts to those texts of a pass that draw, with the pages for them: together at most
        `left`, and each an equal share."""
        texts = [sequence for sequence, _ in work if sequence.decodes]
        asked = []
        for text in texts:
            text.drafts = []  # of a pass that failed
        for number, text in enumerate(texts):
            most = min(self._wanted(text), left // (len(texts) - number))
            left -= most
            if most:
                asked.append((text, DraftAsked(text.text, text.handle.request, most)))
        if not asked:
            return
        proposals = self._drafter.propose([one for _, one in asked])
        for (text, one), proposal in zip(asked, proposals, strict=True):
            text.drafts = self._useful(one, proposal)
            text.extend(text.computed + text.drawn_rows)
            self.proposed += len(text.drafts)

    def _wanted(self, text: Sequence) -> int:
        # The pass draws one token beside them, and the answer has an end.
        room = text.handle.request.settings.max_tokens - len(text.logprobs) - 1
        if room < 1:
            return 0
        return min(self._paces.setdefault(text, Pace()).next(), self._drafter.most, room)

    def _useful(self, one: DraftAsked, proposal: Iterable[int]) -> list[int]:
        """The proposed tokens up to the first that is none of the vocabulary, or that ends the
        answer: nothing is drawn after it."""
        found: list[int] = []
        for token in proposal:
            if len(found) == one.most or not 0 <= token < self._vocabulary:
                break
            if token in one.request.settings.stop:
                break
            found.append(int(token))
        return found

    def learn(self, text: Sequence, right: int) -> None:
        """Note how many of the drafts of `text` are what was drawn."""
        if text.drafts:
            self.right += right
            self._paces[text].learn(right)
            text.drafts = []
