"""Tracing a step on meta tensors: forward, loss, gradients, changed buffers, as an ATen graph.

Pass 1 records the calls that eager PyTorch would dispatch. Where they contain mutation, pass 2
traces the graph again through functionalization. Both passes note the module of each node.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import (
    FunctionalizeInterpreter,
    retrieve_current_functorch_interpreter,
)
from torch._subclasses.functional_tensor import FunctorchFunctionalizeAPI
from torch.func import functionalize
from torch.nn.utils.stateless import _reparametrize_module

from tallystick.errors import TallystickError, UsageError
from tallystick.program.capture.batch import Batch
from tallystick.program.capture.constants import Constants, has_content
from tallystick.program.capture.earlier import Earlier
from tallystick.program.capture.explain import add_line, explained
from tallystick.program.capture.guard import (
    GuardedLowering,
    Placed,
    carry_hooks,
    check_buffers,
    refuse_around,
)
from tallystick.program.capture.liveness import reaches_results
from tallystick.program.capture.questions import value_questions
from tallystick.program.capture.recorder import Recorder
from tallystick.program.capture.transformers_calls import traced_as_called
from tallystick.program.capture.updates import Groups, TracedUpdates, Updates

META = torch.device("meta")
BatchLoss = Callable[[nn.Module, dict[str, Tensor]], Any]


@dataclass(frozen=True)
class ChangedConstant:
    """A tensor that stands in the trace as a constant and is changed in place there, at `place`.

    `reaches` says whether the results depend on it.
    """

    tensor: Tensor
    reaches: bool
    place: str


@dataclass
class Trace:
    """An ATen graph without mutation.

    `inputs` and `outputs` name its placeholders and results. `origin` maps a node's name to the
    path of the module that produced it, `lines` to the model's `file:line`, where known.
    """

    graph: torch.fx.Graph
    inputs: list[str]
    outputs: list[str]
    origin: dict[str, str] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    # The group of each update in the step, and the parameters that it changes.
    updates: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    # Tensors with content that the model changes in place.
    changed: list[ChangedConstant] = field(default_factory=list, repr=False, compare=False)
    # What was not followed while the trace was compared with others (PROGRAM 5.19).
    notes: list[str] = field(default_factory=list, repr=False, compare=False)
    # The run itself, with its mutation, which a second one is compared with.
    run: Recorder | None = field(default=None, repr=False, compare=False)


def meta_like(tensor: Tensor) -> Tensor:
    """A contiguous tensor of the same shape and dtype without storage."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=META)


class Body(nn.Module):
    """The traced function as a module, so that `call_with` can place the parameters."""

    def __init__(self, module: nn.Module, run: BatchLoss) -> None:
        super().__init__()
        self.module = module
        self.run = run

    def __call__(self, batch: dict[str, Tensor]) -> Any:
        """Without hooks: those of every module are meant for the model's modules."""
        result = self.run(self.module, batch)
        parameters = dict(self.module.named_parameters())
        return result, parameters, dict(self.module.named_buffers())


def call_with(body: Body, placed: dict[str, Tensor], batch: dict[str, Tensor]) -> Any:
    """`body(batch)` with the tensors of `placed` in the places of the module's, then put back.

    As torch.func.functional_call, but put back in reverse order. A submodule under several names,
    the embedding of an encoder and a decoder, would keep the tensor of the call otherwise.
    """
    with _reparametrize_module(body, placed, tie_weights=True, stack_weights=True):
        return body(batch)


def first_tensor(output: Any) -> Tensor | None:
    """The tensor that a module returns, or the first in what it returns."""
    if isinstance(output, Mapping):
        output = tuple(output.values())
    while isinstance(output, (list, tuple)) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


@contextlib.contextmanager
def _module_spans(
    module: nn.Module, results: list[tuple[str, Tensor]], count: Callable[[], int]
) -> Iterator[list[tuple[int, int, str]]]:
    """Collects (first node, end node, module path) for every forward call, innermost first.

    `results` gets the path and the tensor of every call that returns one.
    """
    spans: list[tuple[int, int, str]] = []
    entered: list[int] = []
    handles = []
    for path, child in module.named_modules():

        def enter(_module: nn.Module, _args: Any) -> None:
            entered.append(count())

        def leave(_module: nn.Module, _args: Any, output: Any, path: str = path) -> None:
            result = first_tensor(output)
            if result is not None:
                results.append((path, result))
            spans.append((entered.pop(), count(), path or type(_module).__name__))

        handles.append(child.register_forward_pre_hook(enter))
        handles.append(child.register_forward_hook(leave))
    try:
        yield spans
    finally:
        for handle in handles:
            handle.remove()


