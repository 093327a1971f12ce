"""`tallystick diff`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from tallystick.api.diffs import RUN, kind_of
from tallystick.api.diffs import diff as compare
from tallystick.cli.output import (
    CANNOT_CHECK,
    MISMATCH,
    device_option,
    finish,
    json_float,
    json_option,
    note,
    print_json,
    say,
    threads_option,
)
from tallystick.cli.places import PLACE, refuse_options
from tallystick.comparing.found import Comparison, FirstApart
from tallystick.comparing.values import ElementApart, Number, units
from tallystick.errors import CounterpartyError
from tallystick.job.words.sentences import Apart
from tallystick.protocol.verdict import PARTIES

# The names in JSON that are too long for the column of labels, and those that a person would not
# understand.
_LABELS = {"operators in them": "operators"}
_OPERANDS = {"end": "the number of steps", "record": "the record of this step"}


@click.command()
@click.argument("first", metavar="A", type=PLACE)
@click.argument("second", metavar="B", type=PLACE)
@click.option(
    "--as-attack",
    multiple=True,
    type=click.Choice(PARTIES),
    help="Let this run play the cheat that its directory declares (repeatable).",
)
@threads_option
@device_option
@json_option
def diff(
    first: str,
    second: str,
    as_attack: tuple[str, ...],
    threads: int | None,
    device: str,
    as_json: bool,
) -> None:
    """Find where A and B first differ, and why.

    A and B are two jobs, two runs or two traces. For two jobs, the command lists the fields that
    differ, in words. Fields that no job digest covers are listed separately and do not count. Two
    runs are executed again from the last state that both recorded. Two traces
    (`tallystick.trace` in Python) are only read. The command names the first step, operator and
    element that differ, both values, and the cause. It needs no key.

    The exit code is 0 if A and B are equal, 1 if they differ, 2 if they could not be compared, 3
    for wrong usage.
    """
    places = Path(first), Path(second)
    if {kind_of(place) for place in places} != {RUN}:
        refuse_options(
            {"threads", "device"}, "cannot be given for jobs and traces, which are only read."
        )
    if as_attack and device != "cpu":
        refuse_options(
            {"device"}, "cannot be given beside --as-attack: a cheat is executed on the CPU."
        )
    try:
        found = compare(*places, as_attack=as_attack, threads=threads, device=device, notice=note)
    except CounterpartyError as error:
        # Exit code 1 would say that the two differ; a damaged file does not say so.
        error.exit_code = CANNOT_CHECK
        raise
    if as_json:
        print_json(found.facts)
    else:
        say_comparison(found)
    if not found.equal:
        finish(MISMATCH)


def say_comparison(found: Comparison) -> None:
    """Print a comparison for a person."""
    say(f"EQUAL       two {found.kind}" if found.equal else f"DIFFERENT   two {found.kind}")
    if found.equal:
        _say_compared(found.compared)
    for number, cause in enumerate(found.causes):
        say(f"{'also' if number else 'cause':<12}{cause.words}. {cause.sentence}")
    if found.first is not None:
        _say_first(found.first)
    for line in found.programs:
        say(f"programs    {line}")
    if found.fields:
        say("The job digests cover:")
        _say_apart(found.fields)
    if found.uncommitted:
        say("Not committed (their authors' word, which no digest covers):")
        _say_apart(found.uncommitted)
    for line in found.notices:
        say(f"note        {line}")


def _say_compared(compared: Mapping[str, object]) -> None:
    """Print how much was compared: a list has one value for each of the two."""
    for name, value in compared.items():
        values = value if isinstance(value, list) else [value]
        said = [f"{one:,}" if isinstance(one, int) else str(one) for one in values]
        say(f"{_LABELS.get(name, name):<12}{', '.join(dict.fromkeys(said))}")


def _say_first(first: FirstApart) -> None:
    say(f"step        {first.step}")
    numbers = [place for place in first.node if place is not None]
    if numbers:
        ours, theirs = first.operator
        same = ours == theirs and first.node[0] == first.node[1]
        for name, operator, number, place in zip(
            PARTIES, first.operator, first.node, first.place, strict=True
        ):
            said = "none" if operator is None else f"{operator}, number {number}"
            where = f", in {place}" if place else ""
            label = "operator" if same else f"operator {name}"
            say(f"{label:<12}{said}{where}")
            if same and first.place[0] == first.place[1]:
                break
    for known in first.inputs:
        say(f"before it   input {known.number} already differed: {known.name}")
    if first.operand:
        say(f"differs     {_OPERANDS.get(first.operand, first.operand)}")
    if first.elements is not None:
        _say_elements(first.elements)
    elif first.unknown:
        say(f"values      unknown: {first.unknown}")


def _say_elements(found: ElementApart) -> None:
    index = ", ".join(map(str, found.index))
    say(f"element     [{index}]{_among(found)}")
    pairs = ((found.first, found.first_bits), (found.second, found.second_bits))
    for name, (value, bits) in zip(PARTIES, pairs, strict=True):
        words = bits if isinstance(bits, str) else ", ".join(bits)
        say(f"{name}           {_value(value)} ({words})")
    for line in _distance(found):
        say(f"distance    {line}")


def _among(found: ElementApart) -> str:
    """How many elements differ."""
    if found.total == 1:
        return ", the only element"
    if found.different == 1:
        return f", the only one of {found.total:,} that differs"
    if found.different == found.total:
        return f", the first of {found.total:,}, which all differ"
    return f", the first of {found.different:,} that differ, of {found.total:,}"


def _value(value: Number) -> str:
    """A number: of a complex one both parts, each as it is."""
    if isinstance(value, complex):
        sign = "-" if math.copysign(1.0, value.imag) < 0 else "+"
        return f"{json_float(value.real)} {sign} {json_float(abs(value.imag))}i"
    return str(json_float(value) if isinstance(value, float) else value)


def _distance(found: ElementApart) -> Iterator[str]:
    """How far the two values are apart, and the greatest distance of the tensor."""
    if found.sign_of_zero:
        yield "0 units in the last place: zeros differ in their signs"
        return
    most = ""
    if found.different > 1 and found.most is not None:
        most = f"; the greatest of all is {found.most:,}"
    if isinstance(found.ulps, tuple):
        real, imaginary = found.ulps
        if imaginary is None:
            said = "real part " + ("unknown" if real is None else units(real))
            yield f"{said}, imaginary part unknown{most}"
        else:
            said = "unknown" if real is None else f"{real:,}"
            yield f"real part {said}, imaginary part {units(imaginary)}{most}"
    elif found.ulps is not None:
        yield f"{units(found.ulps)}{most}"


def _say_apart(rows: tuple[Apart, ...]) -> None:
    for label, *pair in rows:
        say(f"  {label}")
        for name, sentence in zip(PARTIES, pair, strict=True):
            say(f"    {name}  {sentence or '(nothing)'}")
