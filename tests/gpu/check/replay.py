"""The part of the check for bounded `replay/1`: logs made on either side and followed on the other.

It is a part beside `replay`, which is for torch's kernels (the published form).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import kernel_format as fmt
import numpy as np
from check.jobs import make
from check.where import Where
from device_calls import KINDS
from test_rounded_vectors import BOUNDED_LOGS, Held, f32

from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Device
from tallystick.numerics.types import type_of
from tallystick.program.build import Builder
from tallystick.program.executor import Executor
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, train_job

Case = dict[str, Any]
_RUNS = {"mlp": 200, "gpt2-small": 100, "resnet-tiny": 20}
_SMALL_RUNS = {"logreg": 20}


def wrong_logs(device: Device, cases: Iterable[Case], count: bool = False) -> tuple[int, list[str]]:
    """How many golden logs were followed on `device`, and what came out wrong: values, or forged
    entries (NUMERICS 14.4 to 14.7). With `count` every entry's element is summed exactly."""
    followed, wrong = 0, []
    for case in cases:
        batch = {f"x{n}": f32(x["bits"]).reshape(x["shape"]) for n, x in enumerate(case["inputs"])}
        kinds = KINDS[case["op"]]
        attrs = {k: fmt.attr_from_json(v, kinds[k]) for k, v in case["attrs"].items()}
        builder = Builder(case["contract"])
        inputs = [builder.batch(name, type_of(x)) for name, x in batch.items()]
        (value,) = builder.emit(case["op"], inputs, **attrs)
        program = builder.finish({"grad.0": value})
        for log in case["logs"]:
            held: Any = Held(bytes.fromhex(log["block"]))
            follower = LoggedSteps(program, lambda _step, held=held: held, count_taken=count)
            follower.move_to(device)
            executor = Executor(program, ExecutionContext(device=device), follower.kernels)
            with executor.context.entered():
                follower.begin(0)
                got = executor.run_step({}, batch).outputs["grad.0"]
                follower.finish()
            followed += 1
            entry = dict(log["entries"])
            forged = [(at, entry[at]) for at in log["forged"]]
            found = sorted((f.element, f.direction) for f in follower.findings.kept)
            place = f"{case['op']} {case['contract']} {log['entries'][:3]}"
            if np.ascontiguousarray(got).tobytes() != f32(log["values"]).tobytes():
                wrong.append(f"{place}: values")
            if found != forged or follower.findings.count != len(forged):
                wrong.append(f"{place}: forged {found[:5]}, expected {forged[:5]}")
    return followed, wrong


def bounded(where: Where) -> dict[str, Any]:
    """Golden logs followed on the GPU, also with every entry's element summed exactly; and runs,
    each audited by the other side."""
    cases = BOUNDED_LOGS["cases"][: 2 if where.small else None]
    followed, wrong = 0, []
    for count in (False, True):
        here_followed, here_wrong = wrong_logs(where.device, cases, count)
        followed += here_followed
        wrong += here_wrong
    here, there = ExecutionContext(), ExecutionContext(device=where.device)
    rows = {}
    for name, steps in (_SMALL_RUNS if where.small else _RUNS).items():
        job = make(name, where.work / "bounded", "replay/1", steps)
        of_cpu = train_job(job, where.work / f"{name}-cpu", Options(here))
        of_gpu = train_job(job, where.work / f"{name}-gpu", Options(there))
        audits = {
            "the GPU follows the processor": audit_run(of_cpu.directory, job, context=there),
            "the processor follows the GPU": audit_run(of_gpu.directory, job, context=here),
        }
        rows[name] = {
            "steps": steps,
            "log_bytes": of_gpu.log_bytes,
            "other_choices": of_cpu.run_root != of_gpu.run_root,
            **{
                which: {"accepted": report.accepted, "choices": report.choices}
                for which, report in audits.items()
            },
        }
        if not all(report.accepted for report in audits.values()):
            wrong.append(f"{name}: {[str(report.difference) for report in audits.values()]}")
    return {"ok": not wrong and followed > 0, "logs": followed, "wrong": wrong[:20], "runs": rows}
