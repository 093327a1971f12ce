"""Change one token of the native code of `exact/1` at a time: the vectors must see it.

    python tests/adversary/mutation_exact_native.py [--only TEXT] [--list] [--out FILE]

A token is an operator or a number in the functions of exact_split.hpp and families/exact.cpp. Each
mutant is compiled for two instruction sets, with the compiler's checks of addresses and of
undefined behaviour, and linked with the rest of the core. The golden vectors of exact/1
(check_kernels) and the comparison of paths (check_paths) run until one fails. What does not compile
counts as seen.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADER = "native/include/tallystick/exact_split.hpp"
SOURCE = "native/src/families/exact.cpp"
BUILD = ROOT / "build" / "checks"
FLAGS = (
    "-std=c++17 -O1 -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-strict-aliasing "
    "-fvisibility=hidden -w -fsanitize=address,undefined -fno-sanitize-recover=all"
).split()
ISAS = {"scalar": [], "avx2": ["-DTS_ISA_AVX2=1", "-mavx2", "-mfma"]}
MOST_SECONDS = 120
OTHER = {
    " < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == ",
    " + ": " - ", " - ": " + ", " * ": " + ", " / ": " * ", " % ": " / ", " & ": " | ",
    " ^ ": " & ", " << ": " >> ", " >> ": " << ", " && ": " || ", " || ": " && ", " += ": " -= ",
}  # fmt: skip
# Spaces around a token are its neighbours' too, so only the first one is taken.
_TOKENS = re.compile(
    "|".join(re.escape(token.rstrip()) + r"(?= )" for token in sorted(OTHER, key=len, reverse=True))
    + r"|(?<![\w.])(?:0x[0-9a-f.]+p?[0-9]*|[0-9]+(?:\.[0-9]+)?)[uf]?(?![\w.])"
)


@dataclass(frozen=True)
class Mutant:
    """One changed token: `was` became `now`."""

    file: str
    line: int
    was: str
    now: str
    text: str
    source: str


def _number(token: str) -> str:
    if token.startswith("0x") and "p" in token:
        mantissa, exponent = token.split("p")
        return f"{mantissa}p{int(exponent) + 1}"
    suffixes = "u" if token.startswith("0x") else "uf"
    suffix = token[-1] if token[-1] in suffixes else ""
    digits = token.removesuffix(suffix) if suffix else token
    if digits.startswith("0x"):
        return f"{hex(int(digits, 16) + 1)}{suffix}"
    return (f"{float(digits) + 1}" if "." in digits else f"{int(digits) + 1}") + suffix


def mutants(file: str) -> Iterator[Mutant]:
    """Every mutant of a file."""
    lines = (ROOT / file).read_text().split("\n")
    for number, line in enumerate(lines):
        code = line.split("//")[0]
        if line.startswith(("#", "//", "template", "namespace", "const ", "extern", "}")):
            continue
        for found in _TOKENS.finditer(code):
            token = found.group()
            other = OTHER[token + " "].rstrip() if token + " " in OTHER else _number(token)
            changed = code[: found.start()] + other + code[found.end() :]
            source = "\n".join([*lines[:number], changed, *lines[number + 1 :]])
            yield Mutant(file, number + 1, token.strip(), other.strip(), code.strip(), source)


def _run(command: list[str]) -> tuple[int, str]:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return -1, "they do not end"
    said = done.stdout + done.stderr
    return done.returncode, said if done.returncode >= 0 else f"signal {-done.returncode}"


def _sign(said: str) -> str:
    """What a program that failed complains of."""
    for pattern, told in (
        (r"call \d+, (.*): other bits", ""),
        (r"ERROR: AddressSanitizer: (\S+)", "an address, "),
        (r"runtime error: (\w+ \w+ \w+)", "undefined, "),
        (r"(\S+ differs from [^:]*: .*)", ""),
        (r"(differs from the known digest)", "it "),
    ):
        found = re.search(pattern, said)
        if found:
            return told + found[1]
    return said.strip().splitlines()[0][:60]


def killed_by(mutant: Mutant | None, scratch: Path) -> str:
    """What sees the change, "" if nothing does."""
    place = scratch / "include" / "tallystick"
    place.mkdir(parents=True, exist_ok=True)
    for file, name in ((HEADER, place / "exact_split.hpp"), (SOURCE, scratch / "exact.cpp")):
        changed = mutant is not None and mutant.file == file
        name.write_text(mutant.source if changed and mutant else (ROOT / file).read_text())
    folders = [scratch / "include", ROOT / "native/include", ROOT / "native/src"]
    objects = []
    for isa, own in ISAS.items():
        made = scratch / f"{isa}.o"
        code, _ = _run(
            ["c++", *FLAGS, f"-DTS_ISA={isa}", *own, *(f"-I{f}" for f in folders), "-c",
             str(scratch / "exact.cpp"), "-o", str(made)]
        )  # fmt: skip
        if code:
            return "it does not compile"
        objects.append(str(made))
    vectors = [str(path) for path in sorted((ROOT / "vectors" / "exact").glob("*.json"))]
    for tool, words in (("check_kernels", vectors), ("check_paths", [])):
        main = BUILD / f"native/tools/CMakeFiles/{tool}.dir/{tool}.cpp.o"
        program = str(scratch / tool)
        # The first definition counts: those of the core for these two sets are left out.
        code, said = _run(
            ["c++", "-fsanitize=address,undefined", str(main), *objects,
             "-Wl,--allow-multiple-definition", str(BUILD / "libtallystick_core.a"), "-lpthread",
             "-o", program]
        )  # fmt: skip
        if code:
            raise SystemExit(said)
        for isa in ISAS if words else [""]:
            code, said = _run([program, *(["--isa", isa] if isa else []), *words])
            if code:
                return f"{tool}: {_sign(said)}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="mutants whose file, line or text has this")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chosen = [
        m for file in (HEADER, SOURCE) for m in mutants(file)
        if given.only in f"{Path(m.file).name}:{m.line}: {m.text}"
    ]  # fmt: skip
    if given.list:
        for m in chosen:
            print(f"{Path(m.file).name}:{m.line} {m.was} -> {m.now}   {m.text}")
        return
    command = [
        "cmake",
        "--build",
        str(BUILD),
        "--target",
        "check_kernels",
        "--target",
        "check_paths",
    ]
    if not (BUILD / "CMakeCache.txt").exists():
        options = ["-DTALLYSTICK_BUILD_PYTHON=OFF", "-DTALLYSTICK_BUILD_TOOLS=ON"]
        subprocess.run(["cmake", "-S", str(ROOT), "-B", str(BUILD), *options], check=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    began, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as scratch:
        assert not killed_by(None, Path(scratch)), "it fails without a change"
        for m in chosen:
            killer = killed_by(m, Path(scratch))
            seen = killer or f"SURVIVED: {m.text}"
            print(f"{Path(m.file).name}:{m.line} {m.was} -> {m.now} {seen}", flush=True)
            text = m.text[:90].replace("|", "/")
            rows.append(
                f"| {Path(m.file).name} | {m.line} | `{text}` | `{m.was}` to `{m.now}`"
                f" | {killer or '**none**'} |".replace("`|", "`/").replace("||", "//")
            )
    survivors = sum("**none**" in row for row in rows)
    print(
        f"{len(rows)} changes, {survivors} survive, {(time.monotonic() - began) / 60:.0f} minutes"
    )
    if given.out:
        given.out.write_text("\n".join(rows) + "\n")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    if "CXX" in os.environ:
        raise SystemExit("unset CXX: the programs are linked with the objects of c++")
    main()
