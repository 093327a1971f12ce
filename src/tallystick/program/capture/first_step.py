"""The first step of a job, compared with the module itself in float64 (PROGRAM 5.9).

The program runs under the contract. The module runs in eager torch on the same weights and batch
with the contract's random numbers, once in float64 and once in float32. The second says how much
float32 itself errs on this model.

The threshold: a loss may differ from float64's by 16 times float32's own error, and 2⁻¹⁶ of the
loss, and 10⁻⁶. A parameter's gradient may differ by 16 times float32's own error, and 2⁻¹³ of its
norm, and 2⁻²⁰ of the whole gradient's norm (Euclidean norms). Both round in float32, in other
orders: so their errors are of one size, and 16 allows for luck. Beyond that, four more runs in
float64, whose weights and batch are shaken by up to 2⁻²² of each number, say more about float32's
own error: a ReLU within a rounding of zero may fall to either side. The largest of the five counts.
What capture could drop (another precision, a hook, a factor) is larger. Under B < 32 bits of
`rounded/1` and `exact/1` the threshold is 2³²⁻ᴮ times wider. `first_update.py` states that of the
optimizers' updates.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from tallystick.errors import TallystickError, UsageError
from tallystick.numerics.contracts import Contract, find_contract
from tallystick.program.capture.first_update import Stepped, Update, compare_updates
from tallystick.program.capture.micro import MicroBatches, cut
from tallystick.program.capture.outside import KeptError, Restored
from tallystick.program.capture.plain import uncompiled
from tallystick.program.capture.python_state import PythonState
from tallystick.program.capture.torch_step import (
    Inputs,
    Results,
    gradient_name,
    torch_micro_steps,
    torch_step,
)
from tallystick.program.capture.trace import TraceRequest
from tallystick.program.expand import draws_of
from tallystick.program.ir import SCALAR_PREFIX, Program
from tallystick.program.runner import StepInputs, StepResult
from tallystick.program.sectioned import executor_of

Array = np.ndarray
_TIMES = 16.0
_LOSS, _LOSS_FLOOR = 2.0**-16, 1e-6
_GRADIENT, _WHOLE_GRADIENT = 2.0**-13, 2.0**-20
_SHAKEN = 4
_OUTPUT = 2.0**-12
_BUFFER, _ELEMENT = 2.0**-12, 2.0**-20


@dataclass(frozen=True)
class FirstStep:
    """What a captured step keeps for the comparison: what was traced, and the module's modes.

    `gradients()` is the step's program with the gradients as outputs, and, of several updates, the
    parameters after each; `updates` are those updates. `probes()` gives the forward pass with every
    submodule's output, and their modules, in the order in which they end. With `micro` the request
    is of one micro-batch, and so are the probes: of the first.
    """

    request: TraceRequest
    gradients: Callable[[], Program]
    probes: Callable[[], tuple[Program, list[str]]]
    modes: dict[str, bool]
    updates: tuple[Update, ...] = ()
    micro: MicroBatches | None = None
    # What Python kept before the first step that the program is of (PROGRAM 5.25).
    python: Restored | None = None

    @property
    def module(self) -> nn.Module:
        return self.request.module

    def compare(
        self,
        contract: str,
        state: Mapping[str, Array],
        batch: Mapping[str, Array],
        scalars: Mapping[str, float],
        rng: tuple[int, int],
    ) -> str | None:
        """None where the step agrees; a reason where it could not be compared.

        Raises UsageError, naming the module where the difference begins, beyond the threshold.
        """
        with uncompiled(self.module), self._in_its_state():
            return self._compare(contract, Inputs(state, batch, scalars, rng))

    @contextlib.contextmanager
    def _in_its_state(self) -> Iterator[None]:
        if self.python is None:
            yield
            return
        now = PythonState(self.module, self.request.run)
        try:
            self.python.restore()
            yield
        finally:
            now.restore()
            now.release()

    def _compare(self, contract: str, inputs: Inputs) -> str | None:
        meaning = find_contract(contract)
        meaning = meaning.without_log()
        wide = meaning.coarseness
        try:
            step = self._ours(self.gradients(), meaning, inputs)
        except TallystickError as error:
            return f"the program's first step failed: {error.message}"
        updated = {k[8:]: v for k, v in step.outputs.items() if k.startswith("updated.")}
        before = {k[7:]: v for k, v in step.outputs.items() if k.startswith("before.")}
        inputs = replace(inputs, updated=updated)
        begun = dict(inputs.state) | {f"param.{name}": v for name, v in before.items()}
        reason = compare_updates(self.updates, self._stepped(step, inputs, begun), wide)
        if reason is not None:
            return reason
        try:
            exact = self._torchs(torch.float64, inputs)
            single = self._torchs(torch.float32, inputs)
        except KeptError:
            raise
        except TallystickError as error:
            return f"the module does not run in float64: {error.message}"
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            text = str(error).splitlines()
            return f"the module does not run in float64: {text[0] if text else type(error)}"
        assert step.loss is not None
        kept = {k[7:]: v for k, v in step.state.items() if k.startswith("buffer.")} | before
        if self.request.groups is not None:  # changed between the updates, or behind the last one
            kept |= {name: step.state[f"param.{name}"] for name in self.request.changed}
        ours = Results(float(step.loss), self._gradients(step.outputs), kept)
        if not math.isfinite(exact.loss):
            return "the module's loss is not finite in float64"
        others = [single]
        if self._misses(ours, others, exact, wide):
            others += [self._torchs(torch.float64, inputs, shake) for shake in range(_SHAKEN)]
        missed = self._misses(ours, others, exact, wide)
        if missed is None:
            return None
        where = self._first_output(meaning, wide, inputs, others, exact)
        if missed == "loss":
            numbers = [abs(r.loss - exact.loss) for r in (ours, *others)]
            whole = self.micro is None or self.micro.parts == 1
            where = where or (
                "every module's output agrees, so it is the loss function"
                if whole
                else "every module's output on the first micro-batch agrees"
            )
            raise _difference("loss", numbers, abs(exact.loss), where)
        if missed.startswith("buffer "):
            name = missed.removeprefix("buffer ")
            numbers = [_distance(r.buffers[name], exact.buffers[name]) for r in (ours, *others)]
            where = where or f"module {name.rpartition('.')[0] or type(self.module).__name__}"
            raise _difference(missed, numbers, _distance(None, exact.buffers[name]), where)
        true = _gradient(missed, exact, ours)
        place = missed.rpartition(".")[0] or type(self.module).__name__
        raise _difference(
            f"gradient of {missed}",
            [_distance(r.gradients.get(missed), true) for r in (ours, *others)],
            _distance(None, true),
            where or f"module {place} has the first such gradient from the loss backwards",
        )

    @property
    def _parts(self) -> int:
        return 1 if self.micro is None else self.micro.parts

    def _ours(self, program: Program, contract: Contract, inputs: Inputs) -> StepResult:
        """The program's results under the contract."""
        known = {spec.name for spec in program.inputs}
        parts = self._parts if program.section else 1
        scalars = {k: v for k, v in inputs.scalars.items() if SCALAR_PREFIX + k in known}
        rng = inputs.rng if program.uses_rng else None
        return executor_of(replace(program, contract=contract.text), parts).execute(
            {k: np.array(v) for k, v in inputs.state.items() if k in known},
            StepInputs(inputs.batch, scalars, rng),
        )

    def _stepped(self, step: StepResult, inputs: Inputs, begun: Mapping[str, Array]) -> Stepped:
        """The program's step by update, from the slots `begun`; of one update the new parameters
        are the next state's."""
        gradients: list[dict[str, Array]] = []
        updated: list[dict[str, Array]] = []
        for number, update in enumerate(self.updates):
            at = f"{number}." if self.request.groups else ""
            gradients.append({n: step.outputs[f"grad.{at}{n}"] for n in update.names})
            updated.append({
                n: step.outputs[f"updated.{at}{n}"] if at else step.state[f"param.{n}"]
                for n in update.names
            })  # fmt: skip
        changed: list[dict[str, Array]] = [{} for _ in self.updates]
        for name, value in step.outputs.items():
            kind, _, rest = name.partition(".")
            of_update, _, parameter = rest.partition(".")
            if kind == "begun":
                changed[int(of_update)][parameter] = value
        groups = self.request.groups is not None
        between = self.request.changed if groups else frozenset()
        return Stepped(begun, step.state, gradients, updated, inputs.scalars, changed, between)

    def _torchs(self, dtype: torch.dtype, inputs: Inputs, shake: int | None = None) -> Results:
        if self.micro is None:
            return torch_step(self.request, self.modes, dtype, inputs, shake)
        draws = draws_of(self.gradients())
        return torch_micro_steps(self.request, self.modes, dtype, inputs, shake, self.micro, draws)

    def _gradients(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """The gradients among a step's outputs, as `torch_step` names them."""
        found = {k[5:]: v for k, v in outputs.items() if k.startswith("grad.")}
        if self.request.groups is None:
            return found
        parts = {name.partition(".")[::2]: v for name, v in found.items()}
        return {gradient_name(int(number), name): v for (number, name), v in parts.items()}

    def _first_output(
        self,
        contract: Contract,
        wide: float,
        inputs: Inputs,
        others: Sequence[Results],
        exact: Results,
    ) -> str | None:
        """The first module whose output differs beyond the threshold, as a clause, if one does."""
        program, paths = self.probes()
        if self._parts > 1:
            inputs = replace(inputs, batch=cut(inputs.batch, self._parts)[0])
        step = self._ours(program, contract, inputs)
        if paths != [path for path, _ in exact.outputs]:
            return "the modules do not run in the same order on real values"
        for i, path in enumerate(paths):
            found, true = step.outputs[f"output.{i:05d}"], exact.outputs[i][1]
            own = max(_distance(r.outputs[i][1], true) for r in others)
            allowed = wide * (_TIMES * own + _OUTPUT * _distance(None, true))
            if not _distance(found, true) <= allowed:
                return f"the output of module {path or type(self.module).__name__} is the first"
        return None

    def _misses(
        self, ours: Results, others: Sequence[Results], exact: Results, wide: float
    ) -> str | None:
        """What is beyond the threshold: "loss", or the first such parameter from the loss back."""
        own = max(abs(r.loss - exact.loss) for r in others)
        allowed = wide * (_TIMES * own + _LOSS * abs(exact.loss) + _LOSS_FLOOR)
        if math.isfinite(allowed) and not abs(ours.loss - exact.loss) <= allowed:
            return "loss"
        whole = math.hypot(*(_distance(None, g) for g in exact.gradients.values()))
        order = {path: i for i, (path, _) in enumerate(exact.outputs)}

        def backward_order(name: str) -> tuple[int, str]:
            return -order.get(name.rpartition(".")[0], -1), name

        for name in sorted(set(ours.gradients) | set(exact.gradients), key=backward_order):
            true = _gradient(name, exact, ours)
            own = max(_distance(r.gradients.get(name), true) for r in others)
            floor = _GRADIENT * _distance(None, true) + _WHOLE_GRADIENT * whole
            allowed = wide * (_TIMES * own + floor)
            found = _distance(ours.gradients.get(name), true)
            if math.isfinite(allowed) and not found <= allowed:
                return name
        return self._buffer(ours, others, exact, wide)

    @staticmethod
    def _buffer(
        ours: Results, others: Sequence[Results], exact: Results, wide: float
    ) -> str | None:
        """`buffer NAME` of the first buffer in the modules' order beyond the threshold."""
        sizes = [_distance(None, y) / math.sqrt(max(y.size, 1)) for _, y in exact.outputs]
        order = {path: i for i, (path, _) in enumerate(exact.outputs)}

        def forward_order(name: str) -> tuple[int, str]:
            return order.get(name.rpartition(".")[0], len(order)), name

        for name in sorted(exact.buffers, key=forward_order):
            true, found = exact.buffers[name], ours.buffers[name]
            allowed = _TIMES * max(_distance(r.buffers[name], true) for r in others)
            if found.dtype.kind == "f":
                allowed += _BUFFER * _distance(None, true)
                allowed += _ELEMENT * max(sizes, default=0.0) * math.sqrt(true.size)
            if math.isfinite(allowed) and not _distance(found, true) <= wide * allowed:
                return f"buffer {name}"
        return None


def _gradient(name: str, exact: Results, ours: Results) -> Array:
    """That of float64; a parameter without one has zeros."""
    found = exact.gradients.get(name)
    return np.zeros(ours.gradients[name].shape) if found is None else found


def _distance(found: Array | None, true: Array) -> float:
    """The Euclidean norm of the difference; an absent array is zero."""
    return float(np.linalg.norm((true if found is None else found - true).reshape(-1)))


def _difference(what: str, numbers: Sequence[float], size: float, where: str) -> UsageError:
    return UsageError(
        f"The first step under the contract is not the module's: the {what} differs from float64 "
        f"by {numbers[0]:.3g} of {size:.6g}; float32's own error is {max(numbers[1:]):.3g}. Where "
        f"it begins: {where}.",
        "Something acts otherwise in a capture: a branch on the device, on values, or on the "
        "surroundings. Express it by tensor operators.",
    )
