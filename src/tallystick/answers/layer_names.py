"""Which layers an adapter's configuration means, and which of its keys their ranks and alphas have.

Layers are named in full, by the end of a name, or by a pattern, as peft matches them
(`check_target_module_exists`, `get_pattern_key`). A pattern may take for ever, and it is somebody
else's: one that is more than letters and dots is tried in a process with a limit of time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from tallystick.data.sources.tokenizer_process import RulesProcess, serve
from tallystick.errors import RefusedModelError, UsageError

_MODULE = "tallystick.answers.layer_names"
_PATTERN_LENGTH = 1000
_PLAIN = re.compile(r"(?:[A-Za-z0-9_.]|\\\.)*")
_ENDING = r"(.*\.)?({})$"
_BEFORE_NUMBER = r"(?:^|.*?\.){}\.(?P<number>\d+)\."
_NUMBERED = r".*?\.[^.]*\.(?P<number>\d+)\."
# Of a layer that is meant: the keys of `rank_pattern` and `alpha_pattern` that fit it.
Keys = tuple[str | None, str | None]


def meant(config: Mapping[str, Any], layers: Sequence[str]) -> dict[str, Keys]:
    """Those of `layers` that the members of a configuration mean. Raises RefusedModelError."""
    rules = _rules(config)
    patterns = [*rules["ranks"], *rules["alphas"], *(rules["before_number"] or [])]
    patterns += [p for p in (rules["targets"], rules["excluded"]) if isinstance(p, str)]
    for pattern in patterns:
        _check(pattern)
    if all(_PLAIN.fullmatch(pattern) for pattern in patterns):
        return _meant(rules, layers)
    return _in_time(json.dumps(rules), tuple(layers))


def _rules(config: Mapping[str, Any]) -> dict[str, Any]:
    """The members, of the kinds that they must have."""
    targets = _names_or_pattern(config, "target_modules")
    if targets is None:
        raise _unclear("no target_modules")
    numbers = config.get("layers_to_transform")
    numbers = numbers if isinstance(numbers, list) or numbers is None else [numbers]
    if any(type(number) is not int for number in numbers or []):
        raise _unclear("layers_to_transform that are no numbers")
    before = _names_or_pattern(config, "layers_pattern")
    ranks, alphas = (config.get(name) or {} for name in ("rank_pattern", "alpha_pattern"))
    if not isinstance(ranks, dict) or not isinstance(alphas, dict):
        raise _unclear("a rank_pattern or alpha_pattern that is no table")
    return {
        "targets": targets,
        "excluded": _names_or_pattern(config, "exclude_modules"),
        "numbers": numbers,
        "before_number": [before] if isinstance(before, str) else before,
        "ranks": list(ranks),
        "alphas": list(alphas),
    }


def _names_or_pattern(config: Mapping[str, Any], member: str) -> str | list[str] | None:
    """A member that is a pattern, or a list of names. None where it is empty."""
    given = config.get(member)
    names = isinstance(given, list) and all(isinstance(name, str) for name in given)
    if given is not None and not isinstance(given, str) and not names:
        raise _unclear(f"{member} that is no list of names")
    return given or None


def _check(pattern: str) -> None:
    try:
        if len(pattern) > _PATTERN_LENGTH:
            raise ValueError
        for form in ("{}", _ENDING, _BEFORE_NUMBER):
            re.compile(form.replace("{}", pattern))
    except (ValueError, re.error, RecursionError, OverflowError):
        raise _unclear(f"the pattern {pattern[:80]!r}") from None


@lru_cache(maxsize=16)
def _in_time(rules: str, layers: tuple[str, ...]) -> dict[str, Keys]:
    try:
        process = RulesProcess(rules.encode("utf-8"), _MODULE)
        found = json.loads(process.ask(1, json.dumps(layers).encode("utf-8")))
    except UsageError as error:
        raise _unclear(
            f"patterns that cannot be tried here ({error.message.rstrip('.')})"
        ) from None
    return {layer: (rank, alpha) for layer, (rank, alpha) in found.items()}


def _unclear(what: str) -> RefusedModelError:
    return RefusedModelError(
        f"The adapter has {what}, so its layers are not known.",
        "Use the adapter_config.json that peft's save_pretrained wrote.",
    )


# -- what may run in another process ---------------------------------------------------------------


def _meant(rules: Mapping[str, Any], layers: Iterable[str]) -> dict[str, Keys]:
    return {
        layer: (_key(rules["ranks"], layer), _key(rules["alphas"], layer))
        for layer in layers
        if _is_meant(rules, layer)
    }


def _key(patterns: Iterable[str], layer: str) -> str | None:
    """The first pattern that fits the end of a layer's name."""
    return next((p for p in patterns if re.match(_ENDING.replace("{}", p), layer)), None)


def _is_meant(rules: Mapping[str, Any], layer: str) -> bool:
    targets, numbers = rules["targets"], rules["numbers"]
    if _fits(rules["excluded"] or [], layer) or not _fits(targets, layer):
        return False
    # A pattern, and a name in full, mean their layers whatever the number.
    if isinstance(targets, str) or layer in targets or not numbers:
        return True
    forms = [_BEFORE_NUMBER.replace("{}", name) for name in rules["before_number"] or []]
    found = next((m for form in forms or [_NUMBERED] if (m := re.match(form, layer))), None)
    return found is not None and int(found["number"]) in numbers


def _fits(given: str | list[str], layer: str) -> bool:
    if isinstance(given, str):
        return re.fullmatch(given, layer) is not None
    return any(layer == name or layer.endswith(f".{name}") for name in given)


def main() -> None:
    serve(
        json.loads,
        lambda rules, _, layers: json.dumps(_meant(rules, json.loads(layers))).encode("utf-8"),
    )


if __name__ == "__main__":
    main()
