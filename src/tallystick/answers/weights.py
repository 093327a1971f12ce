"""The weights of a checkpoint: under the names of a module's parameters, and in a program as they
are stored, in types of NUMERICS 1.14 or in blocks (NUMERICS 19).

Capture knows float32 alone. Here each weight of bf16, f16 or a format of blocks gets its own type,
and the conversion that makes float32 of it stands right behind it. Of a table of embeddings rows
are taken first, and of experts in blocks one's matrix. What lies transposed in a file is turned
after the conversion; what a file has already added one to is read where one would be added.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.errors import RefusedModelError
from tallystick.numerics.operators.quantised import BLOCKS, DEQUANTIZE
from tallystick.numerics.types import STORED, TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Node, Program, Value

if TYPE_CHECKING:
    from tallystick.answers.model import Model

# Buffers that older versions of transformers saved, and that the module computes.
_COMPUTED = re.compile(r"(^|\.)(attn\.(masked_)?bias|rotary_emb\.inv_freq)$")
# Numbers of places and token types, which older versions saved with an encoder.
UNREAD = re.compile(r"(^|\.)embeddings\.(position_ids|token_type_ids)$")
_POOLER = "pooler."
# Files of models with experts have each expert's matrices; the module has those of all experts in
# one tensor. Mixtral has names of its own.
_EXPERT = re.compile(
    r"(.+)\.(?:block_sparse_moe\.experts\.([0-9]{1,6})\.(w[123])"
    r"|mlp\.experts\.([0-9]{1,6})\.((?:gate|up|down)_proj))\.weight"
)
_MATRICES = {"w1": "gate", "w3": "up", "w2": "down",
             "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}  # fmt: skip
_STACKED = {"gate": "gate_up_proj", "up": "gate_up_proj", "down": "down_proj"}


def _expert(name: str) -> tuple[str, int, str] | None:
    """The block that a tensor of a checkpoint belongs to, the number of its expert, and which of
    the expert's matrices it is; None of another one."""
    found = _EXPERT.fullmatch(name)
    if found is None:
        return None
    place, *rest = found.groups()
    number, matrix = [part for part in rest if part is not None]
    return place, int(number), _MATRICES[matrix]


def _parameter(name: str) -> str:
    """The parameter that a tensor of a checkpoint is, or is a part of."""
    expert = _expert(name)
    if expert is None:
        return name.replace(".block_sparse_moe.", ".mlp.")
    place, _, matrix = expert
    return f"{place}.mlp.experts.{_STACKED[matrix]}"


