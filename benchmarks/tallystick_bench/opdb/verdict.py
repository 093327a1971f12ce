"""The verdict of one entry of the operator database, over all its samples."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from tallystick.errors import TallystickError, UsageError
from tallystick_bench.opdb.case import Case, Results
from tallystick_bench.opdb.entries import has_gradient, name_of, samples, tolerance

# From the worst to the best: an entry has the worst verdict of its samples.
VERDICTS = ("wrong", "error", "time", "refused", "beyond", "random", "view-or-factory", "pass")

# An error beyond the tolerance is float32's rounding and no fault where torch's own float32 has at
# least this part of it, and is beyond the tolerance in a sample of the entry too. Such an entry
# does not pass either.
_OWN = 0.5

# Their results are whatever the memory holds.
_UNINITIALISED = ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty",
                  "new_empty_strided")  # fmt: skip


@dataclass
class Verdict:
    """An entry's verdict, why, and the operators that were refused.

    `error` is the largest |ours − float64| in units of the tolerance, over the samples that ran;
    `torchs` that of torch's own float32, over the samples where ours is beyond the tolerance.
    """

    name: str
    verdict: str
    why: str = ""
    samples: int = 0
    passed: int = 0
    error: float = 0.0
    torchs: float = 0.0
    gradients: int = 0
    kernels: int = 0
    refused: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain values: errors to four digits, and no more than the beginning of the reason."""
        short = {k: float(f"{getattr(self, k):.4g}") for k in ("error", "torchs")}
        return {**asdict(self), **short, "why": self.why[:200]}


def excess(got: Any, truth: Any, rtol: float, atol: float) -> float:
    """The largest |got − truth| in units of the tolerance; 0 for equal values, inf for other types.

    `truth` is rounded to float32 first, so that an overflow of float32 is no difference.
    """
    if not isinstance(got, Tensor) or not isinstance(truth, Tensor):
        same = got == truth or (got != got and truth != truth)
        if isinstance(got, float) and isinstance(truth, float) and not same:
            return abs(got - truth) / (atol + rtol * abs(truth))
        return 0.0 if same else float("inf")
    if got.shape != truth.shape:
        return float("inf")
    if not got.numel():
        return 0.0
    if not got.dtype.is_floating_point:
        return 0.0 if torch.equal(got, truth.to(got.dtype)) else float("inf")
    a, b = got.double(), truth.to(got.dtype).double()
    same = (a == b) | (a.isnan() & b.isnan())
    ratio = (a - b).abs() / (atol + rtol * b.abs())
    worst = torch.where(same, torch.zeros_like(ratio), ratio.nan_to_num(nan=float("inf"))).max()
    return float(worst)


def _pairs(a: Results, b: Results) -> list[tuple[str, Any, Any]]:
    outputs = zip(a.outputs, b.outputs, strict=True)
    named = [(f"output {i}", x, y) for i, (x, y) in enumerate(outputs)]
    gradients = zip(a.gradients, b.gradients, strict=True)
    return named + [(f"gradient {i}", x, y) for i, (x, y) in enumerate(gradients)]


def worst_of(got: Results, truth: Results, rtol: float, atol: float) -> tuple[float, str]:
    if len(got.outputs) != len(truth.outputs) or len(got.gradients) != len(truth.gradients):
        return float("inf"), "number of results"
    found = [(excess(x, y, rtol, atol), name) for name, x, y in _pairs(got, truth)]
    return max(found, default=(0.0, ""))


def same_bits(eager: Results, captured: Results) -> str:
    """The first result whose bits differ, or nothing."""
    outputs = [o for o in eager.outputs if o is not None]
    eager = Results(outputs, eager.gradients)
    if len(outputs) != len(captured.outputs) or len(eager.gradients) != len(captured.gradients):
        return "the number of results"
    for name, x, y in _pairs(eager, captured):
        if (x is None) != (y is None):
            return name
        if isinstance(x, Tensor) and (x.dtype != y.dtype or x.shape != y.shape or not _equal(x, y)):
            return name
    return ""


def _equal(x: Tensor, y: Tensor) -> bool:
    return bytes(x.contiguous().numpy().tobytes()) == bytes(y.contiguous().numpy().tobytes())


