"""A run of a function on meta tensors, as an ATen graph; and a second run that is compared with it.

The recording is torch's own: the mode and the tracer of `make_fx`. It has a short way for ordinary
calls, which are nearly all. The long way looks for decompositions, constants and symbolic sizes,
and notes the stack; it takes several times as long as the call itself.

A second run makes no graph as long as it makes the calls of the first, in their order, with the
same arguments. Where it first makes another one, it gets a graph of its own.

A graph says which module of the model makes which of its nodes: these are its *spans*.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, PythonKeyTracer

from tallystick.program.capture.outside_calls import unwatched
from tallystick.program.capture.replaced import replacing, usual
from tallystick.program.capture.rewriting import SET_ASIDE


def first_tensor(output: Any) -> Tensor | None:
    """The tensor that a module returns, or the first in what it returns."""
    if isinstance(output, Mapping):
        output = tuple(output.values())
    while isinstance(output, (list, tuple)) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


@contextlib.contextmanager
def around_calls(
    module: nn.Module, around: Callable[[str, nn.Module, Callable[[], Any]], Any]
) -> Iterator[None]:
    """Within it `around(path, child, call)` makes the forward call of each submodule.

    The calls have no hooks of ours: code may ask which hooks a module has.
    """
    named = list(module.named_modules())
    paths = {id(child): path for path, child in named}
    usually = usual("torch.nn:Module", "_call_impl")

    def call(child: nn.Module, *args: Any, **kwargs: Any) -> Any:
        path = paths.get(id(child))
        if path is None:
            return usually(child, *args, **kwargs)
        return around(path, child, lambda: usually(child, *args, **kwargs))

    with replacing("torch.nn:Module", "_call_impl", call):
        yield


@contextlib.contextmanager
def module_spans(
    module: nn.Module, results: list[tuple[str, Tensor]], count: Callable[[], int]
) -> Iterator[list[tuple[int, int, str]]]:
    """Collects (first node, end node, module path) for every forward call, innermost first.

    `results` gets the path and the tensor of every call that returns one.
    """
    spans: list[tuple[int, int, str]] = []

    def noted(path: str, child: nn.Module, call: Callable[[], Any]) -> Any:
        start = count()
        output = call()
        result = first_tensor(output)
        if result is not None:
            results.append((path, result))
        spans.append((start, count(), path or type(child).__name__))
        return output

    with around_calls(module, noted):
        yield spans


def origins_of(graph: torch.fx.Graph, spans: list[tuple[int, int, str]]) -> dict[str, str]:
    """Module path per node name. A backward node is named after the forward node it reads."""
    names = [node.name for node in graph.nodes]
    origin: dict[str, str] = {}
    for start, end, path in spans:
        for name in names[start:end]:
            origin.setdefault(name, path)
    for node in graph.nodes:
        if node.name in origin or node.op != "call_function":
            continue
        # Saved activations say more about a backward node than the gradient that flows in.
        for operand in reversed(node.all_input_nodes):
            if operand.name in origin:
                path = origin[operand.name]
                suffix = " (backward)"
                origin[node.name] = path if path.endswith(suffix) else path + suffix
                break
    return origin


_PROXY = "torch.fx.experimental.proxy_tensor"
_long_way = usual(_PROXY, "proxy_call")
_Slot = proxy_tensor._ProxyTensor
_LONG = frozenset(
    {"lift_fresh", "lift_fresh_copy", "is_nonzero", "size", "stride", "storage_offset"}
)
# Whose kernels call no code of the person's, as torch has them.
_TORCHS = frozenset({"aten", "prims"})
# Their schemas do not say that they write statistics, or share an operand's storage.
_UNTOLD = frozenset({
    "aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm",
    "aten::_unsafe_view",
})  # fmt: skip
_IMPLICIT = torch._C.DispatchKey.CompositeImplicitAutograd
_AS_THEY_ARE = frozenset({
    int, float, bool, str, complex, type(None), torch.dtype, torch.device, torch.layout,
    torch.memory_format,
})  # fmt: skip


class _UnusualError(Exception):
    """An argument for which only the long way knows a form."""


class _ByIdentity(MutableMapping[Tensor, Any]):
    """What torch's tracer knows of each tensor. It keeps the tensors: no other gets their place."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Any, Tensor]] = {}

    def __setitem__(self, tensor: Tensor, slot: Any) -> None:
        self.found[id(tensor)] = slot, tensor

    def __getitem__(self, tensor: Tensor) -> Any:
        return self.found[id(tensor)][0]

    def __delitem__(self, tensor: Tensor) -> None:
        del self.found[id(tensor)]

    def __contains__(self, tensor: object) -> bool:
        return id(tensor) in self.found

    def __iter__(self) -> Iterator[Tensor]:
        return iter([tensor for _, tensor in self.found.values()])

    def __len__(self) -> int:
        return len(self.found)


