"""Rows of the signed runs: under every contract, and beside proofs."""

from __future__ import annotations

import statistics
from typing import Any

from tallystick_bench.ovt.results.store import PartFile
from tallystick_bench.paper.models import CONTRACTS
from tallystick_bench.paper.results import published
from tallystick_bench.paper.results.ovt_rows import Parts
from tallystick_bench.paper.results.row import Row, hardware


def cells(parts: Parts, kind: str) -> list[tuple[str, str, PartFile]]:
    """(model, cell, results) of the finished runs of a part, in the order of the contracts."""
    found = []
    for (part_kind, name), part in parts.items():
        if part_kind == kind and "train" in part.entries:
            model, _, cell = name.partition(".")
            found.append((model, cell, part))
    order = list(CONTRACTS)
    return sorted(found, key=lambda each: (each[0], order.index(each[1])))


def words(part: PartFile) -> str:
    """The model of a run and its data."""
    model, settings = part.about["model"], part.about["settings"]
    keys = ("features", "records", "batch_size", "block_size")
    sizes = "".join(f", {key}={settings[key]}" for key in keys if key in settings)
    parameters = part.entries["train"]["parameters"]
    return f"{model}{sizes}, {parameters:,} parameters; {part.about['data']}"


def seconds(train: dict[str, Any]) -> tuple[float, float | None]:
    """(median seconds of a step of ours, of the plain one), of the steps that count."""
    both = train["seconds"]
    ours = both["ours"] or train["all_seconds"]
    plain = statistics.median(both["plain"]) if both["plain"] else None
    return statistics.median(ours), plain


def audited(part: PartFile) -> str:
    """The steps that an audit repeated."""
    audit = part.entries.get("audit")
    if audit is None:
        return "not yet"
    return "whole" if audit["whole"] else f"steps {audit['first_step']} to {audit['last_step']}"


def runs(parts: Parts) -> list[Row]:
    """A row a run: a step's time over plain float32's, and all that the run left behind."""
    found = []
    for model, cell, part in cells(parts, "runs"):
        train, audit = part.entries["train"], part.entries.get("audit")
        ours, plain = seconds(train)
        load = train["load"]
        alone = parts.get(("steps", model))
        if alone is not None and cell in alone.entries:
            in_turns = alone.entries[cell]["seconds"]
            ours, plain = (statistics.median(in_turns[side]) for side in ("ours", "float32"))
            load = alone.entries[cell]["load"]
        more = {key: train[key] for key in ("run_root", "signed", "log_bytes", "nodes")}
        found.append(
            Row(
                "runs", f"{model}, {CONTRACTS[cell]}", ours / plain if plain else float("nan"),
                "of plain float32", words(part), str(train["steps"]), hardware(part, load),
                more={
                    **more, "seconds": ours, "plain_seconds": plain, "audited": audited(part),
                    "accepted": audit["accepted"] if audit else None,
                    "checkpoint_bytes": train["checkpoint_bytes"]["one"],
                    "final_loss": train["losses"][-1],
                },
            )
        )  # fmt: skip
    return found


def _train_and_audit(part: PartFile, whole: bool) -> float | None:
    """Seconds of training and audit: of the whole run, or of one step of each."""
    audit, train = part.entries.get("audit"), part.entries["train"]
    if audit is None:
        return None
    if whole:
        return float(sum(train["all_seconds"]) + audit["seconds"])
    return float(
        statistics.median(train["all_seconds"])
        + audit["seconds"] / (audit["last_step"] - audit["first_step"])
    )


# Task by the beginning of the model's name: its words, others' figures, whether it is a whole run.
_TASKS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "logreg": ("one pass of logistic regression", published.LOGREG, True),
    "vgg": ("an iteration of VGG-11", published.VGG, False),
    "gpt2": ("a step of GPT-2", published.GPT2, False),
}


def proofs(parts: Parts) -> list[Row]:
    """Seconds of training with audit beside OVT's; the other figures of the task in `more`."""
    found = []
    for model, cell, part in cells(parts, "proofs") + cells(parts, "runs"):
        known = [name for name in _TASKS if model.startswith(name)]
        if not known or cell.startswith("exact"):
            continue
        task, theirs, whole = _TASKS[known[0]]
        total, train = _train_and_audit(part, whole), part.entries["train"]
        if total is None:
            continue
        load = train["load"] + part.entries["audit"]["load"]
        found.append(
            Row(
                "proofs", f"{task}: {CONTRACTS[cell]}", total, "seconds", words(part),
                str(train["steps"]), hardware(part, load), theirs["OVT"][0], published.OVT_GPUS,
                True,
                more={"bytes": train["log_bytes"] / (1 if whole else train["steps"]),
                      "theirs": theirs},
            )
        )  # fmt: skip
    return found


def stored_weights(parts: Parts) -> list[Row]:
    """What proof-of-learning stores of a step, beside what a run here stores."""
    found = []
    for model, cell, part in cells(parts, "runs") + cells(parts, "proofs"):
        theirs = published.PROOF_OF_LEARNING.get(model)
        if theirs is None:
            continue
        train = part.entries["train"]
        log = train["log_bytes"] / train["steps"]
        digests = 32 * len(train["checkpoints"]) / train["steps"]
        found.append(
            Row(
                "proof-of-learning", f"{model}, {CONTRACTS[cell]}: log and digests a step",
                log + digests, "bytes", words(part),
                str(train["steps"]), hardware(part), theirs, published.UNSTATED, True,
                more={"state_bytes": train["checkpoint_bytes"]["one"],
                      "weights_bytes": 4 * train["parameters"]},
            )
        )  # fmt: skip
    return found


def rows(parts: Parts) -> list[Row]:
    """All rows of runs."""
    return runs(parts) + stored_weights(parts) + proofs(parts)
