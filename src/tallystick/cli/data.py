"""`tallystick data freeze` and `data inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tallystick.cli.output import json_option, overwrite_option, print_json, say
from tallystick.cli.places import PLACE
from tallystick.data.freeze import freeze as freeze_records
from tallystick.data.frozen import Frozen, load_frozen
from tallystick.data.pick import KINDS
from tallystick.data.rules import Pad
from tallystick.errors import UsageError
from tallystick.run.show.estimate import human_bytes
from tallystick.terminal.freezing import FreezeBar


@click.group()
def data() -> None:
    """Freeze data sets into records, and inspect them."""


@data.command()
@click.argument("source", nargs=-1, required=True, type=click.Path())
@click.option("--out", required=True, type=click.Path(), help="Directory for the frozen data set.")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    help="Kind of the files. Needed if their names do not show it.",
)
@click.option("--fields", help="Fields to keep, separated by commas. Default: all.")
@click.option(
    "--dtype",
    "dtypes",
    multiple=True,
    metavar="FIELD=DTYPE",
    help="Type of a field: f32, f64, i64, i32, u8 or bool (repeatable). A type alone, such "
    "as f32, applies to every floating-point field.",
)
@click.option(
    "--pad",
    "pads",
    multiple=True,
    metavar="FIELD=N[:VALUE]",
    help="Pad a ragged field to N elements, or to the longest with max, using VALUE "
    "(default 0). Repeatable.",
)
@click.option("--mask", is_flag=True, help="Add a field FIELD_mask for each padded field.")
@click.option("--length", is_flag=True, help="Add a field FIELD_length for each padded field.")
@click.option(
    "--truncate",
    is_flag=True,
    help="Cut fields that are longer than the padding allows, instead of refusing them.",
)
@click.option(
    "--hold-out", default="0", help="Share of the records to hold out for validation, such as 0.05."
)
@click.option(
    "--tokenizer", type=click.Path(), help="tokenizer.json for text. Default: bytes are the tokens."
)
@click.option("--block", type=click.IntRange(1), help="Tokens in each record of text.")
@click.option("--end-token", help="Token to append to each text file.")
@click.option(
    "--size",
    help="Size of the images: their side, or HEIGHTxWIDTH. Images are resized and cropped to it.",
)
@overwrite_option
@json_option
def freeze(
    source: tuple[str, ...],
    out: str,
    kind: str | None,
    fields: str | None,
    dtypes: tuple[str, ...],
    pads: tuple[str, ...],
    mask: bool,
    length: bool,
    truncate: bool,
    hold_out: str,
    tokenizer: str | None,
    block: int | None,
    end_token: str | None,
    size: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write the records of SOURCE once, for `job new --data`.

    SOURCE is a file, several files of one kind, or a directory. It may hold Parquet, .safetensors
    or .npz columns, tar shards, text, or one folder of images for each class.
    """
    from fractions import Fraction

    try:
        share = Fraction(hold_out)
    except (ValueError, ZeroDivisionError):
        raise UsageError(
            f"--hold-out {hold_out} is not a share.",
            "Write a number from 0 to 1, such as 0.05 or 1/20.",
        ) from None
    if not pads and (mask or length or truncate):
        raise UsageError(
            "--mask, --length and --truncate need --pad.", "Add --pad FIELD=N, or leave them out."
        )
    with FreezeBar() as bar:
        made = freeze_records(
            [Path(name) for name in source],
            Path(out),
            fields=tuple(fields.split(",")) if fields else None,
            dtype=_dtypes(dtypes),
            pad=dict(_pad(text, mask, length, truncate) for text in pads),
            hold_out=share,
            kind=kind,
            tokenizer=tokenizer,
            block=block,
            end_token=end_token,
            size=_size(size),
            on_progress=bar,
            overwrite=overwrite,
        )
    _show(made, as_json)
    if not as_json:
        say(f"next        tallystick job new RECIPE --data {out} --out JOB")


def _dtypes(given: tuple[str, ...]) -> str | dict[str, str] | None:
    if len(given) == 1 and "=" not in given[0]:
        return given[0]
    found = {}
    for text in given:
        name, sign, dtype = text.rpartition("=")
        if not sign or not name:
            raise UsageError(
                f"--dtype {text} names no field.", "Write FIELD=DTYPE, such as --dtype x=f32."
            )
        found[name] = dtype
    return found or None


def _pad(text: str, mask: bool, length: bool, truncate: bool) -> tuple[str, Pad]:
    name, sign, rule = text.rpartition("=")
    to, _, value = rule.partition(":")
    try:
        number: Any = 0 if not value else float(value) if "." in value else int(value)
        limit: int | str = to if to == "max" else int(to)
    except ValueError:
        sign = ""
    if not sign or not name:
        raise UsageError(
            f"--pad {text} is not a padding rule.",
            "Write FIELD=N[:VALUE] or FIELD=max[:VALUE], such as --pad tokens=max:-1.",
        )
    return name, Pad(limit, number, mask, length, truncate)


def _size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    try:
        sides = tuple(int(side) for side in text.split("x"))
        height, width = sides * 2 if len(sides) == 1 else sides
        return height, width
    except ValueError:
        raise UsageError(
            f"--size {text} is not a size.",
            "Write a side or HEIGHTxWIDTH, such as --size 224 or 224x320.",
        ) from None


@data.command()
@click.argument("directory", type=PLACE)
@click.option("--verify", is_flag=True, help="Hash every record and compare the digests.")
@json_option
def inspect(directory: str, verify: bool, as_json: bool) -> None:
    """Print what the frozen data set DIRECTORY holds, and the rules that made it."""
    found = load_frozen(directory)
    held = found.validation
    if verify:
        for each in (found, held):
            if each is not None:
                each.verify()
    _show(found, as_json, verify)


def _show(made: Frozen, as_json: bool, verified: bool = False) -> None:
    fields = {f.name: f"{f.dtype}{list(f.shape)}" for f in made.schema.fields}
    held = made.validation
    if as_json:
        print_json(
            {
                "directory": made.directory,
                "records": made.count,
                "root": made.root,
                "fields": fields,
                "record_bytes": made.schema.record_size,
                "ranges": {name: list(ends) for name, ends in made.ranges.items()},
                "rules": made.rules,
                "source": made.source,
                "validation": None if held is None else {"records": held.count, "root": held.root},
                "verified": verified,
            }
        )
        return
    say(f"data        {made.directory}")
    size = human_bytes(made.nbytes)
    say(f"records     {made.count:,} of {made.schema.record_size:,} bytes, {size}")
    say(f"fields      {', '.join(f'{name} {type_}' for name, type_ in fields.items())}")
    for name, (low, high) in made.ranges.items():
        say(f"range       {name} {low} to {high}")
    for what, words in (("source", made.source), ("rules", made.rules)):
        for name, value in words.items():
            say(f"{what:12}{name}: {value}")
    if held is not None:
        say(f"validation  {held.count:,} records, data root {held.root.hex()}")
    say(f"data root   {made.root.hex()}")
    if verified:
        say("MATCH       every record hashed: the roots are those")
