"""vectors/bounds/evidence.json against the package."""

from __future__ import annotations

import make_bound_vectors


def test_the_file_is_what_the_package_makes() -> None:
    assert make_bound_vectors.text() == make_bound_vectors.FILE.read_text(encoding="ascii")
