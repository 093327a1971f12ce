"""`with tallystick.reproducible("ordered/1"):` — plain eager PyTorch code with the contract's bits.

Every ATen call that reaches the dispatcher becomes a program of one call, lowered by the same
rules as capture (PROGRAM 5.2), and runs on the contract's kernels. Calls that only move or allocate
storage stay torch's: `STORAGE` lists them, with views. The block commits to no value; for a
commitment, capture the step.

Where the random numbers come from (PROGRAM 5.23): with `seed=` they are those of a capture: key
(seed, step), draw ids in order. Without it each call has a key of its own, the next number of
torch's default generator. So the position is torch's state of random numbers, which every library
saves and restores as it does without us.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch._C import DispatchKey
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import get_worker_info

from tallystick.devices.environment import check_environment, exact_environment
from tallystick.errors import TallystickError, UnsupportedOperatorError, UsageError
from tallystick.numerics.contracts import find_without_log
from tallystick.numerics.registry import all_ops
from tallystick.program.capture.decompose import composition
from tallystick.program.capture.exact_calls import answer, as_float32, by_positions, is_exchange
from tallystick.program.capture.functions import Lowering
from tallystick.program.capture.lower import lowering
from tallystick.program.capture.one_call import (
    Functional,
    OneCall,
    functional,
    is_storage_view,
    meaning,
    on_meta,
    shape_of,
)
from tallystick.program.capture.replaced import replacing, usual
from tallystick.program.capture.rules_linalg import qr
from tallystick.program.capture.schema import op_name
from tallystick.program.capture.stock_optimizers import StockUpdates
from tallystick.program.capture.transformers_calls import eager_experts

# Random operators that a function of torch in C++, or one that `Lowering` does not see inside,
# calls by itself: ATen's name and ours. Their arguments are those of the Python functions.
_BY_NAME = {
    "rand": "rand", "randn": "randn", "rand_like": "rand_like", "randn_like": "randn_like",
    "randint": "randint", "randint_like": "randint_like", "randperm": "randperm",
    "normal": "normal_of", "bernoulli": "bernoulli", "multinomial": "multinomial",
    "bernoulli_": "bernoulli_", "normal_": "normal_", "log_normal_": "log_normal_",
    "uniform_": "uniform_", "random_": "random_", "exponential_": "exponential_",
}  # fmt: skip


def key_from(generator: Any) -> Tensor:
    """i64[2]: the low 63 bits of the generator's next 64-bit number, and step 0."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        word = torch.empty((), dtype=torch.int64).random_(generator=generator)
        return torch.stack([word, torch.zeros_like(word)])


class Streams(Lowering):
    """Capture's replacements, which draw from (seed, step) or from torch's generators.

    `operators` counts the runs of the contract's kernels in the block, by the operator's name.
    """

    def __init__(self, seed: int | None) -> None:
        super().__init__(torch.from_numpy(np.array([seed or 0, 0], dtype=np.int64)))
        self.seed = seed
        self.operators: Counter[str] = Counter()

    def next_step(self) -> None:
        """Begin the next training step: its masks are those of a capture's next step.

        Without `seed=` it changes nothing: there every call has a key of its own.
        """
        self.draws = 0
        self.rng = torch.from_numpy(np.array([int(self.rng[0]), int(self.rng[1]) + 1]))

    def check_generator(self, name: str, generator: Any) -> None:
        """Raises UsageError for a generator of another device than the CPU."""
        if generator is not None and generator.device.type != "cpu":
            raise UsageError(
                f"{name} has a generator on the device {generator.device}.",
                "Use one on the CPU: torch.Generator().",
            )

    def place(self, generator: Any = None) -> tuple[Tensor, int]:
        """Key and draw id of the next random call.

        A worker of a DataLoader draws by the seed that torch gave it: with `seed=` all of them
        would have the same numbers.
        """
        if generator is None and self.seed is not None and get_worker_info() is None:
            return super().place()
        return key_from(generator), 0

    def drawn_by(self, func: Any) -> Any:
        """The replacement of a random ATen operator, or None for any other operator."""
        name = _BY_NAME.get(op_name(func).removeprefix("aten.").partition(".")[0])
        return None if name is None else getattr(self, name)


# Allocation and movement of storage: no bit of a value depends on the library that does it.
STORAGE = frozenset(
    f"aten.{name}"
    for name in (
        "empty.memory_format", "empty_like", "empty_strided", "empty_permuted", "new_empty",
        "new_empty_strided", "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones",
        "full", "full_like", "new_full", "scalar_tensor", "clone", "copy_", "zero_", "fill_.Scalar",
        "fill_.Tensor", "_unsafe_view", "_reshape_alias", "lift_fresh", "lift_fresh_copy",
        "_local_scalar_dense", "is_same_size", "resize_", "set_.source_Tensor",
    )
)  # fmt: skip

