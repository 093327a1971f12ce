"""The words of docs/SCALE.md; every figure comes from the results."""

from __future__ import annotations

HEAD = """# What a large run costs, and where it breaks

*Written by `benchmarks/scale_page.py` from `benchmarks/results/scale`; do not edit.*

Nobody has trained a model of 1B or 70B parameters with Tallystick. This page reckons what that
would cost: unit costs that were measured on a small machine, counts of the captured programs, and
assumptions, multiplied by formulas in `benchmarks/tallystick_bench/scale`. A simulation of more
than 1,000 workers adds what formulas leave out: failures, stragglers and liars.

**We had no GPU.** What a GPU does is an assumption, and so is every network but loopback. Read
the figures as orders of magnitude, and change the assumptions (`assumed.py`) to yours.
"""

MEASURED = """## What was measured

{machine}; `unit_costs.py`, {when}. A rate for one core is the rate of all threads over their
number, and is assumed to hold for each of a larger machine's cores. Disputes are of a GPT-2 of 4
layers and width 256, played to their ends; the audit repeats {steps} steps of the same model. The
last line of logs is GPT-2 124M's, from `bench ovt`.
"""

ASSUMED = """## What is assumed
"""

COSTS = """## What a run costs

A *worker* holds all parameters and computes whole micro-batches. It sends each owner its partial
sums of the tensors that the owner has; the owner folds them in the job's order, updates, and sends
the new tensors to all ([ADR 0020](adr/0020-many-machines.md)). Everything is float32.
States are hashed every {interval} steps. The columns are 1B as people would
train it; 70B with as many micro-batches as the format allows today;
70B with V = 2,048, which it does not allow; and the same *cut*: a tensor has several owners with
equal shares of all, and each stores its own. *As built*, on this page, is the state before
[ADR 0025](adr/0025-cut-tensors.md): a tensor has one owner, and worker 0 stores. Since then large
tensors with an elementwise update are cut; that each worker stores its own is not built.

{table}
Read it so:

- **70B does not fit.** A worker there is a machine of 8 GPUs, and Tallystick has no way to split
  one model over several GPUs: an execution has one device. Parameters and gradients alone take
  most of a machine's memory, or more, before any activation. What the columns say holds only once
  that is built.
- **V is bounded by the format.** A step's nodes are V times the section's and at most 1,000,000
  (COMMITMENTS 11.1), so V is at most {small} for 1B and {large} for 70B, and W is at most V. With
  {taken} micro-batches of one record of 8,192 tokens a step has {tokens} tokens, and 20 tokens a
  parameter take {steps} steps. Larger micro-batches need more memory for their activations.
- **float32 is the price.** The contract's products are float32 products. Tensor cores do bfloat16
  some ten times as fast, and nothing here uses that.
- **An owner has whole tensors,** but in the last column. The largest one, the embedding, has one
  owner there, who receives it from every worker and sends it to every worker. So its bytes grow
  with W. Of 1B the embedding is a fifth of all parameters. Where it is cut, they do not.
- Worker 0 alone stores and loads states, but in the last column.
- Contracts with rounding logs have one worker; the bytes assume that as many elements are doubtful
  as in GPT-2 124M, whose sums have at most 50,257 terms.
- Bytes of a dispute grow with logarithms of nodes, leaves and checkpoints; the rounds are a bound,
  and a measured game had a fraction of them.
"""

LIARS = """## Workers that lie

Checksums before each update catch what transport and fold do wrong. They say nothing about a
gradient that was computed wrongly on purpose. For that, each worker signs what it is about to
send, share by share, and every share is drawn with probability q, by a secret that the others do
not know before they have signed. Another worker computes it again before the update. Where the two
differ, a game decides who was wrong.

- *Cost:* q of the computation. In machines that is {checkers} for 1,024 workers at q = 1 %. **In
  time it is more:** all wait for the checker, and a checker begins after its own share. With W
  workers a step has a drawn share with probability 1 − (1 − q)^W, and then takes twice as long, or
  three times where one checker has two. Checking beside the next step would cost q; it is not
  built.
- *Caught in one step:* p = f · (1 − (1 − q)^m), for a worker that falsifies m shares in a fraction
  f of its steps. For one share that is f · q.
- *Caught within n steps:* 1 − (1 − p)^n.
- If a part c of the checkers keeps silent for a liar, q becomes q · (1 − c). A checker that
  accuses an honest worker loses the game.

{table}
**Drawing finds liars; it does not clean the run.** When a liar is caught, 1/q − 1 of
its false steps stand in the run, in the mean, however rarely it lies (the last one is not in it).
The run has to go back behind the first of them, and only repeating segments shows where that is. A
lie that is so rare that it is never drawn stays, until an audit meets its segment. The simulation
lets the run go back to the right checkpoint at once, so its lost time is the least that any
rule can have.
"""

