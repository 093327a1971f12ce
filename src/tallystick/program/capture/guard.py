"""What a trace would drop without a word, refused by name; and what it has to carry over.

A trace runs on meta tensors, with other tensors in the parameters' places. So autocast of a device
has no effect there, and hooks of the real parameters do not run by themselves.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.autocast_mode import autocast

from tallystick.errors import UsageError
from tallystick.program.capture.constants import (
    INDEXES,
    Constants,
    each,
    has_content,
    replaced,
    untraced,
)
from tallystick.program.capture.factories import STAY, MovingSlice, moving_slice, on_trace
from tallystick.program.capture.functions import Lowering
from tallystick.program.capture.python_state import share_hooks
from tallystick.program.capture.recorded import Use, computed, is_recorded
from tallystick.program.capture.replaced import replacing, usual
from tallystick.program.capture.source import here, model_line
from tallystick.program.capture.stand_ins import GET_DATA, SET_DATA, StandIns, apart

_WHOLE = (torch.int64, torch.int32)
_AUTOCAST = "torch.amp.autocast_mode:autocast"
_ADD_BATCH_DIM = "torch._functorch.vmap", "_add_batch_dim"
_add_batch_dim: Callable[..., Tensor] = usual(*_ADD_BATCH_DIM)
_NO_AUTOCAST = (
    "A program computes in the types that the model names: leave autocast out of forward, loss and "
    "capture, or disable it (enabled=False)."
)


def _refuse_autocast() -> UsageError:
    return UsageError(
        f"torch.autocast is on{here()}, which capture does not support.", _NO_AUTOCAST
    )


def _refuse_default_dtype() -> UsageError:
    dtype = str(torch.get_default_dtype()).removeprefix("torch.")
    return UsageError(
        f"torch's default dtype is {dtype}{here()}, which changes the type of every tensor made "
        "from Python numbers.",
        "Call torch.set_default_dtype(torch.float32) before capture, and do not change it in "
        "forward.",
    )


def _autocast_is_on() -> bool:
    return bool(torch._C._is_any_autocast_enabled())


# Where a recorded number may be a tensor without another meaning: each rounds it to the tensor's
# type first.
_WITH_NUMBERS = frozenset({
    *(
        getattr(owner, name)
        for owner in (torch, Tensor)
        for name in ("mul", "multiply", "add", "sub", "subtract", "div", "divide", "true_divide",
                     "pow", "eq", "ne", "lt", "le", "gt", "ge", "maximum", "minimum", "clamp",
                     "where", "lerp", "masked_fill")
        if hasattr(owner, name)
    ),
    *(
        getattr(Tensor, name)
        for name in ("mul_", "add_", "sub_", "div_", "__radd__", "__rsub__", "__rmul__",
                     "__rtruediv__", "__rdiv__", "__rpow__", "__pow__", "__truediv__", "__sub__",
                     "__add__", "__mul__", "__iadd__", "__isub__", "__imul__", "__itruediv__")
        if hasattr(Tensor, name)
    ),
    torch.tensor, torch.as_tensor, torch.scalar_tensor, torch.rsub,
})  # fmt: skip


_FILLING = (torch.full, torch.full_like, Tensor.new_full)


def _filled(factory: Any, like: Any, value: Any, **options: Any) -> Tensor:
    """A tensor by one of `_FILLING`, of a number of the step."""
    if not isinstance(value, Tensor):
        found: Tensor = factory(like, value, **options)
        return found
    if factory is torch.full:
        options.setdefault("dtype", value.dtype)
    made = factory(like, 0, **options)
    return value.to(made.dtype).expand(made.shape).clone()


# These make tensors from Python's numbers.
_FROM_DATA = (torch.tensor, torch.as_tensor, torch.scalar_tensor, torch.asarray, torch.from_numpy)


def _of_tensor(
    factory: Any,
    tensor: Tensor,
    /,
    dtype: torch.dtype | None = None,
    requires_grad: bool | None = None,
    copy: bool | None = None,
    **place: Any,
) -> Tensor:
    """A tensor of the trace by one of `_FROM_DATA`. torch.tensor copies it without its gradient."""
    made = tensor if dtype is None else tensor.to(dtype)
    if factory is torch.tensor or requires_grad is False:
        made = made.detach()
    if factory is torch.tensor or copy:
        made = made.clone()
    return made.requires_grad_() if requires_grad else made


def refuse_around() -> None:
    """Raises UsageError where capture was called in a state of torch that it cannot honour."""
    if _autocast_is_on():
        raise _refuse_autocast()
    if torch.get_default_dtype() is not torch.float32:
        raise _refuse_default_dtype()
    if torch.is_inference_mode_enabled():
        raise UsageError(
            f"capture was called in torch.inference_mode{here()}, where nothing has a gradient.",
            "Call it outside that block.",
        )


class GuardedLowering(Lowering):
    """Capture's replacements, with a look at torch's state at each call of the model.

    `lines` collects (first node, end node, file:line), where `count` gives the number of nodes.
    """

    def __init__(self, rng: Tensor, stand_ins: StandIns, count: Callable[[], int] | None) -> None:
        super().__init__(rng)
        self.count = count
        # Gives the tensor of the trace that stands for a recorded number, or None: then the number
        # goes in as it is.
        self.place_number: Callable[[Use], Tensor | None] = lambda use: None
        # Gives this trace's tensor for one that the model has kept of an earlier trace.
        self.kept: Callable[[Any], Any] | None = None
        self.lines: list[tuple[int, int, str]] = []
        self.constants = Constants(rng, stand_ins)
        self.apart: list[Tensor] = []  # every `x.data` of the model
        for factory in _FROM_DATA:
            self.table[factory] = self._from_data(factory)
        self.table[Tensor.new_tensor] = self._new_tensor
        for sized in (torch.arange, torch.full, torch.zeros, torch.ones, torch.empty):
            self.table[sized] = functools.partial(self._sized, sized)
        for clamp in (torch.clamp, torch.clip, Tensor.clamp, Tensor.clip):
            self.table[clamp] = self._clamp

    def _released(self, func: Any, floats: bool, value: Any) -> Any:
        """A recorded number among a call's arguments as torch takes it: a tensor of the trace, of
        whole numbers where the call has no `floats`, or else the number."""
        if not is_recorded(value):
            return value
        whole = not floats and not isinstance(value.number, float)
        if func not in _WITH_NUMBERS or (whole and isinstance(value.number, bool)):
            return value.record.pin(value)
        use = value.record.tensor(value)
        placed = self.place_number(use)
        if placed is None:
            return use.value
        return placed.to(torch.int64) if whole else placed

    def _is_table(self, value: Any) -> bool:
        """Whether `value` is a constant of one axis, which a number of the step may index."""
        known = self.constants.stand_ins
        return has_content(value) and value.dim() == 1 and known.of(value) is None

    def _with_numbers(
        self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """A call some of whose arguments are recorded numbers, as torch takes it."""
        alpha = kwargs.get("alpha")
        if is_recorded(alpha) and len(args) == 2:  # torch takes no tensor there
            scaled = self.__torch_function__(torch.mul, types, (args[1], alpha))
            args, kwargs = (args[0], scaled), {k: v for k, v in kwargs.items() if k != "alpha"}
        if func in _FILLING and is_recorded(args[1] if len(args) == 2 else None):
            kind = kwargs.get("dtype") or (None if func is torch.full else args[0].dtype)
            kind = kind or {int: torch.int64, bool: torch.bool}.get(type(args[1].number))
            value = self._released(torch.as_tensor, kind is None or kind.is_floating_point, args[1])
            return _filled, (func, args[0], value), kwargs
        if func is Tensor.__getitem__ and self._is_table(args[0]) and is_recorded(args[1]):
            with untraced():
                content = tuple(args[0].tolist())
            found = computed(operator.getitem, content, args[1])
            value = self._released(torch.as_tensor, args[0].is_floating_point(), found)
            return torch.as_tensor, (value,), {"dtype": args[0].dtype}
        leaves = [*each((*args, *kwargs.values()))]
        kinds = [v.dtype for v in leaves if isinstance(v, Tensor)] + [kwargs.get("dtype")]
        floats = any(k is not None and k.is_floating_point for k in kinds)
        change = functools.partial(self._released, func, floats)
        return (
            func,
            tuple(replaced(a, change) for a in args),
            {k: replaced(v, change) for k, v in kwargs.items()},
        )

    def _new_tensor(self, like: Tensor, data: Any, **options: Any) -> Any:
        options.setdefault("dtype", like.dtype)
        return self.table[torch.tensor](data, **options)

    def _clamp(self, x: Tensor, min: Any = None, max: Any = None, **named: Any) -> Tensor:
        """With a tensor for one bound the other is one too: torch would read the first."""
        bounds = (min, max)
        if any(isinstance(b, Tensor) for b in bounds):
            min, max = (
                self.constants.number(b, x.dtype)
                if isinstance(b, int) or (isinstance(b, float) and x.dtype.is_floating_point)
                else b
                for b in bounds
            )
        return torch.clamp(x, min, max, **named)

    def _sized(self, factory: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
        """0-d tensors among sizes and bounds as numbers: torch's own code would read them."""

        def number(value: Any) -> Any:
            if not isinstance(value, Tensor) or value.dim() != 0:
                return value
            read = Tensor.__index__ if value.dtype in _WHOLE else Tensor.item
            return self.table.get(read, read)(value)

        sizes = replaced(args, number)
        return factory(*sizes, **{k: replaced(v, number) for k, v in kwargs.items()})

    def _from_data(self, factory: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            data = args[0] if args else kwargs.get("data", kwargs.get("s", kwargs.get("obj")))
            if isinstance(data, Tensor) and not has_content(data):
                return _of_tensor(factory, data, **kwargs)
            if isinstance(data, (bool, int, float)) and not kwargs.get("requires_grad"):
                dtype = kwargs.get("dtype")
                if dtype is None:
                    known = {bool: torch.bool, int: torch.int64}
                    if factory is torch.scalar_tensor:
                        known = {}
                    dtype = known.get(type(data), torch.get_default_dtype())
                return self.constants.number(data, dtype)
            return self.constants.from_data(factory, *args, **kwargs)

        return made

    def _index(self, index: Any) -> Any:
        """An index with tensors for its lists, and numbers for tensors that bound a slice.

        Torch's own code would make the one on the meta device, without content, and read the other.
        """
        if isinstance(index, tuple):
            return tuple(self._index(part) for part in index)
        if isinstance(index, list) and index:
            whole = all(isinstance(v, (bool, int)) for v in each(index))
            return self.table[torch.tensor](index) if whole else index
        if isinstance(index, slice):
            bounds = (index.start, index.stop, index.step)
            ask = self.table.get(Tensor.__index__, operator.index)
            return slice(*(ask(b) if isinstance(b, Tensor) else b for b in bounds))
        return index

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if _autocast_is_on():
            raise _refuse_autocast()
        if torch.get_default_dtype() is not torch.float32:
            raise _refuse_default_dtype()
        if any(map(is_recorded, each((*args, *(kwargs or {}).values())))):
            func, args, kwargs = self._with_numbers(func, types, args, kwargs or {})
        if self.kept is not None:
            args = tuple(replaced(a, self.kept) for a in args)
            kwargs = {k: replaced(v, self.kept) for k, v in (kwargs or {}).items()}
        start = self.count() if self.count else 0
        if func in STAY and (args[0].is_meta or self.constants.stand_ins.of(args[0]) is not None):
            return args[0]
        if func == GET_DATA and args[0].is_meta:
            return self._data(args[0])
        if func == SET_DATA:
            return self._set_data(*args)
        moving = moving_slice(args[1]) if func in INDEXES else None
        if moving is not None:
            func, args = self._at_moving_slice(moving, func, args)
        elif func in INDEXES and args[0].is_meta:
            args = (args[0], self._index(args[1]), *args[2:])
        run = self.table.get(func, func)
        args, kwargs = on_trace(func, args, kwargs or {}, self.rng.device)
        result = self.constants.call(func, run, args, kwargs)
        if self.count and self.count() > start:
            line = model_line()
            if line:
                self.lines.append((start, self.count(), line))
        return result

    def _at_moving_slice(self, moving: MovingSlice, func: Any, args: tuple[Any, ...]) -> Any:
        reads = func is Tensor.__getitem__
        whole = args[0]
        if has_content(whole):
            whole = self.constants.place(whole)
            if not reads:
                self.constants.write(args[0])
        return MovingSlice.get if reads else MovingSlice.set, (moving, whole, *args[2:])

    def _data(self, x: Tensor) -> Tensor:
        if torch._C._functorch.is_functorch_wrapped_tensor(x):
            return x.data
        self.apart.append(apart(x))
        return self.apart[-1]

    def _set_data(self, x: Tensor, value: Tensor) -> None:
        """`x.data = value`: a copy, for the trace knows a tensor by its object."""
        if x.shape != value.shape or x.dtype != value.dtype:
            raise UsageError(
                f"`x.data = y` changes the shape or type of a tensor{here()}.",
                "Assign the new tensor to its variable or attribute.",
            )
        if self.constants.stand_ins.is_memory_of(value):
            raise UsageError(
                f"`x.data = y` lets x share the memory of a state tensor{here()}, so x would "
                "change with it.",
                "Copy the values: x.data.copy_(y).",
            )
        made = x
        if not x.is_meta:
            made = self.constants.place(x)
            self.constants.write(x)
        self._data(made).copy_(self.constants.place(value) if has_content(value) else value)

    def _add_batch_dim(self, tensor: Tensor, dim: int, level: int) -> Tensor:
        """vmap over a tensor with content goes over its constant."""
        if has_content(tensor) or self.constants.stand_ins.of(tensor) is not None:
            tensor = self.constants.place(tensor)
        return _add_batch_dim(tensor, dim, level)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """As Lowering's; an autocast that torch would switch off for want of a device counts."""
        begin, enter = autocast.__init__, autocast.__enter__
        asked: dict[int, autocast] = {}

        def init(
            self: autocast, device_type: str, dtype: Any = None, enabled: bool = True, *rest: Any,
            **named: Any,
        ) -> None:  # fmt: skip
            if enabled and device_type == "meta":
                raise _refuse_autocast()
            # torch has no autocast for meta tensors, not even a disabled one.
            device_type = "cpu" if device_type == "meta" else device_type
            begin(self, device_type, dtype, enabled, *rest, **named)
            if enabled:
                asked[id(self)] = self

        def entered(self: autocast) -> Any:
            if self._enabled or id(self) in asked:
                raise _refuse_autocast()
            return enter(self)  # type: ignore[no-untyped-call]

        with (
            replacing(_AUTOCAST, "__init__", init),
            replacing(_AUTOCAST, "__enter__", entered),
            replacing(*_ADD_BATCH_DIM, self._add_batch_dim),
            super().installed(),
        ):
            yield


def carry_hooks(real: Mapping[str, Tensor], placed: Mapping[str, Tensor]) -> None:
    """The hooks of the real parameters' gradients, on the tensors that stand for them."""
    for name, tensor in placed.items():
        if not tensor.requires_grad:
            continue
        if getattr(real[name], "_post_accumulate_grad_hooks", None):
            raise UsageError(
                f"The parameter {name} has a register_post_accumulate_grad_hook hook. It runs "
                "after a gradient is stored, but a program stores no gradients.",
                "Remove the hook. To change gradients, use Tensor.register_hook.",
            )
        share_hooks(real[name], tensor)


class ParametersChangedError(Exception):
    """A trace whose forward pass changes the parameters `names` in place."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__(", ".join(sorted(names)))
        self.names = names


class Placed:
    """The tensors in the parameters' places.

    The forward pass may change those that are `expected` to change, in place: the trace has given
    them memory of their own.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        parts: Sequence[Tensor] = (),
        expected: frozenset[str] = frozenset(),
        trained: bool = True,
    ) -> None:
        self.parameters, self.expected, self.trained = parameters, expected, trained
        self.parts, self.given = parts, len(parts)  # every `x.data`; those before were looked at
        self.before = {name: self._look(tensor) for name, tensor in parameters.items()}

    @staticmethod
    def _look(tensor: Tensor) -> tuple[int, int, bool]:
        return tensor.untyped_storage()._cdata, tensor._version, tensor.requires_grad

    def check(self, found: Mapping[str, Tensor]) -> None:
        """Raises UsageError where the forward pass put in another parameter or froze one, and
        ParametersChangedError where it changed one that was not expected to change."""
        changed = set()
        for name in sorted(set(found) | set(self.parameters)):
            if found.get(name) is not self.parameters.get(name):
                raise UsageError(
                    f"The model creates, removes or replaces the parameter {name} while it runs.",
                    "Create every parameter before capture, in the module's constructor.",
                )
            storage, version, needs = self._look(found[name])
            if self.trained and needs != self.before[name][2]:
                raise UsageError(
                    f"The model {'un' if needs else ''}freezes the parameter {name} while it runs.",
                    "Set requires_grad before capture.",
                )
            through_data = any(
                p._version > 0 and p.untyped_storage()._cdata == storage
                for p in self.parts[self.given :]
            )
            if storage != self.before[name][0]:
                raise UsageError(
                    f"The model assigns another tensor to the parameter {name} while it runs.",
                    "Change it in place, under torch.no_grad(): with copy_, mul_, clamp_.",
                )
            if version != self.before[name][1] or through_data:
                changed.add(name)
        if unexpected := changed - self.expected:
            raise ParametersChangedError(frozenset(unexpected))


