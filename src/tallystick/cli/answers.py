"""`tallystick generate`, `check`, `answer-run`: answers that anyone can check."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tallystick.answers.check import AnswerReport
from tallystick.answers.words import Said
from tallystick.api.answer_run import AnswerRun, answer_run_of
from tallystick.api.answering import DAYS
from tallystick.api.answers import check as check_of
from tallystick.api.answers import generate as generate_of
from tallystick.cli.output import (
    MISMATCH,
    device_option,
    finish,
    json_option,
    load_trust,
    overwrite_option,
    print_json,
    say,
    say_text,
    threads_option,
    trust_option,
)
from tallystick.commit.encoding import JsonValue
from tallystick.disk.keys import load_private_key
from tallystick.disk.regular import read_file
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.terminal.lines import note

statement_option = click.option(
    "--statement", type=click.Path(), help="The model statement; by default MODEL.statement."
)


def _messages(path: str) -> list[dict[str, JsonValue]]:
    """The messages in a JSON file that the caller names."""
    import json

    data = read_file(Path(path), LIMITS.request_bytes, "messages")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise UsageError(f"{path} is not a JSON list of messages.", 'Write [{"role": …, …}, …].')
    return found


@click.command()
@click.argument("model", type=click.Path())
@click.option("--prompt", help="A text to continue; - is read from standard input.")
@click.option("--messages", type=click.Path(), help="A JSON file: a list of role and content.")
@click.option("--key", type=click.Path(), help="The private key that signs; by default a new one.")
@click.option("-o", "--output", type=click.Path(), help="The directory of the answer.")
@statement_option
@click.option("--max-tokens", type=click.IntRange(1), default=128, show_default=True)
@click.option("--temperature", type=float, default=0.0, show_default=True)
@click.option(
    "--top-k", type=click.IntRange(0), default=0, help="Draw among the K likeliest tokens only."
)
@click.option(
    "--top-p",
    type=float,
    default=1.0,
    help="Draw among the likeliest tokens that reach probability P together.",
)
@click.option(
    "--min-p",
    type=float,
    default=0.0,
    help="Draw no token with less than P times the probability of the likeliest.",
)
@click.option(
    "--repetition",
    type=float,
    default=1.0,
    help="Factor against tokens that prompt or answer already has.",
)
@click.option(
    "--presence",
    type=float,
    default=0.0,
    help="Subtracted from the logit of a token that the answer already has.",
)
@click.option(
    "--frequency",
    type=float,
    default=0.0,
    help="Subtracted once for each time that the answer has the token.",
)
@click.option("--stop", "stops", multiple=True, help="A text that ends the answer (repeatable).")
@click.option(
    "--seed", type=click.IntRange(0, (1 << 64) - 1), help="By default it follows from a new nonce."
)
@click.option("--choices", type=click.IntRange(1, LIMITS.choices), default=1, show_default=True)
@click.option("--date", metavar="YYYY-MM-DD", help="What the chat template reads as today.")
@click.option("--days", type=click.IntRange(0, 36500), default=DAYS, show_default=True,
              help="For how many days the signer answers disputes.")  # fmt: skip
@click.option(
    "--speculate",
    metavar="lookup[:K]",
    help="Propose up to K tokens that followed the last ones before; the answer is the same.",
)
@click.option(
    "--draft",
    type=click.Path(),
    help="Directory of a smaller model with the same tokens, which proposes some; the answer is "
    "the same.",
)
@threads_option
@json_option
def generate(
    model: str,
    prompt: str | None,
    messages: str | None,
    key: str | None,
    output: str | None,
    statement: str | None,
    stops: tuple[str, ...],
    speculate: str | None,
    draft: str | None,
    threads: int | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Answer a prompt or messages with the model in the directory MODEL, and sign a receipt.

    The answer's directory has the receipt, the request with its secret, the tokens and the text.
    """
    if (prompt is None) == (messages is None):
        raise UsageError("Give --prompt or --messages.", "See `tallystick generate --help`.")
    text = sys.stdin.read().removesuffix("\n") if prompt == "-" else prompt
    shown = _Shown(alone=settings["choices"] == 1 and not as_json)
    answers = generate_of(
        Path(model),
        prompt=text,
        messages=None if messages is None else _messages(messages),
        key=None if key is None else load_private_key(Path(key)),
        out=None if output is None else Path(output),
        statement=None if statement is None else Path(statement),
        stop_strings=stops,
        threads=threads,
        speculate=speculate,
        draft=None if draft is None else Path(draft),
        heard=shown.heard if shown.alone else None,
        **settings,
    )
    if as_json:
        print_json(
            {
                "output": output,
                "answers": [
                    {
                        "text": one.text,
                        "tokens": list(one.tokens),
                        "logprobs": [float(x) for x in one.logprobs],
                        "finish": one.finish,
                        "receipt": one.receipt,
                    }
                    for one in answers
                ],
            }
        )
        return
    for number, one in enumerate(answers):
        if not shown.alone:
            say(f"--- answer {number}")
            say_text(one.text)
        else:
            shown.end(one.text)
        say_text("\n")
        note(f"{len(one.tokens)} tokens, finish {one.finish}")
    if output is not None:
        note(f"receipt  {output}; check it with `tallystick check {output} --model {model}`")


