"""Pages that carry their evidence, changed by single bytes and opened in Chromium, without a
network.

    PYTHONPATH=tests:tests/vectors python tests/adversary/pages_in_browser.py \
        [--pages N] [--seed S] [--built DIRECTORY] [--tags]

`tallystick report EVIDENCE --job JOB --with-judge` writes a page for each ending of a game: data
or a number that convicts, silence, no decision, agreement. One byte of a page is changed: a half
of the changes in the carried element and in the judge's script, a half in all the rest. A headless
Chromium opens it by file:// where there is no network (`unshare --net`). The page must show no
verdict, an error, or exactly what `tallystick.judge_page` finds in the same bytes.

`--tags` tries instead each other letter case and each other space in the tags of the carried
element. HTML takes them for the same tags, PROTOCOL 8.6.1 does not: there a page may show the
verdict over its evidence, which is unchanged, while a reader of bytes refuses the page.

`--built` names the result of `node build.js DIRECTORY` in judge/, to be taken in the place of the
page that the package has. Needs Node 20, `npm install` in judge/, and Chromium; no other library.
Counts go to docs/proofs/judge.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adversary.three_judges import JUDGE, plain
from evidence_format import Case, load
from unit.report.carried_pages import find, lay_out

from tallystick import judge_page
from tallystick.cli.main import run
from tallystick.cli.verdicts import verdict_json
from tallystick.errors import TallystickError
from tallystick.installed import tallystick_version
from tallystick.job.carried import CLOSING, OPENING
from tallystick.report import built_judge
from tallystick.report.with_judge import SCRIPT_TAG


def _convicts(clause: str) -> Callable[[Case], bool]:
    return lambda case: bool(case.found.get("clause") == clause)


# Ending: the bundle of vectors/protocol, and which of its cases.
ENDINGS: dict[str, tuple[str, Callable[[Case], bool]]] = {
    "data": ("attacks", _convicts("5.6.3")),
    "number": ("attacks", _convicts("6.5")),
    "silence": ("attacks", _convicts("2.10")),
    "undecided": ("logs", lambda case: bool(case.found.get("undecided"))),
    "agreement": ("clauses", lambda case: bool(case.found.get("agreement"))),
}

SAME, NONE, NOT_RUN = "same verdict", "no verdict", "no verdict: the script did not run"
BEYOND = "the evidence's verdict where the package refuses the page"


@dataclass(frozen=True)
class Page:
    ending: str
    data: bytes

    def span(self, opening: bytes) -> range:
        """The places of the element that begins so, with its tags."""
        begin = self.data.index(opening)
        return range(begin, self.data.index(CLOSING, begin) + len(CLOSING))

    def with_byte(self, at: int, value: int) -> bytes:
        return self.data[:at] + bytes([value]) + self.data[at + 1 :]


def written(directory: Path) -> list[Page]:
    """The pages, as the command writes them."""
    pages = []
    for ending, (bundle, wanted) in ENDINGS.items():
        stored = load(bundle)
        files = lay_out(stored, find(stored, wanted), directory / ending)
        out = directory / f"{ending}.html"
        words = ["report", files.evidence, "--job", files.job, *files.believing, "--with-judge"]
        with contextlib.redirect_stdout(io.StringIO()):
            assert run([*map(str, words), "-o", str(out)]) == 0
        pages.append(Page(ending, out.read_bytes()))
    return pages


# A page, where it was changed, and its bytes then.
Change = tuple[Page, str, bytes]


def single_bytes(pages: list[Page], count: int, draw: random.Random) -> Iterator[Change]:
    """Each page in turn; a quarter in the element, a quarter in the script, a half elsewhere."""
    spans = [(page.span(OPENING), page.span(SCRIPT_TAG)) for page in pages]
    for number in range(count):
        page, (element, script) = pages[number % len(pages)], spans[number % len(pages)]
        where = ("element", "elsewhere", "script", "elsewhere")[number // len(pages) % 4]
        if where == "elsewhere":
            at = draw.randrange(len(page.data) - len(element) - len(script))
            for span in sorted((element, script), key=lambda s: s.start):
                at += len(span) if at >= span.start else 0
        else:
            at = draw.choice(element if where == "element" else script)
        value = page.data[at] ^ draw.randrange(1, 256)
        yield page, where, page.with_byte(at, value)


def tags(pages: list[Page]) -> Iterator[Change]:
    """The carried element's tags in other letter cases and with other spaces."""
    for page in pages:
        element = page.span(OPENING)
        ends = (element[: len(OPENING)], element[-len(CLOSING) :])
        for at in (place for end in ends for place in end):
            byte = page.data[at : at + 1]
            others = b"\t\n\f\r/" if byte == b" " else byte.swapcase()
            for value in others:
                if value != byte[0]:
                    yield page, "tags", page.with_byte(at, value)


