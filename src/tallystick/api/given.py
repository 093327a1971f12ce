"""What callers of the Python interface give: objects, or paths of them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.disk.keys import load_private_key, load_public_key
from tallystick.disk.objects.address import is_url, refuse_flat
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.job import Job
from tallystick.job.job_file import load_job, load_terms
from tallystick.program.terms import Terms

PathLike = str | Path


def path(name: PathLike) -> Path:
    """A path of this machine. Raises UsageError for a URL."""
    if is_url(str(name)):
        raise UsageError(
            f"{name} is a URL, but this function needs a local path.",
            "Open it with `with tallystick.opened(URL) as directory`.",
        )
    refuse_flat(str(name))
    return Path(name)


def job(job: Job | PathLike) -> Job:
    return job if isinstance(job, Job) else load_job(path(job))


def terms(job: Job | Terms | PathLike) -> Terms:
    if isinstance(job, Terms):
        return job
    return job.terms if isinstance(job, Job) else load_terms(path(job))


def private(key: PrivateKey | PathLike | None) -> PrivateKey | None:
    return key if key is None or isinstance(key, PrivateKey) else load_private_key(path(key))


def publics(keys: Sequence[PublicKey | PathLike] | None) -> list[PublicKey] | None:
    if keys is None:
        return None
    return [k if isinstance(k, PublicKey) else load_public_key(path(k)) for k in keys]


def with_torch(module: str, name: str) -> Any:
    """A module that needs PyTorch, for the verb `name`. Raises CannotCheckError without it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "torch":
            raise
        raise CannotCheckError(
            f"tallystick.{name} needs PyTorch.", "Run pip install 'tallystick[train]'."
        ) from None
