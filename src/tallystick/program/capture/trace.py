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
from tallystick.program.capture import custom_ops
from tallystick.program.capture.batch import Batch, anew
from tallystick.program.capture.carried import Carried
from tallystick.program.capture.constants import Constants, has_content
from tallystick.program.capture.decompose import meta_device
from tallystick.program.capture.earlier import Earlier
from tallystick.program.capture.guard import (
    GuardedLowering,
    ParametersChangedError,
    Placed,
    carry_hooks,
    refuse_around,
)
from tallystick.program.capture.kept_after import kept_after, refuse_untrained
from tallystick.program.capture.known import At
from tallystick.program.capture.late import check_buffers, empty_buffers
from tallystick.program.capture.outside import storage_of
from tallystick.program.capture.python_state import real_flags
from tallystick.program.capture.questions import value_questions
from tallystick.program.capture.recorded import NumberRecord, Use
from tallystick.program.capture.recorder import Recorder, module_spans, origins_of
from tallystick.program.capture.source import add_line, explained
from tallystick.program.capture.stand_ins import StandIns
from tallystick.program.capture.transformers_calls import traced_as_called
from tallystick.program.capture.updates import Groups, TracedUpdates, Updates

META = torch.device("meta")
BatchLoss = Callable[[nn.Module, dict[str, Tensor]], Any]


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
    # What the trace depends on of the numbers of its step, in order.
    uses: list[Use] = field(default_factory=list)
    # The group of each update in the step, and the parameters that it changes.
    updates: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    # The parameters that the forward pass changes in place, without groups.
    changed: frozenset[str] = frozenset()
    # What Python keeps that the first call has changed, by name, where a second one left it alone.
    sets: tuple[str, ...] = ()
    # Whether calls change anything that Python keeps.
    changes: bool = False
    # What was not followed while the trace was compared with others (PROGRAM 5.19).
    notes: list[str] = field(default_factory=list, repr=False, compare=False)
    # The run itself, with its mutation, which a second one is compared with.
    run: Recorder | None = field(default=None, repr=False, compare=False)


def meta_like(tensor: Tensor) -> Tensor:
    """A contiguous tensor of the same shape and dtype without storage."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=META)


class TracedModule(nn.Module):
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


def call_with(body: TracedModule, placed: dict[str, Tensor], batch: dict[str, Tensor]) -> Any:
    """`body(batch)` with the tensors of `placed` in the places of the module's, then put back.

    As torch.func.functional_call, but put back in reverse order. A submodule under several names,
    the embedding of an encoder and a decoder, would keep the tensor of the call otherwise.
    """
    with _reparametrize_module(body, placed, tie_weights=True, stack_weights=True):
        return body(batch)


@contextlib.contextmanager
def _capture_settings() -> Iterator[None]:
    """Fused inference paths off, factories on the meta device, while a trace runs."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with meta_device():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@dataclass(frozen=True)
