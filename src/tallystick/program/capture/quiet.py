"""Runs of the step that nobody is told of: the first trace has printed and logged it once."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

from tallystick.program.capture.replaced import replacing


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What the step prints and logs inside of the block is dropped."""
    with (
        replacing("logging:StreamHandler", "emit", lambda handler, record: None),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        yield
