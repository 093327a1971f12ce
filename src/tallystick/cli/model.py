"""`tallystick export`, `verify-model`, `sample`, `evaluate`: the uses of a run's weights."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tallystick.cli.output import json_option, load_trust, print_json, say, say_text, trust_option
from tallystick.cli.places import PLACE
from tallystick.errors import UsageError
from tallystick.run.execute.engine import check_environment
from tallystick.run.execute.evaluation import Draw, Evaluator, TextTokens, sample_tokens
from tallystick.run.store.claim import read_claim
from tallystick.run.store.directory import RunStore
from tallystick.run.store.export import (
    ModelReport,
    Which,
    chosen_state,
    export_model,
    final_state,
)
from tallystick.run.store.export import verify_model as verify

_best_option = click.option(
    "--best", is_flag=True, help="Use the weights with the best committed validation loss."
)
_ema_option = click.option(
    "--ema", is_flag=True, help="Use the averaged parameters instead of the last ones."
)


def _report_json(report: ModelReport) -> dict[str, object]:
    return {
        "accepted": True,
        "path": report.path,
        "tensors": report.tensors,
        "step": report.step,
        "job_digest": report.job_digest,
        "run_root": report.run_root,
        "final_state_root": report.state_root,
        "signer": report.signer,
        "trusted": report.trusted,
    }


@click.command()
@click.argument("run", type=PLACE)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(),
    help="File to write, such as model.safetensors.",
)
@_ema_option
@_best_option
@trust_option
@json_option
def export(
    run: str, output: str, ema: bool, best: bool, trust: tuple[str, ...], as_json: bool
) -> None:
    """Write the final weights of RUN as safetensors, under the names of the module's state_dict."""
    report = export_model(Path(run), Path(output), load_trust(trust), Which(ema, best))
    if as_json:
        print_json(_report_json(report))
        return
    say(f"{report.path}: {report.tensors} tensors of the state after step {report.step}")
    say(f"run root    {report.run_root.hex()}")


@click.command("verify-model")
@click.argument("file", type=click.Path())
@click.argument("run", type=PLACE)
@_ema_option
@_best_option
@trust_option
@json_option
def verify_model(
    file: str, run: str, ema: bool, best: bool, trust: tuple[str, ...], as_json: bool
) -> None:
    """Check that FILE is, byte for byte, what `export` writes for RUN's committed weights.

    The exit code is 1 for any other file, even one with the same tensors in another form.
    """
    report = verify(Path(file), Path(run), load_trust(trust), Which(ema, best))
    if as_json:
        print_json(_report_json(report))
        return
    say(f"MATCH       {report.tensors} tensors are those of a committed state, and the file is")
    say("            the one that `tallystick export` writes, byte for byte")
    say(f"run root    {report.run_root.hex()}")


@click.command()
@click.argument("run", type=PLACE)
@click.option("--prompt", default="The ", show_default=True, help="Text to continue.")
@click.option(
    "--length",
    type=click.IntRange(1, 100_000),
    default=200,
    show_default=True,
    help="Number of tokens to generate.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    default=0.8,
    show_default=True,
    help="How evenly tokens are drawn. 0 always takes the most likely one.",
)
@click.option("--greedy", is_flag=True, help="Always take the most likely token.")
@click.option("--top-k", type=click.IntRange(1), help="Draw only from the K most likely tokens.")
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    help="Draw only from the most likely tokens that together have probability P.",
)
@click.option("--count", type=click.IntRange(1, 1000), default=1, help="Number of texts.")
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 64) - 1),
    default=0,
    show_default=True,
    help="Seed of the draws.",
)
@_ema_option
@_best_option
@trust_option
@click.option("--tokenizer", type=click.Path(), help="The tokenizer.json that the job names.")
@json_option
def sample(
    run: str,
    prompt: str,
    length: int,
    temperature: float,
    greedy: bool,
    top_k: int | None,
    top_p: float | None,
    count: int,
    seed: int,
    ema: bool,
    best: bool,
    trust: tuple[str, ...],
    tokenizer: str | None,
    as_json: bool,
) -> None:
    """Generate text with the final weights of RUN, the run of a text model.

    With `--prompt -` the prompt is read from standard input, without its last line break. Text
    number i uses the seed plus i.
    """
    check_environment()
    which = Which(ema, best)
    chosen = chosen_state(Path(run), load_trust(trust), which)
    slots = chosen.values(which, Path(run))
    start = sys.stdin.read().removesuffix("\n") if prompt == "-" else prompt
    words = TextTokens(chosen.job, Path(tokenizer) if tokenizer else None)
    given, draw = words.encode(start), Draw(0.0 if greedy else temperature, top_k, top_p)
    texts = []
    for number in range(count):
        own = (seed + number) % (1 << 64)
        tokens = sample_tokens(chosen.job, slots, given, length, draw, own, words.count)
        text = words.continued(given, tokens)
        if as_json:
            texts.append("".join(text))
            continue
        if count > 1:
            say(f"--- seed {own}")
        say_text(start)
        for part in text:
            say_text(part)
        say_text("\n")
    if as_json:
        print_json(
            {
                "prompt": start,
                "text": texts[0],
                "texts": texts,
                "step": chosen.step,
                "run_root": chosen.claim.run_root,
            }
        )


@click.command()
@click.argument("run", type=PLACE)
@click.option(
    "--step",
    type=click.IntRange(0),
    default=None,
    help="Stored step to evaluate. Default: the last one.",
)
@json_option
def evaluate(run: str, step: int | None, as_json: bool) -> None:
    """Compute the validation loss of a stored state of RUN."""
    check_environment()
    store = RunStore(Path(run))
    store.require()
    job = store.job()
    claim = read_claim(store, job)
    chosen = claim.last_step if step is None else step
    if chosen not in claim.roots:
        raise UsageError(
            f"{run} has no checkpoint of step {chosen}.",
            f"Choose the step of a checkpoint. The last one is {claim.last_step}.",
        )
    state = final_state(store, job, chosen, claim.roots[chosen])
    job.verify_validation()  # no state covers the records: an altered one would give a false loss
    loss = Evaluator(job).loss(state.slots)
    if as_json:
        print_json({"step": chosen, "validation_loss": loss, "state_root": claim.roots[chosen]})
    else:
        say(f"validation loss after step {chosen}: {loss:.6f}")
