"""The sections of docs/PAPERS.md: title, words, and what bounds the misses that are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tallystick_bench.ovt.results.store import PartFile
from tallystick_bench.paper.results import ovt_rows, run_rows, verde_rows
from tallystick_bench.paper.results.row import Row


@dataclass(frozen=True)
class Section:
    """`misses` says, a line each, where the measurement is not the paper's, and why."""

    title: str
    text: str
    misses: tuple[str, ...] = ()
    image: str = ""


SECTIONS: dict[str, Section] = {
    "runs": Section(
        "Runs of the papers' sizes under every contract",
        "ResNet-50 for CIFAR-10 at batch 64 and GPT-2 124M at 8 sequences of 64 tokens, the sizes "
        "of OVT: `job new`, `train` and `audit` of signed runs. After every fourth step plain "
        "PyTorch float32 takes two steps of the same model on the same batches and threads; "
        "medians of the second of two steps are compared. Where the part `steps` was measured, "
        "times and load are its own: the same steps in turns, without a run. No paper has such a "
        "table.",
        (
            "20 steps, not the papers' whole trainings: a step takes seconds on two cores. "
            "ResNet-50's audits repeat the last checkpoint interval, for the same reason.",
            "ResNet-50 begins at its full rate of 0.05 without warm-up, as in `bench ovt`: its "
            "first losses swing widely in plain PyTorch too, and so differ from contract to "
            "contract.",
        ),
        "paper-runs.png",
    ),
    "ovt-table-1": Section(
        "OVT, Table 1: errors that a rounding erases, and errors that survive it",
        "The paper gives one sum of each sort. Here they are counted over random numbers: the "
        "share of sums whose two orders differ, in the higher precision and after the rounding.",
    ),
    "ovt-table-2": Section(
        "OVT, Table 2: bytes of a step's rounding log",
        "OVT logs the outputs and input gradients of layers. The published form here logs every "
        "computed output, parameter gradients and optimizer state included, so the first line of "
        "each form is the comparable one. *Thresholds near one half*: 0.4999 of the grid's "
        "spacing, below what is calibrated here, so that few decisions are written.",
        (
            "Naive and packed logs are larger than OVT's: every operator's output is rounded and "
            "logged, not every layer's. A layer of PyTorch is several operators here.",
        ),
        "paper-storage.png",
    ),
    "ovt-table-3": Section(
        "OVT, Table 3: roundings that an auditor corrects in a step",
        "Ours are between emulated kinds of hardware: other instruction sets, libraries' settings "
        "and orders of sums. Deviations are in the raw results.",
        (
            "Above OVT's figures forward: the emulated kinds differ in the order of every sum, and "
            "more operators are rounded. The count is bounded by how far two kinds' float64 sums "
            "are apart, and costs nothing: a correction is one comparison.",
            "Where a sum's terms cancel almost wholly, float64 sums in two orders are many float32 "
            "neighbours apart. An entry of the log moves a value by one. So states can differ with "
            "the published method, which proves no lie (NUMERICS 14.9.2). They cannot with the "
            "bounded form of `replay/1` or with `rounded/1`.",
        ),
    ),
    "ovt-table-4": Section(
        "OVT, Table 4: thresholds of Algorithm 4 at b = 32",
        "A larger τ writes fewer decisions. By powers of two every τ is just below one half.",
    ),
    "ovt-table-5": Section(
        "OVT, Table 5: a step's time with rounding and log",
        "Over a plain PyTorch float64 step on the same threads.",
    ),
    "ovt-figure-5-divergence": Section(
        "OVT, Figure 5 a and b: distance of the weights of two runs",
        "The largest of any pair of kinds of hardware. The paper plots it: it grows for float32 "
        "and for rounding without a log, and is 0 with the method.",
        (
            "200 steps of smaller models of the same operators, not whole trainings: three kinds "
            "of hardware are emulated on the same two cores. At full size two kinds take 2 steps.",
        ),
    ),
    "ovt-figure-5-bits": Section(
        "OVT, Figure 5 c and d: test loss and a trainer's time by bits kept",
        "One trainer of the published form for each b, on the same batches in turns. The paper "
        "plots both: the loss hardly changes down to b = 26, and the time grows.",
        ("Smaller models and tens of steps: seven trainers take their turns on two cores.",),
        "paper-bits.png",
    ),
    "verde-tables": Section(
        "Verde, Tables 1 and 2: overhead over PyTorch",
        "A forward pass or a training step over plain PyTorch float32 (eager) in the same process. "
        "A negative overhead is a step faster than PyTorch's.",
        (
            "Llama-1B and 8B do not fit in this machine's memory with Adam: one layer at its real "
            "shape is measured, and the embedding and head alone (at a quarter of the vocabulary "
            "where the row says so), and their times are added up. Batch and length are one of "
            "Verde's (2 to 8). Weights are random.",
            "`exact/1` and `rounded/1` cost more than `ordered/1` on a CPU: the first computes "
            "digit products in float64, the second every product in float64, which has half of "
            "float32's rate.",
        ),
        "paper-verde.png",
    ),
    "verde-figure-3": Section(
        "Verde, Figure 3: overhead of square matrix products by dimension",
        "Over `torch.mm` in float32. The paper's figure is a plot; its text states about 200 % at "
        "256, and 35 % (T4) and 60 to 70 % (RTX 3090) for large ones.",
        (
            "Small products under the contracts other than `ordered/1` go through an executor's "
            "step, whose fixed cost counts below about 512.",
            "Dimensions end at 4096: a larger product takes seconds a call.",
        ),
        "paper-products.png",
    ),
    "proof-of-learning": Section(
        "Proof-of-learning: what is stored of a step",
        "Proof-of-learning (Jia et al. 2021) stores the weights of every step; OVT reckons 2.78 GB "
        "for GPT-2. A run here stores its rounding log, where the contract has one, and the "
        "digests of its checkpoints.",
        (
            "A run also keeps a few states, so that an audit can begin inside: as many as its "
            "owner chooses, not one a step. Their size is in the table of runs.",
        ),
    ),
    "proofs": Section(
        "Zero-knowledge proofs: time and size",
        "What OVT 6.4 and Verde 1 quote (Verde also: over a minute for a proof of one forward pass "
        "of 125M parameters), beside the time of training here *and* of an audit that "
        "repeats it. Seconds are of a whole pass for logistic regression, else of one step. A "
        "proof hides the data and needs no second computer; an audit does. Where others measured, "
        "the hardware is not stated in the papers that quote them.",
        (
            "Beside OVT's GPUs, training and audit under the contracts that compute products in "
            "float64 (`rounded/1`, `replay/1`) are bounded by two CPU cores.",
            "The published form's log is larger than OVT's: it covers every operator, parameter "
            "gradients and the optimizer's state.",
            "Logistic regression is on the recipe's synthetic clusters, not on Garg et al.'s data.",
            "What a proof gives and an audit does not (nobody repeats the work, nothing of the "
            "data is seen) is in no column.",
        ),
        "paper-proofs.png",
    ),
}


def rows(parts: Mapping[tuple[str, str], PartFile]) -> list[Row]:
    """All rows that the results give, section by section."""
    made = run_rows.rows(parts) + ovt_rows.rows(parts) + verde_rows.rows(parts)
    return [row for name in SECTIONS for row in made if row.section == name]
