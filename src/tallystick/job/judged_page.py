"""The judge over a page that carries evidence (PROTOCOL 8.6). It loads nothing that runs a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.commit.signing import PublicKey
from tallystick.job.carried import CarriedEvidence, read_page
from tallystick.program.terms import Terms
from tallystick.protocol.judge import Judgement, judge


@dataclass(frozen=True)
class PageJudgement:
    """The verdict over the evidence in a page, and all that the page carries.

    `terms` are those that it was judged by. `own_job` is false where they came with the page: then
    the verdict is worth as much as that job (PROTOCOL 8.6.4).
    """

    judgement: Judgement
    carried: CarriedEvidence
    terms: Terms
    own_job: bool


def judge_carried(
    page: bytes,
    own: Terms | None,
    trust: Sequence[PublicKey] | None = None,
    trust_referees: Sequence[PublicKey] = (),
) -> PageJudgement:
    """The verdict over the evidence in the untrusted bytes of a page, by the caller's `own` terms,
    or else by those that came with it.

    Raises as `judge`, and CorruptFileError, DigestMismatchError or UnsupportedVersionError for a
    page that carries none.
    """
    carried = read_page(page)
    terms = carried.terms if own is None else own
    found = judge(terms, carried.evidence, trust, trust_referees)
    return PageJudgement(found, carried, terms, own is not None)
