"""How the device kernels are compiled. NVRTC at run time, the check of the compiled code
(native/tools/device_code) and the documents take the options from here."""

from __future__ import annotations

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
