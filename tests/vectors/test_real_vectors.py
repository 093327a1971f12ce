"""The real numbers of published elements are those that were frozen (NUMERICS 14.11)."""

from __future__ import annotations

import json

import make_real_vectors as maker


def test_real_vectors() -> None:
    stored = json.loads(maker.PATH.read_text())
    assert stored["format"] == maker.FORMAT
    found = dict(maker.cases())
    differing = [name for name, digest in stored["calls"].items() if found.get(name) != digest]
    assert not differing, differing[:20]