# They read flags or types, and make no value.
_CHECKS = frozenset(
    {"aten._linalg_check_errors"}
    | {
        f"aten.result_type.{form}"
        for form in ("Tensor", "Scalar", "Scalar_Tensor", "Scalar_Scalar")
    }
)

# Their values are whatever the memory held. In the block they are zero, as in a program.
_UNINITIALISED = frozenset(
    name for name in STORAGE if name.startswith(("aten.empty", "aten.new_empty"))
)

# A program's nodes grow with the columns of these. Here one step runs after the other.
_WRITTEN_OUT = {"aten.linalg_qr": qr}

# Calls kept ready. A call whose Python numbers change in every step is never met again.
_READY = 4096

_one_thread = threading.RLock()
_LOOP = "torch.utils.data._utils.worker", "_worker_loop"
_worker_loop = usual(*_LOOP)


def is_storage(func: Any) -> bool:
    """Whether `func` only allocates, moves, views or checks storage, so that torch runs it."""
    return func.is_view or is_storage_view(func) or op_name(func) in STORAGE | _CHECKS


@functools.cache
def _is_composite(func: Any) -> bool:
    """Whether autograd takes an operator apart that a program does not know.

    Below autograd, and in inference mode, torch leaves it whole. One that a program knows stays
    whole too (`silu_backward` in a backward pass): a capture has it.
    """
    name = op_name(func)
    if name in lowering or name in composition or name in all_ops() or func in decomposition_table:
        return False
    return bool(func.has_kernel_for_dispatch_key(DispatchKey.CompositeImplicitAutograd))


