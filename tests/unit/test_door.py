"""The layer `disk` is the only door to files (DESIGN 3): it alone opens, lists, writes, removes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tallystick"

_DOORS = re.compile(
    r"(?<!def )(?<![\w.])open\(|\bos\.(open|stat|lstat|scandir|listdir|walk|mkdir|makedirs)\(|"
    r"\bos\.(write|fsync|replace|rename|unlink|remove|statvfs)\(|\b(tempfile|shutil)\.\w+\(|"
    r"\bos\.path\.(exists|isfile|isdir|getsize)\(|\.open\((?=\)|['\"])|"
    r"\.(read_bytes|read_text|write_bytes|write_text|iterdir|glob|rglob|stat|lstat|is_file|is_dir|"
    r"exists|resolve|touch|mkdir|unlink|rename|rmdir)\(|\bmmap\.mmap\(|\bnp\.(load|save|savez|fromfile|memmap)\(|"
    r"\.tofile\("
)
_FREE = ("disk/",)
# Other uses, each with its reason; the number is how many lines there are.
_ALLOWED = {
    "installed.py": (1, "where its own file lies"),
    "cli/bench.py": (1, "whether its checkout holds the benchmarks"),
    "cli/demo.py": (4, "copies, alters and removes runs it has just made"),
    "cli/doctor.py": (1, "looks at the machine"),
    "cli/main.py": (1, "opens os.devnull for streams that are closed"),
    "products/blas.py": (2, "reads /proc/self and the installed numpy"),
    "program/capture/source.py": (2, "where this package and torch lie"),
    "report/built_judge.py": (2, "the built judge, which is the package's own data"),
    "report/clauses.py": (3, "the package's own data and the specification it is made from"),
    "report/page.py": (1, "the package's own style sheet"),
    "serving/app.py": (1, "the chat page, which is the package's own data"),
    "run/cheats/attacks.py": (4, "the attack files of this installation"),
    "job/recipes/classify.py": (1, "numpy reads a file that the door has opened"),
    "job/recipes/text_records.py": (2, "the sources of the running Python"),
}


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text().splitlines() if _DOORS.search(line)]


def _sources() -> list[str]:
    names = (path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
    return sorted(name for name in names if not name.startswith(_FREE))


@pytest.mark.parametrize("name", _sources())
def test_files_are_opened_by_the_door_alone(name: str) -> None:
    found = _lines(SOURCE / name)
    count, why = _ALLOWED.get(name, (0, ""))
    assert len(found) == count, (why, found)


def test_the_list_of_exceptions_is_true() -> None:
    assert set(_ALLOWED) <= set(_sources())


@pytest.mark.parametrize(
    "line",
    [
        "with open(path, 'rb') as file:",
        "d = os.open(path, os.O_RDONLY)",
        "data = path.read_bytes()",
        "for p in directory.iterdir():",
        "found = list(directory.rglob('*'))",
        "size = path.stat().st_size",
        "if path.exists():",
        "file = path.open('rb')",
        "m = mmap.mmap(f, 0)",
        "a = np.load(path)",
        "os.replace(a, b)",
        "path.unlink(missing_ok=True)",
        "scratch = tempfile.mkdtemp()",
        "shutil.rmtree(path)",
    ],
)
def test_the_check_sees_doors(line: str) -> None:
    assert _DOORS.search(line)


@pytest.mark.parametrize("line", ["Journal.open(path, digest)", "def open(self):", "self._open(x)"])
def test_the_check_sees_no_doors_where_there_are_none(line: str) -> None:
    assert not _DOORS.search(line)


def test_only_one_place_prints() -> None:
    """What a command prints goes through `terminal.lines.shown`: no other module writes."""
    printing = re.compile(
        r"click\.(echo|secho)\(|(?<!\w)print\(|sys\.std(out|err)\.write\(|print_exc"
    )
    for name in _sources():
        if name not in ("cli/output.py", "terminal/lines.py"):  # JSON in ASCII; lines
            text = (SOURCE / name).read_text()
            lines = [line for line in text.splitlines() if printing.search(line)]
            lines = [line for line in lines if "console.print(shown(" not in line]
            assert lines == [], name
