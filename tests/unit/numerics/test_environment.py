"""The floating-point environment is set on entry and the caller's put back (NUMERICS 1.7)."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environment_shim import MODES, ROOT, disturb, disturbed, preloaded, shim_path, word

from tallystick import _core
from tallystick.devices import environment
from tallystick.devices.environment import check_environment, exact_environment, reestablish
from tallystick.errors import EnvironmentRefusedError
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.registry import all_ops
from vectors import kernel_format as fmt

F = np.float32
KINDS = {name: {k: a.kind for k, a in spec.attrs.items()} for name, spec in all_ops().items()}
SUBNORMAL = np.array([1e-40, -3e-41, 1.1754942e-38, 1e-45], F)
# Numbers whose sums and products are halfway between two others, or near it.
AWKWARD = np.array([1.0, 2.0**-24, 1.5 * 2.0**-24, 0.1, -0.3, 1 / 3], F)
ROWS = np.array([[1e-39, -1e-39, 2e-40]], F)
LONG = np.tile(np.concatenate([SUBNORMAL, AWKWARD, [1e8]]).astype(F), 40_000)
WIDE = SUBNORMAL.astype(np.float64) * 1.3


@pytest.fixture(autouse=True)
def _stranger() -> None:
    shim_path()  # skips, with its reason, where it cannot be made


# -- the bracket -----------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
def test_the_callers_word_comes_back(mode: str) -> None:
    with disturbed(mode):
        before = word()
        assert not _core.fp_environment_ok()
        with exact_environment():
            assert _core.fp_environment_ok()
            with pytest.raises(ZeroDivisionError), exact_environment():
                disturb(mode)
                raise ZeroDivisionError
            assert _core.fp_environment_ok()  # a nested block has put its caller's back
            disturb(mode)
            reestablish()
            assert _core.fp_environment_ok()
        assert word() == before and not _core.fp_environment_ok()


def test_exceptions_seen_are_the_callers_own() -> None:
    """The whole word comes back: what a kernel's arithmetic raises, nobody sees."""
    before = _core.fp_environment_enter()
    _core.fp_environment_leave(before & ~0x3F)
    clean = _core.fp_environment_enter()
    _core.ew2("div", np.ones(4, F), np.full(4, 3, F), np.empty(4, F))  # inexact
    after = _core.fp_environment_enter()
    _core.fp_environment_leave(before)
    assert after == clean


def test_a_decorated_function_serves_threads_of_different_environments() -> None:
    inside, found = threading.Barrier(2, timeout=60), dict[str, tuple[bool, bool]]()

    @exact_environment()
    def work() -> bool:
        inside.wait()
        return bool(_core.fp_environment_ok())

    def run(mode: str) -> None:
        with disturbed(mode):
            before = word()
            ok = work()
            found[mode] = (ok, word() == before)

    threads = [threading.Thread(target=run, args=(mode,)) for mode in ("flush", "upward")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"flush": (True, True), "upward": (True, True)}


# -- the core --------------------------------------------------------------------------------------
def _layer_norm() -> np.ndarray:
    y = np.empty((1, 3), F)
    mean, rstd = np.empty(1, F), np.empty(1, F)
    _core.layer_norm(ROWS, None, None, 1e-39, y, mean, rstd, 3)
    return np.concatenate([y.ravel(), mean, rstd])


def _batch_norm() -> np.ndarray:
    x, y = AWKWARD.reshape(3, 2), np.empty((3, 2), F)
    small = [np.empty(2, F) for _ in range(4)]
    _core.batch_norm(
        x,
        None,
        None,
        SUBNORMAL[:2],
        SUBNORMAL[2:],
        1 / 3,
        1e-300,
        y,
        small[0],
        small[1],
        *small[2:],
    )
    return np.concatenate([y.ravel(), *small])


def _adam() -> np.ndarray:
    out = [np.empty(4, F) for _ in range(3)]
    numbers = (1e-41, 0.1, 3e-40, 1e-39, 0.3, 0.7, 1e-42)
    _core.adam_step(
        SUBNORMAL, SUBNORMAL, SUBNORMAL, abs(SUBNORMAL), None, *out, *numbers, False, True
    )
    return np.concatenate(out)


def _sgd() -> np.ndarray:
    out = np.empty(4, F)
    _core.sgd_step(SUBNORMAL, SUBNORMAL, None, None, out, None, 1 / 3, 0.0, 1.0, 1e-42, True, False)
    return out


def _published() -> np.ndarray:
    out, packed = np.empty(4, F), np.empty(1, np.uint8)
    _core.published_log(WIDE, 0, True, 32, False, out, packed)
    return out


def _sum() -> np.ndarray:
    out = np.empty(1, F)
    _core.reduce_sum(LONG, 1, LONG.size, 1, out, mean=True)  # long: pool threads have a share
    return out


def _addmm() -> np.ndarray:
    out = np.empty((1, 1), F)
    _core.addmm(SUBNORMAL[:1], np.ones((1, 1), F), np.ones((1, 1), F), out, 0.1, 1e-40)
    return out


