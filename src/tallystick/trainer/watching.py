"""What a callback may change, looked at before and after each of its events.

A job fixes what a training computes, before its first step. So a callback that changes a learning
rate, freezes a layer or moves a weight changes nothing of the run. Here it is seen, and named.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import xxhash
from torch import Tensor, nn

from tallystick.errors import CallbackError
from tallystick.program.capture.places import Place, places_of
from tallystick.trainer.arguments import HONOURED

_FLAGS = ("should_training_stop", "should_epoch_stop", "should_evaluate", "should_save")


def is_own(callback: Any) -> bool:
    """Whether a person wrote the callback: those of transformers only report."""
    return not type(callback).__module__.startswith("transformers.")


def _content(tensor: Tensor) -> Any:
    """What tells a tensor from another one: `.data` and views change no version."""
    if tensor.is_meta or tensor.layout != torch.strided:
        return id(tensor), tensor._version
    array = tensor.detach().cpu().contiguous().view(-1)
    return tuple(tensor.shape), xxhash.xxh3_128_digest(array.view(torch.uint8).numpy().tobytes())


class Watch:
    """Looks at what decides the numbers of a training: the optimizer's groups, the parameters and
    buffers of the model, the tensors that the loss reads beside it, the arguments, the flags.

    `names` are the trainer's attributes that the loss may be reached from beside the model.
    """

    def __init__(self, trainer: Any, names: Sequence[str]) -> None:
        self._trainer = trainer
        own = {name: getattr(trainer, name) for name in names}
        # A root is no place of its own.
        places = [
            (Place(n, trainer, n, "attribute"), v) for n, v in own.items() if n in vars(trainer)
        ]
        self._outside = [p for p, v in [*places, *places_of(own)] if isinstance(v, Tensor)]

    def look(self) -> dict[str, Any]:
        """By name for people, what is there now."""
        trainer = self._trainer
        found = dict(self._groups())
        model: nn.Module = trainer.model
        for name, parameter in model.named_parameters():
            found[f"requires_grad of {name}"] = parameter.requires_grad
            found[f"the parameter {name}"] = _content(parameter)
        for name, buffer in model.named_buffers():
            found[f"the buffer {name}"] = _content(buffer)
        for place in self._outside:
            try:
                value = place.get()
            except (LookupError, AttributeError, ValueError):
                value = None
            found[f"the tensor {place.name}"] = (
                _content(value) if isinstance(value, Tensor) else type(value).__name__
            )
        for field in dataclasses.fields(trainer.args):
            if field.name in HONOURED:
                found[f"args.{field.name}"] = repr(getattr(trainer.args, field.name, None))
        for flag in _FLAGS:
            found[f"control.{flag}"] = getattr(trainer.control, flag)
        return found

    def _groups(self) -> Iterator[tuple[str, Any]]:
        for number, group in enumerate(self._trainer.optimizer.param_groups):
            for key, value in group.items():
                name = f"optimizer.param_groups[{number}][{key!r}]"
                if key == "params":
                    yield name, [id(p) for p in value]
                else:
                    yield name, repr(value)
        yield "the state of the optimizer", [
            (id(p), sorted((k, _content(v) if isinstance(v, Tensor) else repr(v))
             for k, v in held.items()))
            for p, held in self._trainer.optimizer.state.items()
        ]  # fmt: skip


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """What differs, each for people: a name, with both values where they are short."""
    found = []
    for name in [*before, *(n for n in after if n not in before)]:
        one, other = before.get(name), after.get(name)
        if one == other:
            continue
        plain = isinstance(one, (bool, str)) and isinstance(other, (bool, str))
        short = plain and len(f"{one}{other}") <= 60
        found.append(f"{name} ({one} → {other})" if short else name)
    return found


def refusal(callback: Any, event: str, step: int, changed: list[str]) -> CallbackError:
    """The error for a change that no job fixes."""
    told = ", ".join(changed[:3]) + (f" and {len(changed) - 3} more" if changed[3:] else "")
    return CallbackError(
        f"{type(callback).__name__}.{event} changes {told} at step {step}, and the job fixes what "
        "is trained before the first step. The run ends here; it is not signed.",
        "Leave the callback out, and the same call goes on from the last stored state; or express "
        "the change by the optimizer's groups, a scheduler, the arguments or the loss.",
    )


def stop(callback: Any, event: str, step: int) -> CallbackError:
    """The error for a callback that asks to stop: the process ends, and no run is signed."""
    return CallbackError(
        f"{type(callback).__name__}.{event} asks to stop at step {step}. The run ends here; it is "
        "not signed, since only the job says when a signed run ends.",
        "The same call without the callback goes on from the last stored state. For a signed end "
        "give max_steps, or EarlyStoppingCallback with committed validation.",
    )
