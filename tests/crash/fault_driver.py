"""Faults injected into a prover's answers, a judge and a whole game; run by test_faults.py, and by
hand for the exhaustive record (docs/proofs/faults.md).

    python tests/crash/fault_driver.py prover --contract ordered/1 --kinds 4 --stride 1

builds the shim, starts itself again with it preloaded, and forks one child for each call to the C
library that the undisturbed subject makes: in that child this call fails (and, with --lasting,
every later one). A child that signs anything the undisturbed subject did not sign, or that comes
to another verdict, is a failure of the project; one that says nothing, or dies, is not.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import ctypes
import faulthandler
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ALLOCATION, THREAD, FILES, SHORT = 1, 2, 4, 8
SAME, FALSE, FIRST_REFUSAL = 0, 1, 16
CHILD_SECONDS = 60


def build_shim(directory: Path) -> Path | None:
    """The shared object, None without a C compiler."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    out = directory / "shim.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(out), str(HERE / "shim.c"), "-ldl"],
        check=True,
    )
    return out


def run_preloaded(shim: Path, arguments: list[str], malloc: bool) -> dict[str, Any]:
    """This script with the shim; what it found. `malloc`: each object is an allocation."""
    environment = {**os.environ, "LD_PRELOAD": str(shim), "OPENBLAS_NUM_THREADS": "2"}
    if malloc:
        environment["PYTHONMALLOC"] = "malloc"
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), *arguments, "--shim", str(shim)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# --- inside the process that has the shim ---------------------------------------------------------
SETTINGS = {"features": "8", "classes": "3", "records": "24", "hidden": "8", "batch_size": "4"}


def make_world(directory: Path, contract: str, wide: bool) -> Any:
    """A job of six steps, its honest run and a cheat's; `wide`: its kernels use threads."""
    from tallystick.job.recipes import new_job
    from tallystick.run.cheats.training import declared_cheat
    from tallystick.run.execute.trainer import Options, train_job
    from tallystick.run.store.unsigned import Declaration

    recipe, settings = "mlp", SETTINGS
    if wide:
        settings = {**SETTINGS, "hidden": "512", "features": "256", "batch_size": "64"}
        settings["records"] = "128"
    if contract.startswith("rounded"):  # the case: a convolution's exact sums
        recipe = "resnet50"
        settings = {"size": "tiny", "width": "4", "image": "16", "batch_size": "2", "records": "16"}
    job = new_job(
        recipe, directory / "job", settings, steps=6, checkpoint_interval=3, evaluate_every=0,
        contract=contract,
    )  # fmt: skip
    train_job(job, directory / "honest", Options())
    train_job(
        job,
        directory / "cheat",
        Options(maker=declared_cheat(job, Declaration("lie-output", {"step": 4}))),
    )
    return job


Subject = Callable[[], object]


def prover_subject(directory: Path, job: Any, contract: str) -> Subject:
    """Every kind of answer about one step, from a new prover."""
    from tallystick.devices.context import ExecutionContext
    from tallystick.opening.views import View
    from tallystick.protocol import queries as q
    from tallystick.prover.prover import Prover

    nodes = job.program.nodes
    node = next(k for k, n in enumerate(nodes) if n.op in ("aten.convolution", "aten.addmm"))
    queries: list[q.Query] = [
        q.Checkpoints((0, 1, 2)),
        q.States((4, 5)),
        q.Nodes(4),
        q.NodeRecord(4, node),
        q.Values(4, node, 0, 1, (), View("needs")),
        q.Opening(4, node, 0, (0,)),
        q.Loss(4),
    ]
    if contract.startswith("replay"):
        queries += [q.Log(4), q.LogBlock(4, 0, 0)]
    asked = [q.encode_query(query) for query in queries]

    def run() -> object:
        with Prover(directory / "honest", context=ExecutionContext(2)) as prover:
            return [prover.answer(query) for query in asked]

    return run


