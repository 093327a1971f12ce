"""Settings of a recipe: documented keys with types and defaults, set by `--set key=value`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, get_type_hints

from tallystick.errors import UsageError

Settings = TypeVar("Settings")


def setting(default: Any, help: str, **limits: float) -> Any:
    """A field of a settings dataclass; `limits` are `low` and `high`, inclusive."""
    return dataclasses.field(default=default, metadata={"help": help, **limits})


def describe(kind: type) -> list[tuple[str, str, str, str]]:
    """(key, type, default, help) of every setting of the dataclass `kind`."""
    hints = get_type_hints(kind)
    return [
        (f.name, hints[f.name].__name__, str(f.default), f.metadata["help"])
        for f in dataclasses.fields(kind)
    ]


def parse_pairs(pairs: list[str]) -> dict[str, str]:
    """`key=value` strings as a dict; the last value of a repeated key wins. Raises UsageError."""
    found = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip():
            raise UsageError(f"{pair!r} is not KEY=VALUE.", "Write KEY=VALUE, such as n_layer=4.")
        found[key.strip()] = value.strip()
    return found


def build(kind: type[Settings], given: Mapping[str, str], recipe: str) -> Settings:
    """An instance of `kind` with the values of `given`, and defaults for all others.

    Raises UsageError for an unknown key (it lists the known ones), a value of another type, or a
    value outside its limits.
    """
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    unknown = sorted(set(given) - set(fields))
    if unknown:
        raise UsageError(
            f"The recipe {recipe} has no setting {unknown[0]!r}.",
            f"Its settings are {', '.join(sorted(fields))}.",
        )
    values = {}
    for key, text in given.items():
        value = _convert(hints[key], text, f"{recipe}: {key}")
        low, high = fields[key].metadata.get("low"), fields[key].metadata.get("high")
        if (low is not None and value < low) or (high is not None and value > high):
            raise UsageError(
                f"{recipe}: {key}={text} is out of range.",
                f"Choose a value from {low} to {high}."
                if high is not None
                else f"Choose at least {low}.",
            )
        values[key] = value
    return kind(**values)


def _convert(kind: type, text: str, what: str) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False, "1": True, "0": False}[text.lower()]
        value = kind(text)
    except (ValueError, KeyError):
        raise UsageError(
            f"{what} must be of the type {kind.__name__}, but it is {text!r}.",
            "Change it with --set.",
        ) from None
    if kind is float and not abs(value) < float("inf"):
        raise UsageError(f"{what} must be finite.", "Give a finite number with --set.")
    return value


def counts(recipe: str, key: str, text: str, most: int) -> tuple[int, ...]:
    """A setting such as 3-4-6-3: at most `most` counts from 1 to 999. Raises UsageError."""
    parts = text.split("-")
    if not all(p.isascii() and p.isdigit() and 1 <= int(p[:4]) < 1000 for p in parts):
        raise UsageError(
            f"{recipe}: {key}={text} is not a list of counts from 1 to 999.",
            f"Write counts with hyphens, such as --set {key}=3-4-6-3.",
        )
    if len(parts) > most:
        raise UsageError(f"{recipe}: {key} has more than {most} stages.", f"Change --set {key}.")
    return tuple(int(p) for p in parts)


def as_strings(settings: Any) -> dict[str, str]:
    """All settings as strings, which a job keeps and `build` reads back."""
    found = {}
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name)
        found[f.name] = repr(value) if isinstance(value, float) else str(value)
    return found