GROWTH = """## Where it breaks first

One job is given to more and more workers. So that 16,384 of them have something to do, V is
16,384 here, which the format does not allow (the dotted line is today's bound). Parts of a step,
by the formulas, nothing beside anything else:

{table}
![Parts of a step over the number of workers](images/scale-step.png)

In the order in which they come:

{order}

What would move them: several owners of one tensor, cut at multiples of 512 elements, which is built
(the columns and plots called *cut* assume it, and that each worker stores its own, which is not).
Neither are these: nodes of one micro-batch counted once
instead of V times; a model split over the devices of one worker; partial sums folded along the
split of COMMITMENTS 2.3 in log₂ W exchanges, which keeps every bit where shares are aligned, and
makes W messages few.
"""

SIMULATION = """## The simulation

Discrete events on one clock: exponential failures and repairs of single machines, a log-normal
time for each worker's step (the step waits for the slowest), restarts from the newest state that
was on the store, W smaller where no spare is ready and back at a checkpoint, at most two states
on their way to the store, liars, drawn shares, disputes, expulsion. Equal seeds give equal
runs. The job is "70B, wide" on 1,024 machines of 8 GPUs, as built and cut.

{table}
- *Goodput* is the time of kept steps without any wait, over all time.
- **Spares matter more than failures.** V/W is {share} here. With one worker less, some worker has
  one micro-batch more, and every step takes {longer} times as long: see *uneven shares* without a
  spare.
- Of {liars} liars on one run (a false micro-batch in {lies} of the steps, {drawn} drawn) {caught}
  were caught, after {mean} steps in the mean. The formula says {expected}, and {low} to {high} in
  99 of 100 such runs. {verdict}

![Liars caught over steps, beside the formula](images/scale-liars.png)

The same machines, more and more of them, a day or 200 steps each, whichever is longer:

![Shares of the simulated time over the number of workers](images/scale-growth.png)

{knees}

### A parallel audit of such a run

{segments} segments of {interval} steps each. One machine repeats a segment alone, so a segment
takes {segment}: it has {parts} micro-batches a step to compute, one after the other. Machines
fail here too.

{audits}
![Days of a parallel audit over the number of auditors](images/scale-audit.png)
"""

UNSEEN = """## What was not seen

- Any GPU, any network between machines, any shared store, any run with more than two processors.
- Hashing, folding and storing beside computation: the formulas add everything up, and an
  implementation that overlaps them is faster.
- Correlated failures: a rack, a switch, a power supply. The source counts interruptions of the
  whole run, and we give each GPU its share.
- Slow machines that stay slow, silent faults of memory (checksums catch those of transport, audits
  the others), and the time to notice them.
- Liars that work together, and workers that refuse to answer. Owners that fold or update falsely:
  no check of a run sees them, an audit or a dispute does ([ADR 0024](adr/0024-lying-workers.md)).
- The end of a run by a conviction: as built it goes on by itself where its
  workers are processes of one machine, and a person starts it again where torchrun has started
  them; the simulation goes on by itself.
- Dropped or late packets; a worker that is late for its disk.

## Repeat it

    python benchmarks/unit_costs.py --out FILE  # FILE: benchmarks/results/scale/units.json
    python benchmarks/scale_page.py --shapes   # counts the captured programs; needs torch
    python benchmarks/scale_page.py --simulate # a minute
    python benchmarks/scale_page.py
"""
