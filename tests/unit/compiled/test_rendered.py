"""The text of the pointwise loops is what their forms say."""

from __future__ import annotations

import render_pointwise


def test_rendered_text_is_not_stale() -> None:
    assert render_pointwise.main(["--check"]) == 0
