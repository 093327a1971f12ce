"""The entries of history.json: from the present results, and from those that git has kept."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tallystick.errors import UsageError
from tallystick_bench.history.kept import BENCHMARKS, Benchmark, Contents

HISTORY = "history.json"
_ABOUT = (
    "What benchmarks/history_page.py writes docs/HISTORY.md from. Figures are as in the raw "
    "results. `commit` is the one that the result was committed on top of."
)


@dataclass(frozen=True)
class Entry:
    """The figures of one benchmark at one time; `machine` and `load` as its result has them."""

    benchmark: str
    date: str
    commit: str
    machine: Mapping[str, Any]
    load: list[float]
    note: str
    figures: Mapping[str, float]


def read_entries(results: Path) -> list[Entry]:
    """The entries of `results`/history.json; none where there is no such file."""
    path = results / HISTORY
    if not path.exists():
        return []
    return [Entry(**entry) for entry in json.loads(path.read_text("utf-8"))["entries"]]


def write_entries(results: Path, entries: list[Entry]) -> None:
    """Write history.json, the benchmarks in their order and each by its dates."""
    order = [benchmark.name for benchmark in BENCHMARKS]
    rows = sorted(entries, key=lambda entry: order.index(entry.benchmark))
    content = {"about": _ABOUT, "entries": [asdict(entry) for entry in rows]}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    (results / HISTORY).write_text(text + "\n", "utf-8")


def present(results: Path, benchmark: Benchmark) -> Contents | None:
    """The benchmark's files as they lie in `results`; None where one is missing."""
    paths = [results / name for name in benchmark.files]
    if not all(path.is_file() for path in paths):
        return None
    found = (json.loads(path.read_text("utf-8")) for path in paths)
    return dict(zip(benchmark.files, found, strict=True))


def is_new(entries: list[Entry], benchmark: Benchmark, contents: Contents) -> bool:
    """Whether the figures are others than those of the benchmark's last entry."""
    own = [entry for entry in entries if entry.benchmark == benchmark.name]
    return not own or own[-1].figures != benchmark.find(contents)


def add_present(results: Path, entries: list[Entry], note: str) -> list[Entry]:
    """An entry for each benchmark whose present figures are new."""
    made = []
    for benchmark in BENCHMARKS:
        contents = present(results, benchmark)
        if contents is not None and is_new(entries, benchmark, contents):
            today = datetime.now(timezone.utc).date().isoformat()
            commit = _git(results, "rev-parse", "--short=8", "HEAD").strip()
            made.append(_entry(benchmark, contents, today, commit, note))
    return made


def from_git(results: Path, known: list[Entry]) -> list[Entry]:
    """An entry for each committed version whose figures differ from those of the one before.

    The notes of `known` entries stay. Raises UsageError in a shallow clone.
    """
    if _git(results, "rev-parse", "--is-shallow-repository").strip() == "true":
        raise UsageError("This clone has no history.", "Fetch it: `git fetch --unshallow`.")
    notes = {(entry.benchmark, entry.commit): entry.note for entry in known}
    made: list[Entry] = []
    for benchmark in BENCHMARKS:
        log = _git(
            results, "log", "--reverse", "--format=%H %as", "--", *benchmark.files
        )  # fmt: skip
        for line in log.splitlines():
            commit, date = line.split()
            contents = _committed(results, benchmark, commit)
            if contents is None or not is_new(made, benchmark, contents):
                continue
            base = _git(results, "rev-parse", "--short=8", f"{commit}^").strip()
            note = notes.get((benchmark.name, base), "")
            made.append(_entry(benchmark, contents, date, base, note))
    return made


def _entry(benchmark: Benchmark, contents: Contents, date: str, commit: str, note: str) -> Entry:
    first = next(iter(contents.values()))
    first = first if isinstance(first, dict) else {}
    about = first.get("about", {})
    machine = about.get("machine") or {
        name: first[name] for name in ("isa", "threads") if name in first
    }
    load = about.get("load") or first.get("load") or []
    return Entry(
        benchmark=benchmark.name,
        date=date,
        commit=commit,
        machine=machine,
        load=load,
        note=note,
        figures=benchmark.find(contents),
    )


def _committed(results: Path, benchmark: Benchmark, commit: str) -> Contents | None:
    """The benchmark's files at a commit; None where one was not there yet."""
    found = {}
    for name in benchmark.files:
        if not _git(results, "ls-tree", "--name-only", commit, name):
            return None
        found[name] = json.loads(_git(results, "show", f"{commit}:./{name}"))
    return found


def _git(directory: Path, *command: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(directory), *command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise UsageError(
            f"git says: {done.stderr.strip()}", "Run this in a clone, with git installed."
        )
    return done.stdout