def _experts_together(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The tensors, the experts' as `experts.gate_up_proj` (gate above up) and
    `experts.down_proj`."""
    found: dict[str, Array] = {}
    blocks: dict[str, dict[tuple[int, str], Array]] = {}
    for name, array in arrays.items():
        expert = _expert(name)
        if expert is None:
            found[_parameter(name)] = array
        else:
            place, number, matrix = expert
            blocks.setdefault(place, {})[number, matrix] = array
    for place, matrices in blocks.items():
        count = len(matrices) // 3
        if set(matrices) != {(i, w) for i in range(count) for w in ("gate", "up", "down")}:
            raise RefusedModelError(
                f"An expert of {place} lacks a matrix.", "Save the model's weights again."
            )
        if len({matrix.dtype for matrix in matrices.values()}) != 1:
            raise RefusedModelError(
                f"The experts of {place} are stored in several types.", "Save the model again."
            )
        pairs = [np.concatenate([matrices[i, "gate"], matrices[i, "up"]]) for i in range(count)]
        found[f"{place}.mlp.experts.gate_up_proj"] = np.stack(pairs)
        found[f"{place}.mlp.experts.down_proj"] = np.stack(
            [matrices[i, "down"] for i in range(count)]
        )
    return found


def _full(name: str, known: Container[str], prefix: str) -> str:
    return name if name in known else f"{prefix}.{name}"


def stored_types(
    dtypes: Mapping[str, str],
    shapes: Mapping[str, tuple[int, ...]],
    tied: Mapping[str, str],
    prefix: str,
) -> dict[str, str]:
    """The type that each parameter is stored in, by the types of a checkpoint's tensors; the others
    are as in `named`. A name that is no parameter's is left out."""
    known = {*shapes, *tied}
    full = {_full(_parameter(name), known, prefix): dtype for name, dtype in dtypes.items()}
    found = {tied[name]: dtype for name, dtype in full.items() if name in tied}
    return found | {name: dtype for name, dtype in full.items() if name in shapes}


def encoder_names(names: Iterable[str], module: Any) -> dict[str, str]:
    """The tensors of an encoder's checkpoint that the module reads, by their names there: each with
    its name in the module. The pooler is none of them where the module has none, nor are numbers of
    places. A module without a head lacks the prefix of one that has it."""
    told = [name for name in names if not UNREAD.search(name)]
    if module.base_model is not module:
        return {name: name for name in told}
    prefix = f"{module.base_model_prefix}."
    bare = {name: name.removeprefix(prefix) for name in told}
    if len(set(bare.values())) < len(bare):
        raise RefusedModelError(
            f"The checkpoint contains one tensor both with and without {prefix!r}.",
            "Save the model again.",
        )
    return {name: own for name, own in bare.items() if not own.startswith(_POOLER)}


def types_of(model: Model, module: Any) -> dict[str, str]:
    """The type that each parameter of the model's module is stored in, the matrices of an adapter
    included."""
    from tallystick.answers.modules import parameter_names

    stored = dict(model.stored)
    if model.encoding is not None:
        stored = {own: stored[name] for name, own in encoder_names(stored, module).items()}
    if model.adapter is not None:
        stored |= model.adapter.stored
    return stored_types(stored, *parameter_names(module))


def _same_bits(a: Array, b: Array) -> bool:
    same = a.dtype == b.dtype and a.shape == b.shape
    return same and np.array_equal(a.view(np.uint8), b.view(np.uint8))


def named(
    arrays: Mapping[str, Array],
    shapes: Mapping[str, tuple[int, ...]],
    tied: Mapping[str, str],
    prefix: str,
) -> dict[str, Array]:
    """The array of each parameter in `shapes`, from the tensors of a checkpoint.

    `tied` has further names with the parameter's own; their tensors must be equal. `prefix` is what
    the names of a checkpoint without a head lack. Raises RefusedModelError for a tensor that is
    missing, unknown, of another shape, or different under a tied name.
    """
    found: dict[str, Array] = {}
    again: list[tuple[str, Array]] = []
    known = {*shapes, *tied}
    for name, array in _experts_together(arrays).items():
        full = _full(name, known, prefix)
        if full in shapes:
            found[full] = array
        elif full in tied:
            again.append((full, array))
        elif not _COMPUTED.search(name):
            raise RefusedModelError(
                f"The checkpoint contains a tensor {name[:200]!r}, which the model does not have.",
                "Use a directory that save_pretrained wrote for this architecture.",
            )
    for name, array in again:
        own = found.setdefault(tied[name], array)
        if own is not array and not _same_bits(own, array):
            raise RefusedModelError(
                f"{name} and {tied[name]} differ, but the config ties them.",
                'Set "tie_word_embeddings": false in config.json, or save the model again.',
            )
    for name, shape in shapes.items():
        if name not in found or found[name].shape != shape:
            has = f"has shape {list(found[name].shape)}" if name in found else "is missing"
            raise RefusedModelError(
                f"The checkpoint's {name} {has}, but the config gives it {list(shape)}.",
                "Use the weights that belong to this config.json.",
            )
    return {name: found[name] for name in sorted(shapes)}


_EMBEDDING = "aten.embedding"
_SLICE, _VIEW = "aten.slice", "aten.view"
_ADD = "aten.add.Scalar"


def stored_shape(kind: str, shape: tuple[int, ...], turned: bool = False) -> tuple[int, ...]:
    """The shape of the slot of a parameter of `shape` that is stored as `kind`; ANSWERS 12.3."""
    if turned:
        shape = shape[::-1]
    if kind not in BLOCKS:
        return shape
    block = BLOCKS[kind]
    if not shape or shape[-1] % block.elements:
        raise RefusedModelError(
            f"Rows of {list(shape)} do not consist of whole blocks of {kind}.",
            "Use the file that belongs to this model.",
        )
    return (*shape[:-1], shape[-1] // block.elements * block.size)


def over_stored(
    program: Program,
    stored: Mapping[str, str],
    turned: Container[str] = (),
    plus_one: Container[str] = (),
) -> Program:
    """`program`, which has no next state, with the slots of `stored` in these types or formats,
    those of `turned` transposed, and those of `plus_one` greater by one. Raises RefusedModelError
    for one of them that is read otherwise than plus one."""
    builder = Builder(program.contract)
    inputs: list[Value] = []
    kinds: dict[Value, tuple[str, bool]] = {}
    for spec in program.inputs:
        if spec.kind == "state":
            kind, turns = stored.get(spec.name, spec.type.dtype), spec.name in turned
            dtype = "u8" if kind in BLOCKS else kind
            shape = stored_shape(kind, spec.type.shape, turns)
            value = builder.state(spec.name, TensorType(dtype, shape))
            kinds[value] = (kind, turns)
        else:
            value = builder.batch(spec.name.removeprefix("batch."), spec.type)
        inputs.append(value)
    made: list[list[Value]] = []

    def moved(value: Value) -> Value:
        return inputs[value.out] if value.is_input else made[value.node][value.out]

    def converted(value: Value, kind: str) -> Value:
        if kind in BLOCKS:
            return builder.one(DEQUANTIZE, [value], format=kind)
        return builder.one("aten._to_copy", [value], dtype="f32") if kind in STORED else value

    def wide(value: Value) -> Value:
        kind, turns = kinds.get(value, ("", False))
        found = converted(value, kind)
        return builder.one("aten.permute", [found], dims=(1, 0)) if turns else found

    def of_bytes(node: Node, given: Value | None) -> Value | None:
        """The node's value in blocks, where it takes whole matrices of several in blocks."""
        kind, turns = ("", False) if given is None else kinds.get(given, ("", False))
        if given is None or kind not in BLOCKS or turns:
            return None
        shape, (out,) = builder.type_of(given).shape, node.out_types
        if node.op == _SLICE and node.attrs["dim"] == 0 and len(shape) == 3:
            found = builder.one(_SLICE, [given], **node.attrs)
        elif node.op == _VIEW and len(shape) == 3 and (1, *out.shape[:-1]) == shape[:-1]:
            found = builder.one(_VIEW, [given], size=shape[1:])
        else:
            return None
        kinds[found] = (kind, False)
        return found

    for node in program.nodes:
        operands = [None if v is None else moved(v) for v in node.inputs]
        read = [
            name
            for v in node.inputs
            if v is not None and v.is_input and (name := program.inputs[v.out].name) in plus_one
        ]
        if read and not _adds_one(node):
            raise RefusedModelError(
                f"The file stores {read[0]} plus one, which transformers reads differently.",
                "Use the model's directory, as save_pretrained wrote it.",
            )
        if read:
            assert operands[0] is not None
            made.append([wide(operands[0])])
            continue
        table = operands[0] if node.op == _EMBEDDING else None
        kind, turns = ("", False) if table is None else kinds.get(table, ("", False))
        if table is not None and not turns and (kind in BLOCKS or kind in STORED):
            index, (out,) = operands[1], node.out_types
            assert index is not None
            count = builder.type_of(index).numel
            flat = builder.one(_VIEW, [index], size=(count,))
            rows = builder.one("aten.index_select", [table, flat], dim=0)
            made.append([builder.one(_VIEW, [converted(rows, kind)], size=out.shape)])
        elif operands and (taken := of_bytes(node, operands[0])) is not None:
            made.append([taken])
        else:
            given = [None if v is None else wide(v) for v in operands]
            made.append(builder.emit(node.op, given, **node.attrs))
    return builder.finish({name: wide(moved(value)) for name, value in program.outputs})


def _adds_one(node: Node) -> bool:
    return node.op == _ADD and node.attrs["other"] == 1 and node.attrs["alpha"] == 1