class TraceRequest:
    """A request to trace. `trained` are the parameters to differentiate by, if any.

    With `groups`, `run` is a step function: it takes `update` as its third argument, and the trace
    differentiates where it calls that. With `at`, its last argument is the numbers of that step.
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
    at: At | None = None
    # The parameters that the forward pass changes in place: their next state begins with that.
    changed: frozenset[str] = frozenset()
    # Buffers that are None before the training, and that a call may give a tensor (PROGRAM 5.20 g).
    filled: frozenset[str] = frozenset()
    outside: Carried = field(default_factory=Carried.nothing)
    # Gets the first trace from the state of Python before the training (`first_calls`).
    firsts: list[Any] | None = field(default=None, repr=False, compare=False)

    def of_batch(self, update: Updates | None, numbers: Any = None) -> BatchLoss:
        """`run` of a module and a batch, with `update` and the step's numbers where it takes them.

        Those are `numbers`, or the plain ones.
        """
        more: list[Any] = [] if update is None else [update]
        if self.at is not None:
            more.append(self.at.plain() if numbers is None else numbers)
        return (lambda module, batch: self.run(module, batch, *more)) if more else self.run


def _followed(request: TraceRequest) -> contextlib.AbstractContextManager[None]:
    functions = None if request.at is None else request.at.functions
    return contextlib.nullcontext() if functions is None else functions.followed()


def _placed(at: At, rng: Tensor, use: Use) -> Tensor:
    """The tensor of the trace that stands for a number of the step."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        made: Tensor = custom_ops.number(rng, at.names.name(use.expression))
    return made


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
    request: TraceRequest,
    collect: Callable[[Any], dict[str, Tensor]],
    before: Trace | None = None,
    earlier: Earlier | None = None,
    around: Around = _nothing_around,
) -> Trace:
    """Trace `request` on meta tensors; the result is `before` where nothing differs from that.

    `earlier` knows the tensors of the traces before, which the model may have kept, and gets this
    one's. `around(recorder)` is entered while the model runs.

    `collect` turns the run's result into named tensors; with trained parameters one of them is
    `loss`. Outputs: those names, `grad.<name>`, and `buffer.<name>` for every buffer and tensor
    that the code keeps outside of the module; with groups `grad.<number of the update>.<name>`, and
    `param.<name>` for every parameter. Without groups `param.<name>` for each that the request says
    is changed.
    Raises UsageError when the model cannot be traced or draws randomness of its own.
    """
    refuse_around()
    names: list[str] = []
    spans: list[tuple[int, int, str]] = []
    lines: list[tuple[int, int, str]] = []
    sources: dict[str, Tensor] = {f"param.{k}": v for k, v in request.parameters.items()}
    sources |= {f"buffer.{k}": v for k, v in request.buffers.items()}
    sources |= {f"buffer.{k}": meta_like(v) for k, v in request.outside.tensors().items()}
    # Others than those of the trace before: a model that keeps a batch has that one of its call.
    sources |= {f"batch.{k}": anew(v) for k, v in request.batch.items()}
    sources["rng"] = torch.empty(2, dtype=torch.int64, device=META)
    updates: list[tuple[str, tuple[str, ...]]] = []
    numbers, record = (None, NumberRecord()) if request.at is None else request.at.recorded()
    storages: dict[int, str] = {}
    recorder = Recorder(before.run if before else None)
    real: dict[str, Tensor] = {f"module.{k}": v for k, v in request.module.named_parameters()}
    real |= {f"module.{k}": v for k, v in request.module.named_buffers()}

    def step(*flat: Tensor) -> list[Tensor]:
        given = dict(zip(sources, flat, strict=True))
        parameters = {}
        for k in request.parameters:
            # What changes is a clone, so that the input stays the old state.
            changes = request.groups is not None or k in request.changed
            own = given[f"param.{k}"].clone() if changes else given[f"param.{k}"]
            parameters[k] = own.detach().requires_grad_(k in request.trained)
        placed = {f"module.{k}": v for k, v in parameters.items()}
        # A clone, so that a mutated buffer is a new value and the input stays the old state.
        placed |= {f"module.{k}": given[f"buffer.{k}"].clone() for k in request.buffers}
        batch = Batch({k: given[f"batch.{k}"] for k in request.batch})
        own_parameters = dict(request.module.named_parameters())
        carry_hooks(own_parameters, parameters)
        stand_ins = StandIns(real, placed)
        kept, leaves = _kept_outside(request.outside, given)
        request.outside.stand_in(stand_ins, kept)
        # A second run is only compared: the first one's places are told.
        lowering = GuardedLowering(given["rng"], stand_ins, None if before else recorder.count)
        lowering.table.update(value_questions())
        if not request.trained:
            lowering.table.update(real_flags(own_parameters, parameters))
        if request.at is not None:
            lowering.place_number = functools.partial(_placed, request.at, given["rng"])
        lowering.constants.left = request.outside.outside.left
        watch.append(lowering.constants)
        placed_parameters = Placed(
            parameters, lowering.apart, request.changed, bool(request.trained)
        )
        if earlier is not None:
            lowering.kept = functools.partial(earlier.again, recorder, lowering.rng)
        results: list[tuple[str, Tensor]] = []
        updating = None
        if request.groups is not None:
            updating = TracedUpdates(request.groups, parameters, placed_parameters, lowering)
            updating.untrained = leaves
        body = TracedModule(request.module, request.of_batch(updating, numbers))
        noted = module_spans(request.module, results, recorder.count)
        around = request.outside.placed(kept)
        with lowering.installed(), noted as found, around as placing:
            returned, present, buffers = call_with(body, placed, batch)
            (updating.placed if updating else placed_parameters).check(present)
            check_buffers(buffers, request.buffers, empty, request.filled)
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
                refuse_untrained(outputs["loss"], leaves)
                wanted = [parameters[k] for k in request.trained]
                gradients = torch.autograd.grad(outputs["loss"], wanted, allow_unused=True)
                outputs |= {
                    f"grad.{k}": g
                    for k, g in zip(request.trained, gradients, strict=True)
                    if g is not None
                }
            state = {k: buffers[k] for k in request.buffers} | dict(
                updating.parameters if updating else parameters
            )
            after = kept_after(placing, state, lowering)
        outputs |= {f"buffer.{k}": v for k, v in after.items()}
        outputs |= {f"buffer.{k}": buffers[k] for k in request.buffers}
        if request.groups is None:
            outputs |= {f"param.{k}": parameters[k] for k in sorted(request.changed)}
            storages.update({t.untyped_storage()._cdata: k for k, t in parameters.items()})
        names[:] = list(outputs)
        return [value.detach() for value in outputs.values()]

    watch: list[Constants] = []
    empty = empty_buffers(request.module)
    try:
        with (
            _capture_settings(),
            torch.enable_grad(),
            traced_as_called(request.module),
            _followed(request),
        ):
            examples = list(sources.values())
            with around(recorder):
                recorder.run(step, examples)
            if earlier is not None:
                earlier.check(recorder)
                earlier.add(recorder)
            if before and recorder.repeats and (names, updates) == (before.outputs, before.updates):
                return before
            graph = recorder.graph
            if unexpected := _written(graph, storages) - request.changed:
                raise ParametersChangedError(unexpected)
            result = Trace(
                graph,
                list(sources),
                names,
                origins_of(graph, spans),
                origins_of(graph, lines),
                record.uses,
                updates,
                request.changed,
                run=recorder,
            )
            return _without_mutation(result, examples)
    except UsageError as error:
        add_line(error)
        raise
    except (TallystickError, ParametersChangedError):
        raise
    except Exception as error:
        raise explained(error, request.batch) from error
    finally:
        for kept in request.outside.outside.unread:
            kept.put_back()
        for constants in watch:
            request.outside.outside.written |= constants.written
            request.outside.outside.stale = constants.stale
            request.outside.outside.beyond = constants.beyond
            request.outside.outside.constants = {
                storage_of(tensor) for tensor, _ in constants.placed.values()
            }


