"""torch's gloo between two processes of this machine: bytes a second, and seconds of a message."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tallystick.errors import CannotCheckError
from tallystick_bench import process

Found = dict[str, Any]
_MODULE = "tallystick_bench.scale.measure.network"
_SMALL = 64  # bytes of a message whose time is latency
_LIMIT_S = 300


def loopback(mib: int, repeats: int) -> Found:
    """Both figures; none of them where torch or its gloo is missing."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = (str(port), str(mib), str(repeats))
    ranks = [
        subprocess.Popen(
            process.command(_MODULE, str(rank), *arguments),
            env=process.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        told = [rank.communicate(timeout=_LIMIT_S) for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
    if any(rank.returncode for rank in ranks):
        raise CannotCheckError(
            f"gloo between two processes failed: {told[0][1].strip()[-400:]}", "Is torch installed?"
        )
    found: Found = json.loads(told[0][0])
    return found


def _rank(rank: int, port: int, mib: int, repeats: int) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2,
        timeout=timedelta(seconds=_LIMIT_S),
    )  # fmt: skip

    def one_way(size: int) -> Callable[[], None]:
        """Rank 0 sends `size` bytes, rank 1 answers with 8."""
        data, answer = torch.zeros(size, dtype=torch.uint8), torch.zeros(8, dtype=torch.uint8)

        def call() -> None:
            if rank == 0:
                distributed.send(data, 1)
                distributed.recv(answer, 1)
            else:
                distributed.recv(data, 0)
                distributed.send(answer, 0)

        return call

    def least(call: Callable[[], None], count: int) -> float:
        times = []
        for _ in range(count + 1):
            began = time.perf_counter()
            call()
            times.append(time.perf_counter() - began)
        return min(times[1:])

    message = least(one_way(_SMALL), 50 * repeats) / 2
    seconds = least(one_way(mib << 20), repeats)
    if rank == 0:
        print(json.dumps({"gloo_bytes_s": (mib << 20) / seconds, "gloo_message_s": message}))
    distributed.destroy_process_group()


if __name__ == "__main__":
    _rank(*map(int, sys.argv[1:]))
