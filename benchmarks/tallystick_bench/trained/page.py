"""The page docs/proofs/trained.md, from the results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_HEAD = """# Trained as people train: the same root, audited, cheated, convicted

`benchmarks/trained.py` takes the four examples of training in `examples/`: a Hugging Face fine-tune by `tallystick.Trainer`, a LoRA, an image net with augmentation and
early stop, and a GAN of two programs. Each job is trained on every instruction set of the machine with each number of threads: once without a break, and once killed by
SIGKILL at a random place and taken up again. A Trainer's own process (`Trainer.train()`, which makes the job again and goes on) is killed too. Then another path audits
the run, every attack of `attacks/` is made against it, a referee decides, and `tallystick judge` repeats the verdict in a process of its own, with the evidence and the job's
manifest and programs alone: no weight, no record.
"""
_TAIL = """
"Nothing to do" are attacks that the job gives no ground for, as the command says: one about rounding logs needs a contract with logs. The figures are of small
models of the real structure; larger ones are in [gpt2-124m-tiles.md](gpt2-124m-tiles.md) and [families.md](families.md).
"""


def page(found: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    rows = found["rows"]
    runs = sum(len(row["runs"]) for row in rows)
    cheats = sum(len(row["convicted"]) for row in rows)
    misses = sum(len(row["misses"]) for row in rows)
    about, versions = found["machine"], found["versions"]
    parts = [
        _HEAD,
        "## Command\n\n    " + found["command"] + "\n",
        f"Recorded on {found['date']} at {found['commit']}; {about['compiler']}, python "
        f"{about['python']}, " + ", ".join(f"{k} {v}" for k, v in versions.items()) + f"; "
        f"{about['platform']}, {about['cores']} cores. Paths: {', '.join(found['paths'])}; threads: "
        + ", ".join(map(str, found["threads"])) + ".\n",
        f"## Result\n\n**{len(rows)} examples, {runs} runs: one root each. {cheats} cheats "
        f"convicted, each repeated by the judge. {misses} misses.**\n",
        "| example | parameters | V | updates | loss | validation | runs | of them killed | cheats "
        "convicted | run root |\n|---|--:|--:|--:|---|---|--:|--:|--:|---|",
        *map(_line, rows),
        "",
        *map(_cheats, rows),
    ]  # fmt: skip
    return "\n".join(parts) + _TAIL


def _line(row: Mapping[str, Any]) -> str:
    killed = [run for run in row["runs"] if "killed_at" in run]
    passes = [v["loss"] for v in row["validation"]]
    said = f"{passes[0]:.4g}, best {min(passes):.4g}, last {passes[-1]:.4g}" if passes else "none"
    ended = "" if row["reason"] == "complete" else f" ({row['reason']})"
    kept = {run["root"] for run in row["runs"]}
    root = f"`{row['root']}`" if len(kept) == 1 else f"**{len(kept)} roots**"
    return (
        f"| {row['title']} | {row['parameters']:,} | {max(row['programs'].values())} "
        f"| {row['steps']}{ended} | {row['loss'][0]:.4g}, {row['loss'][1]:.4g} | {said} "
        f"| {len(row['runs'])} | {len(killed)} | {len(row['convicted'])} | {root} |"
    )


def _cheats(row: Mapping[str, Any]) -> str:
    killed = [run for run in row["runs"] if "killed_at" in run]
    places = ", ".join(str(run["killed_at"]) for run in killed)
    lines = [
        f"### {row['title']}\n",
        f"Job `{row['job_digest']}`, programs {', '.join(row['programs'])}; killed after step "
        f"{places} of {row['runs'][0]['steps']} (passes counted); audited on {row['audited_on']}; "
        f"{row['seconds']:.0f} s in all.\n",
        "| attack | case | clause | step | operator | bytes of evidence |\n|---|---|---|--:|---|--:|",
    ]
    lines += [
        f"| {c['attack']} | {c['case']} | {c['clause']} | {_shown(c['step'])} "
        f"| {_shown(c['operator'])} | {c['bytes']:,} |"
        for c in row["convicted"]
    ]
    lines += ["", "Nothing to do: " + ", ".join(sorted(row["nothing"])) + ".\n"]
    lines += [f"**MISS: {miss}**\n" for miss in row["misses"]]
    return "\n".join(lines)


def _shown(value: object) -> str:
    return "" if value is None else str(value)