class Browser:
    """judge/tools/pages.ts as a process without a network."""

    def __init__(self, directory: Path) -> None:
        script = directory / "pages.mjs"
        command = [
            "npx", "esbuild", "tools/pages.ts", "--bundle", "--platform=node", "--format=esm",
            "--log-level=error", f"--outfile={script}",
        ]  # fmt: skip
        subprocess.run(command, cwd=JUDGE, check=True)
        self._process = subprocess.Popen(
            ["unshare", "--net", "--map-root-user", "node", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def opens(self, page: Path) -> dict[str, Any]:
        """What the page says of itself."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{page}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the browser has ended"
        return dict(json.loads(line))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def of_package(page: bytes) -> dict[str, Any] | None:
    """What the package finds in the same bytes; None where it refuses them."""
    try:
        return plain(verdict_json(judge_page(page).judgement))
    except TallystickError as error:
        assert error.exit_code == 2, error
        return None


def end_of(said: dict[str, Any], page: Page, changed: bytes) -> str:
    """What came of a page with these bytes."""
    if said["refused"] is not None:
        return "error"
    if said["found"] is None:
        return NONE if said["ran"] else NOT_RUN
    ours = of_package(changed)
    if plain(said["found"]) == (of_package(page.data) if ours is None else ours):
        return BEYOND if ours is None else SAME
    return "different verdict"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--built", type=Path, help="a directory with judge.html")
    parser.add_argument("--tags", action="store_true")
    given = parser.parse_args()
    if given.built is not None:
        built_judge.PLACE = given.built
    began, failures, said = time.monotonic(), list[str](), dict[str, Any]()
    total, by_place = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        pages, browser = written(Path(name)), Browser(Path(name))
        for page in pages:  # unchanged; a page names no referee, so it cannot judge silence
            said = browser.opens(Path(name) / f"{page.ending}.html")
            wanted = "error" if page.ending == "silence" else SAME
            assert end_of(said, page, page.data) == wanted, (page.ending, said)
        drawn = single_bytes(pages, given.pages, random.Random(given.seed))
        allowed = {SAME, "error", NONE, NOT_RUN} | ({BEYOND} if given.tags else set())
        opened = Path(name) / "changed.html"
        for number, (page, where, data) in enumerate(tags(pages) if given.tags else drawn):
            opened.write_bytes(data)
            said = browser.opens(opened)
            end = end_of(said, page, data)
            total[end] += 1
            by_place[f"{where}: {end}"] += 1
            if end not in allowed:
                failures.append(f"{number}, {where}: {end}: {said}")
        browser.close()
    for line in failures[:20]:
        print(line, file=sys.stderr)
    report = {
        "pages": total.total(), "ends": dict(sorted(total.items())),
        "by_place": dict(sorted(by_place.items())), "files_opened": said["requests"],
        "network_requests": said["foreign"], "seed": given.seed,
        "seconds": round(time.monotonic() - began, 1), "tallystick": tallystick_version(),
        "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip
    print(json.dumps(report, indent=2))
    sys.exit(1 if failures or said["foreign"] else 0)


if __name__ == "__main__":
    main()
