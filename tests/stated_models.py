"""Small models with words and a statement, as a server or `generate` opens them."""

from __future__ import annotations

from pathlib import Path

from answer_models import save_model
from answer_words import save_words


def save_stated(directory: Path, *buckets: str, **changes: object) -> Path:
    """Make `directory`, a small model in it, and its statement with these `buckets` beside it."""
    from tallystick.cli.main import run

    directory.mkdir()
    save_model("smollm", directory, **changes)
    save_words(directory)
    wanted = [word for bucket in buckets for word in ("--bucket", bucket)]
    assert run(["model", "statement", str(directory), *wanted]) == 0
    return directory