def _operators(error: TallystickError) -> list[str]:
    """The ATen operators that a refusal names."""
    return sorted(set(re.findall(r"(?:aten|tallystick|prims)\.[A-Za-z_0-9.]*\w", str(error))))


class _Judge:
    def __init__(self, entry: Any) -> None:
        self.entry = entry
        self.rtol, self.atol = tolerance(entry)
        self.found: list[tuple[int, str]] = []
        self.refused: set[str] = set()
        self.error, self.torchs, self.kernels, self.gradients, self.passed = 0.0, 0.0, 0, 0, 0

    def note(self, verdict: str, why: str) -> None:
        self.found.append((VERDICTS.index(verdict), why))

    def refuse(self, error: TallystickError, where: str) -> None:
        self.refused.update(_operators(error))
        self.note("refused", f"{where}{str(error).splitlines()[0]}")

    def sample(self, sample: Any, number: int) -> None:
        case = Case(self.entry.op, sample)
        try:
            truth = case.truth()
        except Exception as error:
            # torch has no float64 form of this call: its own float32 stands in.
            try:
                case.weights = []
                truth = case.torchs()
                case.weigh(case.call([t.clone() for t in case.tensors])[1])
            except Exception:
                self.note("refused", f"torch itself refuses the sample: {error}"[:200])
                return
        try:
            ours = case.ours()
        except UsageError as error:
            if case.random:
                self.note("random", f"draws by {case.random}, and is refused: {error}")
                return
            self.refuse(error, "")
            # The program's refusal names every missing operator.
            if len(self.refused) < 2 and number < 3:
                self._captured(case)
            return
        self.kernels += ours.kernels
        self.gradients += sum(g is not None for g in ours.gradients)
        if ours.arithmetic:
            self.note("wrong", f"sample {number}: ATen computed {', '.join(ours.arithmetic)}")
            return
        worst, where = worst_of(ours, truth, self.rtol, self.atol)
        if case.random:
            self.note("random", f"draws by {case.random}")
            return
        self.error = max(self.error, worst)
        if worst > 1:
            theirs, _ = worst_of(case.torchs(), truth, self.rtol, self.atol)
            self.torchs = max(self.torchs, theirs)
            verdict = "beyond" if theirs >= _OWN * worst else "wrong"
            text = f"{worst:.3g} tolerances, torch's float32 {theirs:.3g}"
            self.note(verdict, f"sample {number}, {where}: {text}")
            return
        captured = self._captured(case)
        if captured is None:
            return
        different = same_bits(ours, captured)
        if different:
            self.note("wrong", f"sample {number}, {different}: eager and captured bits differ")
        else:
            self.passed += 1

    def _captured(self, case: Case) -> Results | None:
        try:
            return case.captured()
        except UsageError as error:
            self.refuse(error, "capture: ")
            return None


def judge(entry: Any, limit: int | None = None) -> Verdict:
    """The verdict over the entry's samples (at most `limit`), in this process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    name = name_of(entry)
    if name in _UNINITIALISED:
        return Verdict(name, "view-or-factory", "its results are uninitialised")
    state = _Judge(entry)
    count = 0
    for count, sample in enumerate(samples(entry, limit), 1):
        try:
            state.sample(sample, count - 1)
        except Exception as error:
            trace = traceback.extract_tb(error.__traceback__)
            at = next((f for f in reversed(trace) if "tallystick/" in f.filename), trace[-1])
            place = f"{at.filename.rpartition('/')[2]}:{at.lineno}"
            text = f"{type(error).__name__} at {place}: {str(error)[:200]}"
            state.note("error", f"sample {count - 1}: {text}")
    worst, why = min(state.found, default=(VERDICTS.index("pass"), ""))
    verdict = VERDICTS[worst]
    if verdict == "beyond" and state.torchs <= 1:
        verdict = "wrong"
    if verdict == "pass" and not state.kernels:
        verdict, why = "view-or-factory", "no kernel of the contract runs in the forward pass"
    if verdict == "pass" and has_gradient(entry) and not state.gradients:
        why = "no sample has a gradient"
    return Verdict(name, verdict, why, count, state.passed, state.error, state.torchs,
                   state.gradients, state.kernels, sorted(state.refused))  # fmt: skip


def summary(found: Sequence[Verdict]) -> dict[str, int]:
    """How many entries have each verdict."""
    return {verdict: sum(v.verdict == verdict for v in found) for verdict in VERDICTS}
