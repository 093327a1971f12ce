"""Hosts of their own on one machine: network namespaces on a bridge, where they can be made."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Net:
    """One host: its address, and what stands before a command that runs there."""

    address: str
    prefix: tuple[str, ...] = ()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@contextmanager
def _namespaces(names: Sequence[str]) -> Iterator[dict[str, Net]]:
    mark = f"ts{os.getpid() % 100000}"
    subnet = f"10.{77 + os.getpid() % 100}.{os.getpid() // 100 % 200}"
    with ExitStack() as stack:
        bridge = f"{mark}b"
        _ip("link", "add", bridge, "type", "bridge")
        stack.callback(_ip, "link", "del", bridge)
        _ip("link", "set", bridge, "up")
        found = {}
        for number, name in enumerate(names, 1):
            space, inner, outer = f"{mark}n{number}", f"{mark}i{number}", f"{mark}o{number}"
            _ip("netns", "add", space)
            stack.callback(_ip, "netns", "del", space)
            _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", space)
            _ip("link", "set", outer, "master", bridge, "up")
            for words in (
                ("addr", "add", f"{subnet}.{number}/24", "dev", inner),
                ("link", "set", inner, "up"),
                ("link", "set", "lo", "up"),
            ):
                _ip("-n", space, *words)
            found[name] = Net(f"{subnet}.{number}", ("ip", "netns", "exec", space))
        yield found


@contextmanager
def hosts(names: Sequence[str]) -> Iterator[tuple[dict[str, Net], bool]]:
    """A host for each name, and whether each has a network of its own; else all are processes
    with an address each on this machine's loopback."""
    try:
        stack = ExitStack()
        found = stack.enter_context(_namespaces(names))
    except (OSError, subprocess.CalledProcessError):
        yield {name: Net(f"127.0.0.{10 + n}") for n, name in enumerate(names)}, False
        return
    with stack:
        yield found, True
