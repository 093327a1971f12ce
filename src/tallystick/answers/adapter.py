"""A low-rank adapter (LoRA) as peft saves it: adapter_config.json and adapter_model.safetensors.

The configuration says which layers get matrices, of what rank and with what scale. All of that is
read as peft reads it, without peft. What would change the numbers otherwise is refused by name.

Layers are named in full, by the end of a name, or by a pattern, as peft matches them
(`check_target_module_exists`, `get_pattern_key`). A pattern may take for ever, and it is somebody
else's: one that is more than letters and dots is tried in a process with a limit of time.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from tallystick.answers.statement import Adapter
from tallystick.commit.encoding import sha256
from tallystick.data.sources.tokenizer_process import RulesProcess, serve
from tallystick.disk.checkpoint import Checkpoint
from tallystick.disk.regular import map_file, open_file, os_errors, present, read_file
from tallystick.disk.tensorfile import open_tensors
from tallystick.errors import CorruptFileError, RefusedModelError, UsageError
from tallystick.limits import LIMITS

_MODULE = "tallystick.answers.adapter"
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
        _check_pattern(pattern)
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


def _check_pattern(pattern: str) -> None:
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


CONFIG, WEIGHTS, PICKLE = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "adapter_model.bin",
)
_PREFIX = "base_model.model."
_MATRIX = re.compile(r"(.+)\.lora_([AB])\.weight")
# What peft saves with an adapter of a head, and puts into the model's place.
_COPY = ".base_layer.weight"
# What says how an adapter was made or trained, and changes no number of one that is there.
_IDLE = frozenset({
    "auto_mapping", "base_model_name_or_path", "corda_config", "eva_config", "fan_in_fan_out",
    "inference_mode", "loftq_config", "lora_dropout", "lora_ga_config", "megatron_core",
    "peft_version", "qalora_group_size", "revision", "runtime_config",
})  # fmt: skip
_READ = frozenset({
    "alpha_pattern", "bias", "exclude_modules", "init_lora_weights", "layers_pattern",
    "layers_to_transform", "lora_alpha", "peft_type", "r", "rank_pattern", "target_modules",
    "task_type", "use_rslora",
})  # fmt: skip
_USUAL = 8  # rank and alpha, where a configuration has none
# Other beginnings (PiSSA, OLoRA, LoftQ, …) take something away from the model's own weights.
_BEGINNINGS = (None, True, False, "gaussian", "orthogonal", "eva")


@dataclass(frozen=True)
class LoraPair:
    """The matrices of one layer: A is [rank, in], B is [out, rank], and their product counts
    `scale` times."""

    layer: str
    rank: int
    scale: float

    @property
    def names(self) -> tuple[str, str]:
        """The parameters that A and B are."""
        return f"{self.layer}.lora_A.weight", f"{self.layer}.lora_B.weight"


@dataclass(frozen=True)
class LoraAdapter:
    """An opened adapter. `digest` is the SHA-256 of its file of weights; `merged` says that the
    products are put into the model's weights (ANSWERS 4.7)."""

    digest: bytes
    merged: bool
    config: Mapping[str, Any] = field(repr=False)
    weights: Checkpoint = field(repr=False)

    @property
    def stated(self) -> Adapter:
        """What a model statement says of it (ANSWERS 4.2)."""
        return Adapter(self.digest, self.merged)

    @property
    def stored(self) -> dict[str, str]:
        """The stored type of each matrix, by the parameter that it is."""
        return {n.removeprefix(_PREFIX): dtype for n, (_, dtype, _) in self.weights.tensors.items()}

    def mapped(self) -> dict[str, Any]:
        """Every matrix by the parameter that it is, as Checkpoint.mapped."""
        return {n.removeprefix(_PREFIX): array for n, array in self.weights.mapped().items()}

    def pairs(self, layers: Mapping[str, tuple[int, int]]) -> list[LoraPair]:
        """What the adapter does to a model whose linear layers have these numbers of inputs and
        outputs, by layer. Raises RefusedModelError where configuration, file and model differ."""
        shapes = {
            n.removeprefix(_PREFIX): shape for n, (_, _, shape) in self.weights.tensors.items()
        }
        of_file = {match[1] for n in shapes if (match := _MATRIX.fullmatch(n))}
        keys = meant(self.config, sorted(layers))
        if odd := sorted(of_file - layers.keys()):
            raise _refused(
                f"matrices for {odd[0][:120]!r}", "the model has no linear layer of that name"
            )
        if odd := sorted(keys.keys() ^ of_file):
            where = "its configuration" if odd[0] in keys else "its file of weights"
            raise _refused(
                f"the layer {odd[0][:120]!r} in {where} only", "nobody can tell which one is meant"
            )
        found = [self._pair(name, keys[name]) for name in sorted(of_file)]
        for pair in found:
            (inputs, outputs), (a, b) = layers[pair.layer], pair.names
            if (shapes.get(a), shapes.get(b)) != ((pair.rank, inputs), (outputs, pair.rank)):
                raise _refused(
                    f"matrices of other sizes for {pair.layer[:120]!r}",
                    f"a rank of {pair.rank} over {inputs} inputs and {outputs} outputs is due",
                )
        return found

    def _pair(self, layer: str, keys: Keys) -> LoraPair:
        rank = self._number("r", "rank_pattern", keys[0])
        alpha = self._number("lora_alpha", "alpha_pattern", keys[1])
        if type(rank) is not int or rank < 1:
            raise _refused(f"the rank {rank!r} of {layer[:120]!r}", "it is a positive integer")
        # Each one rounded operation of binary64 (ANSWERS 4.7).
        root = math.sqrt(rank) if self.config.get("use_rslora") else float(rank)
        return LoraPair(layer, rank, float(alpha) / root)

    def _number(self, name: str, patterns: str, key: str | None) -> int | float:
        found = self.config.get(name, _USUAL) if key is None else self.config[patterns][key]
        if type(found) not in (int, float) or not abs(found) < 1 << 53:  # nor is NaN
            raise _refused(f"{name} = {str(found)[:40]}", "it is a number below 2^53")
        return found  # type: ignore[no-any-return]


