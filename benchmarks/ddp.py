"""Two workers against torch's DistributedDataParallel: step, bytes on the wire, peak memory.

    python benchmarks/ddp.py [--layers 4] [--heads 4] [--width 128] [--batch 8] [--steps 20]
        [--workers 2] [--memory-width 8192] [--vocabulary 400000] [--json]

Both sides are in the same processes, which gloo connects, and step in turns: the recipe's GPT-2
(AdamW, clipping, no dropout) with the same batch, one thread for each worker. A worker's half of
the batch is one micro-batch. Beside a step's seconds stands the processor time of worker 0, which
other work on the machine changes little. Bytes are those that the loopback interface sends during a
side's steps; `--steps 0` leaves this out. Peak memory is that of `tallystick train` with some
numbers of workers, processes of their own: for a perceptron whose state is nearly all of its memory
(`--memory-width`), and for a GPT-2 that is nearly all one embedding (`--vocabulary`); 0 leaves one
out. A row that cannot be had says why, and the others stand.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.devices.context import ExecutionContext
from tallystick.devices.environment import exact_environment
from tallystick.job.job_file import load_job
from tallystick.job.recipes import new_job
from tallystick.job.recipes.gpt2 import Gpt2Settings, make_module
from tallystick.run.distributed.engine import TeamEngine
from tallystick.run.distributed.launch import TeamMaker
from tallystick.run.distributed.team import Team
from tallystick.run.distributed.transport import Meeting
from tallystick_bench.machine import machine

WARM = 2
EMBEDDING = 256  # a word's elements in the model that is nearly all embedding


def wire() -> int:
    """Bytes that the loopback interface has sent."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name.strip() == "lo":
            return int(numbers.split()[8])
    return 0


class Torch:
    """torch's side: DistributedDataParallel over the default process group."""

    def __init__(self, engine: TeamEngine, settings: Gpt2Settings) -> None:
        import torch

        self.torch, self.engine = torch, engine
        module = make_module(settings)
        host = engine.context.device.host
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter.copy_(
                    torch.from_numpy(np.array(host(engine.state.slots["param." + name])))
                )
        self.module = torch.nn.parallel.DistributedDataParallel(module)
        self.optimizer = torch.optim.AdamW(
            module.parameters(), lr=settings.lr, betas=(settings.beta1, settings.beta2),
            weight_decay=settings.weight_decay, fused=True,
        )  # fmt: skip

    def step(self, number: int) -> None:
        torch = self.torch
        tokens = torch.from_numpy(self.engine.batch(number)["tokens"])
        logits = self.module(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1)
        )
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimizer.step()


def be_worker(given: dict[str, Any]) -> None:
    """One worker of both sides; worker 0 prints the rows."""
    rank, job = given["rank"], load_job(Path(given["job"]))
    meeting = Meeting(rank, given["size"], 600, given.get("port"))
    others = []
    if rank == 0:
        for other in range(1, given["size"]):
            told = {**given, "rank": other, "port": meeting.port}
            others.append(
                subprocess.Popen([sys.executable, __file__, "--worker", json.dumps(told)])
            )
    transport = meeting.connect()
    context = ExecutionContext(1)
    team = Team(job, transport, context)
    if rank:
        team.next_order()
        state: Any = team.load(0)
    else:
        state = TeamMaker(team).first_state(job, None)
    engine = TeamEngine(job, state, 0, context, team=team)
    theirs = Torch(engine, Gpt2Settings(**given["settings"]))
    rows: dict[str, list[tuple[float, int, float]]] = {"ours": [], "ddp": []}
    turn = np.zeros(8, np.uint8)
    for number in range(given["steps"] + WARM):
        for side in ("ours", "ddp") if number % 2 else ("ddp", "ours"):
            transport.gather(turn)
            before, began, spent = wire(), time.perf_counter(), time.process_time()
            if side == "ddp":
                theirs.step(number)
            else:
                if rank:
                    team.next_order()
                with exact_environment():
                    engine.run()
            spent = time.process_time() - spent
            transport.gather(turn)
            rows[side].append((time.perf_counter() - began, wire() - before, spent))
    if rank == 0:
        seconds, sent, processor = (
            {k: statistics.median(row[at] for row in v[WARM:]) for k, v in rows.items()}
            for at in range(3)
        )
        found: dict[str, Any] = {
            "seconds": seconds, "bytes": sent, "processor_seconds": processor
        }  # fmt: skip
        found |= {"ratio": seconds["ours"] / seconds["ddp"],
                  "processor_ratio": processor["ours"] / processor["ddp"]}  # fmt: skip
        print(json.dumps(found), flush=True)
        for process in others:
            process.wait()
    transport.close()
    os._exit(0)


