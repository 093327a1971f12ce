"""Processes of the command line that are forked from one which has its imports behind it.

A child has its own arguments, environment, directory and streams. What Python does before the first
line of a program is not done again, and no module is taken down after the last one. So `audit` on
the emulated GPU, `serve-model` and `serve` keep tests that start them as their users do.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

_REQUEST = 1 << 20


class Forked:
    """One child: of `subprocess.Popen`'s methods those that tests use. Its streams are text."""

    def __init__(self, pid: int, status: int, stdout: IO[str], stderr: IO[str]) -> None:
        self.pid, self.stdout, self.stderr = pid, stdout, stderr
        self.returncode: int | None = None
        self._status = status
        self._said: list[str] = []

    def poll(self) -> int | None:
        """Its exit code, or minus the number of the signal that killed it; None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float) -> int:
        """Its exit code. Raises TimeoutExpired after `timeout` seconds."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("a forked command", timeout)
        return code

    def _ended(self, timeout: float) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            self.returncode = int(os.read(self._status, 20))
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing, if it has ended: another process may have its number then."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def communicate(self, timeout: float) -> tuple[str, str]:
        """All that it writes from now on, and wait for its end; then, the same again.

        Raises TimeoutExpired after `timeout` seconds without its end.
        """
        if not self._said:
            read = [list[str](), list[str]()]
            for stream, into in zip((self.stdout, self.stderr), read, strict=True):
                threading.Thread(
                    target=lambda s=stream, i=into: i.append(s.read()), daemon=True
                ).start()
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                self.send_signal(signal.SIGKILL)
                raise
            until = time.monotonic() + timeout
            while not all(read) and time.monotonic() < until:
                time.sleep(0.001)
            if not all(read):
                raise subprocess.TimeoutExpired("a forked command", timeout)
            self.stdout.close()
            self.stderr.close()
            self._said = [read[0][0], read[1][0]]
        return self._said[0], self._said[1]


class Forker:
    """A process that has executed `preamble`, and forks a command for each one asked.

    `environment` is what it starts with. What imports and the dynamic linker read of it holds for
    its children.
    """

    def __init__(self, preamble: str, environment: Mapping[str, str] | None = None) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), str(its.fileno()), preamble],
            pass_fds=[its.fileno()], env=environment,
        )  # fmt: skip
        its.close()
        ours.settimeout(300)  # a preamble imports, on a busy machine
        atexit.register(self.close)

    def start(self, words: Sequence[object], environment: Mapping[str, str]) -> Forked:
        """`python -m tallystick` with these words; nothing is on its standard input."""
        # What a child reads, and what it and its parent write: its own ends, and ours.
        nothing = os.open(os.devnull, os.O_RDONLY)
        out, err, status = os.pipe(), os.pipe(), os.pipe()
        theirs = [nothing, out[1], err[1], status[1]]
        asked = {
            "words": [str(word) for word in words], "environment": dict(environment),
            "directory": os.getcwd(),
        }  # fmt: skip
        try:
            socket.send_fds(self._socket, [json.dumps(asked).encode()], theirs)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        said = self._socket.recv(20)
        if not said:
            raise RuntimeError(f"the forker ended with code {self._process.wait(60)}")
        return Forked(int(said), status[0], os.fdopen(out[0]), os.fdopen(err[0]))

    def close(self) -> None:
        """End it, and what it has forked and is still there."""
        atexit.unregister(self.close)
        self._socket.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(60)
        self._process.kill()


def _serve(door: socket.socket) -> list[str] | None:
    """In the process that forks: None at its end; in a child, the words of its command."""
    statuses: dict[int, int] = {}
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready = select.select([door, wakes], [], [])[0]
        if wakes in ready:
            os.read(wakes, 100)
            _reap(statuses)
        if door not in ready:
            continue
        data, descriptors, *_ = socket.recv_fds(door, _REQUEST, 4)
        if not data:
            for child in statuses:
                os.kill(child, signal.SIGKILL)
            return None
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, descriptor in enumerate(descriptors[:3]):
                os.dup2(descriptor, number)
            for descriptor in (*descriptors, *statuses.values(), wakes, wake):
                os.close(descriptor)
            door.close()
            asked = json.loads(data)
            os.environ.clear()
            os.environ.update(asked["environment"])
            os.chdir(asked["directory"])
            return list(asked["words"])
        for descriptor in descriptors[:3]:
            os.close(descriptor)
        statuses[pid] = descriptors[3]
        door.send(str(pid).encode())


def _reap(statuses: dict[int, int]) -> None:
    with suppress(ChildProcessError):
        while statuses:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            with suppress(BrokenPipeError):  # nobody waits for it
                os.write(statuses[pid], str(os.waitstatus_to_exitcode(status)).encode())
            os.close(statuses.pop(pid))


def _command(words: list[str]) -> None:
    """In a child: its command. The process ends, without what Python would do `atexit`."""
    sys.argv = ["tallystick", *words]
    code: object = 1
    try:
        runpy.run_module("tallystick", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code or 0
        if not isinstance(code, int):
            print(code, file=sys.stderr)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # pools end their threads
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120  # as Python's own end has it
    finally:
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    _number, _preamble = sys.argv[1:]
    del sys.path[0]  # this directory is no module's place for a command
    exec(compile(_preamble, "preamble", "exec"), {})
    _words = _serve(socket.socket(fileno=int(_number)))
    if _words is not None:
        _command(_words)