def _kept_outside(
    outside: Carried, given: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[Tensor]]:
    """The tensors in the places of those outside, and of these the leaves with a gradient."""
    made: dict[str, Tensor] = {}
    leaves: list[Tensor] = []
    for slot in outside.slots:
        own = given[f"buffer.{slot.name}"].clone()
        kept = slot.members[0]
        if kept.graph or kept.tensor.requires_grad:
            leaves.append(own := own.detach().requires_grad_())
        made[slot.name] = own.clone() if kept.graph else own
    return made, leaves


def _mutates(graph: torch.fx.Graph) -> bool:
    return any(
        isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable
        for node in graph.nodes
    )


def _written(graph: torch.fx.Graph, storages: Mapping[int, str]) -> frozenset[str]:
    """The parameters, by their memory, that an operator of the graph changes in place.

    `parameter.data` has the memory, and no version in common with the parameter.
    """
    found = set()
    for node in graph.nodes:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
            continue
        for argument, value in zip(target._schema.arguments, node.args, strict=False):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for one in value if isinstance(value, (list, tuple)) else (value,):
                made = one.meta.get("val") if isinstance(one, torch.fx.Node) else None
                if isinstance(made, Tensor):
                    found.add(storages.get(made.untyped_storage()._cdata, ""))
    return frozenset(found - {""})


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
        origin=origins_of(graph, interpreter.spans),
        lines=origins_of(graph, interpreter.line_spans),
    )
