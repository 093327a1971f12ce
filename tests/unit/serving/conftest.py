"""One small model with its statement, and one server of it, for every test here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from servers import Running


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("torch", "transformers", "tokenizers", "jinja2"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    from answer_models import save_model
    from answer_words import save_words

    from tallystick.answers.layout import Bucket
    from tallystick.api.statements import make_statement

    made = tmp_path_factory.mktemp("serving") / "tiny"
    made.mkdir()
    save_model("smollm", made)
    save_words(made)
    make_statement(made, None, [Bucket(24, 8), Bucket(64, 40)], "ordered/1", None, False, None)
    return made


@pytest.fixture(scope="session")
def served(model: Path) -> Iterator[Running]:
    """A server without keys."""
    from servers import running  # its module needs the packages of the extra

    with running(model) as found:
        yield found
    assert found.faults == []
