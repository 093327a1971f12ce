"""Whether a model's directory still has the weights of kept answers.

Weights are compared by their digests, all of them, once. After that their files count as the same
while names, sizes and times of change are the same: to start a server again does not mean to hash
every model that it has ever had. A dispute hashes what it executes with all the same.
"""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tallystick.answers.derive import stated_model
from tallystick.answers.job import check_weights
from tallystick.answers.model import weights
from tallystick.answers.statement import ModelStatement
from tallystick.disk.regular import is_directory, look, names, present
from tallystick.errors import DigestMismatchError, TallystickError
from tallystick.serving.kept.reader import KeptModel


def fingerprint(place: Path, adapter: Path | None = None) -> str:
    """Names, sizes and times of change of a model's files, and of its adapter's."""
    beside = "" if adapter is None else fingerprint(adapter)
    paths = [place / name for name in sorted(names(place))] if is_directory(place) else [place]
    looked = [(path.name, look(path, None)) for path in paths]  # links are followed
    found = [(name, s) for name, s in looked if s is not None and stat.S_ISREG(s.st_mode)]
    return json.dumps([[name, s.st_size, s.st_mtime_ns, s.st_ino] for name, s in found]) + beside


def require_models(
    models: Sequence[KeptModel],
    statement_of: Callable[[bytes], ModelStatement],
    now: int | None = None,
) -> list[KeptModel]:
    """Raise DigestMismatchError unless every model that is still needed is where it was, with the
    weights that it had (ANSWERS 7.7.2). The models that were compared anew: `uses` names each."""
    now = int(time.time() * 1000) if now is None else now
    compared = []
    for model in models:
        if not model.answers or model.until < now:
            continue
        if not present(model.directory):
            _gone(model, "is not there")
        if model.adapter is not None and not present(model.adapter):
            _gone(model, f"has no adapter in {model.adapter} any more")
        try:
            if fingerprint(model.directory, model.adapter) == model.seen:
                continue
            statement = statement_of(model.digest)
            opened = stated_model(model.directory, model.adapter, statement)
            check_weights(statement, weights(opened))
        except (TallystickError, OSError) as error:
            why = error.message if isinstance(error, TallystickError) else str(error)
            _gone(model, f"is not what it was ({why.rstrip('.')})")
        compared.append(model)
    return compared


def until_words(moment: int) -> str:
    """A moment in milliseconds since 1970 as a date and time, UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment / 1000))


def _gone(model: KeptModel, why: str) -> None:
    beside = "" if model.adapter is None else " --adapter ADAPTER"
    raise DigestMismatchError(
        f"The model {model.digest.hex()[:16]}… in {model.directory} {why}, and {model.answers} "
        f"receipts promise to answer disputes about it until {until_words(model.until)}.",
        f"Put it back, or name its new place: `tallystick kept DIR --model DIRECTORY{beside}`.",
    )
