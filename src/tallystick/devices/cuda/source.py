"""The kernel sources, and their compilation for one architecture (NVRTC; docs/adr/0016).

A compiled file is kept in the user's cache, under a digest of everything that it was made from.
NVRTC at run time, the check of the compiled code (native/tools/device_code) and the documents take
the options from here.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from tallystick.disk.files import make_directory, remove_file, write_file
from tallystick.disk.regular import entries, present, read_file
from tallystick.errors import EnvironmentRefusedError, TallystickError
from tallystick.installed import checkout

# The same spelling for nvcc and for NVRTC. A sum of products must not become one operation with one
# rounding, subnormals stay, and a quotient and a root are correctly rounded (NUMERICS 1.2 to 1.4).
FMAD = "--fmad=false"
OPTIONS = (
    "--std=c++17",
    "-DTS_ISA=device",
    FMAD,
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
)
# What the compiled code is read for. A GPU of a later minor version runs the code of its major.
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
# The folders of headers, below native/.
INCLUDE_FOLDERS = ("include", "cuda")


_MOST_BYTES = 1 << 26  # of a source file, and of the code compiled from it
_INSTALL = 'Install the packages with: pip install "tallystick[gpu]".'


def native_folder() -> Path:
    """The folder that holds `cuda` and `include`: of the checkout, or of the installed package."""
    tree = checkout()
    return Path(__file__).parent / "native" if tree is None else tree / "native"


@lru_cache(maxsize=1)
def source_texts() -> dict[str, bytes]:
    """Every source and header by its path below `native_folder`."""
    root = native_folder()
    found: dict[str, bytes] = {}
    for folder in (Path("include/tallystick"), Path("cuda")):
        for entry in entries(root / folder):
            if entry.name.endswith((".hpp", ".cu")):
                path = root / folder / entry.name
                found[f"{folder}/{entry.name}"] = read_file(path, _MOST_BYTES, "kernel source")
    return found


def file_of(kernel: str) -> str:
    """The file of a kernel, without its ending (native/cuda/device.hpp)."""
    return kernel.split("_", 1)[0]


def source_files() -> list[str]:
    """The names of all files of kernels, without their endings."""
    return sorted(Path(name).stem for name in source_texts() if name.endswith(".cu"))


def find_nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()  # loads the library
    except Exception as error:  # ImportError; the package has a class of its own for the library
        raise EnvironmentRefusedError(
            f"NVIDIA's run-time compiler cannot be loaded: {str(error)[:200]}", _INSTALL
        ) from error
    return nvrtc


def options_of(architecture: str) -> list[str]:
    root = native_folder()
    folders = (f"--include-path={root / folder}" for folder in INCLUDE_FOLDERS)
    return [f"--gpu-architecture={architecture}", "--device-int128", *OPTIONS, *folders]


def _digest(name: str, architecture: str, version: tuple[int, int]) -> str:
    """Of everything that decides the code: all headers, the source, options, compiler."""
    found = hashlib.sha256(repr((name, architecture, OPTIONS, version)).encode())
    for path, text in sorted(source_texts().items()):
        if path.endswith(".hpp") or path == f"cuda/{name}.cu":
            found.update(repr((path, len(text))).encode() + text)
    return found.hexdigest()


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tallystick" / "cuda"


def compiler_version() -> tuple[int, int]:
    """The version of NVIDIA's run-time compiler. Raises EnvironmentRefusedError."""
    _, major, minor = find_nvrtc().nvrtcVersion()
    return int(major), int(minor)


def _kept(name: str, architecture: str) -> Path:
    digest = _digest(name, architecture, compiler_version())
    return _cache_folder() / f"{name}-{architecture}-{digest}.cubin"


def compiled(name: str, architecture: str) -> bytes:
    """The code of file `name` ("pointwise") for `architecture` ("sm_90"), as a cubin.

    Raises EnvironmentRefusedError where the compiler is missing or refuses.
    """
    kept = _kept(name, architecture)
    try:
        if present(kept):
            return read_file(kept, _MOST_BYTES, "compiled kernels")
    except TallystickError:
        pass  # it is made again
    code = compile_source(find_nvrtc(), name, architecture)
    try:
        make_directory(kept.parent)
        write_file(kept, [code])
    except TallystickError:
        pass  # a cache that cannot be written costs the time of the next start
    return code


def forget(name: str, architecture: str) -> None:
    """Remove the kept code of a file, if there is any."""
    with suppress(TallystickError):
        remove_file(_kept(name, architecture))


def ptx(name: str, architecture: str) -> str:
    """The PTX of file `name` for `architecture` ("compute_90"), for those who read it. Raises as
    `compiled`."""
    return compile_source(find_nvrtc(), name, architecture, "PTX").decode().rstrip("\0")


def compile_source(nvrtc: Any, name: str, architecture: str, kind: str = "CUBIN") -> bytes:
    source = source_texts()[f"cuda/{name}.cu"]

    def checked(answer: tuple[Any, ...]) -> Any:
        if answer[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise EnvironmentRefusedError(f"NVIDIA's run-time compiler failed: {answer[0]}.")
        return answer[1] if len(answer) > 1 else None

    program = checked(nvrtc.nvrtcCreateProgram(source, f"{name}.cu".encode(), 0, [], []))
    try:
        options = [option.encode() for option in options_of(architecture)]
        (result,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            # One byte more: Python shares its bytes objects of one byte, and this one is written.
            log = b" " * (checked(nvrtc.nvrtcGetProgramLogSize(program)) + 1)
            checked(nvrtc.nvrtcGetProgramLog(program, log))
            text = log.decode(errors="replace").strip("\0 ")
            raise EnvironmentRefusedError(
                f"The kernels {name}.cu do not compile for {architecture}: {text[:2000]}",
                "Update nvidia-cuda-nvrtc to a version that knows this GPU, and the driver.",
            )
        code = b" " * checked(getattr(nvrtc, f"nvrtcGet{kind}Size")(program))
        checked(getattr(nvrtc, f"nvrtcGet{kind}")(program, code))
        return bytes(code)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
