"""Says whether the tree is ready to be released as a tag.

    python .ci/check_release.py v1.0.0 [--notes FILE]

Each file that states the version must state this one, every news fragment must be in the changelog,
and the repository's address must be set. --notes writes the changelog's section for the release.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def stated(text: str, key: str) -> str:
    """The first string that a TOML text gives `key`."""
    found = re.search(rf'^{key} = "([^"]*)"', text, re.MULTILINE)
    return found[1] if found else ""


def npm(version: str) -> str:
    """A version of Python as npm writes it: 1.0.0rc1 is 1.0.0-rc.1 there."""
    return re.sub(r"(a|b|rc)(\d+)$", r"-\1.\2", version)


def section(changelog: str, version: str) -> str:
    """The changelog's text about `version`; empty where it has none."""
    found = re.search(
        rf"^## {re.escape(version)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    return found[1].strip() if found else ""


def missing(root: Path, tag: str) -> list[str]:
    """What keeps the tree in `root` from being released as `tag`."""
    version = tag.removeprefix("v")
    project = (root / "pyproject.toml").read_text()
    benchmarks = (root / "benchmarks" / "pyproject.toml").read_text()
    judge = json.loads((root / "judge" / "package.json").read_text())["version"]
    wrong = []
    if not tag.startswith("v"):
        wrong.append(f"A tag of a release begins with v, and {tag} does not.")
    for name, said, wanted in (
        ("pyproject.toml", stated(project, "version"), version),
        ("benchmarks/pyproject.toml", stated(benchmarks, "version"), version),
        ("judge/package.json", judge, npm(version)),
    ):
        if said != wanted:
            wrong.append(f"{name} states version {said}, not {wanted}.")
    if f'"tallystick[train]=={version}"' not in benchmarks:
        wrong.append(f"benchmarks/pyproject.toml does not depend on version {version}.")
    if not stated(project, "repository"):
        wrong.append("pyproject.toml has no address: set `repository` in it.")
    heading = re.search(
        rf"^## {re.escape(version)}\b.*$", (root / "CHANGELOG.md").read_text(), re.M
    )
    if heading is None or "unreleased" in heading[0]:
        wrong.append(f"CHANGELOG.md has no section of a released {version}.")
    fragments = sorted(p.name for p in (root / "newsfragments").glob("*.*.md"))
    if fragments:
        wrong.append(f"Run towncrier build: news is waiting in {', '.join(fragments)}.")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tag")
    parser.add_argument("--notes", type=Path, help="write the changelog's section to this file")
    args = parser.parse_args()
    wrong = missing(ROOT, args.tag)
    if wrong:
        sys.exit("\n".join(wrong))
    if args.notes:
        text = section((ROOT / "CHANGELOG.md").read_text(), args.tag.removeprefix("v"))
        args.notes.write_text(text + "\n")


if __name__ == "__main__":
    main()