def game_subject(directory: Path, job: Any) -> Subject:
    """A whole game between the honest run and the cheat, referee and provers in one process."""
    from tallystick.commit.signing import PrivateKey
    from tallystick.devices.context import ExecutionContext
    from tallystick.prover.cheating import party_of
    from tallystick.prover.local import play
    from tallystick.prover.prover import Prover

    key = PrivateKey(bytes(31) + b"\1")

    def run() -> object:
        with (
            Prover(directory / "honest", context=ExecutionContext(2)) as good,
            party_of(directory / "cheat", context=ExecutionContext(2), as_attack=True) as bad,
        ):
            played = play(job.terms, [good, bad], key=key)
        return played.verdict

    return run


def judge_subject(directory: Path, job: Any) -> Subject:
    """The judge, from the files."""
    from tallystick.job.job_file import load_terms
    from tallystick.protocol.judge import judge
    from tallystick.prover.cheating import party_of
    from tallystick.prover.local import play
    from tallystick.prover.prover import Prover

    evidence = directory / "evidence"
    with (
        Prover(directory / "honest") as good,
        party_of(directory / "cheat", as_attack=True) as bad,
    ):
        evidence.write_bytes(play(job.terms, [good, bad]).evidence.to_bytes())

    def run() -> object:
        return judge(load_terms(directory / "job"), evidence.read_bytes()).verdict

    return run


class Shim:
    """The preloaded library."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.shim_disarm.restype = ctypes.c_long
        # Looked up now: the first call of a name allocates.
        self._arm, self._disarm = self._library.shim_arm, self._library.shim_disarm

    def arm(self, at: int, kinds: int, lasting: bool) -> None:
        self._arm(ctypes.c_long(at), kinds, int(lasting))

    def disarm(self) -> int:
        return int(self._disarm())


def record_signatures(signed: set[bytes], allowed: set[bytes] | None) -> None:
    """Note every message that is signed; with `allowed`, end the process at any other."""
    from tallystick.commit.signing import PrivateKey

    honest = PrivateKey.sign

    def sign(self: PrivateKey, message: bytes) -> bytes:
        if allowed is not None and message not in allowed:
            os._exit(FALSE)
        signed.add(message)
        return honest(self, message)

    PrivateKey.sign = sign  # type: ignore[method-assign]


def child(shim: Shim, subject: Subject, truth: bytes, at: int, kinds: int, lasting: bool) -> int:
    """Exit code: SAME, FALSE for another result, otherwise the number of an error's kind."""
    shim.arm(at, kinds, lasting)
    try:
        result = subject()
    except BaseException as error:
        shim.disarm()
        name = type(error).__name__
        os.write(2, f"{name}: {error}\n".encode()[:300])
        return FIRST_REFUSAL
    shim.disarm()
    return SAME if pickle.dumps(result) == truth else FALSE


def prepared(options: argparse.Namespace, directory: Path) -> tuple[Subject, bytes]:
    """The subject, everything imported and cached, and what it gives. From here on this process
    and its children end themselves at any signature that the undisturbed subject did not make."""
    job = make_world(directory, options.contract, options.wide)
    subject = {
        "prover": lambda: prover_subject(directory, job, options.contract),
        "game": lambda: game_subject(directory, job),
        "judge": lambda: judge_subject(directory, job),
    }[options.subject]()
    signed: set[bytes] = set()
    record_signatures(signed, None)
    truth = pickle.dumps(subject())
    assert pickle.dumps(subject()) == truth  # twice: imports and caches are there now
    record_signatures(set(), signed)
    return subject, truth


def in_child(run: Callable[[], int], log: str) -> int:
    """Fork; the child runs and ends with what it gives. Its number."""
    pid = os.fork()
    if pid:
        return pid
    target = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(target, 2)
    faulthandler.disable()
    signal.alarm(CHILD_SECONDS)
    os._exit(run())


class Outcomes:
    """How the children ended."""

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.false: list[int] = []

    def add(self, at: int, pid: int) -> None:
        """Wait for the child whose `at`-th call failed."""
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            self.counts[f"died by signal {os.WTERMSIG(status)}"] += 1
            return
        code = os.WEXITSTATUS(status)
        kind = {SAME: "same", FALSE: "FALSE", FIRST_REFUSAL: "refused"}
        self.counts[kind.get(code, f"ended with {code}")] += 1
        if code == FALSE:
            self.false.append(at)