def check_mode(module: nn.Module, mode: str) -> None:
    """Raises UsageError unless the module is in `mode`, which is "train" or "eval"."""
    if mode not in ("train", "eval"):
        raise UsageError(f"mode is {mode!r}.", 'Pass mode="train" or mode="eval".')
    if module.training == (mode == "train"):
        return
    name = type(module).__name__
    if module.training:
        raise UsageError(
            f'mode is "eval", but {name} is in training mode.',
            "Call module.eval() first. capture does not change the mode.",
        )
    raise UsageError(
        f"{name} is in evaluation mode (module.eval()). It would train without dropout, and batch "
        "normalisation would not update its statistics.",
        'Call module.train(), or pass mode="eval" if you mean it.',
    )


def check_loss(loss: Any) -> None:
    """Raises UsageError unless `loss` can be called with the module and the batch."""
    if isinstance(loss, (nn.Module, type)):
        name = loss.__name__ if isinstance(loss, type) else type(loss).__name__
        raise UsageError(
            f"The loss is {name}, but capture calls loss(module, batch).",
            'Pass a function: lambda module, batch: criterion(module(batch["x"]), batch["y"]).',
        )
    if not callable(loss):
        raise UsageError(
            f"The loss is a {type(loss).__name__} and cannot be called.",
            "Give a function loss(module, batch) that returns one scalar tensor.",
        )
