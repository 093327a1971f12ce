"""From a file's names to attribute names of a torch module, without collisions.

The rule. A name's dots part it into modules, as in a state_dict, so `conv.weight` stays what it
is. A character that is no ASCII letter, digit or underscore becomes `_xHH_`, its code point in
hexadecimal. So does an underscore before an `x`, a dot that would leave an empty part, the first
character of a part that names an attribute of every module (`type`, `forward`), and the last
character of a name that is a module of another name's (`a` beside `a.b`). `original` undoes it,
whatever was escaped: so two names never become one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import nn

_PLAIN = re.compile(r"[A-Za-z0-9_]", re.ASCII)
_ESCAPED = re.compile(r"_x([0-9a-f]+)_")
# The module of the nodes, and what a call of a module takes under its own name.
NODES = "onnx_nodes"
_TAKEN = frozenset({*dir(nn.Module()), *vars(nn.Module()), NODES, "self"})


def _escape(character: str) -> str:
    return f"_x{ord(character):x}_"


def _part(text: str) -> str:
    """One part of a name, without dots of its own meaning."""
    made = []
    for i, character in enumerate(text):
        before_x = character == "_" and text[i + 1 : i + 2] == "x"
        reserved = i == 0 and text in _TAKEN
        plain = _PLAIN.match(character) and not before_x and not reserved
        made.append(character if plain else _escape(character))
    return "".join(made)


def flat_name(name: str) -> str:
    """A name without modules: of inputs, outputs and nodes."""
    return _part(name) or "_x_"


def _parts(name: str) -> list[str]:
    """The parts between dots; a dot at an end, or after another dot, belongs to its part."""
    parts = [""]
    for i, character in enumerate(name):
        if character == "." and parts[-1] and i + 1 < len(name) and name[i + 1] != ".":
            parts.append("")
        else:
            parts[-1] += character
    return parts


def attribute_names(names: Iterable[str]) -> dict[str, str]:
    """By a file's name, the dotted attribute name of its parameter or buffer."""
    found = {name: [_part(part) or "_x_" for part in _parts(name)] for name in names}
    modules = {tuple(parts[:n]) for parts in found.values() for n in range(1, len(parts))}
    made = {}
    for name, parts in found.items():
        if tuple(parts) in modules:
            last = _parts(name)[-1]
            parts = [*parts[:-1], _part(last)[: -len(_part(last[-1]))] + _escape(last[-1])]
        made[name] = ".".join(parts)
    assert len(set(made.values())) == len(made)
    return made


def original(attribute: str) -> str:
    """The file's name behind an attribute name."""
    if attribute == "_x_":
        return ""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), attribute)
