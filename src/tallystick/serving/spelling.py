"""The text of an answer while it grows, as OpenAI's clients get it.

It ends before a stop string, as the interface says; the receipt's text has it (ANSWERS 5.7). What
may still change is not said yet: half a character, and what may become a stop string.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_HALF = "\ufffd"
Decode = Callable[[Sequence[int]], str]


def shown(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop string."""
    found = [at for stop in stops if (at := text.find(stop)) >= 0]
    return text[: min(found)] if found else text


class Spelling:
    """The text of one answer. `decode` makes text of tokens, `ends` end it and have no text."""

    def __init__(self, decode: Decode, stops: Sequence[str], ends: Sequence[int]) -> None:
        self._decode, self._stops, self._ends = decode, stops, frozenset(ends)
        self._tokens: list[int] = []
        self.said = ""
        self.heard = 0  # tokens

    def more(self, tokens: Sequence[int]) -> str:
        """What can be said after these tokens beyond what has been."""
        self.heard += len(tokens)
        self._tokens += [token for token in tokens if token not in self._ends]
        text = self._decode(self._tokens) if self._tokens else ""
        return self._say(self._settled(text))

    def rest(self, whole: str) -> str:
        """What is left to say where `whole` is the answer's text. Raises ValueError where what has
        been said is not its beginning."""
        text = shown(whole, self._stops)
        if not text.startswith(self.said):
            raise ValueError("the text that was sent is not the beginning of the answer's")
        return self._say(text)

    def _settled(self, text: str) -> str:
        text = shown(text, self._stops).rstrip(_HALF)
        for length in range(max(map(len, self._stops), default=0), 0, -1):
            if any(len(s) > length and text.endswith(s[:length]) for s in self._stops):
                return text[:-length]
        return text

    def _say(self, text: str) -> str:
        if not text.startswith(self.said):
            return ""
        new = text[len(self.said) :]
        self.said = text
        return new
