"""`tallystick generate`, `check`, `answer-run`: answers that anyone can check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tallystick.answers.check import AnswerReport
from tallystick.answers.files import read_model_request
from tallystick.answers.words import Said
from tallystick.api.answering import DAYS
from tallystick.api.answers import AnswerRun, answer_run_of
from tallystick.api.answers import check as check_of
from tallystick.api.answers import generate as generate_of
from tallystick.api.samples import check_sample
from tallystick.cli.asked import asked_for, asked_options, refuse_asked
from tallystick.cli.claims import claim_key_option, claim_option, claim_signer
from tallystick.cli.other_checks import check_evidence, compare, is_conviction, say_sample, seed_of
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
    signer_words,
    threads_option,
    trust_option,
)
from tallystick.cli.places import refuse_options, refuse_others
from tallystick.cli.requests import check_shown_request
from tallystick.disk.files import write_file
from tallystick.disk.keys import load_private_key
from tallystick.errors import UsageError
from tallystick.terminal.lines import note

statement_option = click.option(
    "--statement", type=click.Path(), help="The model's statement. Default: MODEL.statement."
)
adapter_option = click.option(
    "--adapter",
    type=click.Path(),
    help="Directory of the model's adapter: a LoRA saved by peft.",
)


@click.command()
@click.argument("model", type=click.Path())
@click.option(
    "--request",
    type=click.Path(),
    help="Answer this request, which a client made with `tallystick request`. It replaces "
    "all options that describe a request.",
)
@click.option(
    "--cancelled",
    multiple=True,
    type=click.Path(),
    help="A cancellation signed by the request's client, which ends an answer early (repeatable).",
)
@click.option("--key", type=click.Path(), help="Private key that signs. Default: a new one.")
@click.option("-o", "--output", type=click.Path(), help="Directory for the answer.")
@statement_option
@asked_options
@adapter_option
@click.option("--days", type=click.IntRange(0, 36500), default=DAYS, show_default=True,
              help="Days for which the signer promises to answer disputes.")  # fmt: skip
@click.option(
    "--speculate",
    metavar="lookup[:K]",
    help="Guess up to K tokens ahead from the text so far. This changes the speed but"
    " never the answer.",
)
@click.option(
    "--draft",
    type=click.Path(),
    help="Guess tokens with the smaller model in this directory; it needs the same "
    "tokenizer. This changes the speed but never the answer.",
)
@threads_option
@json_option
def generate(
    model: str,
    request: str | None,
    cancelled: tuple[str, ...],
    key: str | None,
    output: str | None,
    statement: str | None,
    days: int,
    adapter: str | None,
    speculate: str | None,
    draft: str | None,
    threads: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Answer with the model in the directory MODEL, and sign a receipt.

    Ask with a prompt, a message, a conversation, tokens or a client's own request. The answer's
    directory holds the receipt, the request with its secret, the tokens and the text.
    """
    if request is None:
        ways = "Pass --prompt, --message, --messages, --tokens or --request"
        theirs, asked = None, asked_for(options, ways)
        choices = asked["choices"]
    else:
        refuse_asked(options, "--request")
        theirs, asked = read_model_request(Path(request)), {}
        choices = theirs.choices
    shown = _Shown(alone=choices == 1 and not as_json)
    answers = generate_of(
        Path(model),
        request=theirs,
        cancelled=cancelled,
        key=None if key is None else load_private_key(Path(key)),
        out=None if output is None else Path(output),
        statement=None if statement is None else Path(statement),
        days=days,
        adapter=None if adapter is None else Path(adapter),
        threads=threads,
        speculate=speculate,
        draft=None if draft is None else Path(draft),
        heard=shown.heard if shown.alone else None,
        **asked,
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
                        "cancellation": one.cancellation,
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
        with_ = "" if adapter is None else f" --adapter {adapter}"
        command = f"tallystick check {output} --model {model}{with_}"
        note(f"receipt  {output}; check it with `{command}`")


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


_NO_EVIDENCE = (
    "a file is only needed if the run's tokens are not those of its text. The answer's files show "
    "other contradictions, and a dispute writes its own evidence."
)


@click.command()
@click.argument("receipt", type=click.Path())
@click.option("--model", type=click.Path(), help="Your copy of the model.")
@click.option(
    "--receipt",
    "named",
    type=click.Path(),
    help="Check that this receipt is for the request that RECEIPT shows. RECEIPT is then a file"
    " written by `request show`. No model is needed.",
)
@click.option(
    "--against",
    type=click.Path(),
    metavar="OTHER",
    help="Check whether OTHER, a receipt or an answer's directory, contradicts RECEIPT. No model "
    "is needed.",
)
@click.option(
    "--statement",
    type=click.Path(),
    help="Statement of the model that you trust. It saves time: the programs are not derived"
    " again.",
)
@adapter_option
@click.option(
    "--text",
    is_flag=True,
    help="Check only template, tokens and text, without reading any weights.",
)
@click.option(
    "--request",
    type=click.Path(),
    help="Your own request. An answer to any other request is refused.",
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    metavar="N",
    help="RECEIPT is a directory of answers. Check the files of all answers, and compute N of "
    "them again.",
)
@click.option(
    "--seed",
    metavar="HEX",
    help="With --sample: draw the same answers as the report that names this seed.",
)
@click.option(
    "--evidence",
    type=click.Path(),
    help="File for evidence. It is written if the tokens of the receipt's run are not those of its "
    "text, or if two receipts contradict each other.",
)
@threads_option
@device_option
@trust_option
@claim_option
@claim_key_option
@json_option
def check(
    receipt: str,
    model: str | None,
    named: str | None,
    against: str | None,
    statement: str | None,
    adapter: str | None,
    text: bool,
    request: str | None,
    evidence: str | None,
    sample: int | None,
    seed: str | None,
    threads: int | None,
    device: str,
    trust: tuple[str, ...],
    claim: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Check the answer of RECEIPT, which is a receipt or the directory of an answer.

    One pass over the whole text computes every token of an answer again. An embedding or a
    classification is computed once. RECEIPT may also be evidence that --evidence wrote; no model
    is then needed. The exit code is 1 if anything contradicts the receipt.
    """
    signer = claim_signer(claim, key)
    if seed is not None and sample is None:
        raise UsageError("--seed needs --sample.", "Add --sample N, or leave --seed out.")
    if against is not None:
        refuse_others(
            {"against", "evidence", "trust", "as_json"},
            "cannot be given beside --against, which compares two receipts only.",
        )
        compare(receipt, against, evidence, trust, as_json)
        return
    if named is not None:
        refuse_others(
            {"named", "trust", "as_json"},
            "cannot be given beside --receipt, which compares a shown request only.",
        )
        check_shown_request(receipt, named, trust, as_json)
        return
    if model is None and is_conviction(Path(receipt)):
        refuse_others(
            {"trust", "claim", "key", "as_json"},
            "cannot be given: evidence is checked by itself.",
        )
        check_evidence(receipt, trust, as_json, signer)
        return
    if model is None:
        raise UsageError(
            "No model was given.",
            "Pass your copy with --model. Only --receipt, --against and evidence need none.",
        )
    if sample is not None:
        refuse_options({"text", "request", "evidence", "claim"}, "cannot be given beside --sample.")
        drawn = check_sample(
            Path(receipt),
            Path(model),
            sample,
            seed=None if seed is None else seed_of(seed),
            statement=None if statement is None else Path(statement),
            trust=load_trust(trust),
            threads=threads,
            device=device,
            adapter=None if adapter is None else Path(adapter),
        )
        say_sample(drawn, as_json)
        return
    report = check_of(
        Path(receipt),
        Path(model),
        statement=None if statement is None else Path(statement),
        adapter=None if adapter is None else Path(adapter),
        text=text,
        trust=load_trust(trust),
        threads=threads,
        device=device,
        request=None if request is None else Path(request),
        evidence=None if evidence is None else Path(evidence),
    )
    written = evidence if report.convicting is not None else None
    if as_json:
        print_json({**report_json(report), "evidence": written})
    else:
        _say(report, receipt, model if adapter is None else f"{model} --adapter {adapter}")
        if written is not None:
            say(f"evidence    {written}; anyone checks it with `tallystick check {written}`")
        elif evidence is not None:
            say(f"evidence    none: {_NO_EVIDENCE}")
    if signer is not None:
        from tallystick.api.claims import claim_answer  # brings the kinds of claims with it

        target, secret = signer
        write_file(target, [claim_answer(receipt, secret, report=report)])
        note(f"The claim is in {target}.")
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
        **_counted(report),
        "finish": receipt.finish,
        "time": receipt.time,
        "until": receipt.until,
        "signer": receipt.signer.key_id,
        "trusted": report.trusted,
        "contradictions": _said(report.contradictions),
        "state_differs": report.state_differs,
        "difference": None if found is None else found.facts,
        "findings": _said(report.findings),
        "notes": _said(report.notes),
        "seconds": report.seconds,
    }


def _counted(report: AnswerReport) -> dict[str, object]:
    """How much there is of an answer or of an encoding."""
    receipt = report.receipt
    return {"values" if receipt.is_of_encoding else "answer_tokens": receipt.answer}


def _said(sentences: tuple[Said, ...]) -> list[dict[str, str]]:
    return [{"clause": one.clause, "sentence": one.sentence} for one in sentences]


def _say(report: AnswerReport, receipt: str, model: str) -> None:
    known = signer_words(report.trusted)
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
        of = "values" if report.receipt.is_of_encoding else "tokens and their log-probabilities"
        say(f"MATCH       {report.receipt.answer} {of}, bit for bit{words}")
        say(f"computed    {report.seconds:.2f} s")
    elif report.accepted:
        # Another model's answer passes this check, so it must not read like the whole one.
        say("TEXT MATCHES  signatures, digests, template, tokens and text")
        say("not checked   whether the model gives this answer: no weight was read")
        say(f"next          tallystick check {receipt} --model {model}")


@click.command("answer-run")
@click.argument("receipt", type=click.Path())
@click.option("--model", required=True, type=click.Path(), help="Your copy of the model.")
@adapter_option
@click.option("-o", "--output", required=True, type=click.Path(), help="Directory for the run.")
@click.option("--key", type=click.Path(), help="Private key that signs. Default: a new one.")
@overwrite_option
@threads_option
@json_option
def answer_run(
    receipt: str,
    model: str,
    adapter: str | None,
    output: str,
    key: str | None,
    overwrite: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Execute the job of RECEIPT into a run directory, for a dispute about it.

    The run is yours, and shows what the model answers. OUTPUT/job is its job, for `dispute`,
    `serve`, `referee` and `judge`. If you sign with the key that signed the receipt, the run must
    be the receipt's run. If it is a different one, the receipt cannot be defended, and the exit
    code is 1.
    """
    made: AnswerRun = answer_run_of(
        Path(receipt),
        Path(model),
        Path(output),
        None if key is None else load_private_key(Path(key)),
        overwrite,
        threads,
        None if adapter is None else Path(adapter),
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
            say("MISMATCH    the receipt is for another run: this key cannot defend it")
    if made.defends and not made.same:
        finish(MISMATCH)
