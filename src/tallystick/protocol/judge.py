"""The judge: a finished game, played again from its evidence (PROTOCOL 8.2).

The judge believes no statement of the evidence about itself. It has the job's terms and runs the
referee of this build. It hands the referee each signed answer when the referee asks for it, and
reports the verdict. It refuses evidence that does not fit: such evidence convicts no party.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.commit.signing import PublicKey
from tallystick.devices.environment import exact_environment
from tallystick.errors import CannotCheckError, CorruptFileError, CounterpartyError, UsageError
from tallystick.program.terms import Terms
from tallystick.protocol.evidence import Evidence, EvidenceHead
from tallystick.protocol.forfeit import Forfeit, open_forfeit
from tallystick.protocol.referee import Referee
from tallystick.protocol.verdict import PARTIES, Verdict
from tallystick.visible import Tabled


@dataclass(frozen=True, repr=False)
class Judgement(Tabled):
    """A verdict, the run commitments that it is about, and the trust in their signers.

    `trusted` is None without a trust list. `referee` is the key id of the referee that signed the
    forfeit; None where the verdict rests on the parties' signed messages.
    """

    verdict: Verdict
    run_roots: tuple[bytes, bytes]
    signers: tuple[str, str]
    trusted: tuple[bool | None, bool | None]
    referee: str | None = None

    def facts_for_people(self) -> tuple[str, dict[str, object]]:
        _, facts = self.verdict.facts_for_people()
        roots = {f"run {name}": root for name, root in zip(PARTIES, self.run_roots, strict=True)}
        signers = {f"signer {name}": key for name, key in zip(PARTIES, self.signers, strict=True)}
        return f"Judgement: {self.verdict.ending}", {**facts, **roots, **signers}


def _refused(why: str) -> CorruptFileError:
    return CorruptFileError(
        f"This evidence is refused: {why.removesuffix('.')}.",
        "It convicts no party: ask for an intact copy.",
    )


@exact_environment()
def judge(
    terms: Terms,
    data: bytes,
    trust: Sequence[PublicKey] | None = None,
    trust_referees: Sequence[PublicKey] = (),
) -> Judgement:
    """The verdict that the evidence in `data` gives about the job of `terms`.

    `trust` are the signers of runs that the caller knows. `trust_referees` are the referees that
    the caller believes about a silence. Neither list implies the other. Raises CorruptFileError for
    refused evidence (8.3), CannotCheckError for a forfeit by a referee outside of `trust_referees`
    (2.10).
    """
    head = EvidenceHead.from_bytes(data)
    if head.job_digest != terms.digest:
        raise _refused("it is about another job")
    try:
        referee = Referee(terms, head.commitments, head.arity)
    except UsageError as error:
        raise _refused(error.message) from error
    bounds = referee.bounds  # PROTOCOL 8.5: before a message is looked at
    if len(data) > bounds.evidence_bytes:
        raise _refused(
            f"it has {len(data)} bytes, and no game of this job leaves more than "
            f"{bounds.evidence_bytes}"
        )
    evidence = head.rest(bounds.messages + 2)
    for party, message in evidence.messages:
        if referee.verdict is not None:
            raise _refused("messages follow the end of the game")
        try:
            before = len(referee.transcript)
            referee.receive(party, message)
        except CounterpartyError as error:
            raise _refused(error.message) from error
        if len(referee.transcript) == before:
            raise _refused("an answer is there twice")
    named = _forfeited(referee, evidence, trust_referees)
    if referee.verdict is None:
        raise _refused("messages are missing, the game has not ended")
    keys = [run.signer for run in referee.runs]
    first, second = (None if trust is None else key in trust for key in keys)
    return Judgement(
        referee.verdict,
        (referee.runs[0].run_root, referee.runs[1].run_root),
        (keys[0].key_id, keys[1].key_id),
        (first, second),
        named,
    )


def _forfeited(referee: Referee, evidence: Evidence, believed: Sequence[PublicKey]) -> str | None:
    """Apply the forfeits that ended the game, if there are any; the key id of their signer."""
    if not evidence.forfeits:
        return None
    if referee.verdict is not None:
        raise _refused("a forfeit follows the end of the game")
    words = [_word(referee, evidence, data) for data in evidence.forfeits]
    parties = [word.party for word in words]
    if parties != sorted(set(parties)) or len({word.referee for word in words}) > 1:
        raise _refused("its two forfeits are not one of each party, by one referee, in order")
    signer = words[0].referee
    if signer not in believed:
        raise CannotCheckError(
            f"The game ended by silence, which rests on the word of referee "
            f"{signer.key_id[:16]} alone.",
            "Pass --trust-referee with that referee's public key if you believe it. Trust in the "
            "signer of a run (--trust) does not count here.",
        )
    referee.silent(*parties)
    return signer.key_id


def _word(referee: Referee, evidence: Evidence, data: bytes) -> Forfeit:
    """The forfeit in untrusted bytes, if it fits the game. Raises CorruptFileError (8.3)."""
    try:
        word = open_forfeit(data)
    except CounterpartyError as error:
        raise _refused(error.message) from error
    if word.referee in [run.signer for run in referee.runs]:  # PROTOCOL 2.10.1
        raise _refused(
            "its forfeit is signed with a party's key, and no party is the referee (2.10.1)"
        )
    roots = (referee.runs[0].run_root, referee.runs[1].run_root)
    if (word.job_digest, word.run_roots) != (evidence.job_digest, roots):
        raise _refused("its forfeit is of another game")
    if referee.pending.get(word.party) != word.query:
        raise _refused("its forfeit names a query that was not open")
    return word