NATIVE: dict[str, Callable[[], np.ndarray]] = {
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "adam": _adam,
    "sgd": _sgd,
    "published": _published,
    "sum": _sum,
    "addmm": _addmm,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", NATIVE)
def test_a_function_of_the_core_is_bracketed(name: str, mode: str) -> None:
    """Attributes too: binary64 numbers are rounded to binary32 inside."""
    expected = NATIVE[name]().tobytes()
    with disturbed(mode):
        before = word()
        got = NATIVE[name]()
        after = word()
    assert got.tobytes() == expected and after == before


def test_every_binding_goes_through_define() -> None:
    """A bare `m.def(` is for functions about the environment itself."""
    found = []
    for path in sorted((ROOT / "native" / "bindings").iterdir()):
        names = re.findall(r"\bm\s*\.\s*def\(\s*([^,]*)", path.read_text())
        found += [(path.name, name) for name in names]
    own = [("module.cpp", f'"fp_environment_{name}"') for name in ("ok", "enter", "leave")]
    assert found == [("define.hpp", "name"), *own]


# -- every operator --------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("group", fmt.groups())
def test_golden_vectors_hold_in_every_environment(group: str, mode: str) -> None:
    """Python rules (aten.mean, gather, conversions, ...) and the core's alike."""
    wrong = []
    for case in fmt.load(group, KINDS):
        with disturbed(mode):
            got = evaluate(case.op, *case.inputs, **dict(case.attrs))
            kept = word()
        results = got if isinstance(got, tuple) else (got,)
        if not all(fmt.same_bits(a, b) for a, b in zip(results, case.outputs, strict=True)):
            wrong.append(case.op)
        with disturbed(mode):
            assert kept == word()
    assert not wrong, sorted(set(wrong))


# -- what is still refused -------------------------------------------------------------------------
def test_a_disturbed_caller_is_not_refused() -> None:
    for mode in MODES:
        with disturbed(mode):
            check_environment()


def test_a_platform_that_cannot_be_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stubborn:
        """An emulator that ignores what it is told."""

        fp_environment_enter = staticmethod(lambda: 0)
        fp_environment_leave = staticmethod(lambda _word: None)
        fp_environment_ok = staticmethod(lambda: False)
        supported_isas = staticmethod(_core.supported_isas)

    monkeypatch.setattr(environment, "_core", Stubborn)
    with pytest.raises(EnvironmentRefusedError, match="does not let a program change"):
        check_environment()


@pytest.mark.parametrize("mode", MODES)
def test_a_package_that_was_compiled_in_another_rounding_mode_is_refused(mode: str) -> None:
    """Python folds a source's numbers when it compiles it, and keeps them in its bytecode."""
    source = Path(environment.__file__).read_text()
    with disturbed(mode):
        code = compile(source, environment.__file__, "exec")
    made: dict[str, Any] = {"__name__": environment.__name__}
    exec(code, made)
    if mode == "flush":
        made["check_environment"]()
        return
    with pytest.raises(EnvironmentRefusedError, match="did not round to nearest") as refused:
        made["check_environment"]()
    assert "__pycache__" in refused.value.next_action


_ROUNDED = """
import sys, numpy as np, tallystick
from tallystick import _core
from tallystick.errors import EnvironmentRefusedError
_core.set_threads(int(sys.argv[1]))
a = np.full((200, 300), 0x3DCCCCCD, np.uint32).view(np.float32)
try:
    print(tallystick.evaluate("aten.mm", a, a.T, contract="rounded/1").tobytes().hex()[:8])
except EnvironmentRefusedError as error:
    print("refused:", error)
"""


@pytest.fixture(scope="module")
def rounded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The script, and what it says where no stranger was."""
    script = tmp_path_factory.mktemp("rounded") / "rounded.py"
    script.write_text(_ROUNDED)
    clean = preloaded([str(script), "2"], "default").stdout
    assert re.fullmatch(r"[0-9a-f]{8}\n", clean)
    return script, clean


@pytest.mark.sample(3)
@pytest.mark.parametrize("mode", MODES)
def test_threads_of_blas_are_checked(mode: str, rounded: tuple[Path, str]) -> None:
    """numpy's BLAS made them when it was loaded, in the environment that was there then."""
    script, clean = rounded
    assert preloaded([str(script), "1"], mode).stdout == clean  # our own thread is ours to set
    refused = preloaded([str(script), "2"], mode).stdout
    how = "flush subnormals" if mode == "flush" else "do not round to nearest"
    assert refused.startswith(f"refused: Threads of numpy (its BLAS) {how}"), refused


_TORCH = """
import sys, numpy as np, torch
from tallystick import _core
from tallystick.errors import EnvironmentRefusedError
from tallystick.contracts.replay.stock.stock import Stock
_core.set_threads(2)
if sys.argv[1] == "first":
    torch.set_flush_denormal(True)
    torch.add(torch.ones(1 << 18), 1.0)  # makes torch's threads, which inherit it
    torch.set_flush_denormal(False)
try:
    Stock().prepare()
    print("taken")
except EnvironmentRefusedError as error:
    print("refused:", error)
"""


def test_threads_of_torch_are_checked(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "stock.py"
    script.write_text(_TORCH)
    assert preloaded([str(script), "never"], "default").stdout == "taken\n"
    refused = preloaded([str(script), "first"], "default").stdout
    assert refused.startswith("refused: Threads of torch flush subnormals"), refused


def test_the_threads_are_checked_once_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    from tallystick.products import engines
    from tallystick.products import probe as thread_probe

    _core.set_threads(2)  # of one thread, which is the caller's own, none is checked
    calls: list[str] = []
    probe = thread_probe.probe_products
    monkeypatch.setattr(
        thread_probe, "probe_products", lambda *given: (calls.append(given[0]), probe(*given))
    )
    for _ in range(2):
        with exact_environment():
            engines.current_engine()
            engines.current_engine()
    assert calls == ["numpy (its BLAS)"] * 2