def _note(proxy: Any, value: Any) -> Any:
    """A node's note is the meta tensor itself: torch's would be a fake tensor of each."""
    proxy.node.meta["val"] = list(value) if isinstance(value, tuple) else value
    return proxy


@functools.cache
def _is_ordinary(func: Any) -> bool:
    """Whether torch's own tracing of `func` comes to a node and the call."""
    if not isinstance(func, torch._ops.OpOverload):
        return False
    if func.namespace == "prim" or func._schema.name.split("::")[1] in _LONG:
        return False
    if torch.Tag.data_dependent_output in func.tags:
        return False
    name = func.name()  # type: ignore[no-untyped-call]
    has_kernel = functools.partial(torch._C._dispatch_has_kernel_for_dispatch_key, name)
    # With a kernel for meta tensors too, autograd does not take the operator apart.
    return has_kernel("Meta") or not (_IMPLICIT in func.py_kernels or has_kernel(_IMPLICIT))


@functools.lru_cache(maxsize=1)
def _replaced(_kernels: int) -> frozenset[str]:
    """The operators of aten that somebody else than torch has given a kernel in Python, while
    there are so many such kernels."""
    own: set[str] = set()
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch" and module is not None:
            parts = list(vars(module).values())
            own.update(*(p._op_impls for p in parts if type(p) is torch.library.Library))
    keys = [key.split("/") for key in torch.library._impls - own]
    return frozenset(f"{space}::{name}" for space, name, _ in keys if space == "aten")


SET_ASIDE.at_end.append(_replaced.cache_clear)


def is_torchs(func: Any) -> bool:
    """Whether no code of the person's runs within a call of `func`: it is an operator of torch's,
    nobody has given it another kernel, and no mode of theirs is told of it."""
    return (
        func.namespace in _TORCHS
        and func.name() not in _replaced(len(torch.library._impls))
        and torch._C._len_torch_dispatch_stack() == 0
    )


@functools.cache
def _is_fresh(func: Any) -> bool:
    """Whether the results of `func` are tensors of their own, as its arguments say they are."""
    schema = func._schema
    return not any(a.alias_info is not None for a in (*schema.arguments, *schema.returns))


@functools.cache
def _name(func: Any) -> str:
    return str(fx.Graph()._target_to_str(func.overloadpacket.__name__))


def _same(a: Any, b: Any) -> bool:
    """Whether two arguments of calls are equal. 1, 1.0 and True differ, and so do 0.0 and -0.0."""
    if a is b:
        return True
    if isinstance(a, (list, tuple)):
        return (
            isinstance(b, (list, tuple))
            and len(a) == len(b)
            and all(_same(x, y) for x, y in zip(a, b, strict=True))
        )
    if type(a) is not type(b) or isinstance(a, fx.Node):
        return False
    return repr(a) == repr(b) if isinstance(a, (float, complex)) else bool(a == b)


