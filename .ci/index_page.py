"""What a package index shows of this project: the README with links that work there, and addresses.

The build reads it as a provider of metadata (`[[tool.dynamic-metadata]]` in pyproject.toml). An
index shows the README far from the files that its links name. With `repository` set, each such link
becomes an address in the repository, at the tag of the version. Without it, a link becomes its text
and a picture is left out, for an index must show no link that leads nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# A picture or a link of Markdown. The text of a link may hold a picture.
_LINK = re.compile(
    r"(?P<picture>!?)\[(?P<text>(?:!\[[^\[\]]*\]\([^()\s]+\)|[^\[\]])*)\]\((?P<target>[^()\s]+)\)"
)
# The same as HTML, which READMEs use for a picture by light and dark.
_ATTRIBUTE = re.compile(r'(?P<name>\b(?:src|srcset|href))="(?P<target>[^"]+)"')
_HTML_PICTURE = re.compile(r"<picture>.*?</picture>|<img\b[^>]*>", re.DOTALL)
_FENCE = re.compile(r"^(```|~~~).*?^\1[^\S\n]*$", re.MULTILINE | re.DOTALL)
_PICTURES = (".png", ".jpg", ".svg", ".gif", ".webp")


def _is_elsewhere(target: str) -> bool:
    return bool(re.match(r"[a-z][a-z0-9+.-]*:|//|#", target))


def _address(target: str, repository: str, tag: str) -> str:
    """The address of a file of the repository."""
    path = target.partition("#")[0]
    kind = "raw" if path.endswith(_PICTURES) else "blob"
    return f"{repository}/{kind}/{tag}/{target}"


def _outside_of_fences(text: str, change: Any) -> str:
    """`text` with `change` applied to all of it but its blocks of code."""
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def index_text(readme: str, repository: str, tag: str) -> str:
    """`readme` as an index can show it."""

    def link(found: re.Match[str]) -> str:
        text, target = _LINK.sub(link, found["text"]), found["target"]
        if repository and not _is_elsewhere(target):
            target = _address(target, repository, tag)
        if _is_elsewhere(target):
            return f"{found['picture']}[{text}]({target})"
        return "" if found["picture"] else text

    def attribute(found: re.Match[str]) -> str:
        target = found["target"]
        if _is_elsewhere(target):
            return found[0]
        return f'{found["name"]}="{_address(target, repository, tag)}"'

    def change(text: str) -> str:
        pictures = _ATTRIBUTE.sub(attribute, text) if repository else _HTML_PICTURE.sub("", text)
        return _LINK.sub(link, pictures)

    return _outside_of_fences(readme, change)


def project_urls(repository: str) -> dict[str, str]:
    """The addresses that an index shows beside the text; none without a repository."""
    if not repository:
        return {}
    return {
        "Documentation": f"{repository}/tree/main/docs",
        "Source": repository,
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Specification": f"{repository}/tree/main/spec",
    }


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """The fields `readme` and `urls` of the project."""
    repository = str(settings["repository"]).rstrip("/")
    text = Path("README.md").read_text(encoding="utf-8")
    readme = index_text(text, repository, f"v{project['version']}")
    return {
        "readme": {"content-type": "text/markdown", "text": readme},
        "urls": project_urls(repository),
    }
