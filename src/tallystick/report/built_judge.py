"""The judge for browsers that lies in this package: a page with its script and style, and the list
of builds.

`judge/` of the source tree is where it is made, from the specification alone
(`node build.js --package`). Here it is data: no Node is needed. `builds.json` lists every build
that a released package has had, with the SHA-256 of script and style, so that a page of an older
version can still be told from a changed one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tallystick.commit.encoding import sha256
from tallystick.errors import CannotCheckError
from tallystick.job.carried import OPENING

PAGE, BUILDS = "judge.html", "builds.json"
PLACE = Path(__file__).with_name("judge")
# A page has its carried element once (PROTOCOL 8.6.1); a browser turns a carriage return into a
# line feed before it hashes.
_NEVER_INSIDE = (b"</script", b"</style", b"<!--", b"\r", OPENING)


@dataclass(frozen=True)
class BuiltJudge:
    """The content of an inline script and of an inline style element."""

    script: bytes
    style: bytes


def judge_page() -> bytes:
    """The page into which anyone drops evidence. Raises CannotCheckError where the package has
    none."""
    try:
        return (PLACE / PAGE).read_bytes()
    except FileNotFoundError:
        raise CannotCheckError(
            "This build of Tallystick has no judge for browsers.",
            "Use a released build, or make it: `node build.js --package` in judge/.",
        ) from None


def _inside(page: bytes, name: bytes) -> bytes:
    """The content of the page's one element of this name."""
    before, _, rest = page.partition(b"<" + name + b">")
    content, end, _ = rest.partition(b"</" + name + b">")
    if not before or not end:
        raise CannotCheckError(
            "The judge of this build is not a page that a report can take it from.",
            "Build it anew, from `judge` of the source tree.",
        )
    return content


def built_judge() -> BuiltJudge:
    """The script and the style of `judge_page`. Raises CannotCheckError where the package has no
    judge, or one that no page can hold."""
    page = judge_page()
    judge = BuiltJudge(_inside(page, b"script"), _inside(page, b"style"))
    for content in (judge.script, judge.style):
        if any(bad in content.lower() for bad in _NEVER_INSIDE):
            raise CannotCheckError(
                "The judge of this build has a text that would end its element in a page.",
                "Build it anew, from `judge` of the source tree.",
            )
    return judge


def version_of(script: bytes, style: bytes) -> str | None:
    """The version of the listed build that is byte for byte this script and style; None without
    one."""
    wanted = sha256(script).hex(), sha256(style).hex()
    for build in json.loads((PLACE / BUILDS).read_text("utf-8")):
        if (build["script"], build["style"]) == wanted:
            return str(build["version"])
    return None
