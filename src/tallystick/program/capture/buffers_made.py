"""Buffers that a forward pass makes or removes (PROGRAM 5.20 g)."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from tallystick.errors import MovingStateError, UsageError


def empty_buffers(module: nn.Module) -> frozenset[str]:
    """The names of buffers that are registered and hold None."""
    return frozenset(
        f"{path}.{name}" if path else name
        for path, child in module.named_modules()
        for name, tensor in child._buffers.items()
        if tensor is None
    )


def check_buffers(
    found: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    empty: frozenset[str],
    filled: frozenset[str],
) -> None:
    """Raises UsageError where the forward pass made or removed a buffer. Those of `filled` may get
    a tensor; those of `empty` might where each step is traced by itself."""
    for name in sorted((set(found) ^ set(wanted)) - filled):
        if name in empty:
            raise MovingStateError(
                f"The model fills the buffer {name}, which holds None, while it runs.",
                "Give it a tensor before the training (torch.zeros for none).",
            )
        what = "removes" if name in wanted else "makes"
        raise UsageError(
            f"The model {what} the buffer {name} while it runs.",
            "Buffers are state: register each in the module's constructor.",
        )