@dataclass(frozen=True)
class _Room:
    """What to allocate for a result."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, made: Any) -> Any:
        """That of each result; None where one is no plain tensor without storage."""
        if type(made) is list or type(made) is tuple:
            rooms = [cls.of(part) for part in made]
            return None if None in rooms else type(made)(rooms)
        if type(made) is not Tensor or not made.is_meta or not made.is_contiguous():
            return None
        return cls(tuple(made.shape), made.dtype)


@functools.cache
def has_one_form(func: Any) -> bool:
    """Whether the forms of the arguments decide those of the results: a kernel of torch's whose
    results are its own, and no random ones."""
    return (
        func._schema.name not in _UNTOLD
        and _is_fresh(func)
        and torch.Tag.nondeterministic_seeded not in func.tags
    )


def _key(value: Any) -> Any:
    """The form of an argument. Raises _UnusualError for one of another layout."""
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.dtype.is_complex:
            raise _UnusualError
        return value.shape, value.stride(), value.dtype
    if isinstance(value, (list, tuple)):
        return type(value), *map(_key, value)
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0.
    return type(value), repr(value) if isinstance(value, (float, complex)) else value


def _is_plain(made: Any) -> bool:
    """Whether `_allocated` gives this very result: its strides, in a storage of its own."""
    if isinstance(made, (list, tuple)):
        return all(_is_plain(part) for part in made)
    again = _allocated(_Room.of(made))
    return bool(
        made.stride() == again.stride()
        and made.storage_offset() == 0
        and made.untyped_storage().nbytes() == again.untyped_storage().nbytes()
        and not made.dtype.is_complex
    )


_MOST_FORMS = 1 << 14
# By a call's function and the forms of its arguments: the rooms. They are of one capture: the
# person may give an operator another kernel before the next one.
known_forms: dict[Any, Any] = {}
SET_ASIDE.at_end.append(known_forms.clear)


def _settings() -> tuple[torch.dtype, bool]:
    """What of torch's settings decides about results and refusals of meta kernels."""
    return torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()


def _executed(func: Any, args: Any, kwargs: Any) -> Any:
    """The meta results of a call. For nearly all, torch works them out in Python: longer than
    all the rest of a trace. A call of the same form has results of the same form."""
    if not has_one_form(func) or not is_torchs(func):
        return func(*args, **kwargs)
    try:
        key = func, *_settings(), _key(args), _key([*kwargs.items()])
    except _UnusualError:
        return func(*args, **kwargs)
    rooms = known_forms.get(key)
    if rooms is not None:
        return _allocated(rooms)
    made = func(*args, **kwargs)
    rooms = _Room.of(made)
    if rooms is not None and _is_plain(made):
        if len(known_forms) >= _MOST_FORMS:
            known_forms.clear()
        known_forms[key] = rooms
    return made


def _allocated(rooms: Any) -> Any:
    if isinstance(rooms, _Room):
        return torch.empty(rooms.shape, dtype=rooms.dtype, device="meta")
    return type(rooms)([_allocated(room) for room in rooms])