def open_adapter(directory: Path, merged: bool = False) -> LoraAdapter:
    """The adapter in a directory of peft.

    Raises RefusedModelError for one that answers are not given with, by name; UsageError,
    StorageError and CorruptFileError where the directory or a file of it is none.
    """
    if not present(directory / CONFIG):
        raise UsageError(
            f"{directory} is not an adapter: it has no {CONFIG}.",
            "Name a directory that peft's save_pretrained wrote.",
        )
    config = _config(directory / CONFIG)
    _check(config)
    path = directory / WEIGHTS
    if not present(path) and present(directory / PICKLE):
        raise RefusedModelError(
            f"The weights of {directory} are a pickle ({PICKLE}). Pickles are never read.",
            "Save the adapter with save_pretrained(..., safe_serialization=True).",
        )
    with open_tensors(path, "adapter", strict=False) as file:
        tensors = {name: (path, dtype, shape) for name, (dtype, shape) in file.types.items()}
    for name in tensors:
        if name.endswith(_COPY):
            raise RefusedModelError(
                f"The adapter contains a copy of one of the model's own weights: {name[:120]!r}.",
                "Save it with save_pretrained(..., save_embedding_layers=False).",
            )
        if not (name.startswith(_PREFIX) and _MATRIX.fullmatch(name)):
            why = "only matrices lora_A and lora_B of linear layers are known"
            raise _refused(f"a tensor {name[:120]!r}", why)
    if not tensors:
        raise _refused("no matrix at all", "it changes nothing")
    return LoraAdapter(_digest(path), merged, config, Checkpoint(directory, config, tensors))


def _digest(path: Path) -> bytes:
    file, size = open_file(path, "adapter")
    with file, os_errors(path):
        return sha256(memoryview(map_file(file, size)))


def _config(path: Path) -> dict[str, Any]:
    data = read_file(path, LIMITS.manifest_bytes, "adapter configuration")
    try:
        found = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise CorruptFileError(f"{path} is not a JSON object.", "Save the adapter again.")
    return found


def _check(config: Mapping[str, Any]) -> None:
    """Refuse what changes the numbers in a way that is not known here."""
    kind = config.get("peft_type")
    if kind != "LORA":
        raise _refused(f"the type {str(kind)[:40]!r}", "only LORA is known")
    if config.get("task_type") not in (None, "CAUSAL_LM"):
        task = str(config["task_type"])[:40]
        raise _refused(f"the task {task!r}", "answers need CAUSAL_LM")
    if config.get("bias", "none") != "none":
        raise _refused(f"bias = {str(config['bias'])[:40]!r}", "it changes the model's biases")
    beginning = config.get("init_lora_weights")
    if beginning not in _BEGINNINGS:
        raise _refused(
            f"init_lora_weights = {str(beginning)[:40]!r}", "it may change the model's own weights"
        )
    if type(config.get("use_rslora", False)) is not bool:
        raise _refused("use_rslora that is no truth value", "its scale is not known")
    for name in sorted(config.keys() - _IDLE - _READ):
        if config[name] not in (None, False, [], {}):
            raise _refused(f"{name[:60]} = {str(config[name])[:60]}", "it is not known here")


def _refused(what: str, why: str) -> RefusedModelError:
    return RefusedModelError(
        f"The adapter has {what}: {why}.",
        "Use another adapter, or merge it with peft's merge_and_unload and save the model.",
    )
