"""The pages of commands, made from the command line itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

# Every command stands on one page; `pages_of_commands` refuses a command that stands on none.
PAGES: dict[str, list[str]] = {
    "training": ["data", "job", "train", "audit", "diff", "inspect", "fsck", "doctor", "demo"],
    "disputes": ["dispute", "judge", "judge-page", "report", "attack"],
    "network": ["serve", "referee", "fetch-logs", "offer", "settle", "keys"],
    "models": ["export", "verify-model", "claim", "sample", "evaluate", "calibrate", "bench"],
    "answers": [
        "model", "request", "generate", "embed", "classify", "check", "answer-run", "kept",
        "serve-model", "chat",
    ],
}  # fmt: skip
_SPECIAL = re.compile(r"([\\*_<>\[\]|~$#])")


def escaped(text: str) -> str:
    """Plain text as Markdown; what stands between backticks is code already."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return _SPECIAL.sub(r"\\\1", text).replace("`", r"\`")
    return "`".join(part if i % 2 else _SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        lines = [line.strip() for line in paragraph.strip().split("\n")]
        if lines[0] == "\b":  # click keeps the lines of such a paragraph
            yield "```text\n" + "\n".join(lines[1:]) + "\n```"
        else:
            yield escaped(" ".join(lines))


def _one(command: click.Command, context: click.Context, level: int) -> Iterator[str]:
    yield f"({context.command_path.replace(' ', '-')})="
    yield f"{'#' * level} {context.command_path}"
    pieces = command.collect_usage_pieces(context)
    yield f"```text\n{' '.join([context.command_path, *pieces])}\n```"
    yield from _paragraphs(command.help or "")
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        # An argument without help says nothing that the usage does not.
        if record is not None and record[1] and not record[0].endswith("--help"):
            rows.append(f"`{record[0]}`\n: {escaped(' '.join(record[1].split()))}")
    yield from rows
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                inner = click.Context(below, info_name=name, parent=context)
                yield from _one(below, inner, level + 1)


def commands(page: str) -> str:
    """The part of a page that lists its commands."""
    from tallystick.cli.main import cli

    top = click.Context(cli, info_name="tallystick", max_content_width=10_000)
    missing = set(cli.list_commands(top)) ^ {name for names in PAGES.values() for name in names}
    if missing:
        raise ValueError(f"docs/site/command_pages.py lists other commands: {sorted(missing)}")
    blocks: list[str] = []
    for name in PAGES[page]:
        command = cli.get_command(top, name)
        assert command is not None
        blocks += _one(command, click.Context(command, info_name=name, parent=top), 2)
    return "\n\n".join(blocks) + "\n"


def table() -> str:
    """All commands, a line each."""
    from tallystick.cli.main import cli

    top = click.Context(cli, info_name="tallystick")
    lines = ["| command | what it does |", "|---|---|"]
    for name in cli.list_commands(top):
        command = cli.get_command(top, name)
        assert command is not None
        page = next(page for page, names in PAGES.items() if name in names)
        said = escaped(command.get_short_help_str(limit=200))
        lines.append(f"| [`{name}`](commands-{page}.md#tallystick-{name}) | {said} |")
    return "\n".join(lines) + "\n"
