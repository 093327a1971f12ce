"""The memory that a process may still take: the tightest of its control groups says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tallystick.disk import memory

GIB = 1 << 30


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 64 GiB to spare and no control groups yet."""
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {64 << 20} kB\n")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "OWN_GROUP", tmp_path / "cgroup")
    monkeypatch.setattr(memory, "CGROUPS", tmp_path / "groups")
    return tmp_path


def _group(machine: Path, name: str, **values: object) -> None:
    directory = machine / "groups" / name
    directory.mkdir(parents=True, exist_ok=True)
    for key, value in values.items():
        (directory / f"memory.{key}").write_text(f"{value}\n")


def _own(machine: Path, *lines: str) -> int:
    (machine / "cgroup").write_text("".join(f"{line}\n" for line in lines))
    return memory.spare_memory()


@pytest.mark.parametrize(
    ("tight", "spare"), [("", 2), ("slice", 3), ("slice/job", 4), ("slice/job/high", 5)]
)
def test_the_tightest_group_from_the_own_one_to_the_root(
    machine: Path, tight: str, spare: int
) -> None:
    for name in ("", "slice", "slice/job", "other"):
        _group(machine, name, max="max", high="max", current=10 * GIB)
    _group(machine, "other", max=10 * GIB)  # not this process's
    limit = "high" if tight.endswith("high") else "max"
    _group(machine, tight.removesuffix("/high"), **{limit: (10 + spare) * GIB})
    assert _own(machine, "1:name=systemd:/x", "0::/slice/job") == spare * GIB
    _group(machine, "slice/job", max=9 * GIB)
    assert _own(machine, "0::/slice/job") == 0


def test_version_1(machine: Path) -> None:
    _group(machine, "memory", limit_in_bytes=(1 << 63) - 4096, usage_in_bytes=GIB)
    _group(machine, "memory/box", limit_in_bytes=8 * GIB, usage_in_bytes=GIB)
    assert _own(machine, "5:cpu,memory:/box/inner", "4:pids:/box", "0::/x") == 7 * GIB
    assert _own(machine, "5:cpu,memory:/elsewhere") == 64 * GIB


def test_what_cannot_be_read_says_nothing(machine: Path) -> None:
    assert memory.spare_memory() == 64 * GIB
    _group(machine, "", max=12 * GIB, current=GIB)
    assert memory.spare_memory() == 11 * GIB
    # A name from outside of this process's view of the groups.
    assert _own(machine, "0::/../../host") == 11 * GIB
    assert _own(machine, "no group", "") == 11 * GIB  # the root bounds all
    (machine / "meminfo").write_text("nothing\n")
    assert memory.spare_memory() == 0