class _Shown:
    """Writes an answer while it is given. What may still change, the rest of a character, waits."""

    def __init__(self, alone: bool) -> None:
        self.alone, self._written = alone, ""

    def heard(self, number: int, text: str) -> None:
        if not text.endswith("\ufffd") and text.startswith(self._written):
            say_text(text[len(self._written) :])
            self._written = text

    def end(self, text: str) -> None:
        if text.startswith(self._written):
            say_text(text[len(self._written) :])


@click.command()
@click.argument("receipt", type=click.Path())
@click.option("--model", required=True, type=click.Path(), help="Your copy of the model.")
@click.option(
    "--statement",
    type=click.Path(),
    help="Your own statement of the model: believed, so that no program is derived again.",
)
@click.option(
    "--text", is_flag=True, help="Compare template, tokens and text only; no weight is read."
)
@threads_option
@device_option
@trust_option
@json_option
def check(
    receipt: str,
    model: str,
    statement: str | None,
    text: bool,
    threads: int | None,
    device: str,
    trust: tuple[str, ...],
    as_json: bool,
) -> None:
    """Check the answer of RECEIPT, a receipt or its directory, by one prefill of the whole text.

    Exit code 1 if anything contradicts the receipt.
    """
    report = check_of(
        Path(receipt),
        Path(model),
        statement=None if statement is None else Path(statement),
        text=text,
        trust=load_trust(trust),
        threads=threads,
        device=device,
    )
    if as_json:
        print_json(report_json(report))
    else:
        _say(report, receipt, model)
    if not report.accepted:
        finish(MISMATCH)


def report_json(report: AnswerReport) -> dict[str, object]:
    """The object of `check --json`; documented keys."""
    receipt, found = report.receipt, report.difference
    return {
        "accepted": report.accepted,
        "executed": report.executed,
        "texts": report.texts,
        "model_digest": receipt.model,
        "request_digest": receipt.request,
        "job_digest": receipt.job,
        "run_root": receipt.root,
        "choice": receipt.choice,
        "prompt_tokens": receipt.prompt,
        "answer_tokens": receipt.answer,
        "finish": receipt.finish,
        "time": receipt.time,
        "until": receipt.until,
        "signer": receipt.signer.key_id,
        "trusted": report.trusted,
        "contradictions": _said(report.contradictions),
        "state_differs": report.state_differs,
        "difference": None
        if found is None
        else {
            "row": found.row,
            "claimed": found.claimed,
            "drawn": found.drawn,
            "claimed_logprob": found.claimed_logprob,
            "computed_logprob": found.computed_logprob,
            "sentence": found.sentence,
        },
        "findings": _said(report.findings),
        "notes": _said(report.notes),
        "seconds": report.seconds,
    }


def _said(sentences: tuple[Said, ...]) -> list[dict[str, str]]:
    return [{"clause": one.clause, "sentence": one.sentence} for one in sentences]


def _say(report: AnswerReport, receipt: str, model: str) -> None:
    known = "trusted" if report.trusted else "unknown to you; --trust KEY names those you accept"
    say(f"model       {report.receipt.model.hex()}")
    say(f"signer      {report.receipt.signer.key_id} ({known})")
    for one in report.contradictions:
        say(f"CONVICTED   by its own words: {one.sentence} (ANSWERS {one.clause})")
    if report.state_differs:
        why = "The signed state is not that of the model's answer."
        say(f"MISMATCH    {report.difference.sentence if report.difference else why}")
        say(f"next        tallystick answer-run {receipt} --model {model} -o RUN, and a dispute")
    for one in report.findings:
        say(f"FINDING     {one.sentence} (ANSWERS {one.clause})")
    for one in report.notes:
        say(f"note        {one.sentence} (ANSWERS {one.clause})")
    if report.accepted and report.executed:
        words = "; prompt and text by the model's files" if report.texts else ""
        tokens = f"{report.receipt.answer} tokens and their log-probabilities, bit for bit"
        say(f"MATCH       {tokens}{words}")
        say(f"computed    {report.seconds:.2f} s")
    elif report.accepted:
        say("MATCH       signatures, digests, template, tokens and text; no weight was read")


@click.command("answer-run")
@click.argument("receipt", type=click.Path())
@click.option("--model", required=True, type=click.Path(), help="Your copy of the model.")
@click.option("-o", "--output", required=True, type=click.Path(), help="The run to make.")
@click.option("--key", type=click.Path(), help="The private key that signs; by default a new one.")
@overwrite_option
@threads_option
@json_option
def answer_run(
    receipt: str,
    model: str,
    output: str,
    key: str | None,
    overwrite: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Execute the job of RECEIPT into a run directory, for a dispute about it.

    The run is yours, and says what the model answers. Its job is in OUTPUT/job, for `dispute`,
    `serve`, `referee` and `judge`. With the key that signed the receipt it must be the receipt's
    run: otherwise that receipt cannot be defended (exit code 1).
    """
    made: AnswerRun = answer_run_of(
        Path(receipt),
        Path(model),
        Path(output),
        None if key is None else load_private_key(Path(key)),
        overwrite,
        threads,
    )
    if as_json:
        print_json(
            {
                "run": output,
                "job": f"{output}/job",
                "run_root": made.root,
                "receipt_root": made.receipt.root,
                "same": made.same,
                "defends": made.defends,
            }
        )
    else:
        whose = "the receipt's" if made.same else "not the receipt's"
        say(f"run root    {made.root.hex()} ({whose})")
        say(f"job         {output}/job")
        if made.defends and not made.same:
            say("MISMATCH    the receipt is of another run: this key cannot answer for it")
    if made.defends and not made.same:
        finish(MISMATCH)
