"""Writes src/tallystick/_core.pyi, the types of the native module, from the module itself.

    python native/tools/make_stub.py [--check]

nanobind reads them from the bindings. It cannot know two facts, which stand here: the dtype of an
array that a function returns as an object, and that some functions take several dtypes.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from nanobind.stubgen import StubGen

from tallystick import _core

STUB = Path(__file__).resolve().parents[2] / "src" / "tallystick" / "_core.pyi"
# The dtype of a function's result (bind_rounding.cpp, `owned`).
RETURNS = {
    "round_doubt": "int64",
    "exact_dots": "float32",
    "exact_accs": "uint8",
    "exact_sums": "float32",
    "exact_sum_accs": "uint8",
    "acc_add_products": "uint8",
    "acc_add_terms": "uint8",
    "acc_round": "float32",
    "square_sums_rows": "float64",
    "square_sums_columns": "float64",
    "abs_sums_rows": "float64",
}


def stub() -> str:
    """The text of the stub."""
    generator = StubGen(_core)
    generator.put(_core)
    text = str(generator.get())
    text = re.sub(r"\bNDArray\b(?!\[)(?=,)", "NDArray[Any]", text)
    for name, dtype in RETURNS.items():
        pattern = rf"(?m)^(def {name}\(.*\)) -> object:"
        text, found = re.subn(pattern, rf"\1 -> NDArray[numpy.{dtype}]:", text)
        if found != 1:
            sys.exit(f"make_stub: {name} returns no object any more: take it out of RETURNS.")
    if "-> object" in text:
        sys.exit("make_stub: a function returns an object of unknown type: name it in RETURNS.")
    text = text.replace("from typing import Annotated\n", "from typing import Annotated, Any\n")
    head = '"""Made by native/tools/make_stub.py from the native module. Do not edit."""\n\n'
    return head + text.strip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    text = stub()
    if parser.parse_args().check:
        sys.exit(STUB.read_text() != text)
    STUB.write_text(text)


if __name__ == "__main__":
    main()
