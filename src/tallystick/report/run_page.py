"""A run as a page: the job, the course, the signer, the ways to check it, and their worth."""

from __future__ import annotations

import math

from tallystick.commit.stream import SEQUENTIAL
from tallystick.devices.environment import exact_environment
from tallystick.job.words import JobInWords, words_of
from tallystick.report.answer_meanings import work_of
from tallystick.report.curve import CheckpointMarks, figure
from tallystick.report.facts import Curve, RunFacts
from tallystick.report.html import Safe, code, count, digest, facts, items, join, number, size
from tallystick.report.job_words import model_words, words_section
from tallystick.report.page import banner, commands, fold, page, paragraph, section, trust_badge
from tallystick.report.proved import LEAVES_OPEN, PROVES
from tallystick.run.show.estimate import human_seconds
from tallystick.run.show.inspect import parameter_count

_SMALL = (200, 170)  # pixels: a metric is drawn lower than the loss


@exact_environment()
def run_page(run: RunFacts) -> str:
    """The page of a run: a whole HTML document."""
    words = words_of(run.job)
    body = join(
        _banner(run, words),
        _meaning(run),
        words_section(words, work_of(run.job.terms)),
        _loss(run),
        _metrics(run),
        _checking(run),
        fold(
            "For experts: fingerprints, sizes and machine",
            _what(run),
            _commitment(run),
            _sizes(run),
        ),
    )
    return page(f"Run {run.name}", body)


def _how_it_ended(run: RunFacts) -> str:
    found = run.found
    timetable = run.job.commitment.timetable
    done, whole = len(found["loss"]), timetable.trained(run.job.steps)
    if not found["finished"]:
        return f"stopped after {count(done)} of {count(whole, 'step')}; it can be taken up again"
    if done < whole:
        return f"ended after {count(done)} of {count(whole, 'step')}: {found['reason']}"
    return f"complete, {count(done, 'step')}"


@exact_environment()
def headline(run: RunFacts) -> str:
    """The run in one sentence."""
    signed = "signed" if run.found["signer"] is not None else "not signed"
    return f"{run.name}: {_how_it_ended(run)}, {signed}"


def _means(run: RunFacts) -> str:
    """What the first sentence is worth."""
    if run.found["signer"] is None:
        return "Nobody stands by this run yet: a run is signed when it has ended."
    return (
        "The holder of a key has signed that this training follows its job, number by number. "
        "That is a claim: this page has not repeated it, and anyone who has the job can."
    )


def _banner(run: RunFacts, job: JobInWords) -> Safe:
    found = run.found
    signed = found["signer"] is not None
    words = [model_words(job)]
    if found["loss"]:
        several = len(found["loss_of"]) > 1
        for name, losses in found["loss_of"].items():
            if losses:
                of = f" of {name}" if several else ""
                words.append(f"Training loss{of} {number(losses[0])} to {number(losses[-1])}.")
    if found["validation"]:
        losses = found["validation"]
        best = min(losses, key=lambda v: v["loss"] if math.isfinite(v["loss"]) else math.inf)
        words.append(f"Last validation loss {number(losses[-1]['loss'])}.")
        if best is not losses[-1]:
            words.append(f"Best {number(best['loss'])}, after {count(best['step'], 'step')}.")
    step = found["step_seconds"]
    if step is not None:
        words.append(f"{human_seconds(step)} a step ({found['isa']}, {_threads(run)}).")
    return banner(
        headline(run),
        paragraph(_means(run), class_="lead"),
        paragraph(" ".join(words)),
        paragraph(trust_badge(run.trusted)) if signed else None,
        good=run.trusted or None,
    )


def _threads(run: RunFacts) -> str:
    return count(run.found["threads"] or 0, "thread")


def _loss(run: RunFacts) -> Safe:
    found = run.found
    if not found["loss"]:
        return section("Loss", paragraph("No step has been made yet."))
    timetable = run.job.commitment.timetable
    hashed = tuple(timetable.trained(c["step"]) for c in found["checkpoints"])
    committed = {c["step"] for c in found["checkpoints"]}
    kept = (s for s in found["stored_checkpoints"] if s in committed)
    stored = tuple(timetable.trained(step) for step in kept)
    odd = sum(not math.isfinite(v) for v in found["loss"])
    caption = (
        f"{count(len(hashed), 'state')} hashed (every {count(run.job.interval, 'step')} and at the "
        f"end), {len(stored)} of them stored."
    )
    if odd:
        caption += f" {count(odd, 'loss')} not finite: the line breaks there."
    marks = CheckpointMarks(hashed, stored)
    if len(found["loss_of"]) == 1:
        return section("Loss", figure([(0, run.curve)], marks, caption=caption))
    each = (
        figure(
            [(0, Curve(f"{run.name}, {name}", tuple(losses)))],
            caption=f"The program {name}: its loss by its own steps.",
        )
        for name, losses in found["loss_of"].items()
        if losses
    )
    return section("Loss", *each, paragraph(caption, class_="soft small"))


def _metrics(run: RunFacts) -> Safe | None:
    if not run.metrics:
        return None
    return section(
        "Metrics",
        *(figure([(0, curve)], heights=_SMALL) for curve in run.metrics),
        paragraph(
            "Numbers that each step reports beside its loss. They are the trainer's word: no "
            "digest covers them.",
            class_="soft small",
        ),
    )