def step_row(args: argparse.Namespace, work: Path) -> dict[str, Any]:
    """Step time and bytes of both sides."""
    pairs = {
        "n_layer": args.layers, "n_head": args.heads, "n_embd": args.width, "dropout": 0.0,
        "batch_size": args.batch, "micro_batches": args.workers, "text_bytes": 100_000,
        "schedule": "constant", "warmup": 0,
    }  # fmt: skip
    steps = args.steps + WARM
    job = new_job("gpt2", work / "job", {k: str(v) for k, v in pairs.items()}, steps=steps,
                  checkpoint_interval=steps)  # fmt: skip
    settings = {k: v for k, v in pairs.items() if k != "micro_batches"}
    given = {"rank": 0, "size": args.workers, "job": str(job.directory), "steps": args.steps,
             "settings": settings}  # fmt: skip
    told = [sys.executable, __file__, "--worker", json.dumps(given)]
    done = subprocess.run(told, stdout=subprocess.PIPE, check=True, text=True)
    size = sum(t.numel for n, t in job.program.state_types.items() if n.startswith("param."))
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {"parameters": size, "workers": args.workers, **found}


def available() -> int:
    """Bytes of memory that the machine can give."""
    said = Path("/proc/meminfo").read_text().partition("MemAvailable:")[2].split()
    return 1024 * int(said[0])


def memory_need(parameters: int, workers: int) -> int:
    """A bound on the bytes of all processes for so many bytes of parameters, by the plan: one
    worker has them, two moments, an average, and three of gradients; one of several has parameters,
    gradients, and its shares."""
    each = 7 if workers == 1 else 2 + 5 / workers
    return int(workers * (parameters * each + (300 << 20)))


def memory_row(args: argparse.Namespace, work: Path, recipe: str, workers: int) -> dict[str, Any]:
    """Peak resident bytes of each process of a short run of `recipe`: the perceptron, or a GPT-2
    that is nearly all embedding, one slot."""
    # A tied embedding has two gradients, and their sum.
    parameters = 16 * args.memory_width**2 if recipe == "mlp" else 6 * EMBEDDING * args.vocabulary
    found: dict[str, Any] = {"model": recipe, "workers": workers}
    path, need, room = work / f"memory-{recipe}", memory_need(parameters, workers), available()
    if need > room:
        why = f"it needs about {need >> 20} MiB, and this machine has {room >> 20} MiB available"
        return {**found, "why": why}
    if not path.exists():
        pairs: dict[str, Any] = {"batch_size": 8, "micro_batches": 4, "optimizer": "adamw",
                                 "ema": 0.9}  # fmt: skip
        if recipe == "mlp":
            pairs |= {"hidden": args.memory_width, "layers": 5}
        else:
            pairs |= {"vocab_size": args.vocabulary, "n_embd": EMBEDDING, "n_layer": 1,
                      "block_size": 8, "validation": 0, "text_bytes": 10_000,
                      "dropout": 0.0}  # fmt: skip
        new_job(recipe, path, {k: str(v) for k, v in pairs.items()}, steps=2,
                checkpoint_interval=2, evaluate_every=0)  # fmt: skip
    command = [sys.executable, "-m", "tallystick", "train", str(path), "--quiet", "--threads", "1"]
    command += ["--out", str(work / f"run-{recipe}-{workers}"), "--workers", str(workers), "--json"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak: dict[int, int] = {}
    while process.poll() is None:
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                if entry.name == str(process.pid) or int(words[1]) == process.pid:
                    said = (entry / "status").read_text().partition("VmHWM:")[2].split()
                    peak[int(entry.name)] = 1024 * int(said[0])
            except (OSError, ValueError, IndexError):
                continue
        time.sleep(0.05)
    if process.returncode:
        return {**found, "why": f"train ended with {process.returncode}"}
    return {**found, "peak_bytes": sorted(peak.values(), reverse=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("layers", 4), ("heads", 4), ("width", 128), ("batch", 8), ("steps", 20),
                          ("workers", 2), ("memory-width", 8192),
                          ("vocabulary", 400_000)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        be_worker(json.loads(args.worker))
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        step = step_row(args, work) if args.steps else None
        print(json.dumps(step), file=sys.stderr, flush=True)
        memory: list[dict[str, Any]] = []
        if args.memory_width:
            memory += [memory_row(args, work, "mlp", workers) for workers in (1, 4)]
        if args.vocabulary:
            memory += [memory_row(args, work, "gpt2", workers) for workers in (1, 2, 4)]
    if args.json:
        print(json.dumps({"machine": machine(), "step": step, "memory": memory}))
        return
    if step is not None:
        seconds, sent = step["seconds"], step["bytes"]
        print(f"{step['parameters']:,} parameters, {step['workers']} workers")
        for side in ("ours", "ddp"):
            print(
                f"{side:5} {1e3 * seconds[side]:.1f} ms a step, "
                f"{sent[side] / 1e6:.2f} MB on the wire"
            )
        print(f"ratio {step['ratio']:.3f}, of processor time {step['processor_ratio']:.3f}")
    for row in memory:
        peaks = [p >> 20 for p in row.get("peak_bytes", ())]
        what = row.get("why") or f"peak {peaks} MiB"
        print(f"{row['model']}, {row['workers']} workers: {what}")


if __name__ == "__main__":
    main()
