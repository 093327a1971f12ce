"""How many tokens are proposed for each text of a pass, and which of them it computes.

Drafts take the rows that a pass has left over. So no request waits for another one's drafts, and a
full pass has none.
"""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from tallystick.errors import UsageError
from tallystick.generation.drafters import DraftAsked, Drafter
from tallystick.generation.sequences import Sequence

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
