"""What a server has done, as Prometheus reads it. No label has a text of a client's."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping

_COUNTERS: Mapping[str, str] = {
    "requests": "Requests, by route and status.",
    "answers": "Answers, by model and finish.",
    "prompt_tokens": "Tokens of prompts that were answered.",
    "answer_tokens": "Tokens of answers.",
    "refused_answers": "Answers that were asked for and not given, by why.",
    "first_token_seconds": "Seconds from a request to the first token of its answers.",
    "first_tokens": "Requests whose first token came.",
    "request_seconds": "Seconds of requests for answers.",
}
Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counts for each key. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str, Labels], float] = defaultdict(float)

    def add(self, name: str, owner: str, amount: float = 1, **labels: str) -> None:
        assert name in _COUNTERS, name
        with self._lock:
            self._counts[name, owner, tuple(sorted(labels.items()))] += amount

    def text(
        self, owner: str | None, gauges: Iterable[tuple[str, str, Mapping[str, str], float]] = ()
    ) -> str:
        """The counts of one key, or of all, each by its own name, where `owner` is None. `gauges`
        have a name, a line about it, labels and a value."""
        with self._lock:
            found = sorted(self._counts.items())
        lines: list[str] = []
        for name, about in _COUNTERS.items():
            rows = [
                _row(f"{name}_total", {**dict(labels), "key": whose}, value)
                for (which, whose, labels), value in found
                if which == name and owner in (None, whose)
            ]
            lines += _family(f"{name}_total", about, "counter", rows)
        by_name: dict[str, tuple[str, list[str]]] = {}
        for name, about, given, value in gauges:
            by_name.setdefault(name, (about, []))[1].append(_row(name, given, value))
        for name, (about, rows) in by_name.items():
            lines += _family(name, about, "gauge", rows)
        return "".join(f"{line}\n" for line in lines)


def _family(name: str, about: str, kind: str, rows: list[str]) -> list[str]:
    full = f"tallystick_{name}"
    return [f"# HELP {full} {about}", f"# TYPE {full} {kind}", *rows] if rows else []


def _row(name: str, labels: Mapping[str, str], value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels.items()))
    return f"tallystick_{name}{{{inside}}} {value:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
