"""The documentation site is whole: its pages, links and lists. `make docs` builds it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
import pytest

import tallystick
from tallystick.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))

import command_pages  # noqa: E402
import contents  # noqa: E402
import error_pages  # noqa: E402

PAGES = sorted(
    path
    for pattern in (
        "*.md", "docs/**/*.md", "spec/*.md", "benchmarks/*.md", "attacks/*.md",
        "vectors/**/*.md", "judge/README.md", "tests/grid/README.md",
    )
    for path in ROOT.glob(pattern)
)  # fmt: skip
_FENCED = re.compile(r"^(`{3,}).*?^\1", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def _anchors(page: Path) -> set[str]:
    """What a link into the page may name: its headings, as GitHub and the site write them."""
    headings = re.findall(r"^#+ (.+)$", _FENCED.sub("", page.read_text("utf-8")), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", _FENCED.sub("", page.read_text("utf-8")))
    for target in _LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name) if name else page
        assert found.exists(), target
        if anchor and found.suffix == ".md" and "commands" not in name:
            assert anchor in _anchors(found), target


def test_every_page_has_its_place() -> None:
    docs = ROOT / "docs"
    listed = {
        (docs / f"{name}.md").resolve() for names in contents.SECTIONS.values() for name in names
    }
    assert all(path.is_file() for path in listed)
    below = {
        path.resolve()
        for page, patterns in contents.BELOW.items()
        for pattern in patterns
        for path in (ROOT / page).parent.glob(f"{pattern}.md")
    }
    every = {path.resolve() for path in (*docs.rglob("*.md"), *(ROOT / "spec").glob("*.md"))}
    assert every - listed - below == {docs / "index.md"}


def test_every_command_and_option_is_on_a_page() -> None:
    for page in command_pages.PAGES:
        assert f"<!-- commands: {page} -->" in _reference(f"commands-{page}")
    everything = "".join(map(command_pages.commands, command_pages.PAGES))
    for words in ("tallystick job new", "tallystick serve-model keys add", "`--check-workers"):
        assert words in everything
    assert "`--help`" not in everything
    assert command_pages.table().count("| [`") == sum(map(len, command_pages.PAGES.values()))


def test_every_name_of_the_package_is_on_the_page_of_python() -> None:
    named = re.findall(r"^\.\. auto\w+:: tallystick\.(\w+)$", _reference("python"), re.M)
    assert sorted(named) == sorted(tallystick.__all__)


def test_every_error_has_a_remedy_and_its_messages() -> None:
    assert set(error_pages.REMEDIES) == error_pages.classes()
    usage, others = error_pages.messages(usage=True), error_pages.messages(usage=False)
    assert len(re.findall(r"\*\(\w+\)\*$", usage, re.M)) > 500
    assert "(UsageError)" not in others and "(CorruptFileError)" not in usage
    assert all(f"{name}\n" in error_pages.tree() for name in error_pages.classes())


@pytest.mark.parametrize(
    "text, escaped",
    [
        ("a *b* <C>", r"a \*b\* \<C\>"),
        ("see `a*b` and *c*", r"see `a*b` and \*c\*"),
        ("one ` alone", r"one \` alone"),
    ],
)
def test_plain_text_stays_plain(text: str, escaped: str) -> None:
    assert command_pages.escaped(text) == escaped


def _reference(name: str) -> str:
    return (ROOT / "docs" / "reference" / f"{name}.md").read_text("utf-8")


def _command_lines(page: Path) -> list[str]:
    """The lines of `tallystick` in the page's blocks, and in its text between backticks."""
    text = page.read_text("utf-8")
    blocks = "\n".join(found[0] for found in _FENCED.finditer(text))
    blocks = re.sub(r"^```(?:python|text)\n.*?^```$", "", blocks, flags=re.M | re.S)
    lines = re.findall(r"^\$? ?(tallystick [a-z].*)$", blocks, re.M)
    inline = re.findall(r"`(tallystick [a-z][^`\n]*)`", _FENCED.sub("", text))
    every = [re.sub(r"\s#\s.*", "", line) for line in [*lines, *inline]]
    return [part.strip() for line in every for part in re.split(r"&&| · |\||;", line)]


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.name not in ("adr", "proofs") and page.stem != "NOTES"],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_every_command_line_is_one(page: Path) -> None:
    """It names a command that exists, with options that this command has."""
    for line in _command_lines(page):
        words = line.split()
        if words[0] != "tallystick":
            continue
        command: click.Command = cli
        context = click.Context(cli, info_name="tallystick")
        for word in words[1:]:
            below = command.get_command(context, word) if isinstance(command, click.Group) else None
            if below is None:
                break
            command = below
        assert command is not cli, line
        # A group may have a command that stands for it (`serve-model MODEL`).
        some = [command]
        if isinstance(command, click.Group):
            below_it = (
                command.get_command(context, name) for name in command.list_commands(context)
            )
            some += [one for one in below_it if one is not None]
        parameters = [p for one in some for p in one.get_params(context)]
        known = {name for p in parameters for name in (*p.opts, *p.secondary_opts)}
        named = {word.split("=")[0].rstrip(".,)") for word in words if re.match(r"--?[a-z]", word)}
        assert named <= known | {"-h", "--help"}, f"{line}: {sorted(named - known)}"
