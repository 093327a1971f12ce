"""Paths of a command line: a URL is refused by name, and the type that a command has said stays."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tallystick.cli.places import refuse_addresses
from tallystick.errors import UsageError


@click.command()
@click.option("--out", type=click.Path(path_type=Path))
@click.option("--there", type=click.Path(exists=True))
def command(out: Path | None, there: str | None) -> None:
    click.echo(f"{type(out).__name__} {type(there).__name__}")


def test_a_path_has_the_type_that_its_command_has_said(tmp_path: Path) -> None:
    said = refuse_addresses(command)
    found = CliRunner().invoke(said, ["--out", "results", "--there", str(tmp_path)])
    assert isinstance(tmp_path, Path) and found.output == f"{type(tmp_path).__name__} str\n"
    assert CliRunner().invoke(said, ["--there", str(tmp_path / "none")]).exit_code == 2
    with pytest.raises(UsageError, match=r"--out.*takes a path on this machine"):
        CliRunner().invoke(said, ["--out", "s3://bucket/results"], catch_exceptions=False)