def library_calls(shim: Shim, subject: Subject, kinds: int) -> int:
    """How many calls of these kinds the undisturbed subject makes, in a child like the others:
    one that has no worker threads yet."""
    out, into = os.pipe()

    def run() -> int:
        shim.arm(1 << 60, kinds, False)  # far beyond the last call
        subject()
        os.write(into, str(shim.disarm()).encode())
        return SAME

    pid = in_child(run, "")
    os.waitpid(pid, 0)
    return int(os.read(out, 20))


def inject(options: argparse.Namespace) -> dict[str, Any]:
    """One child for each chosen call; how they ended."""
    outcomes = Outcomes()
    with tempfile.TemporaryDirectory() as name:
        subject, truth = prepared(options, Path(name))
        if options.strace:
            calls = system_calls(subject, Path(name))
        else:
            shim = Shim(options.shim)
            calls = library_calls(shim, subject, options.kinds)
        places = range(options.first, min(calls, options.last or calls), options.stride)
        for at in places:
            if options.strace:
                rule = f"all:error={options.strace}:when={at + 1}{'+' if options.lasting else ''}"
                pid = traced(subject, truth, ["-e", f"inject={rule}"], options.log)
            else:
                pid = in_child(
                    lambda at=at: child(  # type: ignore[misc]
                        shim, subject, truth, at, options.kinds, options.lasting
                    ),
                    options.log,
                )
            outcomes.add(at, pid)
    return {
        "subject": options.subject,
        "contract": options.contract,
        "kinds": options.strace or options.kinds,
        "lasting": options.lasting,
        "calls": calls,
        "points": len(places),
        "outcomes": dict(outcomes.counts),
        "false": outcomes.false[:20],
    }


# --- by strace ------------------------------------------------------------------------------------
def traced(subject: Subject, truth: bytes, words: list[str], log: str) -> int:
    """A child that begins once strace, called with these words, is attached to it."""
    ready, go = os.pipe()

    def run() -> int:
        os.close(go)
        os.read(ready, 1)
        try:
            result = subject()
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(2, f"{type(error).__name__}: {error}\n".encode()[:300])
            return FIRST_REFUSAL
        return SAME if pickle.dumps(result) == truth else FALSE

    pid = in_child(run, log)
    os.close(ready)
    tracer = subprocess.Popen(
        ["strace", "-f", "-p", str(pid), *([] if "-o" in words else ["-o", os.devnull]), *words],
        stderr=subprocess.PIPE,
    )
    assert tracer.stderr is not None
    line = tracer.stderr.readline()
    assert b"attached" in line, line
    os.write(go, b"g")
    os.close(go)
    threading.Thread(target=tracer.communicate, daemon=True).start()
    return pid


def system_calls(subject: Subject, directory: Path) -> int:
    """How many system calls the undisturbed subject makes, all threads together."""
    out = directory / "calls"
    pid = traced(subject, b"", ["-o", str(out)], "")
    os.waitpid(pid, 0)
    time.sleep(0.5)  # strace writes its last lines
    return out.read_bytes().count(b"\n")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("subject", choices=["prover", "game", "judge"])
    parser.add_argument("--contract", default="ordered/1")
    parser.add_argument("--kinds", type=int, default=FILES)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=0)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--lasting", action="store_true")
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--malloc", action="store_true")
    parser.add_argument("--log", default="")
    parser.add_argument("--strace", default="", metavar="ERROR")
    parser.add_argument("--shim", default="")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if options.shim or options.strace:
        print(json.dumps(inject(options)))
        return 0
    with tempfile.TemporaryDirectory() as name:
        shim = build_shim(Path(name))
        if shim is None:
            print("skipped: no C compiler on this machine")
            return 0
        found = run_preloaded(shim, arguments, options.malloc)
    print(json.dumps(found))
    return 1 if found["false"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
