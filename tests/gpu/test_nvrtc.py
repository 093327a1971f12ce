"""The kernel sources, read by the compiler that a GPU's machine uses (NVRTC needs no GPU).

`make ptx-check` reads what it makes of them; here it only has to take them.
"""

from __future__ import annotations

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")

from tallystick.devices.cuda import source
from tallystick.errors import EnvironmentRefusedError


@pytest.fixture(autouse=True)
def front_end_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler reads and checks the text, and makes nothing."""
    try:
        source.compiler_version()
    except EnvironmentRefusedError as error:
        pytest.skip(str(error))
    nvrtc, options = source.find_nvrtc(), source.options_of
    monkeypatch.setattr(source, "options_of", lambda a: [*options(a), "--fdevice-syntax-only"])
    monkeypatch.setattr(nvrtc, "nvrtcGetCUBINSize", lambda program: (0, 1))
    monkeypatch.setattr(nvrtc, "nvrtcGetCUBIN", lambda program, code: (0,))


def compile_(name: str) -> None:
    source.compile_source(source.find_nvrtc(), name, "sm_90")


@pytest.mark.parametrize("name", source.source_files())
def test_the_run_time_compiler_takes_every_source(name: str) -> None:
    compile_(name)


def test_a_source_that_it_does_not_take_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {**source.source_texts(), "cuda/broken.cu": b"no kernel"}
    monkeypatch.setattr(source, "source_texts", lambda: texts)
    with pytest.raises(EnvironmentRefusedError, match=r"broken\.cu do not compile for sm_90"):
        compile_("broken")
