"""Pages: who holds which piece of the memory for keys and values. It holds no numbers itself.

A page has room for the keys and values of `PLACES` places of a text, in every layer. Several
sequences may hold one page: where their texts begin with the same tokens, the page is computed
once. A full page is found by its *key*, a hash over its own tokens and all before them.
A page that nobody holds any more is kept as long as its memory is not needed.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

PLACES = 16


def pages_for(places: int) -> int:
    """The number of pages that a text with this many places takes."""
    return -(-places // PLACES)


def page_key(before: bytes, tokens: Sequence[int]) -> bytes:
    """The key of a full page with these tokens; `before` is that of the page before it, or of the
    first page the namespace of its request."""
    return hashlib.sha256(before + np.asarray(tokens, "<i8").tobytes()).digest()


class Pages:
    """`count` pages. Each is free, held by one or more sequences, or idle: full, with a key, and
    held by none.

    A page is *promised* where a sequence may still take it. The promised pages are never more than
    those that are free or idle, so a sequence that holds a promise never waits for another one.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count - 1, -1, -1))
        self._holders = [0] * count
        self._idle: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._by_key: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}
        self._promised = 0

    @property
    def held(self) -> int:
        """How many pages sequences hold."""
        return self.count - len(self._free) - len(self._idle)

    @property
    def unpromised(self) -> int:
        """How many pages may still be promised."""
        return len(self._free) + len(self._idle) - self._promised

    def __contains__(self, key: bytes) -> bool:
        return key in self._by_key

    def is_idle(self, key: bytes) -> bool:
        """True if the page with this key is held by none."""
        return self._by_key.get(key) in self._idle

    def promise(self, pages: int) -> None:
        """Promise this many of the pages that nobody has been promised yet."""
        assert 0 <= pages <= self.unpromised
        self._promised += pages

    def renounce(self, pages: int) -> None:
        """Give back this many promises."""
        assert 0 <= pages <= self._promised
        self._promised -= pages

    def take(self) -> int:
        """An empty page for a promise; its old content, if any, is forgotten."""
        self.renounce(1)
        if self._free:
            page = self._free.pop()
        else:
            page, _ = self._idle.popitem(last=False)
            del self._by_key[self._keys.pop(page)]
        self._holders[page] = 1
        return page

    def share(self, key: bytes) -> int:
        """The page with this key, which is there: one holder more."""
        page = self._by_key[key]
        self._idle.pop(page, None)
        self._holders[page] += 1
        return page

    def name(self, page: int, key: bytes) -> None:
        """Give a full page its key. Where another page has the key already, this one has none."""
        if key not in self._by_key:
            self._by_key[key] = page
            self._keys[page] = key

    def release(self, page: int) -> None:
        """One holder less."""
        self._holders[page] -= 1
        if self._holders[page]:
            return
        if page in self._keys:
            self._idle[page] = None
        else:
            self._free.append(page)
