"""From a file's names to attribute names of a torch module, without collisions.

The rule. A name's dots part it into modules, as in a state_dict, so `conv.weight` stays what it
is. A character that is no ASCII letter, digit or underscore becomes `_xHH_`, its code point in
hexadecimal. So does an underscore before an `x`, every dot of a name with an empty part (`a..b`),
and the first character of a part that every module has as an attribute (`type`, `forward`). A name
that is a module of another one's (`a` beside `a.b`) ends with `_x_`, and so does the empty name.
`original` finds the file's name again: so two names never become one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import nn

_PLAIN = re.compile(r"[A-Za-z0-9_]", re.ASCII)
_ESCAPED = re.compile(r"_x([0-9a-f]*)_")
# The module of the nodes, the other attributes of `OnnxModule`, and the name of a call's module.
NODES = "onnx_nodes"
_OWN = (NODES, "plan", "parameter_names", "self")
_TAKEN = frozenset({*dir(nn.Module()), *vars(nn.Module()), *_OWN})


def _escape(character: str) -> str:
    return f"_x{ord(character):x}_"


def _part(text: str) -> str:
    """One part of a name; a dot in it has no meaning."""
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
    parts = name.split(".")
    return parts if all(parts) else [name]


def attribute_names(names: Iterable[str]) -> dict[str, str]:
    """By a file's name, the dotted attribute name of its parameter or buffer."""
    found = {name: [flat_name(part) for part in _parts(name)] for name in names}
    modules = {tuple(parts[:n]) for parts in found.values() for n in range(1, len(parts))}
    made = {
        name: ".".join(parts) + ("_x_" if tuple(parts) in modules else "")
        for name, parts in found.items()
    }
    assert len(set(made.values())) == len(made)
    return made


def original(attribute: str) -> str:
    """The file's name behind an attribute name."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else "", attribute)
