"""ATen's calls and torch's types in a program's terms: names, arguments, dtypes, attributes."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tallystick.errors import UsageError
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import AttrValue, TensorType

Arguments = dict[str, Any]

DTYPES: dict[torch.dtype, str] = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.uint8: "u8",
    torch.bool: "bool",
}


def type_of_tensor(tensor: torch.Tensor, what: str = "a tensor") -> TensorType:
    """The program type of a torch tensor. Raises UsageError for a dtype without a contract."""
    name = DTYPES.get(tensor.dtype)
    if name is None:
        raise UsageError(
            f"{what} has dtype {str(tensor.dtype)[6:]}, which no contract defines.",
            "Convert the model and the batch to float32 (module.float()) and int64.",
        )
    return TensorType(name, tuple(int(n) for n in tensor.shape))


def op_name(target: Any) -> str:
    """The name programs use: ATen's, with the overload unless it is `default`."""
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__name__", str(target))
    name = target._schema.name.replace("::", ".")
    overload = target._overloadname
    return name if overload == "default" else f"{name}.{overload}"


def short_name(node: fx.Node) -> str:
    """The operator's name in ATen, without overload: `add` of `aten.add.Tensor`."""
    target: Any = node.target
    name: str = target._schema.name.split("::")[1]
    return name


def bind(node: fx.Node) -> Arguments:
    """The node's arguments by schema name, defaults written out."""
    bound: Arguments = {}
    target: Any = node.target
    for position, argument in enumerate(target._schema.arguments):
        if position < len(node.args):
            bound[argument.name] = node.args[position]
        elif argument.name in node.kwargs:
            bound[argument.name] = node.kwargs[argument.name]
        elif argument.has_default_value():
            bound[argument.name] = argument.default_value
        else:
            bound[argument.name] = None
    return bound


def fits_binary64(value: Any) -> bool:
    """Whether an attribute, which is binary64, can hold the number as it is."""
    return not isinstance(value, int) or int(float(value)) == value


def convert_attr(spec: OpSpec, name: str, value: Any) -> AttrValue:
    """A schema value as the attribute kind that `spec` asks for. Raises UsageError."""
    kind = spec.attrs[name].kind
    if kind == "float" and isinstance(value, (int, float)):
        if not fits_binary64(value):
            raise UsageError(
                f"{spec.name}: {name}={value} is not exact in binary64.", "Use a smaller number."
            )
        return float(value)
    if kind == "int" and isinstance(value, (int, float)) and int(value) == value:
        return int(value)
    if kind == "bool" and isinstance(value, (bool, int)):
        return bool(value)
    if kind in ("str", "dtype") and isinstance(value, torch.dtype):
        return DTYPES[value]
    if kind in ("str", "dtype") and isinstance(value, str):
        return value
    if kind == "ints" and isinstance(value, (list, tuple)):
        return tuple(int(v) for v in value)
    if kind == "bools" and isinstance(value, (list, tuple)):
        return tuple(bool(v) for v in value)
    raise UsageError(
        f"{spec.name}: {name}={value!r} cannot be written as {kind}.",
        "Give that argument a plain Python value.",
    )
