"""Records what a PyTorch loop computes, operator by operator (`tallystick.trace`).

A dispatch mode sees every ATen call of the block, also those of a backward pass and of an
optimizer. It writes the digests of the tensors that the call read and made. It changes no value.
Whatever writes into a tensor without an ATen call, such as numpy on its memory, shows as an input
that is not what the operator before it has left.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils.weak import WeakIdKeyDictionary

from tallystick.commit.encoding import JsonValue
from tallystick.comparing.recorded_tensors import (
    UnwrittenMemory,
    bytes_of,
    environment,
    generator_of,
    is_gone,
    outside_generators,
    storage_of,
    type_of,
)
from tallystick.comparing.tracefile import UNREADABLE, UNWRITTEN, TraceWriter, digest_of
from tallystick.errors import UsageError

_ROWS = 4096  # records of a batch that are digested one by one
_TEXT = 2000  # characters of an operator's other arguments
# Operators whose results are whatever the memory held.
_UNWRITTEN = ("empty", "new_empty")
_PURGE = 10_000  # storages known before those that are gone are forgotten


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes a line for each ATen call."""

    def __init__(self, writer: TraceWriter, only: int | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._writer, self._only = writer, only
        self._process = os.getpid()
        self.step, self._number = 0, 0
        self.place: list[str] = []
        self._paths: dict[int, str] = {}
        self.phase = ""
        # Of a block of `reproducible`: where its own generators stand.
        self.position: Callable[[], str] = str
        # Of each storage that an operator has written: the step and the number of the last one.
        self._writers: dict[int, tuple[StorageWeakRef, int, int, int]] = {}
        self._unwritten: dict[int, UnwrittenMemory] = {}
        # Of each tensor that an operator has returned, the operator: a view writes no storage.
        self._made: Any = WeakIdKeyDictionary()
        self._named: Any = WeakIdKeyDictionary()
        self._states: Any = WeakIdKeyDictionary()
        self._batches: set[str] = set()
        # What was said once: the arguments of operators, and how each module stood.
        self._schemas: set[str] = set()
        self._roots: Any = WeakIdKeyDictionary()
        self._called = 0  # outermost modules so far
        self._modules: dict[tuple[int, str], tuple[str, bool]] = {}
        self._optimizers: Any = WeakIdKeyDictionary()
        self._classes: dict[str, int] = {}
        # The generators outside of torch that nobody has drawn from yet, as they stood.
        self._untouched = outside_generators()
        writer.line("step", 0)

    # -- the calls -----------------------------------------------------------------------------
    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if os.getpid() != self._process or func.namespace in ("profiler", "prim"):
            return func(*args, **kwargs)  # a forked worker of a loader has no file of its own
        leaves, _ = pytree.tree_flatten((args, kwargs))
        read = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        with _disable_current_modes():
            inputs: list[Any] = [self._input(tensor) for tensor in read]
            drawn = self._drawn(func, args, kwargs)
        result = func(*args, **kwargs)
        made = [t for t in pytree.tree_leaves(result) if isinstance(t, Tensor)]
        with _disable_current_modes():
            written = _written(func, args, kwargs)
            returned = {id(tensor) for tensor in made}
            made += [tensor for tensor in written if id(tensor) not in returned]
            self._settle(func, read, made, written)
            self._schema(func)
            outputs: list[Any] = [self._output(tensor) for tensor in made]
            self._writer.line(
                "op", str(func), _arguments(args, kwargs), self._where(), inputs, outputs, drawn
            )
            self._number += 1
        return result

    def _input(self, tensor: Tensor) -> list[Any]:
        digest, form = self._digest(tensor), type_of(tensor)
        kind, name = self._leaf(tensor)
        found = self._writers.get(storage_of(tensor))
        step, source, out = (-1, 0, 0) if found is None else found[1:]
        step, source, out = max((step, source, out), self._made.get(tensor, (-1, 0, 0)))
        if step < 0 and kind == "data":
            self._rows(tensor, digest)
        self._keep(tensor, digest, form)
        return [digest, form, kind, name, step, source, out]

    def _schema(self, func: Any) -> None:
        """Name the arguments of an operator, with their defaults, once."""
        name = str(func)
        if name not in self._schemas:
            self._schemas.add(name)
            known: list[JsonValue] = [[a.name, _default(a)] for a in func._schema.arguments]
            self._writer.line("schema", name, known)

    def _leaf(self, tensor: Tensor) -> tuple[str, str]:
        if tensor in self._named:
            return "parameter", str(self._named[tensor])
        if tensor in self._states:
            return "state", str(self._states[tensor])
        with contextlib.suppress(RuntimeError):  # of a view that autograd no longer knows
            if tensor.requires_grad and tensor.is_leaf:
                return "parameter", f"a parameter {type_of(tensor)}"
        return "data", ""

    def _settle(
        self, func: Any, read: list[Tensor], made: list[Tensor], written: list[Tensor]
    ) -> None:
        """Note who has written which storage, and which memory has no content yet."""
        empty = func._schema.name.rpartition("::")[2].startswith(_UNWRITTEN)
        there = {storage_of(tensor) for tensor in read}
        changed = {storage_of(tensor) for tensor in written}
        for out, tensor in enumerate(made):
            storage = storage_of(tensor)
            self._made[tensor] = (self.step, self._number, out)
            if storage and (storage not in there or storage in changed):
                reference = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]
                self._writers[storage] = (reference, self.step, self._number, out)
                if empty and storage not in there:
                    self._unwritten[storage] = UnwrittenMemory(reference)
                elif storage in self._unwritten:
                    self._fill(storage, tensor)
        if len(self._writers) > _PURGE:
            self._writers = {s: v for s, v in self._writers.items() if not is_gone(v[0])}

    def _fill(self, storage: int, tensor: Tensor) -> None:
        if self._unwritten[storage].fills(tensor):
            del self._unwritten[storage]
        self._unwritten = {s: v for s, v in self._unwritten.items() if not is_gone(v.reference)}

    def _output(self, tensor: Tensor) -> list[Any]:
        digest, form = self._digest(tensor), type_of(tensor)
        self._keep(tensor, digest, form)
        return [digest, form]

    # -- the values ----------------------------------------------------------------------------
    def _digest(self, tensor: Tensor) -> str:
        empty = self._unwritten.get(storage_of(tensor))
        if empty is not None and not empty.holds(tensor):
            return UNWRITTEN
        data = bytes_of(tensor)
        return UNREADABLE if data is None else digest_of(type_of(tensor), data)

    def _keep(self, tensor: Tensor, digest: str, form: str) -> None:
        if digest in (UNWRITTEN, UNREADABLE):
            return
        size = tensor.numel() * tensor.element_size()
        wanted = self._only is None or self._only == self.step
        if wanted and self._writer.wants(digest, size):
            data = bytes_of(tensor)
            if data is not None:
                self._writer.keep(digest, form, bytes(data))

    def _rows(self, tensor: Tensor, digest: str) -> None:
        """The digests of a batch's records, by which another order is known."""
        if digest in self._batches or digest in (UNWRITTEN, UNREADABLE):
            return
        made = _records(tensor)
        if made:
            self._batches.add(digest)
            self._writer.line("rows", digest, made)

    # -- where a call stands -------------------------------------------------------------------
    def _where(self) -> str:
        if self.phase:
            return self.phase
        node = torch._C._current_autograd_node()
        if node is not None:
            return f"backward, {node.name()}"
        return self.place[-1] if self.place else ""

    def _drawn(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> str:
        """The generator of a random operator: whose it is, its seed, and a digest of its state."""
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return ""
        own = kwargs.get("generator")
        if own is None and self.position():
            return f"default {self.position()}"
        generator = generator_of(args, kwargs) if own is None else own
        state = hashlib.sha256(bytes_of(generator.get_state()) or b"").hexdigest()[:16]
        return f"{'default' if own is None else 'own'} {generator.initial_seed()} {state}"

    # -- what torch tells ----------------------------------------------------------------------
    def enter(self, module: nn.Module, given: Any) -> None:
        """A module is called: the outermost one gives the names."""
        if not self.place:
            root = self._roots.setdefault(module, self._called)
            self._called = max(self._called, root + 1)
            for name, part in module.named_modules():
                self._paths[id(part)] = name
                self._stands(root, name, part)
            batch = next((t for t in pytree.tree_leaves(given) if isinstance(t, Tensor)), None)
            if batch is not None:
                with _disable_current_modes():  # what has a gradient was computed, and is no record
                    rows = "" if batch.requires_grad else _records(batch)
                self._writer.line("call", type(module).__name__, type_of(batch), root, rows)
            for name, parameter in [*module.named_parameters(), *module.named_buffers()]:
                self._named[parameter] = name
        name = self._paths.get(id(module), "")
        kind = type(module).__name__
        self.place.append(f"{name} ({kind})" if name else kind)

    def _stands(self, root: int, name: str, module: nn.Module) -> None:
        """Note a module that is new, or that has changed between training and evaluation."""
        now = type(module).__name__, bool(module.training)
        if self._modules.get((root, name)) != now:
            self._modules[root, name] = now
            self._writer.line("module", root, name, *now)

    def leave(self, module: nn.Module, _: Any, __: Any) -> None:
        if self.place:
            self.place.pop()

    def before_update(self, optimizer: Any, _: Any, __: Any) -> None:
        """An optimizer begins a step: its settings are recorded, and how far it has come."""
        kind = type(optimizer).__name__
        self.phase = f"optimizer, {kind}"
        if optimizer not in self._optimizers:
            self._optimizers[optimizer] = self._classes.get(kind, 0)
            self._classes[kind] = self._optimizers[optimizer] + 1
        ordinal = self._optimizers[optimizer]
        for number, group in enumerate(optimizer.param_groups):
            with _disable_current_modes():  # a rate may be a tensor, whose reading is no step's
                plain = {str(n): _plain(v) for n, v in sorted(group.items()) if n != "params"}
                states = [optimizer.state.get(p) or {} for p in group["params"]]
                begun = sum(1 for state in states if state)
                counted = next((_counted(state) for state in states if state), -1)
            rows: list[Any] = [[name, value] for name, value in plain.items() if value]
            self._writer.line("set", f"{kind} {number}", rows, [ordinal, begun, counted])
            for place, parameter in enumerate(group["params"]):
                if parameter not in self._named:
                    self._named[parameter] = f"parameter {place} of group {number}"
                for name, value in states[place].items():
                    if isinstance(value, Tensor) and value not in self._states:
                        self._states[value] = f"{name} of {self._named[parameter]}"

    def after_update(self, _: Any, __: Any, ___: Any) -> None:
        self.phase = ""
        self.next_step()

    def next_step(self) -> None:
        """Begin the next step."""
        self.note_random()
        self.step, self._number = self.step + 1, 0
        self._writer.line("step", self.step)

    def note_random(self) -> None:
        """Say which generators outside of torch this step was the first to draw from."""
        if not self._untouched:
            return
        now = outside_generators()
        for name in [n for n, state in self._untouched.items() if state != now[n]]:
            del self._untouched[name]
            self._writer.line("random", name)


class RecordedStreams:
    """What a block of `reproducible` yields, where a recorder sees it: a step ends for both."""

    def __init__(self, streams: Any, recorder: _Recorder) -> None:
        if not isinstance(recorder, _Recorder):
            raise UsageError(
                "record= is not a trace.", "Pass a directory, or tallystick.trace(directory, ...)."
            )
        self._streams, self._recorder = streams, recorder
        self._step = recorder.step
        recorder.position = self._position

    def __getattr__(self, name: str) -> Any:
        return getattr(self._streams, name)

    def next_step(self) -> None:
        """Begin the next step. An optimizer may have ended the recorder's before."""
        with _disable_current_modes():  # what it computes is no operator of the loop
            self._streams.next_step()
        if self._recorder.step == self._step:
            self._recorder.next_step()
        self._step = self._recorder.step

    def _position(self) -> str:
        """Seed and place of the block's own generator; empty where it draws from torch's."""
        if self._streams.seed is None:
            return ""
        return f"{self._streams.seed} {int(self._streams.rng[1])}.{self._streams.draws}"


def _records(tensor: Tensor) -> str:
    """The digests of a batch's records, 8 digits each; empty for too many of them."""
    if tensor.ndim == 0 or tensor.shape[0] > _ROWS:
        return ""
    rows = [bytes_of(row) for row in tensor]
    return "".join(hashlib.sha256(row).hexdigest()[:8] for row in rows if row is not None)


def _written(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that a call has changed in place."""
    found = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        found += [t for t in pytree.tree_leaves(value) if isinstance(t, Tensor)]
    return found


def _arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The arguments that are no tensors, as text."""
    return ", ".join([*(_text(a) for a in args), *(f"{n}={_text(v)}" for n, v in kwargs.items())])[
        :_TEXT
    ]


def _text(value: Any) -> str:
    if isinstance(value, Tensor):
        return "_"
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(one, Tensor) for one in value):
            return f"[_ x {len(value)}]"  # so that the numbers behind long lists are within _TEXT
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, torch.Generator):
        return "generator"
    if isinstance(value, (torch.UntypedStorage, torch.TypedStorage)):
        return "storage"  # its text would be its bytes
    return str(value)


