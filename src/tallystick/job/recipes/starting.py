"""Starting a recipe's job from the weights of a Hugging Face checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tallystick.commit.tensor import Array
from tallystick.disk.checkpoint import Checkpoint
from tallystick.errors import UsageError
from tallystick.job.recipes.base import Built, Recipe, StartingPoint, is_weight

# The member of a job's `about` that says from which checkpoint its weights are.
CHECKPOINT = "checkpoint"
_PARAMETER = "param."
_NAMED = 8


def starting_sizes(recipe: Recipe, checkpoint: Checkpoint | None) -> dict[str, str]:
    """The settings that a checkpoint's config gives. Raises UsageError."""
    if checkpoint is None or recipe.starting is None:
        return {}
    return recipe.starting.sizes(checkpoint.config)


def started_from(
    recipe: Recipe, built: Built, checkpoint: Checkpoint | None
) -> tuple[Built, dict[str, str]]:
    """`built` with the checkpoint's weights in the place of its own, and what its job says about
    them. Raises UsageError for a weight that is missing or of another shape, and the errors of
    `Checkpoint.read`."""
    if checkpoint is None or recipe.starting is None:
        return built, {}
    types = built.captured.program.state_types
    new: list[str] = []
    used: dict[str, str] = {}  # the checkpoint's name of each slot that it has
    for slot in sorted(types):
        if not slot.startswith(_PARAMETER):
            continue
        name = slot.removeprefix(_PARAMETER)
        theirs = _found(recipe.starting, name, checkpoint)
        if theirs is None:
            new.append(name)
            continue
        shape = checkpoint.tensors[theirs][2]
        if shape != types[slot].shape:
            raise UsageError(
                f"{theirs} of the checkpoint {checkpoint.directory} has the shape {list(shape)}, "
                f"but the recipe's has {list(types[slot].shape)}.",
                "Leave out the --set keys for sizes. The checkpoint's config.json gives them.",
            )
        used[slot] = theirs
    tied = built.captured.names.notes().get("tied names", "")
    read = set(used.values())
    left = sorted(n for n in checkpoint.tensors if n not in read and f"{n}=" not in tied)
    about = checkpoint.name
    if new:
        about += f"; new: {_list(new)}"
    if left:
        about += f"; not used: {_list(left)}"

    def state() -> dict[str, Array]:
        weights = {name: a for name, a in built.initial_state.items() if is_weight(name)}
        weights |= {slot: checkpoint.read(name) for slot, name in used.items()}
        found: dict[str, Array] = built.captured.state_for(weights)
        return found

    return replace(built, make_state=state), {CHECKPOINT: about}


def _found(rule: StartingPoint, name: str, checkpoint: Checkpoint) -> str | None:
    for theirs in rule.names(name):
        if theirs in checkpoint.tensors:
            return theirs
    if rule.is_new(name):
        return None
    raise UsageError(
        f"The checkpoint {checkpoint.directory} has no tensor {rule.names(name)[0]}.",
        "Use a checkpoint of this kind of model.",
    )


def _list(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def read_sizes(
    config: Mapping[str, Any], kind: str, fixed: Mapping[str, Any], keys: Mapping[str, str]
) -> dict[str, str]:
    """The settings `keys[k]` = config[k], for a config of `model_type` `kind`.

    Each key of `fixed` must be missing or have that value: the recipe's module has no other.
    Raises UsageError."""
    for key, value in {"model_type": kind, **fixed}.items():
        if config.get(key, value) != value or (key == "model_type" and key not in config):
            raise UsageError(
                f"The checkpoint's {key} is {config.get(key)!r}, but the recipe's model has "
                f"{value!r}.",
                "Capture the model itself (docs/tutorials/huggingface.md).",
            )
    found = {}
    for key, setting in keys.items():
        value = config.get(key)
        if isinstance(value, (int, float)):
            found[setting] = str(value).lower() if isinstance(value, bool) else repr(value)
    return found