class Recorder:
    """Records one run; with `before`, as that record where the calls are the same."""

    def __init__(self, before: Recorder | None = None) -> None:
        self.tracer = PythonKeyTracer()
        self.tracer.root = nn.Module()
        self.tracer.tensor_attrs = {}
        self.tracer.tensor_tracker = self.slots = _ByIdentity()
        self.mode = ProxyTorchDispatchMode(self.tracer, "real")
        # The nodes of the record that this run repeats so far, and how many of them it has.
        self.before: list[fx.Node] | None = None
        self.at = 0
        self.graph = self.tracer.graph = fx.Graph(tracer_cls=PythonKeyTracer)
        if before is not None:
            self.before, self.graph = list(before.graph.nodes), before.graph

    @property
    def repeats(self) -> bool:
        """Whether the run was that of `before`."""
        return self.before is not None

    def count(self) -> int:
        """The number of nodes so far."""
        return self.at if self.before is not None else len(self.graph.nodes)

    def run(self, function: Callable[..., Sequence[Tensor]], examples: Sequence[Tensor]) -> None:
        """Record `function(*examples)`, a list of tensors. Raises what it raises."""
        for i, example in enumerate(examples):
            if self.before is not None:
                node = self.before[i]
                self.at += 1
            else:
                node = self.graph.create_node("placeholder", f"input_{i}")
                node.meta["val"] = example
            self._keep(example, node)
        with (
            replacing(_PROXY, "proxy_call", self._call),
            replacing(_PROXY, "set_meta", _note),
            replacing("torch.fx._symbolic_trace", "_is_fx_tracing_flag", True),
            proxy_tensor.disable_autocast_cache(),
            self.mode,
        ):
            results = function(*examples)
        if self.before is not None:
            last = self.before[-1]
            given = [self.node_of(result) for result in results]
            if self.at == len(self.before) - 1 and _same(given, last.args[0]):
                return
            self._leave()
        outputs = [self._output(result) for result in results]
        self.graph.create_node("output", "output", (outputs,))
        self.graph.owning_module = cast(fx.GraphModule, self.tracer.root)

    def node_of(self, tensor: Tensor) -> Any:
        """The node of a tensor; a tensor that no call of this run made is its own."""
        found = self.slots.found.get(id(tensor))
        return tensor if found is None else found[0].proxy.node

    def _output(self, tensor: Tensor) -> Any:
        found = self.node_of(tensor)
        return found if isinstance(found, fx.Node) else self.tracer.create_arg(tensor)

    def _keep(self, made: Any, node: fx.Node) -> None:
        """`made` is the result of `node`."""
        self.slots.found[id(made)] = _Slot(fx.Proxy(node, self.tracer), None), made

    def _form(self, value: Any) -> Any:
        """An argument as a node has it."""
        kind = type(value)
        if kind is Tensor or kind is nn.Parameter:
            found = self.slots.found.get(id(value))
            if found is None or found[0].constant is not None or not value.is_meta:
                raise _UnusualError
            return found[0].proxy.node
        if kind in _AS_THEY_ARE:
            return value
        if kind is list or kind is tuple:
            return [self._form(v) for v in value]
        raise _UnusualError

    def _call(
        self,
        mode: ProxyTorchDispatchMode,
        func: Any,
        pre_dispatch: bool,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """In the place of torch's `proxy_call`."""
        if mode is not self.mode:
            return _long_way(mode, func, pre_dispatch, args, kwargs)
        if _is_ordinary(func):
            try:
                forms = tuple(self._form(a) for a in args)
                named = {k: self._form(v) for k, v in kwargs.items()}
            except _UnusualError:
                pass
            else:
                # As in a forward pass, where torch has left its function modes by now.
                with torch._C.DisableTorchFunction():
                    if is_torchs(func):
                        return unwatched(self._ordinary, func, args, kwargs, forms, named)
                    return self._ordinary(func, args, kwargs, forms, named)
        if self.before is not None:
            self._leave()
        return _long_way(mode, func, pre_dispatch, args, kwargs)

    def _ordinary(self, func: Any, args: Any, kwargs: Any, forms: Any, named: Any) -> Any:
        if self.before is not None:
            node = self.before[self.at]
            names, known = list(named.items()), list(node.kwargs.items())
            short = node.target is func and "rooms" in node.meta  # recorded by the short way
            if short and _same(forms, node.args) and _same(names, known):
                return self._again(node, func, args, kwargs)
            forms, named = self._leave(forms, named)
        made = _executed(func, args, kwargs)
        node = self.graph.create_node("call_function", func, forms, named, _name(func))
        if type(made) is tuple or type(made) is list:
            node.meta["val"] = list(made)
            for i, part in enumerate(made):
                if isinstance(part, Tensor):
                    item = self.graph.create_node("call_function", operator.getitem, (node, i))
                    item.meta["val"] = part
                    self._keep(part, item)
        elif isinstance(made, Tensor):
            node.meta["val"] = made
            self._keep(made, node)
        node.meta["rooms"] = _Room.of(made) if _is_fresh(func) else None
        return made

    def _again(self, node: fx.Node, func: Any, args: Any, kwargs: Any) -> Any:
        """The call of `node` in the second run."""
        assert self.before is not None
        self.at += 1
        rooms = node.meta["rooms"]
        made = func(*args, **kwargs) if rooms is None else _allocated(rooms)
        # A question asks this run's tensors what changed in place: the first run's all have.
        if type(made) is tuple or type(made) is list:
            node.meta["val"] = list(made)
            for part in made:
                if isinstance(part, Tensor):
                    self.before[self.at].meta["val"] = part
                    self._keep(part, self.before[self.at])
                    self.at += 1
        elif isinstance(made, Tensor):
            node.meta["val"] = made
            self._keep(made, node)
        return made

    def _leave(self, *values: Any) -> Any:
        """From here on this run has a graph of its own. `values` with its nodes in them."""
        assert self.before is not None
        graph = self.tracer.graph
        copies: dict[fx.Node, fx.Node] = {}
        for node in self.before[: self.at]:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        for key, (slot, tensor) in list(self.slots.found.items()):
            copied = fx.Proxy(copies[slot.proxy.node], self.tracer)
            self.slots.found[key] = _Slot(copied, None), tensor
        self.before, self.graph = None, graph
        return fx.node.map_arg(values, copies.__getitem__)
