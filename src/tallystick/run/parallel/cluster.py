"""Attempts as tasks of a Ray cluster: this auditor's own machines, which see the run at one path,
or open its URL, each with the credentials and the cache of its own environment.

Ray places the tasks and says when a worker or a node dies; our driver decides what is repeated, so
Ray's own retries are off. A task sends progress and its answer as JSON.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tallystick.disk.mounts import INHERITED
from tallystick.disk.objects.address import is_url
from tallystick.errors import CannotCheckError, MachineFaultError, UsageError
from tallystick.installed import tallystick_version
from tallystick.run.parallel.processes import AttemptEnded, AttemptProgress, Died, Event
from tallystick.run.parallel.task import Repeater, Segment, Task, error_json

_TOLD_S = 1.0
_NODE_S = 120.0
_REACH_S = 10.0


def _ray() -> Any:
    """The module ray. Raises CannotCheckError where it is missing."""
    try:
        import ray
    except ImportError as error:
        raise CannotCheckError(
            f"An audit on a cluster needs the package ray ({error}).",
            "Run pip install 'tallystick[ray]' on every node.",
        ) from None
    return ray


# ---- on a node ----------------------------------------------------------------------------------
_repeaters: dict[str, Repeater] = {}


def _repeater(task: str) -> Repeater:
    """One repeater in a process of Ray, which serves many tasks: it checks the job once."""
    if task not in _repeaters:
        _let_go()
        _repeaters[task] = Repeater(Task(**json.loads(task)))
    return _repeaters[task]


@atexit.register
def _let_go() -> None:
    """Remove the mirrors of this process. A killed one leaves them to the node's next command."""
    while _repeaters:
        _repeaters.popitem()[1].close()


def _stand_alone() -> None:
    """A node opens URLs for itself, also where the auditor has started it and left word of a
    mirror, which is gone or is not the node's to change."""
    os.environ.pop(INHERITED, None)


def look(task: str) -> str:
    """What a node sees of the run, and of the job's other copy: {"version", "error" or null}."""
    from tallystick.disk.objects.opening import opened
    from tallystick.errors import TallystickError
    from tallystick.job.job_file import load_job
    from tallystick.run.store.directory import RunStore

    _stand_alone()
    told = Task(**json.loads(task))
    error = None
    try:
        with opened(told.run) as run:
            RunStore(run).commitment_bytes()
        if told.job is not None:
            with opened(told.job) as job:
                load_job(job)
    except TallystickError as found:
        error = error_json(found)
    return json.dumps({"version": tallystick_version(), "error": error})


def attempt(task: str, first: int, last: int) -> Iterator[str]:
    """Repeat a segment: first the node's identity, progress as it goes, the answer at the end."""
    _stand_alone()
    heard: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    spoke = [time.monotonic()]

    def told(steps: int) -> None:
        if time.monotonic() - spoke[0] >= _TOLD_S:
            spoke[0] = time.monotonic()
            heard.put({"steps": steps})

    def work() -> None:
        heard.put({"answer": _repeater(task).answer(Segment(first, last), told)})

    yield json.dumps({"steps": 0, "node": _ray().get_runtime_context().get_node_id()})
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while True:
        value = heard.get()
        yield json.dumps(value)
        if "answer" in value:
            return


