"""Which layers an adapter's configuration means: by name, by the end of a name, or by a pattern.

As peft matches them (`check_target_module_exists`, `get_pattern_key`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tallystick.errors import RefusedModelError

_PATTERN_LENGTH = 1000
_NUMBERED = re.compile(r".*?\.[^.]*\.(?P<number>\d+)\.")


def pattern(text: object, form: str = "{}") -> re.Pattern[str]:
    """`text`, a regular expression, in the place of {} in `form`. Raises RefusedModelError."""
    try:
        if not isinstance(text, str) or len(text) > _PATTERN_LENGTH:
            raise ValueError
        return re.compile(form.replace("{}", text))
    except (ValueError, re.error, RecursionError, OverflowError):
        raise _unclear(f"the pattern {str(text)[:80]!r}") from None


def ending(text: str) -> re.Pattern[str]:
    """The pattern of a layer's name that ends as `text` says, a key of a table of patterns."""
    return pattern(text, r"(.*\.)?({})$")


@dataclass(frozen=True)
class LayerNames:
    """The members of an adapter's configuration by which layers are chosen."""

    targets: object
    excluded: object
    numbers: object
    before_number: object

    def has(self, layer: str) -> bool:
        """Whether a layer is meant. Raises RefusedModelError for members of another kind."""
        if self.targets is None:
            raise _unclear("no target_modules")
        if _fits(self.excluded, layer, "exclude_modules"):
            return False
        if not _fits(self.targets, layer, "target_modules"):
            return False
        # A name in full, and a pattern, mean their layers whatever the number.
        if isinstance(self.targets, str) or layer in _names(self.targets, "target_modules"):
            return True
        return self._has_number(layer)

    def _has_number(self, layer: str) -> bool:
        if self.numbers is None or self.numbers == []:
            return True
        wanted = self.numbers if isinstance(self.numbers, list) else [self.numbers]
        if any(type(number) is not int for number in wanted):
            raise _unclear("layers_to_transform that are no numbers")
        before = self.before_number or []
        names = [before] if isinstance(before, str) else _names(before, "layers_pattern")
        forms = [pattern(name, r"(?:^|.*?\.){}\.(?P<number>\d+)\.") for name in names]
        found = next((m for form in forms or [_NUMBERED] if (m := form.match(layer))), None)
        return found is not None and int(found["number"]) in wanted


def _names(given: object, what: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise _unclear(f"{what} that are no list of names")
    return given


def _fits(given: object, layer: str, what: str) -> bool:
    if given is None or given == []:
        return False
    if isinstance(given, str):
        return pattern(given).fullmatch(layer) is not None
    return _ends_with(layer, _names(given, what))


def _ends_with(layer: str, names: Iterable[str]) -> bool:
    return any(layer == name or layer.endswith(f".{name}") for name in names)


def _unclear(what: str) -> RefusedModelError:
    return RefusedModelError(
        f"The adapter has {what}: its layers are not known.",
        "Use the adapter_config.json that peft's save_pretrained wrote.",
    )