def _what(run: RunFacts) -> Safe:
    job, found = run.job, run.found
    c, timetable = job.commitment, job.commitment.timetable
    data = timetable.data_of(0)
    records, order = (data.record_count, str(data.order_seed)) if data else (0, "0")
    if data is not None and data.order == SEQUENTIAL:
        order = "none, the records come in sequence"
    rows: dict[str, object] = {
        "Steps": f"{count(len(found['loss']))} of {count(timetable.trained(job.steps))}",
        "Batch": f"{count(timetable.programs[0].batch_size, 'record')} of {count(records)}",
        "Seeds": f"random key {c.rng_seed}, order of data {order}",
        "Contract": code(c.contract),
        "Job digest": digest(job.digest),
        "Program": join(
            f"{count(len(job.program.nodes), 'operator')} a step, ",
            digest(timetable.programs[0].digest),
        ),
        "Initial state": digest(c.genesis_root),
        "Data": digest(data.root) if data else "none",
    }
    return section("Numbers and fingerprints of the job", facts(rows))


def _commitment(run: RunFacts) -> Safe:
    found = run.found
    rows: dict[str, object] = {}
    if found["run_root"] is not None:
        name = "Run root" if found["finished"] else "Run root so far"
        rows[name] = digest(found["run_root"])
    if found["final_state_root"] is not None:
        rows["Final state"] = digest(found["final_state_root"])
    rows["Checkpoints"] = count(len(found["checkpoints"]))
    if found["signer"] is None:
        rows["Signature"] = "none: the run is not finished"
    else:
        rows["Signature"] = join("valid ", trust_badge(run.trusted))
        rows["Signer (key id)"] = digest(found["signer"])
    words = (
        "The run root is the root of a Merkle tree over all hashed states and the job digest. It "
        "does not depend on time, threads or machine: a repetition of the job gives the same one."
    )
    return section("What was committed to", facts(rows), paragraph(words, class_="soft small"))


def _sizes(run: RunFacts) -> Safe:
    found = run.found
    session = found["sessions"][-1] if found["sessions"] else {}
    rows: dict[str, object] = {
        "Parameters": count(parameter_count(run.job)),
        "On disk": size(found["disk_bytes"]),
        "Stored states": count(len(found["stored_checkpoints"])),
        "Traced steps": count(len(found["traced_steps"])),
    }
    machine: dict[str, object] = {
        "Computed with": f"{found['isa']}, {_threads(run)}, tallystick "
        f"{session.get('tallystick')} ({session.get('compiler')})",
        "Sessions": f"{len(found['sessions'])} (a run that was interrupted has several)",
    }
    if found["log_bytes"]:
        rows["Rounding logs"] = size(found["log_bytes"])
    if found["followed"] is not None:
        rows["Follows the logs of"] = code(found["followed"]["run_root"])
    rows |= machine
    note = "The last two are the trainer's word. They are not committed to and change no bit."
    return section("Sizes and machine", facts(rows), paragraph(note, class_="soft small"))


def _checking(run: RunFacts) -> Safe:
    name = run.name
    lines = [
        f"tallystick audit {name} --job JOB",
        f"tallystick audit {name} --job JOB --steps 0:{min(run.job.interval, run.job.steps)}",
        f"tallystick fsck {name}",
    ]
    return section(
        "How to check it",
        paragraph(
            "JOB is your own copy of the job; it must have the digest above. The first line "
            "repeats the whole run on your machine and compares every hashed state, the second one "
            "a part of it. The third executes no step and checks the bytes of the directory.",
        ),
        commands(*lines),
        paragraph(
            "If another run of the same job has another run root, ",
            code("tallystick dispute"),
            " finds the operation at which they part, and the wrong one of the two.",
        ),
    )


def _about_validation(run: RunFacts) -> str:
    if any(program.by_pass for program in run.job.commitment.timetable.programs):
        return "The same holds for the validation losses: they are part of those states."
    return "No commitment covers validation losses."


def _meaning(run: RunFacts) -> Safe:
    signed = run.found["signer"] is not None
    proves = [
        "The holder of the signing key stands by this one run of this job, and cannot take it back."
        if signed
        else "No commitment yet: an unfinished run is not signed.",
        "The recorded states of the training give the fingerprint that was signed. The command "
        "checked that when it wrote the page."
        if signed
        else None,
        "One different bit in any of those states, or another order of the data, would have given "
        "another fingerprint.",
        "Anyone with the job can find out whether the run is true by repeating it, wholly or in "
        "part, on other hardware.",
    ]
    open_ = [
        "That the run is true. This page repeated no step; an audit does.",
        "That the loss curve is the run's: it is drawn from the journal; fsck and audit compare "
        "the journal with the signed states. " + _about_validation(run),
        "That the data fit their description, or that the model is any good. The job digest fixes "
        "data and model; it does not judge them.",
        "Who the signer is. A key signs; whose it is, you must know from elsewhere.",
    ]
    return join(
        section(PROVES, items(*(p for p in proves if p is not None))),
        section(LEAVES_OPEN, items(*open_)),
    )
