"""The judge for browsers that lies in this package: its script, its style, and the list of builds.

`judge/` of the source tree is where it is made, from the specification alone. Here it is data: no
Node is needed. `builds.json` lists every build that a released package has had, with the SHA-256
of script and style, so that a page of an older version can still be told from a changed one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tallystick.commit.encoding import sha256
from tallystick.errors import CannotCheckError
from tallystick.job.carried import OPENING

SCRIPT, STYLE, BUILDS = "judge.js", "judge.css", "builds.json"
PLACE = Path(__file__).with_name("judge")
# A page has its carried element once (PROTOCOL 8.6.1); a browser turns a carriage return into a
# line feed before it hashes.
_NEVER_INSIDE = (b"</script", b"</style", b"<!--", b"\r", OPENING)


@dataclass(frozen=True)
class BuiltJudge:
    """The content of an inline script and of an inline style element."""

    script: bytes
    style: bytes


def built_judge() -> BuiltJudge:
    """The judge of this build. Raises CannotCheckError where the package has none, or one that no
    page can hold."""
    try:
        judge = BuiltJudge((PLACE / SCRIPT).read_bytes(), (PLACE / STYLE).read_bytes())
    except FileNotFoundError:
        raise CannotCheckError(
            "This build of Tallystick has no judge for browsers.",
            "Write the page without --with-judge, or use a released build.",
        ) from None
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
