"""The first sentences about a verdict: who did what, in which step, and what it means."""

from __future__ import annotations

from tallystick.protocol.verdict import Conviction, Place, Verdict
from tallystick.report.answer_meanings import Work, meaning_about
from tallystick.report.html import PARTIES, count, nth
from tallystick.report.meanings import Kind, Meaning

AGREE = "The parties agree: both have signed the same run."
UNDECIDED = "It could not be decided: the runs differ, and neither party is shown wrong."
# The end of a run, as people know it.
_LAST = {
    Work.TRAINING: "the final model",
    Work.ANSWER: "the last piece of the answer",
    Work.ENCODING: "the last number of the result",
}
# What a silence begins with: it is that referee's word, and no signature of a party shows it.
BY_WORD = "A referee says that "


def meaning(verdict: Verdict, conviction: Conviction, work: Work = Work.TRAINING) -> Meaning:
    """What the conviction of one party means; `work` says here and below what the job is the work
    of."""
    return meaning_about(work, conviction.clause, verdict.case)


def steps_within(interval: tuple[int, int]) -> str:
    """The steps between two signed states, as people count them: "steps 4 to 5"."""
    low, high = interval
    return f"step {low:,}" if high - low <= 1 else f"steps {low:,} to {high - 1:,}"


def since(kind: Kind, place: Place) -> str:
    """Where a party left the job, or what it was asked about, as the end of a sentence."""
    if kind is Kind.WHOLE:
        return ""
    if place.step is not None:
        where = f"step {place.step:,}"
    elif place.interval is not None and kind is not Kind.END:
        where = steps_within(place.interval)
    else:
        return ""
    if kind is Kind.STEP:
        return f", in {where}"
    if kind is Kind.END:
        return f", after {where}"
    return f"{'' if kind is Kind.SILENCE else ','} when asked about {where}"


def deed(verdict: Verdict, conviction: Conviction, work: Work = Work.TRAINING) -> str:
    """What a convicted party did, and where, as a sentence goes on after its name. One step says
    nothing of where."""
    found = meaning(verdict, conviction, work)
    if work is not Work.TRAINING:
        return found.did
    return f"{found.did}{since(found.kind, verdict.place)}"


def first_sentence(verdict: Verdict, work: Work = Work.TRAINING) -> str:
    """The verdict in one sentence."""
    if verdict.agreement:
        return AGREE
    if verdict.undecided:
        return UNDECIDED
    told = {deed(verdict, c, work) for c in verdict.convicted}
    before = BY_WORD if verdict.forfeit else ""
    if len(verdict.convicted) > 1:
        if len(told) == 1:
            return f"{before}{PARTIES[0]} and {PARTIES[1]} both {told.pop()}; no run is accepted."
        return "Each party signed something false; no run is accepted."
    party = PARTIES[verdict.convicted[0].party]
    return f"{before}{party} {told.pop()}."


def not_shown_wrong(party: str) -> str:
    """All that is known of a party whose opponent was shown wrong."""
    return f"{party} was not shown wrong here; it may still be wrong elsewhere."


def consequence(verdict: Verdict, work: Work = Work.TRAINING) -> str:
    """What follows for the two runs."""
    if verdict.agreement:
        whole = "the first step" if work is Work.TRAINING else "the model"
        last = _LAST[work]
        return (
            f"The two runs are equal to the last bit, from {whole} to {last}. "
            "There is nothing to decide."
        )
    if verdict.undecided:
        return (
            "At the place where the runs part, each value follows from the job and from the "
            "party's own log of roundings, which the job allows. No run is accepted."
        )
    if verdict.accepted is None:
        return "No run is accepted."
    lost, kept = PARTIES[verdict.convicted[0].party], PARTIES[verdict.accepted]
    if verdict.forfeit:
        return (
            f"If you trust that referee, the run of {kept} is the one that is left. If you do not, "
            "nothing is decided for you."
        )
    return f"The run of {lost} is not accepted. {not_shown_wrong(kept)}"


def until(verdict: Verdict) -> str:
    """How far the runs are equal; empty where the game did not come to it."""
    place = verdict.place
    if place.step is not None:
        step = f"{nth(place.step)} step, called step {place.step:,}"
        if verdict.case == "0":
            return (
                f"Both signed runs are equal up to the {step} (steps count from 0). One of them "
                "ends there, and the other one goes on."
            )
        if place.step == 0:
            return f"The signed runs differ from the {step}, on (steps count from 0)."
        same_work = any(c.clause == "5.3" for c in verdict.convicted)
        after = "" if same_work else " What was signed after it differs."
        return f"Both signed runs are equal before the {step} (steps count from 0).{after}"
    if place.interval is not None:
        low, high = place.interval
        return (
            f"The signed runs are equal after {count(low, 'step')}, and differ after "
            f"{count(high, 'step')}."
        )
    return ""