def _origins(graph: torch.fx.Graph, spans: list[tuple[int, int, str]]) -> dict[str, str]:
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


@contextlib.contextmanager
def _capture_settings() -> Iterator[None]:
    """Fused inference paths off, factories on the meta device, while a trace runs."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with META:
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@dataclass(frozen=True)
class Request:
    """A request to trace. `trained` are the parameters to differentiate by, if any.

    With `groups`, `run` is a step function: it takes `update` as its third argument, and the trace
    differentiates where it calls that.
    """

    module: nn.Module
    run: Callable[..., Any]
    parameters: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]
    batch: Mapping[str, Tensor]
    trained: tuple[str, ...]
    # Gets the path of every module call; their tensors then are the outputs, and no others.
    probes: list[str] | None = None
    groups: Groups | None = None

    def with_update(self, update: Updates | None) -> BatchLoss:
        """`run` of a module and a batch, with `update` where it takes one."""
        if update is None:
            return self.run
        return lambda module, batch: self.run(module, batch, update)


Around = Callable[[Recorder], contextlib.AbstractContextManager[Any]]


def _nothing_around(recorder: Recorder) -> contextlib.AbstractContextManager[Any]:
    return contextlib.nullcontext()


def _check_loss(loss: Tensor) -> None:
    if not loss.requires_grad:
        raise UsageError(
            "The loss depends on no trained parameter.",
            "Compute it from the module's output, without detach() and no_grad().",
        )


def trace(
    request: Request,
    collect: Callable[[Any], dict[str, Tensor]],
    before: Trace | None = None,
    earlier: Earlier | None = None,
    around: Around = _nothing_around,
) -> Trace:
    """Trace `request` on meta tensors; the result is `before` where nothing differs from that.

    `earlier` knows the tensors of the traces before, which the model may have kept, and gets this
    one's. `around(recorder)` is entered while the model runs.

    `collect` turns the run's result into named tensors; with trained parameters one of them is
    `loss`. Outputs: those names, `grad.<name>`, and `buffer.<name>` for every buffer; with groups
    `grad.<number of the update>.<name>`, and `param.<name>` for every parameter.
    Raises UsageError when the model cannot be traced or draws randomness of its own.
    """
    refuse_around()
    names: list[str] = []
    spans: list[tuple[int, int, str]] = []
    lines: list[tuple[int, int, str]] = []
    sources: dict[str, Tensor] = {f"param.{k}": v for k, v in request.parameters.items()}
    sources |= {f"buffer.{k}": v for k, v in request.buffers.items()}
    sources |= {f"batch.{k}": v for k, v in request.batch.items()}
    sources["rng"] = torch.empty(2, dtype=torch.int64, device=META)
    updates: list[tuple[str, tuple[str, ...]]] = []
    constants: list[Constants] = []
    recorder = Recorder(before.run if before else None)
    real: dict[str, Tensor] = {f"module.{k}": v for k, v in request.module.named_parameters()}
    real |= {f"module.{k}": v for k, v in request.module.named_buffers()}

    def step(*flat: Tensor) -> list[Tensor]:
        given = dict(zip(sources, flat, strict=True))
        parameters = {}
        for k in request.parameters:
            # Updates change a clone, so that the input stays the old state.
            own = given[f"param.{k}"].clone() if request.groups else given[f"param.{k}"]
            parameters[k] = own.detach().requires_grad_(k in request.trained)
        placed = {f"module.{k}": v for k, v in parameters.items()}
        # A clone, so that a mutated buffer is a new value and the input stays the old state.
        placed |= {f"module.{k}": given[f"buffer.{k}"].clone() for k in request.buffers}
        batch = Batch({k: given[f"batch.{k}"] for k in request.batch})
        placed_parameters = Placed(parameters, bool(request.trained))
        carry_hooks(dict(request.module.named_parameters()), parameters)
        stand_ins = {id(real[k]): v for k, v in placed.items() if k in real}
        # A second run is only compared: the first one's places are told.
        lowering = GuardedLowering(given["rng"], stand_ins, None if before else recorder.count)
        lowering.table.update(value_questions())
        if earlier is not None:
            lowering.kept = functools.partial(earlier.again, recorder, lowering.rng)
        results: list[tuple[str, Tensor]] = []
        updating = None
        if request.groups is not None:
            updating = TracedUpdates(request.groups, parameters, placed_parameters, lowering)
        body = Body(request.module, request.with_update(updating))
        noted = _module_spans(request.module, results, recorder.count)
        with lowering.installed(), noted as found:
            returned, present, buffers = call_with(body, placed, batch)
            (updating.placed if updating else placed_parameters).check(present)
            check_buffers(buffers, request.buffers)
            constants[:] = [lowering.constants]
            outputs = {
                k: lowering.constants.place(v) if has_content(v) else v
                for k, v in collect(returned).items()
            }
            if request.probes is not None:
                request.probes[:] = [path for path, _ in results]
                outputs = {f"output.{i:05d}": t.clone() for i, (_, t) in enumerate(results)}
            spans.extend(found)
            lines.extend(lowering.lines)
            lowering.in_backward = True
            if updating is not None:
                updates[:] = updating.done
                if request.probes is None:
                    outputs |= updating.results()
            elif request.trained:
                _check_loss(outputs["loss"])
                wanted = [parameters[k] for k in request.trained]
                gradients = torch.autograd.grad(outputs["loss"], wanted, allow_unused=True)
                outputs |= {
                    f"grad.{k}": g
                    for k, g in zip(request.trained, gradients, strict=True)
                    if g is not None
                }
        outputs |= {f"buffer.{k}": buffers[k] for k in request.buffers}
        names[:] = list(outputs)
        return [value.detach() for value in outputs.values()]

    try:
        with _capture_settings(), torch.enable_grad(), traced_as_called(request.module):
            examples = list(sources.values())
            with around(recorder):
                recorder.run(step, examples)
            if earlier is not None:
                earlier.add(recorder)
            if before and recorder.repeats and (names, updates) == (before.outputs, before.updates):
                return before
            graph = recorder.graph
            result = Trace(
                graph,
                list(sources),
                names,
                _origins(graph, spans),
                _origins(graph, lines),
                updates,
                _changed(constants[0], recorder),
                run=recorder,
            )
            return _without_mutation(result, examples)
    except UsageError as error:
        add_line(error)
        raise
    except TallystickError:
        raise
    except Exception as error:
        raise explained(error, request.batch) from error


def _changed(constants: Constants, recorder: Recorder) -> list[ChangedConstant]:
    found = []
    for tensor, made, read, place in constants.changed():
        at = list(recorder.graph.nodes).index(recorder.node_of(made))
        reaches = read or reaches_results(recorder.graph, at, at + 1)
        found.append(ChangedConstant(tensor, reaches, place))
    return found


def _mutates(graph: torch.fx.Graph) -> bool:
    return any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for node in graph.nodes
    )


def _shares_memory(target: torch._ops.OpOverload) -> bool:
    schema = target._schema
    return any(a.alias_info is not None for a in (*schema.arguments, *schema.returns))


class _Retrace(torch.fx.Interpreter):
    """Runs a traced graph under a second trace, and notes the first node behind each new one."""

    def __init__(self, traced: Trace, count: Callable[[], int]) -> None:
        super().__init__(cast(nn.Module, traced.graph.owning_module), graph=traced.graph)
        self.origin, self.lines, self.count = traced.origin, traced.lines, count
        self.spans: list[tuple[int, int, str]] = []
        self.line_spans: list[tuple[int, int, str]] = []

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Below functionalization where nothing is changed and nothing shares memory.

        Above it, torch takes operators apart that have a backend of composite kind, and the program
        would depend on an in-place change elsewhere in the model.
        """
        if not isinstance(target, torch._ops.OpOverload) or _shares_memory(target):
            return super().call_function(target, args, kwargs)
        level = cast(FunctionalizeInterpreter, retrieve_current_functorch_interpreter())
        functional = FunctorchFunctionalizeAPI(level)
        args, kwargs = functional.unwrap_tensors((args, kwargs))
        with functional.redispatch_to_next():
            return functional.wrap_tensors(target(*args, **kwargs))

    def run_node(self, n: torch.fx.Node) -> Any:
        start = self.count()
        result = super().run_node(n)
        end = self.count()
        if n.name in self.origin:
            self.spans.append((start, end, self.origin[n.name]))
        if n.name in self.lines:
            self.line_spans.append((start, end, self.lines[n.name]))
        return result


def _without_mutation(traced: Trace, examples: list[Tensor]) -> Trace:
    if not _mutates(traced.graph):
        return traced
    recorder = Recorder()
    interpreter = _Retrace(traced, recorder.count)

    def again(*flat: Tensor) -> list[Tensor]:
        result: list[Tensor] = interpreter.run(*flat)
        return result

    with torch.no_grad():
        recorder.run(functionalize(again, remove="mutations"), examples)
    graph = recorder.graph
    if _mutates(graph):
        raise UsageError(
            "The model changes a tensor in place in a way that cannot be made functional.",
            "Write the change without in-place operators.",
        )
    return replace(
        traced,
        graph=graph,
        origin=_origins(graph, interpreter.spans),
        lines=_origins(graph, interpreter.line_spans),
    )