def _default(argument: Any) -> str:
    """The default of an operator's argument as text; empty where it has none."""
    return _text(argument.default_value) if argument.has_default_value() else ""


def _counted(state: Mapping[str, Any]) -> int:
    """The steps that an optimizer has counted for a parameter; -1 where it counts none."""
    count = state.get("step")
    if isinstance(count, Tensor):
        count = count.item() if count.numel() == 1 else None
    return int(count) if isinstance(count, (int, float)) else -1


def _plain(value: Any) -> str:
    """A setting of an optimizer as text; empty for what is none."""
    if isinstance(value, Tensor):
        return repr(value.item()) if value.numel() == 1 else ""
    if isinstance(value, (bool, int, float, str, tuple)) or value is None:
        return repr(value)
    return ""


@contextlib.contextmanager
def trace(
    directory: Path,
    *,
    step: int | None = None,
    keep_bytes: int = 64 << 20,
    log_bytes: int = 256 << 20,
    overwrite: bool = False,
) -> Iterator[Any]:
    """Record the block into `directory`; see `tallystick.trace`."""
    if keep_bytes < 0 or log_bytes < 1 << 10:
        raise UsageError(
            "keep_bytes or log_bytes is out of range.",
            "Give keep_bytes from 0, and log_bytes from 1024.",
        )
    writer = TraceWriter(directory, environment(), log_bytes, keep_bytes, overwrite)
    recorder = _Recorder(writer, step)
    modules = nn.modules.module
    try:
        with contextlib.ExitStack() as stack:
            for hook in (
                modules.register_module_forward_pre_hook(recorder.enter),
                modules.register_module_forward_hook(recorder.leave, always_call=True),
                register_optimizer_step_pre_hook(recorder.before_update),
                register_optimizer_step_post_hook(recorder.after_update),
            ):
                stack.callback(hook.remove)
            stack.enter_context(recorder)
            yield recorder
        recorder.note_random()
        writer.end()
    finally:
        writer.close()
