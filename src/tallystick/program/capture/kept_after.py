"""The next state of what traced code keeps outside of the module, and what is refused there
(PROGRAM 5.20).

torch keeps references, a state keeps values. So a tensor that would see a later change elsewhere
has no next state. And no program trains such a tensor: a gradient by one is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from tallystick.errors import UsageError
from tallystick.program.capture.carried import CLONE, Carried, Placing
from tallystick.program.capture.constants import has_content
from tallystick.program.capture.factories import node_of
from tallystick.program.capture.guard import GuardedLowering
from tallystick.program.capture.outside import KeptTensor, storage_of
from tallystick.program.capture.source import here
from tallystick.program.capture.stand_ins import is_written


def kept_after(
    placing: Placing, state: Mapping[str, Tensor], lowering: GuardedLowering
) -> dict[str, Tensor]:
    """What the code keeps after the call, by the name of the buffer slot, as tensors of the trace.

    `state` has the module's own tensors by name. Raises UsageError where a slot has no next state.
    """
    found = {}
    outside = placing.outside
    for slot in placing.slots:
        kept, made = slot.members[0], placing.made[slot.name]
        value = slot.after(placing.placed[slot.name], made)
        if lowering.kept is not None:
            value = lowering.kept(value)  # what an earlier call has made of no input is made again
        _check_known(value, kept)
        kept.note_graph(value)
        if has_content(value):  # another one may hold it too, a place that is no slot
            outside.together.append(frozenset({slot.name, ""}))
            value = lowering.constants.place(value)
        if value.dtype != made.dtype:
            raise kept.refusal(
                f"changes its type from {str(made.dtype)[6:]} to {str(value.dtype)[6:]}",
                "Make it before the training of the type that it stays.",
            )
        found[slot.name] = value
    _refuse_shared(placing, found, state, lowering)
    return found


def _check_known(value: Tensor, kept: KeptTensor) -> None:
    if not has_content(value) and node_of(value) is None:
        raise kept.refusal(
            "is made anew in a way that the trace does not see, as by torch.nn.Parameter(...)",
            "Copy the new values into it (copy_), or keep a plain tensor.",
        )


def _refuse_shared(
    placing: Placing,
    after: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    lowering: GuardedLowering,
) -> None:
    own = {storage_of(t): name for name, t in state.items()}
    sees: dict[int, set[str]] = {}
    for slot in placing.slots:
        owner = own.get(storage_of(after[slot.name]))
        if owner is not None:
            raise slot.members[0].refusal(
                f"becomes the memory of the module's {owner}, and would change with it", CLONE
            )
        for tensor in (after[slot.name], placing.made[slot.name]):
            sees.setdefault(storage_of(tensor), set()).add(slot.name)
    after_it: dict[int, set[str]] = {}
    for name, tensor in after.items():
        after_it.setdefault(storage_of(tensor), set()).add(name)
    outside = placing.outside
    outside.together += [frozenset(n) for n in after_it.values() if len(n) > 1]
    outside.flows += [frozenset(n) for n in sees.values() if len(n) > 1]
    outside.mutated |= {n for n in after if is_written(placing.made[n], lowering.apart)}
    for names in sees.values():
        changing = [n for n in names if is_written(placing.made[n], lowering.apart)]
        if len(names) > 1 and changing:
            one = next(s for s in placing.slots if s.name in names)
            raise one.members[0].refusal(
                "shares memory with another kept tensor, and one of them changes in place", CLONE
            )


def refuse_shared_between_steps(carried: Carried) -> None:
    """Raises UsageError where slots may see one memory after some step, and another step changes
    one of them in place. What flows from one slot to another counts as theirs together."""
    outside = carried.outside
    groups: list[set[str]] = []
    for names in (*outside.flows, *outside.together):
        joined = set(names).union(*(g for g in groups if g & names - {""}))
        groups = [g for g in groups if not g & names - {""}] + [joined]
    at_once = set().union(*outside.together)
    for group in groups:
        if group & at_once - {""} and group & outside.mutated:
            one = next(s for s in carried.slots if s.name in group & outside.mutated)
            raise one.members[0].refusal(
                "shares memory with another kept tensor after one step, and changes in place in "
                "another step",
                CLONE,
            )


class UntrainedError(UsageError):
    """A loss has a gradient by what no program trains."""


def refuse_untrained(loss: Tensor, leaves: Sequence[Tensor]) -> None:
    """Raises UsageError where a gradient of the loss would reach a tensor outside of the module."""
    wanted = {id(leaf) for leaf in leaves}
    seen: set[object] = set()
    stack = [loss.grad_fn] if wanted else []
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) in wanted:
            raise UntrainedError(
                f"The loss has a gradient by a tensor {tuple(leaf.shape)} that is kept outside of "
                f"the module{here()}. A program would not train it.",
                "detach() what is kept or read; or make it a torch.nn.Parameter of the module.",
            )
        stack.extend(part for part, _ in node.next_functions)
