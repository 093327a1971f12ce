"""The first sentences about a verdict: who did what, in which step, and what it means."""

from __future__ import annotations

from tallystick.protocol.verdict import Conviction, Place, Verdict
from tallystick.report.meanings import Kind, Meaning, meaning_of
from tallystick.report.words import PARTIES, count

AGREE = "The parties agree: both have signed the same run."
UNDECIDED = "It could not be decided: the runs differ, and neither party is shown wrong."


def meaning(verdict: Verdict, conviction: Conviction) -> Meaning:
    """What the conviction of one party means."""
    return meaning_of(conviction.clause, verdict.case)


def since(kind: Kind, place: Place) -> str:
    """Where a party left the job, or what it was asked about, as the end of a sentence."""
    if kind is Kind.WHOLE:
        return ""
    if kind is Kind.STEP:
        if place.step is not None:
            return f", in step {place.step:,}"
        if place.interval is not None:
            return f", after step {place.interval[0]:,} and before step {place.interval[1]:,} ended"
        return ""
    if kind is Kind.END and place.step is not None:
        return f", after step {place.step:,}"
    if place.step is not None:
        return f", when asked about step {place.step:,}"
    if place.interval is not None:
        low, high = place.interval
        return f", when asked about steps {low:,} to {high:,}"
    return ""


def _did(verdict: Verdict, conviction: Conviction) -> str:
    found = meaning(verdict, conviction)
    return f"{found.did}{since(found.kind, verdict.place)}"


def first_sentence(verdict: Verdict) -> str:
    """The verdict in one sentence."""
    if verdict.agreement:
        return AGREE
    if verdict.undecided:
        return UNDECIDED
    told = {_did(verdict, c) for c in verdict.convicted}
    if len(verdict.convicted) > 1:
        if len(told) == 1:
            return f"{PARTIES[0]} and {PARTIES[1]} both {told.pop()}; no run is accepted."
        return "Both parties are convicted, each of its own fault; no run is accepted."
    party = PARTIES[verdict.convicted[0].party]
    return f"{party} {told.pop()}."


def consequence(verdict: Verdict) -> str:
    """What follows for the two runs."""
    if verdict.agreement:
        return (
            "The two runs are equal to the last bit, from the first step to the final model. "
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
        return f"{lost} loses the game by that, and the run of {kept} is accepted."
    return f"The run of {lost} is not accepted; the run of {kept} is."


def until(verdict: Verdict) -> str:
    """How far the runs are equal; empty where the game did not come to it."""
    place = verdict.place
    if place.step is not None:
        if verdict.case == "0":
            return (
                f"Both runs have step {place.step:,} and are equal after it; one of them ends "
                "there, the other goes on (steps count from 0)."
            )
        if place.step == 0:
            return "The runs part in their very first step, step 0 (steps count from 0)."
        return (
            f"As signed, both runs are equal before step {place.step:,}, and differ after it. The "
            "first step is step 0."
        )
    if place.interval is not None:
        low, high = place.interval
        return (
            f"The runs are equal after {count(low, 'step')} and differ after {count(high, 'step')}."
        )
    return ""
