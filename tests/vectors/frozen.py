"""What the first release froze: the digest of every golden vector, of every schema of a claim, and
of every entry of the table of operators (docs/adr/0046-the-freeze.md).

    python tests/vectors/frozen.py           what differs from vectors/frozen.json
    python tests/vectors/frozen.py --add     add what is new to it; it refuses a change
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "vectors" / "frozen.json"
TABLE = ROOT / "vectors" / "operators.json"
# The table grows by whole entries, and its schema with it. Pages about formats may be corrected,
# and `lock` is an empty file of a run directory.
_GROWING = {RECORD, TABLE, TABLE.with_suffix(".schema.json")}


def digests() -> dict[str, dict[str, str]]:
    """SHA-256 of each frozen file, by its path from the root, and of each operator's entry in
    compact JSON with sorted keys, by its name."""
    paths = [*(ROOT / "vectors").rglob("*"), *(ROOT / "spec" / "claims").glob("*.json")]
    files = {path.relative_to(ROOT).as_posix(): path for path in paths if _is_frozen(path)}
    entries = json.loads(TABLE.read_text())["operators"]
    return {
        "files": {name: hashlib.sha256(files[name].read_bytes()).hexdigest() for name in files},
        "operators": {entry["name"]: _entry_digest(entry) for entry in entries},
    }


def _is_frozen(path: Path) -> bool:
    return path.is_file() and path not in _GROWING and path.suffix != ".md" and path.name != "lock"


def _entry_digest(entry: object) -> str:
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def changed(record: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> list[str]:
    """The names in `record` that are gone or have another digest in `now`."""
    return [
        f"{kind}: {name} " + ("is gone" if name not in now[kind] else "has changed")
        for kind, frozen in record.items()
        for name, digest in frozen.items()
        if now[kind].get(name) != digest
    ]


def added(record: dict[str, dict[str, str]], now: dict[str, dict[str, str]]) -> list[str]:
    """The names in `now` that `record` lacks."""
    return [f"{kind}: {name}" for kind in now for name in now[kind] if name not in record[kind]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--add", action="store_true", help="add what is new to the record")
    adds = parser.parse_args().add
    record: dict[str, dict[str, str]] = {"files": {}, "operators": {}}
    if RECORD.exists():
        record = json.loads(RECORD.read_text())
    now = digests()
    differences = changed(record, now)
    for line in [*differences, *(f"{name} is new" for name in added(record, now))]:
        print(line)
    if differences:
        print("A released vector never changes: write a new version beside it (ADR 0046).")
        return 1
    if adds:
        RECORD.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
