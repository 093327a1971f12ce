"""The referee: one game between two signed runs, sans-IO (PROTOCOL).

Theory of operation. Hand it the parties' signed answers (`receive`) to the queries in `pending`
until there is a `verdict`. It has no clock, no key and no tensor of the job: the caller decides
when a party has been silent too long. The states (states.TABLE) are generators. This module does
the work that they share: it checks signatures, layouts, order and equivocation, and follows the
table. It judges a round when all its answers are there, so a verdict does not depend on their
order.
"""

from __future__ import annotations

from tallystick.commit.signed import same_words
from tallystick.commit.signing import Envelope, RunCommitment, verify_run
from tallystick.devices.environment import exact_environment
from tallystick.errors import CorruptFileError, CounterpartyError, UsageError
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol.bodies import Body
from tallystick.protocol.facts import Facts
from tallystick.protocol.game import BOTH, Bodies, Game, Guilt, Guilty, Next, Round, convict
from tallystick.protocol.messages import ANSWERED, UNABLE, Answer, open_answer
from tallystick.protocol.queries import encode_query
from tallystick.protocol.sizes import GameBounds, check_room, game_bounds
from tallystick.protocol.states import START, TABLE
from tallystick.protocol.verdict import AGREEMENT, UNDECIDED, Conviction, Event, Verdict

MIN_ARITY, MAX_ARITY = 2, 256  # PROTOCOL 4.3


def _commitment(data: bytes, party: int, job_digest: bytes) -> RunCommitment:
    """A party's run commitment. Raises UsageError where it fits no party of this game (3.1)."""
    try:
        run, _ = verify_run(Envelope.from_bytes(data, LIMITS.commitment_bytes))
    except CounterpartyError as error:
        raise UsageError(
            f"Party {party} is not a party to a game: {error.message}", "Ask for a signed run."
        ) from error
    if run.job_digest != job_digest:
        raise UsageError(
            f"The run of party {party} is of another job.", "Pass two runs of the same job."
        )
    return run