class _ContractDispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs every computing ATen call of the block on the contract's kernels."""

    def __init__(self, contract: str, streams: Streams) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.contract = contract
        self.streams = streams
        self.calls: OrderedDict[Any, OneCall] = OrderedDict()

    @exact_environment()
    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "profiler" or is_exchange(func, args):
            return func(*args, **kwargs)
        written = self.streams.drawn_by(func) or _WRITTEN_OUT.get(op_name(func))
        if written is not None:
            with self:
                return written(*args, **kwargs)
        if _is_composite(func):
            with self:
                return func.decompose(*args, **kwargs)
        args = by_positions(func, args)
        if is_storage(func):
            return self._store(func, args, kwargs)
        if op_name(func) == "aten.equal":
            return self._equal(*args)
        if func._schema.is_mutable:
            return self._mutate(func, args, kwargs)
        return self._compute(func, args, kwargs)

    def _store(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = op_name(func)
        if name in ("aten.copy_", "aten.fill_.Tensor") and isinstance(args[1], Tensor):
            args = (args[0], self._as_type(args[1], args[0].dtype), *args[2:])
        result = func(*args, **kwargs)
        return result.zero_() if name in _UNINITIALISED else result

    def _as_type(self, tensor: Tensor, dtype: torch.dtype) -> Tensor:
        """`tensor` converted by the contract: a conversion rounds."""
        if tensor.dtype == dtype:
            return tensor
        converted: Tensor = self._compute(
            torch.ops.aten._to_copy.default, (tensor,), {"dtype": dtype}
        )
        return converted

    def _equal(self, left: Tensor, right: Tensor) -> bool:
        if left.shape != right.shape:
            return False
        return not self._compute(torch.ops.aten.ne.Tensor, (left, right), {}).numpy().any()

    def _compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args = as_float32(args)
        leaves, tree = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        _check_tensors(func, tensors)
        found = answer(func, args, kwargs, self._compute)
        if found is not NotImplemented:
            return found
        key = (func, tree, tuple(meaning(leaf) for leaf in leaves))
        call = self.calls.pop(key, None)
        if call is None:
            with _torch_errors(func):
                call = OneCall(func, args, kwargs, self.contract)
        self.calls[key] = call
        if len(self.calls) > _READY:
            self.calls.popitem(last=False)
        self.streams.operators.update(call.operators)
        return call(tensors)

    def _mutate(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """x.add_(y) becomes x.copy_(x.add(y)), because the contract knows values and no storage."""
        form = functional(func)
        if form is None:
            raise UnsupportedOperatorError(
                f"{op_name(func)} changes its operands in a way that reproducible() does not know.",
                "Use the operator that returns a new tensor (and optimizers with fused=False).",
            )
        given = {a.name: v for a, v in zip(func._schema.arguments, args, strict=False)} | kwargs
        targets, _ = pytree.tree_flatten([given[name] for name in form.written])
        _check_tensors(func, [t for t in targets if isinstance(t, Tensor)])
        with _torch_errors(func):
            _try_on_meta(func, args, kwargs)
        if form.out:
            kwargs = {name: v for name, v in kwargs.items() if name not in form.written}
        if form.factory:
            kwargs = {**kwargs, "dtype": targets[0].dtype}
        results = self._compute(form.pure, args, kwargs)
        values, _ = pytree.tree_flatten(results)
        for target, value in zip(targets, values[len(values) - len(targets) :], strict=True):
            if target is not None:
                self._write(target, value)
        return _returned(func, form, given, results)

    def _write(self, target: Tensor, value: Tensor) -> None:
        if target.shape != value.shape:
            target.resize_(value.shape)
        target.copy_(self._as_type(value, target.dtype))


def _returned(func: Any, form: Functional, given: dict[str, Any], results: Any) -> Any:
    """What the operator returns: the written tensors themselves, or its results before them."""
    count = len(func._schema.returns)
    if count == 0:
        return None
    if all(r.alias_info is None for r in func._schema.returns):
        return tuple(results)[:count] if count > 1 else results[0]
    kept = [given[name] for name in form.written]
    return kept[0] if count == 1 else tuple(kept)


def _try_on_meta(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Torch's own checks of shapes and dtypes, on tensors without storage."""
    leaves, tree = pytree.tree_flatten((args, kwargs))
    shapes = [shape_of(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    meta_args, meta_kwargs = pytree.tree_unflatten(shapes, tree)
    func(*meta_args, **on_meta(func, meta_kwargs))


def _check_tensors(func: Any, tensors: list[Tensor]) -> None:
    for tensor in tensors:
        if tensor.device.type != "cpu":
            raise UsageError(
                "reproducible() works on CPU tensors only.", "Move the model and data to the CPU."
            )
        if tensor.layout != torch.strided:
            raise UnsupportedOperatorError(
                f"{op_name(func)} gets a tensor of layout {str(tensor.layout)[6:]}, which no "
                "contract defines.",
                "Use dense tensors.",
            )


@contextlib.contextmanager
def _torch_errors(func: Any) -> Iterator[None]:
    """A refusal of torch's, as a refusal of the operator by name."""
    try:
        yield
    except TallystickError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        raise UnsupportedOperatorError(
            f"{op_name(func)} cannot run under the contract: {error}",
            "spec/NUMERICS.md lists the supported operators.",
        ) from error


def _worker_in_block(contract: str, seed: int | None, *given: Any) -> None:
    """The loop of a DataLoader's worker, in the block of the process that started it.

    A forked worker is in it already. One that was started afresh enters its own.
    """
    modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    if any(isinstance(mode, _ContractDispatch) for mode in modes):
        _worker_loop(*given)
        return
    with reproducible(contract, seed=seed):
        _worker_loop(*given)


@contextlib.contextmanager
def reproducible(contract: str = "ordered/1", *, seed: int | None = None) -> Iterator[Streams]:
    """Within the block, eager CPU PyTorch computes with the bits of `contract`.

    Covers forward, backward and torch.optim, in place, with out= and by lists of tensors. Adam,
    AdamW and SGD take the steps of `tallystick.Adam`, `AdamW` and `SGD` (NUMERICS 11). Memory
    without content is zero in the block. `operators` of what it yields counts the kernels that ran.

    Dropout and torch's other random calls draw from Philox (PROGRAM 5.23). Without `seed=` a block
    goes on where the last one ended: each call takes a key from torch's default generator, so
    `torch.manual_seed` begins anew and `torch.get_rng_state` and `set_rng_state` hold the position;
    `generator=` gives one of the caller's. With `seed=` the numbers are those of a capture with
    this seed, from step 0 on; call `.next_step()` on what the block yields, after each step.

    Raises UnsupportedVersionError for an unknown contract or one that keeps a log,
    UnsupportedOperatorError by name for an operator outside it, UsageError for tensors that are
    not on the CPU, and where another thread has a block open.
    """
    meaning = find_without_log(contract).text
    check_environment()
    if not _one_thread.acquire(blocking=False):
        raise UsageError(
            "Another thread is inside a reproducible() block.",
            "Leave that block first. It replaces functions of torch in the whole process.",
        )
    streams = Streams(seed)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with contextlib.ExitStack() as stack:
            for patch in StockUpdates(meaning, streams.operators).patches():
                stack.enter_context(patch)
            stack.enter_context(eager_experts())
            stack.enter_context(streams.installed())
            stack.enter_context(_ContractDispatch(meaning, streams))
            workers = functools.partial(_worker_in_block, contract, seed)
            stack.enter_context(replacing(*_LOOP, workers))
            yield streams
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        _one_thread.release()
