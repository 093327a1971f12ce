"""What capture replaces in libraries while it traces or follows code: each name, and why.

All of it is back when the block ends. What stands for a time in the person's own objects (a
parameter, a module's `forward`, a function's code) stands with what puts it there.
"""

from __future__ import annotations

import contextlib
import io
import pkgutil
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from tallystick.errors import CannotCheckError

# By library: the versions with which what is replaced has been tried. Those of constraints.txt are
# among them.
TRIED: dict[str, tuple[str, ...]] = {
    "torch": ("2.13.0",),
    "transformers": ("5.23.0",),
    "numpy": ("2.4.6",),
    "python": ("3.11.7",),
}


@dataclass(frozen=True)
class Replaced:
    """Names of a module, or of a class as `module:Class`. Its owner is imported at first use, so
    reading the table needs no library."""

    owner: str
    names: tuple[str, ...]
    why: str

    @property
    def library(self) -> str:
        """The name of the library that has them, a key of TRIED."""
        root = self.owner.partition(":")[0].partition(".")[0]
        return root if root in TRIED else "python"


# Functions in C over plain numbers, which would pin what they get; and the two of Python that
# compare: piecewise numbers are numbers, and no branches.
FOLLOWED = (
    Replaced(
        "math",
        (
            "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "ceil", "copysign", "cos",
            "cosh", "degrees", "erf", "erfc", "exp", "expm1", "fabs", "floor", "fmod", "gamma",
            "gcd", "hypot", "isclose", "isfinite", "isinf", "isnan", "ldexp", "log", "log10",
            "log1p", "log2", "pow", "radians", "remainder", "sin", "sinh", "sqrt", "tan", "tanh",
            "trunc",
        ),
        "Recorded numbers are followed through them.",
    ),
    Replaced("numpy", ("clip", "interp"), "Recorded numbers are followed through them."),
    Replaced("builtins", ("min", "max"), "Recorded numbers are followed through them."),
)  # fmt: skip

REPLACED = (
    *FOLLOWED,
    Replaced(
        "torch.nn.functional",
        (
            "alpha_dropout", "batch_norm", "cross_entropy", "dropout", "dropout1d", "dropout2d",
            "dropout3d", "feature_alpha_dropout", "gumbel_softmax", "instance_norm", "rrelu",
            "scaled_dot_product_attention",
        ),
        "Functionals call each other by name, where torch has switched our function mode off.",
    ),
    Replaced(
        "torch.autograd",
        ("_engine_run_backward",),
        "torch switches our function mode off around a backward pass.",
    ),
    Replaced(
        "torch.utils.checkpoint",
        ("CheckpointFunction", "_checkpoint_without_reentrant_generator"),
        "A checkpointed function runs once, so each random call has one draw id.",
    ),
    Replaced(
        "torch.jit:ScriptFunction",
        ("__call__",),
        "A scripted function runs as it is written, for a trace to see inside.",
    ),
    Replaced(
        "torch.distributions:Distribution",
        ("_validate_args",),
        "To check its arguments, a distribution reads the values of tensors.",
    ),
    Replaced(
        "torch.nn:Module",
        ("_call_impl",),
        "Around each submodule's call, without hooks that code could see.",
    ),
    Replaced(
        "torch.amp.autocast_mode:autocast",
        ("__init__", "__enter__"),
        "On meta tensors torch would switch autocast off, and its use is to be refused.",
    ),
    Replaced(
        "torch._functorch.vmap",
        ("_add_batch_dim",),
        "vmap over a tensor with content goes over its constant.",
    ),
    Replaced(
        "torch.fx.experimental.proxy_tensor",
        ("proxy_call", "set_meta"),
        "The short way to record an ordinary call; a node's meta is the tensor itself.",
    ),
    Replaced(
        "torch.fx._symbolic_trace",
        ("_is_fx_tracing_flag",),
        "Code that asks whether it is traced is told so, as by make_fx.",
    ),
    Replaced("torch.optim.adam", ("adam",), "The step of NUMERICS 11 in reproducible()."),
    Replaced("torch.optim.sgd", ("sgd",), "The step of NUMERICS 11 in reproducible()."),
    Replaced(
        "torch.utils.data._utils.worker",
        ("_worker_loop",),
        "A DataLoader's worker computes in the block of the process that started it.",
    ),
    Replaced(
        "transformers.integrations.moe:ExpertsInterface",
        ("get_interface",),
        "The shapes of its implementations depend on values. Only where it has been imported.",
    ),
    Replaced("logging:StreamHandler", ("emit",), "Nobody is told of a second run of the step."),
)  # fmt: skip

REPLACED_BY_NAME = {(row.owner, name): row for row in REPLACED for name in row.names}


def usual(owner: str, name: str) -> Any:
    """What the library has there now. Raises CannotCheckError where it has no such name."""
    return getattr(_owner(owner, name), name)


@contextlib.contextmanager
def replacing(owner: str, name: str, value: Any) -> Iterator[None]:
    """Within the block `value` stands there: `owner` and `name` are an entry of REPLACED.

    Raises CannotCheckError where the library has no such name.
    """
    holder = _owner(owner, name)
    own, before = name in vars(holder), vars(holder).get(name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        if own:
            setattr(holder, name, before)
        else:
            delattr(holder, name)  # it is inherited again


def _owner(owner: str, name: str) -> Any:
    row = REPLACED_BY_NAME[owner, name]
    try:
        found = pkgutil.resolve_name(owner)
        getattr(found, name)
    except (ImportError, AttributeError) as error:
        library, tried = row.library, " and ".join(TRIED[row.library])
        has = platform.python_version() if library == "python" else version(library)
        raise CannotCheckError(
            f"{library} {has} has no {owner.replace(':', '.')}.{name}, which capture replaces.",
            f"Install a version that it was tried with: {tried}.",
        ) from error
    return found


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What the step prints and logs inside of the block is dropped."""
    with (
        replacing("logging:StreamHandler", "emit", lambda handler, record: None),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        yield