class Referee:
    """A game about the job of `terms` between the runs in two signed envelopes (COMMITMENTS 9.5).

    `arity` is the dispute's (4.3). Raises UsageError for a commitment of another job, for one whose
    signature does not verify (3.1), and for an arity out of range; CannotCheckError where the
    evidence could not hold the answers to the first round (8.5).
    """

    @exact_environment()
    def __init__(self, terms: Terms, commitments: tuple[bytes, bytes], arity: int = 20) -> None:
        if not MIN_ARITY <= arity <= MAX_ARITY:
            raise UsageError(
                f"An arity of {arity} is out of range.", f"Choose {MIN_ARITY} to {MAX_ARITY}."
            )
        first, second = (_commitment(data, p, terms.digest) for p, data in enumerate(commitments))
        self.rounds = 0
        self.received = 0  # bytes of answers
        self.transcript: list[tuple[int, bytes]] = []
        self.judged = 0  # messages of the rounds before the open one
        self.verdict: Verdict | None = None
        self._game = Game(Facts(terms), (first, second), arity)
        self.bounds: GameBounds = game_bounds(self._game.facts, arity)
        self._round: Round = {}
        self._answers: dict[int, Answer] = {}
        self._said: tuple[dict[bytes, bytes], dict[bytes, bytes]] = ({}, {})
        self._enter(Next(START))
        self._advance(None)

    @property
    def state(self) -> str:
        """Name of the current state (states.TABLE); of the last one once there is a verdict."""
        return self._name

    @property
    def runs(self) -> tuple[RunCommitment, RunCommitment]:
        """The parties' run commitments."""
        return self._game.runs

    @property
    def events(self) -> list[Event]:
        """The findings so far, for people."""
        return self._game.story.events

    @property
    def terms(self) -> int:
        """Terms of operators that the referee has executed (6.5)."""
        return self._game.story.terms

    @property
    def pending(self) -> dict[int, bytes]:
        """The queries that wait for an answer, by party; empty once there is a verdict."""
        if self.verdict is not None:
            return {}
        return {p: encode_query(q) for p, q in self._round.items() if p not in self._answers}

    @exact_environment()
    def receive(self, party: int, message: bytes) -> None:
        """Take in a signed answer of `party` to its pending query.

        An answer repeated word for word is ignored. A different answer to an answered query
        convicts (2.9). Raises CorruptFileError for a message that is no answer of this game (2.6):
        it counts as no statement, and the query stays open. Raises UsageError once there is a
        verdict. Raises CannotCheckError where this build lacks the disputed operator's opening
        rule, or where true answers to the next round would be too long (2.6.1): the game then stays
        without a verdict.
        """
        answer, known = self._fitting(party, message)
        if known is not None and same_words(known, message):
            return
        self.transcript.append((party, message))
        self.received += len(message)
        if known is not None:
            why = "it has signed two different answers to one query"
            self._convict(Guilty({party: ("2.9", why)}))
            return
        self._said[party][answer.query], self._answers[party] = message, answer
        if not self.pending:
            self.judge_round()

    def expects(self, party: int, message: bytes) -> bool:
        """Whether `receive` would take the message in; False for an answer that was there before.

        Raises as `receive` does for a message that is no answer of this game.
        """
        _, known = self._fitting(party, message)
        return known is None or not same_words(known, message)

    def said(self, party: int, query: bytes) -> bytes | None:
        """The party's answer to `query` as it was taken in, the first one; None before."""
        return self._said[party].get(query)

    @exact_environment()
    def silent(self, *parties: int) -> None:
        """Each of `parties`, one or both, let its time pass: it forfeits (2.10, 2.10.2).

        Raises UsageError if one of them owes no answer.
        """
        for party in parties:
            self._check_open(party)
            if party not in self.pending:
                raise UsageError(f"Party {party} owes no answer.", "Wait for the other one.")
        why = ("2.10", "it gave no answer in time")
        self._convict(Guilty(dict.fromkeys(parties, why)), forfeit=True)

    # -- messages (2.3 to 2.8) -----------------------------------------------------------------

    def _check_open(self, party: int) -> None:
        if party not in BOTH:
            raise UsageError(f"There is no party {party}.", "Parties are 0 and 1.")
        if self.verdict is not None:
            raise UsageError("The game has ended.", "Read the verdict.")

    def _fitting(self, party: int, message: bytes) -> tuple[Answer, bytes | None]:
        """The answer in a message, and the party's earlier message to the same query.

        Raises CorruptFileError where the query was never put to the party.
        """
        self._check_open(party)
        answer = self._open(party, message)
        known = self._said[party].get(answer.query)
        if known is None and answer.query != self.pending.get(party):
            raise CorruptFileError("This is not an answer to an open query.", "Refuse it.")
        return answer, known

    def _open(self, party: int, message: bytes) -> Answer:
        """The answer in a message, if it is one of this party in this game (2.6)."""
        run = self._game.runs[party]
        answer = open_answer(message, run.signer)
        if (answer.job_digest, answer.run_root) != (run.job_digest, run.run_root):
            raise CorruptFileError("This answer is of another game.", "Refuse it.")
        return answer

    def judge_round(self) -> None:
        """All answers are there: convict for malformed or missing ones (2.7, 2.8), or go on."""
        bodies: dict[int, Body] = {}
        guilt: dict[int, tuple[str, str]] = {}
        for party, answer in sorted(self._answers.items()):
            if answer.status == UNABLE and not answer.body:
                guilt[party] = ("2.8", "it cannot open its own commitment")
                continue
            try:
                if answer.status != ANSWERED:
                    raise CorruptFileError("It has no known status.")
                bodies[party] = self._round[party].layout.decode(answer.body)
            except CounterpartyError as error:
                guilt[party] = ("2.7", f"its answer is malformed: {error.message}")
        try:
            convict(guilt)
        except Guilty as guilty:
            self._convict(guilty)
            return
        self._advance(bodies)

    # -- states --------------------------------------------------------------------------------

    def _enter(self, following: Next) -> None:
        self._name = following.state
        self._run = TABLE[self._name].run(self._game, following.given)

    def _advance(self, bodies: Bodies | None) -> None:
        """Send answers into the state, follow the table, up to the next round or the verdict."""
        while True:
            try:
                self._round = next(self._run) if bodies is None else self._run.send(bodies)
            except StopIteration as end:
                self._follow(end.value)
                if self.verdict is not None:
                    return
                bodies = None
            except Guilty as guilty:
                self._convict(guilty)
                return
            else:
                check_room(
                    self._game, self.bounds, self._round, len(self.transcript), self.received
                )
                self._answers = {}
                self.judged = len(self.transcript)
                self.rounds += 1
                return

    def _follow(self, following: Next) -> None:
        name = following.state
        if name not in TABLE[self._name].follows:
            raise RuntimeError(f"no transition from {self._name} to {name} in states.TABLE")
        if name == AGREEMENT:
            self._end({}, agreement=True)
        elif name == UNDECIDED:
            story = self._game.story
            self._end({}, undecided=True, claimed=story.claimed, value=story.value)
        else:
            self._enter(following)

    def _convict(self, guilty: Guilty, forfeit: bool = False) -> None:
        self._end(
            guilty.guilt,
            case=guilty.case,
            forfeit=forfeit,
            claimed=guilty.claimed,
            value=guilty.value,
        )

    def _end(
        self,
        guilt: Guilt,
        agreement: bool = False,
        undecided: bool = False,
        case: str = "",
        forfeit: bool = False,
        claimed: tuple[str, str] = ("", ""),
        value: str = "",
    ) -> None:
        story, phase = self._game.story, TABLE[self._name].phase
        found = tuple(Conviction(p, *guilt[p]) for p in sorted(guilt))
        for conviction in found:
            story.note(phase, conviction.clause, f"party {conviction.party}: {conviction.sentence}")
        left = [p for p in BOTH if p not in guilt]  # PROTOCOL 1.5
        self.verdict = Verdict(
            agreement=agreement,
            convicted=found,
            accepted=left[0] if len(left) == 1 else None,
            phase=phase,
            case=case,
            place=story.place,
            forfeit=forfeit,
            claimed=claimed,
            value=value,
            terms=self.terms,
            rounds=self.rounds,
            received=self.received,
            undecided=undecided,
            choices=story.choices,
            story=tuple(story.events),
        )
        self._run.close()
