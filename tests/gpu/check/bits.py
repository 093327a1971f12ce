"""Parts of the check that compare bits with what the processor made beforehand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

import kernel_format as fmt
import numpy as np
from check.fingerprint import function_digest
from check.jobs import JOBS, SMALL, entry, make
from check.where import ROOT, Where
from device_calls import KINDS, call, check_cases, check_vectors
from make_exact_vectors import CONTRACTS as EXACT
from make_exact_vectors import ROOT as EXACT_ROOT
from make_rounded_vectors import CONTRACTS as ROUNDED
from make_rounded_vectors import ROOT as ROUNDED_ROOT
from odd_shapes import calls, expected, operands

from tallystick.devices.context import ExecutionContext
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Device
from tallystick.products.cuda.cublas import search
from tallystick.run.execute.trainer import Options, train_job

Figures = dict[str, Any]
_SMALL_GROUPS = ("random", "scan")
NASTY_SEED = 14


def vectors(where: Where) -> Figures:
    """Every golden vector of every operator, and those of the other contracts: with a library's
    products in binary64, where there is one, and with our own kernel's."""
    device = where.device
    found = check_vectors(device, _SMALL_GROUPS if where.small else None)
    library = search(device)
    for contracts, root in ((ROUNDED, ROUNDED_ROOT), (EXACT, EXACT_ROOT)):
        for group, contract in contracts.items():
            cases = fmt.load(group, KINDS, root, contract)[: 9 if where.small else None]
            for device.products in {library, None}:
                found.add(check_cases(device, group, cases, contract=contract))
    device.products = library
    return {
        "ok": not found.wrong and not found.missing,
        "operators": len(found.operators),
        "calls": found.calls,
        "library": None if library is None else library.name,
        "wrong": found.wrong[:20],
        "missing": sorted(found.missing),
    }


def fingerprints(where: Where) -> Figures:
    """Every elementary function over all 2^32 arguments, against the proven ones."""
    proven = json.loads((ROOT / "docs" / "proofs" / "elementary.json").read_text())
    if where.small:  # the parts of a sum that halves must give
        wrong = [
            f["function"]
            for f in proven
            if function_digest(where.device, f["function"], 2**30, 96)
            != sum(function_digest(where.device, f["function"], 2**30 + i, 48) for i in (0, 48))
            % 2**64
        ]
        return {"ok": not wrong, "functions": len(proven), "wrong": wrong}
    wrong = [
        f["function"]
        for f in proven
        if function_digest(where.device, f["function"]) != int(f["fingerprint"], 16)
    ]
    return {"ok": not wrong, "functions": len(proven), "wrong": wrong}


def _digest(outputs: Iterable[np.ndarray]) -> str:
    found = hashlib.sha256()
    for x in outputs:
        found.update(f"{x.dtype}{x.shape}".encode() + np.ascontiguousarray(x).tobytes())
    return found.hexdigest()[:16]


def nasty_rows(groups: Iterable[str], every: int = 1) -> dict[str, list[list[Any]]]:
    """By group: the number of a golden call, the number of the operands that fit, and the digest
    of the processor's outputs, for operands of other sizes with any bit patterns in them."""
    found: dict[str, list[list[Any]]] = {}
    for group in groups:
        rows = found.setdefault(group, [])
        for ordinal, case in calls(group):
            if ordinal % every:
                continue
            for n, arrays in enumerate(operands(group, ordinal, NASTY_SEED, case, nasty=True)):
                wanted = expected(case, arrays)
                if wanted is not None:
                    rows.append([ordinal, n, _digest(wanted)])
                    break
    return found


def _nasty(device: Device, made: dict[str, list[list[Any]]]) -> tuple[int, list[str]]:
    wrong, count = [], 0
    for group, rows in made.items():
        cases = dict(calls(group))
        for ordinal, n, digest in rows:
            case = cases[ordinal]
            arrays = list(operands(group, ordinal, NASTY_SEED, case, nasty=True))[n]
            count += 1
            try:
                got = _digest(call(device, case.op, case.attrs, arrays))
            except Exception as error:
                got = f"{type(error).__name__}: {str(error)[:200]}"
            if got != digest:
                wrong.append(f"{group}[{ordinal}] {case.op}: {got}, expected {digest}")
    return count, wrong


def nasty(where: Where) -> Figures:
    """Random bit patterns in operands of odd sizes, of every operator."""
    made = nasty_rows(_SMALL_GROUPS, 5) if where.small else where.expected("nasty")
    host, here = (
        _nasty(CPU, {g: made[g][:20] for g in _SMALL_GROUPS}),
        _nasty(where.device, made),
    )
    return {
        "ok": not here[1] and not host[1] and here[0] > 0,
        "calls": here[0],
        "wrong": here[1][:20],
        # The operands are made again here: were they others, the processor would differ too.
        "wrong_on_this_processor": host[1][:5],
    }


def roots(where: Where) -> Figures:
    """The run roots of whole runs."""
    wanted = where.expected("roots")
    rows, missing = {}, []
    for name in SMALL if where.small else JOBS:
        if name not in wanted:
            missing.append(name)
            continue
        job = make(name, where.work)
        out = where.work / f"{name}-run"
        run = train_job(job, out, Options(ExecutionContext(device=where.device)))
        got = entry(job, run)
        different = [key for key in got if got[key] != wanted[name].get(key)]
        rows[name] = {"equal": not different, "different": different, "steps": job.steps}
    return {
        "ok": bool(rows) and all(row["equal"] for row in rows.values()),
        "runs": rows,
        "without_an_expected_root": missing,
    }


def groups() -> list[str]:
    """The groups of golden vectors that a GPU computes."""
    return fmt.device_groups()