# ---- at the auditor -----------------------------------------------------------------------------
def cluster(address: str, task: Task, workers: int | None, threads: int | None) -> Cluster:
    """Connect to the Ray cluster at `address`, and check that every node sees the run.

    Without `threads` a task takes as many as the smallest node has; without `workers` there are
    as many tasks at once as the cluster has room for. Raises CannotCheckError where Ray is missing,
    the cluster is not reached, or a node does not get the run's objects; UsageError for a node that
    does not see the run on its disk.
    """
    ray = _ray()
    ours = not ray.is_initialized()
    if ours:
        _reach(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level="warning")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise _no_cluster(address, error) from None
    try:
        nodes = {
            node["NodeID"]: node
            for node in ray.nodes()
            if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
        }
        if not nodes:
            raise CannotCheckError(
                f"The Ray cluster at {address} has no node with a CPU.",
                "Add a node with a CPU to the cluster.",
            )
        _check_nodes(ray, nodes, task)
        processors = {i: int(node["Resources"]["CPU"]) for i, node in nodes.items()}
        each = threads or min(processors.values())
        room = sum(count // each for count in processors.values())
        if not room:
            raise UsageError(
                f"No node of the Ray cluster has {each} CPUs.",
                "Choose fewer threads with --threads.",
            )
        return Cluster(ray, replace(task, threads=each), workers or room, ours)
    except BaseException:
        if ours:
            ray.shutdown()
        raise


def _reach(address: str) -> None:
    """Raise CannotCheckError where no process listens at HOST:PORT: Ray would wait for minutes.
    Raises UsageError for an address of Ray's client, which has not all that is needed here."""
    if address.startswith("ray://"):
        raise UsageError(
            f"{address} is an address for Ray's client, which audits do not use.",
            "Run the audit on a node of the cluster, with HOST:6379 or `auto`.",
        )
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        return  # a word that Ray knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, error) from None


def _no_cluster(address: str, error: Exception) -> CannotCheckError:
    return CannotCheckError(
        f"No Ray cluster answers at {address}: {str(error)[:200]}.",
        "Start one with `ray start --head`, and pass the address that it prints.",
    )


def _check_nodes(ray: Any, nodes: dict[str, Any], task: Task) -> None:
    """Raise UsageError unless every node has this version and sees the run; CannotCheckError where
    its store does not give it."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    words = json.dumps(task.as_json())
    asked = {}
    for identity in nodes:
        pinned = NodeAffinitySchedulingStrategy(identity, soft=False)
        there = ray.remote(num_cpus=0, max_retries=1)(look).options(scheduling_strategy=pinned)
        asked[identity] = there.remote(words)
    for identity, reference in asked.items():
        name = f"node {nodes[identity]['NodeManagerAddress']} ({identity[:8]})"
        try:
            seen = json.loads(ray.get(reference, timeout=_NODE_S))
        except ray.exceptions.RayError as error:
            raise UsageError(
                f"The {name} of the Ray cluster does not answer: {_first_line(error)}.",
                "Install tallystick on this node, or remove the node from the cluster.",
            ) from None
        if seen["version"] != tallystick_version():
            raise UsageError(
                f"The {name} has Tallystick {seen['version']}, but this machine has "
                f"{tallystick_version()}.",
                "Install the same version on every node.",
            )
        if seen["error"] is not None and is_url(task.run):
            why = f"{seen['error']['message']} {seen['error']['next_action']}".strip()
            raise CannotCheckError(
                f"The {name} cannot read the run at {task.run}: {why}",
                "Every node reads the store itself. Run `ray start` there with the store's "
                "credentials and endpoint in its environment, and install tallystick[objects].",
            )
        if seen["error"] is not None:
            raise UsageError(
                f"The {name} cannot read the run: {seen['error']['message']}",
                f"Make {task.run} available at this path on every node, for instance on a shared "
                "disk.",
            )


def _first_line(error: BaseException) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return line.split(". ")[0][:200]


class Cluster:
    """Attempts on a cluster (executor.Executor)."""

    kind = "ray"

    def __init__(self, ray: Any, task: Task, workers: int, ours: bool) -> None:
        self.workers = workers
        self._ray, self._ours = ray, ours
        self._task = json.dumps(task.as_json())
        self._remote = ray.remote(num_cpus=task.threads, max_retries=0, num_returns="streaming")(
            attempt
        ).options(scheduling_strategy="SPREAD")
        self._live: dict[Any, int] = {}
        self._nodes: dict[int, str] = {}  # of attempts that have begun

    def busy(self) -> set[str]:
        """The identities of the nodes that repeat a segment now."""
        return {self._nodes[n] for n in self._live.values() if n in self._nodes}

    def start(self, attempt: int, segment: Segment) -> None:
        """As Executor.start."""
        self._live[self._remote.remote(self._task, segment.first, segment.last)] = attempt

    def events(self, timeout: float) -> list[Event]:
        """As Executor.events."""
        if not self._live:
            time.sleep(timeout)
            return []
        found: list[Event] = []
        while self._live:
            ready = self._ready(0.0) or ([] if found else self._ready(timeout))
            if not ready:
                break
            for stream in ready:
                found += self._next(stream)
        return found

    def _ready(self, timeout: float) -> list[Any]:
        """The attempts that have said something; waits for the first one."""
        waited = list(self._live)
        many = 1 if timeout else len(waited)
        try:
            ready, _ = self._ray.wait(waited, num_returns=many, timeout=timeout, fetch_local=False)
        except self._ray.exceptions.RayError as error:
            raise MachineFaultError(
                f"The Ray cluster does not answer: {_first_line(error)}.", "Run the audit again."
            ) from error
        return list(ready)

    def _next(self, stream: Any) -> list[Event]:
        number, errors = self._live[stream], self._ray.exceptions
        try:
            value = json.loads(self._ray.get(next(stream)))
        except StopIteration:
            del self._live[stream]
            return [Died(number, "it ended without an answer")]
        except errors.OutOfMemoryError as error:
            del self._live[stream]
            return [Died(number, _first_line(error), memory=True)]
        except errors.RayError as error:
            del self._live[stream]
            return [Died(number, f"{type(error).__name__}: {_first_line(error)}")]
        if "answer" in value:
            del self._live[stream]
            return [AttemptEnded(number, value["answer"], f"node {self._nodes[number]}")]
        if "node" in value:
            self._nodes[number] = value["node"]
        return [AttemptProgress(number, value["steps"])]

    def stop(self, attempt: int) -> None:
        """As Executor.stop."""
        for stream, number in list(self._live.items()):
            if number == attempt:
                del self._live[stream]
                self._ray.cancel(stream, force=True)

    def close(self) -> None:
        """As Executor.close."""
        for number in list(self._live.values()):
            self.stop(number)
        if self._ours:
            self._ray.shutdown()
