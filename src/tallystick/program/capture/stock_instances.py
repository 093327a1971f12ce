"""Optimizers of torch and transformers as they are: their groups and options, read once.

Their kinds, options and parameters become those of the capture. What the capture has not (amsgrad,
maximize, moments of steps made before) is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer as TorchOptimizer

from tallystick.errors import UsageError
from tallystick.program import optimizers as ours
from tallystick.program.optimizers import KINDS, Optimizer, ParameterGroup, ParameterGroups
from tallystick.program.update import Optimizers

Options = dict[str, Any]
# How torch computes, not what.
_MANNERS = {"foreach", "fused", "capturable"}
_REFUSED = ("amsgrad", "maximize", "differentiable")


def _given(o: Options, *names: str, **renamed: str) -> Options:
    return {n: o[n] for n in names} | {own: o[theirs] for own, theirs in renamed.items()}


def _sgd(o: Options) -> Optimizer:
    if o["momentum"] and o["dampening"]:
        raise UsageError(
            "torch.optim.SGD: dampening with momentum begins with an undampened step in torch.",
            "Leave dampening at 0, or give tallystick.SGD, whose buffer begins with zeros.",
        )
    return ours.SGD(**_given(o, "lr", "momentum", "weight_decay", "nesterov"))


def _adam(o: Options) -> Optimizer:
    kind = ours.AdamW if o.get("decoupled_weight_decay") else ours.Adam
    return kind(**_given(o, "lr", "betas", "eps", "weight_decay"))


def _adamw(o: Options) -> Optimizer:
    return ours.AdamW(**_given(o, "lr", "betas", "eps", "weight_decay"))


def _rmsprop(o: Options) -> Optimizer:
    given = _given(o, "lr", "alpha", "eps", "weight_decay", "momentum", "centered")
    return ours.RMSprop(**given)


def _adagrad(o: Options) -> Optimizer:
    given = _given(o, "lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value")
    return ours.Adagrad(**given)


def _adafactor(o: Options) -> Optimizer:
    return ours.Adafactor(**_given(o, "lr", "beta2_decay", "eps", "d", "weight_decay"))


def _muon(o: Options) -> Optimizer:
    names = ("lr", "weight_decay", "momentum", "nesterov", "ns_coefficients", "eps", "ns_steps")
    return ours.Muon(**_given(o, *names), adjust_lr=o["adjust_lr_fn"] or "original")


def _transformers(o: Options) -> Optimizer:
    names = (
        "lr", "eps", "clip_threshold", "decay_rate", "beta1", "weight_decay", "scale_parameter",
        "relative_step", "warmup_init",
    )  # fmt: skip
    return ours.TransformersAdafactor(**_given(o, *names))


# By package and class: where in a package a class stands depends on its version.
_READERS: dict[tuple[str, str], Callable[[Options], Optimizer]] = {
    ("torch", "SGD"): _sgd,
    ("torch", "Adam"): _adam,
    ("torch", "AdamW"): _adamw,
    ("torch", "RMSprop"): _rmsprop,
    ("torch", "Adagrad"): _adagrad,
    ("torch", "Adafactor"): _adafactor,
    ("torch", "Muon"): _muon,
    ("transformers", "Adafactor"): _transformers,
}


def _reader(optimizer: TorchOptimizer) -> Callable[[Options], Optimizer] | None:
    kind = type(optimizer)
    return _READERS.get((kind.__module__.partition(".")[0], kind.__qualname__))


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _plain(value: Any) -> Any:
    """A 0-d tensor as its number, tuples and lists of them too."""
    if isinstance(value, Tensor):
        return float(value)
    return tuple(map(_plain, value)) if isinstance(value, (tuple, list)) else value


def _read(optimizer: TorchOptimizer, group: Mapping[str, Any], rate: str) -> Optimizer:
    """One group. A rate that a scheduler moves becomes the table `rate` of the job."""
    options = {k: _plain(group[k]) for k in optimizer.defaults if k in group and k not in _MANNERS}
    for name in _REFUSED:
        if options.get(name):
            raise UsageError(
                f"{_kind(optimizer)}: {name}=True is not supported.",
                f"Leave {name} out, or write the update as a step function.",
            )
    if "initial_lr" in group and options.get("lr") is not None:
        options["lr"] = rate
    reader = _reader(optimizer)
    assert reader is not None  # `_check` refuses what has none
    return reader(options)


def _check(optimizer: TorchOptimizer) -> None:
    kind = _kind(optimizer)
    if _reader(optimizer) is None:
        raise UsageError(
            f"The optimizer {kind} is not supported.",
            "Use SGD, Adam, AdamW, RMSprop, Adagrad, Adafactor or Muon of torch.optim, Adafactor "
            "of transformers, or an optimizer of tallystick.",
        )
    if any(len(state) for state in optimizer.state.values()) and _has_stepped(optimizer):
        raise UsageError(
            f"The optimizer {kind} has already made steps, and its moments would be lost.",
            "Pass a fresh one, or set the optimizer's slots with save_job(initial_state=...).",
        )
    hooks = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
    if any(getattr(optimizer, name, None) for name in hooks):
        raise UsageError(
            f"The optimizer {kind} has hooks around its step, which a program cannot carry.",
            "Remove them.",
        )


def _has_stepped(optimizer: TorchOptimizer) -> bool:
    """Adagrad makes its state before the first step; the others do not."""
    return any(
        float(state["step"]) > 0 if "step" in state else True for state in optimizer.state.values()
    )


def one_group(optimizer: TorchOptimizer, options: Mapping[str, Any], name: str) -> Optimizer:
    """A group of `optimizer` that has these options, as tallystick describes it; its rate is the
    table `lr.NAME`. Raises as `described`."""
    _check(optimizer)
    return _read(optimizer, {**options, "initial_lr": None}, f"lr.{name}")


def without_group(optimizer: object, parameters: Mapping[str, Tensor]) -> tuple[str, ...]:
    """The parameters that a torch optimizer, which has others of them, has in no group."""
    if not isinstance(optimizer, TorchOptimizer):
        return ()
    owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
    found = tuple(sorted(name for name, p in parameters.items() if id(p) not in owned))
    return found if len(found) < len(parameters) else ()


def refused_without_group(name: str) -> UsageError:
    """The refusal of a parameter that gets a gradient, and no update. It would count where the
    norm of all gradients is clipped."""
    return UsageError(
        f"The parameter {name} requires a gradient, but no group of the optimizer contains it.",
        "Freeze it (requires_grad_(False)), or add it to the optimizer.",
    )


def described(optimizer: object, parameters: Mapping[str, Tensor]) -> Optimizers:
    """The optimizer as tallystick describes it. `parameters` are the trained ones by name.

    An optimizer of torch with one group is that kind; with several it is `ParameterGroups` named
    by their numbers. Raises UsageError for kinds, options and states that are not supported, for
    a parameter that is not the module's, and for one of the module's that has no group.
    """
    if isinstance(optimizer, (*KINDS, ParameterGroups)):
        return optimizer
    if not isinstance(optimizer, TorchOptimizer):
        raise UsageError(
            f"The optimizer {_kind(optimizer)} is not supported.",
            "Use one of tallystick, such as tallystick.AdamW, or of torch.optim.",
        )
    _check(optimizer)
    names = {id(tensor): name for name, tensor in parameters.items()}
    groups: list[tuple[Mapping[str, Any], tuple[str, ...]]] = []
    for group in optimizer.param_groups:
        trained = [p for p in group["params"] if p.requires_grad]
        strange = [p for p in trained if id(p) not in names]
        if strange:
            raise UsageError(
                f"The optimizer has a parameter of shape {tuple(strange[0].shape)} that the module "
                "does not have.",
                "Make it from this module's parameters.",
            )
        if trained:
            groups.append((group, tuple(sorted(names[id(p)] for p in trained))))
    owned = {name for _, members in groups for name in members}
    missing = sorted(set(parameters) - owned)
    if missing:
        raise refused_without_group(missing[0])
    if len(groups) == 1:
        return _read(optimizer, groups[0][0], "lr")
    width = len(str(len(optimizer.param_groups) - 1))
    numbers = {id(g): f"{i:0{width}d}" for i, g in enumerate(optimizer.param_groups)}
    return ParameterGroups(
        {
            numbers[id(group)]: ParameterGroup(
                _read(optimizer, group, f"lr.{numbers[id(group)]}"), members
            )
            for group, members in groups
        }
    )


def all_described(optimizer: Any, parameters: Mapping[str, Tensor]) -> Any:
    """`described`, or a dict of them where a step has several optimizers."""
    if not isinstance(optimizer, Mapping):
        return described(optimizer, parameters)
    return {name: _of_group(name, one, parameters) for name, one in optimizer.items()}


def _of_group(name: str, optimizer: object, parameters: Mapping[str, Tensor]) -> Optimizers:
    own = {n: p for n, p in parameters.items() if n == name or n.startswith(f"{name}.")}
    found = described(optimizer, own)
    lr = getattr(found, "lr", None)
    if isinstance(optimizer, torch.optim.Optimizer) and lr == "lr":
        raise UsageError(
            f"The optimizer {name!r} of a step with several has a scheduler.",
            "Give tallystick's optimizer with a named rate, and the scheduler by that name.",
        )
    return found
