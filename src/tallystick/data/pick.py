"""Which source an object or a path is."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick.data.sources.arrow import (
    HuggingFaceSource,
    ParquetSource,
    has_plain_columns,
    is_hugging_face,
)
from tallystick.data.sources.base import DataSource
from tallystick.data.sources.images import ImageFolderSource
from tallystick.data.sources.items import (
    ColumnsSource,
    ItemsSource,
    IterableSource,
    from_loader,
    is_loader,
)
from tallystick.data.sources.shards import ColumnFilesSource, TarSource
from tallystick.data.sources.text import TextSource, refuse_json
from tallystick.disk.regular import entries, is_directory
from tallystick.errors import UsageError

_SUFFIXES = {
    "parquet": (".parquet",),
    "columns": (".safetensors", ".npz"),
    "tar": (".tar", ".tar.gz", ".tgz"),
    "text": (".txt", ".text", ".md", ".jsonl"),
}
KINDS = (*_SUFFIXES, "images")


@dataclass(frozen=True)
class PickOptions:
    """What `freeze` is told about its source."""

    fields: tuple[str, ...] | None = None
    kind: str | None = None
    tokenizer: Path | None = None
    block: int | None = None
    end_token: str | None = None
    size: int | tuple[int, int] | None = None
    collate: str | None = None
    allow_random: bool = False


def pick(source: Any, options: PickOptions) -> tuple[DataSource, dict[str, str]]:
    """The source, and notes about what of it is not used. Raises UsageError, StorageError."""
    files = [source] if isinstance(source, (str, Path)) else source
    if isinstance(files, (list, tuple)) and files and all(isinstance(f, Path) for f in files):
        return _of_files([Path(f) for f in files], options), {}
    if isinstance(source, str):
        return _of_files([Path(source)], options), {}
    made, notes = _of_object(source, options)
    given = {
        "tokenizer": options.tokenizer,
        "block": options.block,
        "end_token": options.end_token,
        "size": options.size,
        "kind": options.kind,
    }
    _refuse_unused(given, "a source in memory")
    if options.collate is not None and not is_loader(source):
        raise UsageError("collate= is for a DataLoader.", "Leave it out.")
    return made, notes


def _of_object(source: Any, options: PickOptions) -> tuple[DataSource, dict[str, str]]:
    fields = options.fields
    if is_loader(source):
        return from_loader(source, fields, options.collate, options.allow_random)
    if is_hugging_face(source) and has_plain_columns(source, fields):
        return HuggingFaceSource(source, fields), {}
    if isinstance(source, Mapping):
        return ColumnsSource(source, fields), {}
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        if not len(source):
            raise UsageError("The source has no records.", "Give at least one.")
        return ItemsSource(source, fields, options.allow_random), {}
    if isinstance(source, Iterable):
        return IterableSource(source, fields), {}
    raise UsageError(
        f"{type(source).__name__} is not a source of records.",
        "Give a mapping of columns, a data set with a length, an iterable, or a path.",
    )


def _of_files(paths: Sequence[Path], options: PickOptions) -> DataSource:
    kind = options.kind
    if kind is not None and kind not in KINDS:
        raise UsageError(f"There is no kind {kind!r}.", f"The kinds are {', '.join(KINDS)}.")
    if len(paths) == 1 and is_directory(paths[0]):
        listed = entries(paths[0])
        files = sorted(e.name for e in listed if stat.S_ISREG(e.mode))
        _refuse_json(files, kind)
        kinds = {kind} if kind else {k for k in map(_kind_of, files) if k}
        if not kinds and any(stat.S_ISDIR(e.mode) for e in listed):
            kinds = {"images"}
        if len(kinds) != 1:
            found = " and ".join(sorted(kinds)) or "no file of a known kind"
            raise UsageError(f"{paths[0]} holds {found}.", f"Name one: {', '.join(KINDS)}.")
        kind = kinds.pop()
        if kind == "images":
            _only(options, "size", kind)
            _refuse_unused({"fields": options.fields}, kind)
            return ImageFolderSource(paths[0], options.size)
        paths = [paths[0] / name for name in files if _kind_of(name) == kind]
    _refuse_json([path.name for path in paths], kind)
    if kind is None:
        known = [_kind_of(path.name) for path in paths]
        kinds = {k for k in known if k}
        if len(kinds) != 1 or None in known:
            raise UsageError(
                f"The kind of {paths[0].name} is not known by its name.",
                f"Name it: {', '.join(KINDS)}.",
            )
        kind = kinds.pop()
    if kind == "images" or not paths:
        raise UsageError(f"There are no {kind} files there.", "Check the path.")
    if kind == "text":
        _only(options, "tokenizer block end_token", kind)
        if options.block is None:
            raise UsageError("Text needs the tokens of a record.", "Pass block=N (--block N).")
        if options.fields is not None and len(options.fields) != 1:
            raise UsageError("A text has one field of tokens.", "Name one: fields=['tokens'].")
        field = options.fields[0] if options.fields else "tokens"
        return TextSource(paths, options.tokenizer, options.block, field, options.end_token)
    _only(options, "", kind)
    if kind == "parquet":
        return ParquetSource(paths, options.fields)
    if kind == "tar":
        return TarSource(paths, options.fields)
    return ColumnFilesSource(paths, options.fields)


def _refuse_json(names: Sequence[str], kind: str | None) -> None:
    """Raise UsageError for JSON that nobody has called text; another kind may have some beside."""
    for name in names if kind is None else ():
        if _kind_of(name) == "text":
            refuse_json(Path(name), "pass kind='text' (--kind text)")


def _kind_of(name: str) -> str | None:
    return next((k for k, ends in _SUFFIXES.items() if name.lower().endswith(ends)), None)


def _only(options: PickOptions, names: str, kind: str) -> None:
    """Refuse what a source of `kind` takes no notice of."""
    every = ("tokenizer", "block", "end_token", "size", "collate")
    _refuse_unused({n: getattr(options, n) for n in every if n not in names.split()}, kind)


def _refuse_unused(given: Mapping[str, object], what: str) -> None:
    for name, value in given.items():
        if value is not None:
            raise UsageError(f"{name}= says nothing about {what}.", "Leave it out.")
