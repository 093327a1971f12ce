"""What tests ask of every page: well-formed, self-contained, and the text a reader sees."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br"}
LOADING = {"script", "link", "img", "iframe", "object", "embed", "video", "audio", "base", "form"}
LOADING_ATTRIBUTES = {"src", "href", "srcset", "action", "data", "background", "style", "poster"}


class Page(HTMLParser):
    """Parses strictly: each element is closed in order, nothing loads, nothing is scripted."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.labels: list[str] = []
        self.words: list[str] = []
        self.style = ""
        self.feed(source)
        self.close()
        assert self.open == []
        assert source.startswith("<!DOCTYPE html>\n<html lang=")
        assert not re.search(r"url\(|@import|https?:", self.style)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in LOADING, tag
        self.seen.add(tag)
        for name, value in attrs:
            assert name not in LOADING_ATTRIBUTES and not name.startswith("on"), name
            assert value is not None
            if name == "aria-label":
                self.labels.append(value)
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raise AssertionError(f"<{tag}/> is no HTML element without an end")

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open)
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if "style" in self.open:
            self.style += data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        """Everything that is read, elements run together."""
        return "".join(self.words)
