"""`tallystick referee`: a session between parties on a network; it imports no torch. An offer may
order the session's rules (PROTOCOL 14.5, 14.7.1).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tallystick.cli.judge import terms_of
from tallystick.cli.offer import now_ms, read_book, session_outcome
from tallystick.cli.output import finish, json_option, load_keys, note, print_json, say
from tallystick.cli.places import PLACE, refuse_options
from tallystick.cli.serve import tls_ca_option
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.delegation.book import alarms_until, challenge_rules, session_rules
from tallystick.delegation.rules import NO_OFFER, Rules, step_milliseconds
from tallystick.delegation.session import Session, check_rules
from tallystick.disk.entry_log import EntryLogWriter
from tallystick.disk.files import write_file
from tallystick.disk.keys import load_private_key
from tallystick.errors import CannotCheckError, CounterpartyError, UsageError
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol.referee import MAX_ARITY, MIN_ARITY
from tallystick.run.show.estimate import human_seconds
from tallystick.service import require_packages
from tallystick.service.archive import RESULT, evidence_name

if TYPE_CHECKING:
    from tallystick.service.client import PartyClient
    from tallystick.service.driver import Driver
    from tallystick.service.server import ListeningSocket

_FIXED = ("allow", "arity", "sealing", "opening", "budget", "step", "steps", "extension")


def refuse_fixed() -> None:
    """Raise UsageError where the command line names a number that the offer fixes."""
    refuse_options(_FIXED, "cannot be given, because the offer fixes it.")


def ordered_rules(
    documents: tuple[str, ...], challenge_of: str | None, job: str, referee: PublicKey
) -> Rules:
    """The rules of the session that the documents order; of the challenge session where
    `challenge_of` names the directory of the offer's session.

    Raises UsageError where no session is ordered, or not yet.
    """
    book, nonce = read_book(documents), os.urandom(32)
    if challenge_of is not None:
        first = session_outcome("session", None, challenge_of, job, book)
        assert first is not None
        rules = challenge_rules(book, first, referee, nonce)
        if now_ms() <= alarms_until(book.offer, first):
            raise UsageError(
                "The challenge session cannot begin yet: more alarms may come.",
                "Wait for the end of the offer's `challenge` time.",
            )
        return rules
    if now_ms() <= book.offer.deadlines.withdraw:
        raise UsageError(
            "The session cannot begin yet: the providers and the client may still withdraw.",
            "Wait for the offer's `withdraw` deadline, and collect the withdrawals.",
        )
    return session_rules(book, referee, nonce)


_UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "": 1000}
_DURATION = re.compile(r"([0-9]{1,15}(?:\.[0-9]+)?)\s*(ms|s|m|h|d|)")


def _duration(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """A duration such as 90s, 1.5h or 200ms in milliseconds; without a unit, seconds."""
    if value is None:
        return None
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise click.BadParameter(f"{value!r} is no duration; write 90s, 15m, 2h or 1d.")
    milliseconds = round(float(match[1]) * _UNITS[match[2]])
    if milliseconds > LIMITS.duration_ms:
        raise click.BadParameter(f"{value!r} is too long.")
    return milliseconds


def _time(
    name: str, default: str | None, text: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        name, metavar="DURATION", callback=_duration, default=default,
        show_default=default is not None, help=text,
    )  # fmt: skip


@click.command()
@click.argument("job", type=PLACE)
@click.option(
    "--party",
    "parties",
    required=True,
    multiple=True,
    metavar="URL",
    help="URL of a party (repeatable). A session has 2 to 64 parties, or one for an offer "
    "with a single provider.",
)
@click.option("--out", required=True, type=click.Path(), help="Directory for log and evidence.")
@click.option("--key", required=True, type=click.Path(), help="The referee's private key.")
@click.option(
    "--allow",
    multiple=True,
    metavar="KEY",
    help="Public key of a party that may take part (repeatable). Default: the keys that the"
    " URLs show.",
)
@click.option(
    "--arity",
    type=click.IntRange(MIN_ARITY, MAX_ARITY),
    default=20,
    show_default=True,
    help="Number of parts into which each round of the search cuts the remaining range.",
)
@_time("--sealing", "10m", "Time that the parties have to seal.")
@_time("--opening", "10m", "Time that the parties have to open.")
@_time(
    "--budget", "1h", "Time that each party has in each game, not counting the execution of steps."
)
@_time(
    "--step",
    None,
    "Time allowed for one step. Default: what a slow machine needs for this program.",
)
@click.option(
    "--steps",
    type=click.IntRange(0, LIMITS.duration_ms),
    default=None,
    help="Largest number of steps that an honest party may have to execute in a game. "
    "Default: twice the job's.",
)
@_time("--extension", "2m", "Least time that a party has for each answer.")
@click.option(
    "--offer",
    "documents",
    multiple=True,
    type=click.Path(),
    metavar="FILE",
    help="An offer, or one of its documents with a receipt (repeatable). They fix the "
    "session's rules.",
)
@click.option(
    "--challenge-of",
    type=click.Path(),
    help="Hold the session that follows an alarm. PATH is the directory of the offer's "
    "first session.",
)
@click.option("--listen", metavar="HOST:PORT", help="Publish the log over HTTP at this address.")
@tls_ca_option
@json_option
def referee(
    job: str,
    parties: tuple[str, ...],
    out: str,
    key: str,
    allow: tuple[str, ...],
    arity: int,
    sealing: int,
    opening: int,
    budget: int,
    step: int | None,
    steps: int | None,
    extension: int,
    documents: tuple[str, ...],
    challenge_of: str | None,
    listen: str | None,
    tls_ca: str | None,
    as_json: bool,
) -> None:
    """Hold a session about JOB between the parties at the URLs, and write its log and evidence.

    The same command with the same --out resumes an interrupted session, with the rules in its log.

    The exit code is 0 if all parties make the same claim, 1 if a party is convicted, 2 if nothing
    is decided.
    """
    require_packages("tallystick referee")
    from tallystick.service.client import check_url

    if documents:
        refuse_fixed()

    urls = [check_url(url) for url in parties]
    least = 1 if documents else 2  # an offer may have one provider (PROTOCOL 14.5)
    if not least <= len(set(urls)) == len(urls) <= LIMITS.parties:
        raise UsageError(
            f"This session needs {least} to {LIMITS.parties} parties, each with a different URL.",
            "Check the URLs that you pass with --party.",
        )
    if tls_ca and not any(url.lower().startswith("https:") for url in urls):
        raise UsageError(
            "--tls-ca can only be used with https URLs.",
            "Write https://HOST:PORT, or leave --tls-ca out.",
        )
    terms, private, target = terms_of(job), load_private_key(Path(key)), Path(out)
    allowed = tuple(sorted(load_keys(allow), key=lambda k: k.raw))
    if documents:
        rules = ordered_rules(documents, challenge_of, job, private.public)
    else:
        if challenge_of is not None:
            raise UsageError(
                "--challenge-of needs an offer.", "Pass the offer and its documents with --offer."
            )
        if step is None:
            step = max(step_milliseconds(program) for program in terms.programs)
        most = 2 * terms.commitment.steps if steps is None else steps
        rules = Rules(
            terms.digest, os.urandom(32), private.public, arity, len(urls), 0, opening, budget,
            step, most, extension, allowed,
        )  # fmt: skip
    check_rules(terms, rules)
    note(f"Each party has {human_seconds(rules.game_budget / 1000)} in a game, and at least "
         f"{human_seconds(rules.extension / 1000)} for each answer.")  # fmt: skip
    with EntryLogWriter(target) as log:
        held = HeldEvidence(terms, private, log, rules, sealing, urls, tls_ca, listen, as_json)
        driver = asyncio.run(held.hold())
    _finish(driver, target, as_json)


class HeldEvidence:
    """One call of the command."""

    def __init__(
        self,
        terms: Terms,
        key: PrivateKey,
        log: EntryLogWriter,
        rules: Rules,
        sealing: int,
        urls: Sequence[str],
        tls_ca: str | None,
        listen: str | None,
        quiet: bool,
    ) -> None:
        self._terms, self._key, self._log, self._rules = terms, key, log, rules
        self._sealing, self._urls, self._listen, self._quiet = sealing, urls, listen, quiet
        self._ca = Path(tls_ca) if tls_ca else None
        self._written: set[int] = set()

    async def hold(self) -> Driver:
        """Hold the session to its result."""
        from tallystick.cli.sessions import Show
        from tallystick.service.client import PartyClient
        from tallystick.service.driver import Driver, session_clock

        async with AsyncExitStack() as stack:
            sock = self._socket()  # an address that cannot be had begins no session
            if sock is not None:
                stack.enter_context(sock)
            links = [
                await stack.enter_async_context(PartyClient(url, self._ca)) for url in self._urls
            ]
            rules = None
            if len(self._log):
                note(f"The session in {self._log.directory} continues with the rules in its log.")
            else:
                rules = self._rules
                if rules.offer == NO_OFFER:
                    allowed = rules.allowed or await self._keys(links)
                    rules = self._changed(allowed, session_clock() + self._sealing)
            show = stack.enter_context(Show(self._quiet))

            def changed(driver: Driver) -> None:
                self.write_evidence(driver.arbiter.session)
                show(driver)

            driver = Driver(
                self._terms, self._key, self._log, links, rules, session_clock, on_change=changed
            )
            publishing = self._publish(driver, sock)
            try:
                await driver.run()
            finally:
                if publishing is not None:
                    publishing[0].stop()
                    await publishing[1]
            self.write_evidence(driver.arbiter.session)
        return driver

    def _changed(self, allowed: tuple[PublicKey, ...], sealing: int) -> Rules:
        from dataclasses import replace

        most = max(2, len(allowed)) if allowed else self._rules.most
        return replace(self._rules, allowed=allowed, most=most, sealing=sealing)

    async def _keys(self, links: Sequence[PartyClient]) -> tuple[PublicKey, ...]:
        """The keys of the parties that can be reached before the time for sealing is over."""
        from tallystick.service.client import UnreachableError

        async def ask(link: PartyClient) -> PublicKey | None:
            pause = 0.1
            while True:
                try:
                    card = await link.card()
                except UnreachableError:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, 5.0)
                    continue
                except CounterpartyError as error:
                    note(f"{link.url}: {error.message}")
                    return None
                if card.job_digest != self._terms.digest:
                    note(f"{link.url} serves another job.")
                    return None
                if card.key == self._key.public:  # a card proves nothing: anyone may name this key
                    note(
                        f"{link.url} has the referee's key, so it cannot be a party "
                        "(PROTOCOL 2.10.1)."
                    )
                    return None
                return card.key

        tasks = [asyncio.create_task(ask(link)) for link in links]
        _, late = await asyncio.wait(tasks, timeout=self._sealing / 1000)
        for task in late:
            task.cancel()
        found = [t.result() for t in tasks if t not in late]
        keys = {key for key in found if key is not None}
        for link, task in zip(links, tasks, strict=True):
            if task in late:
                note(f"{link.url} was not reached in time, so it takes no part.")
        if not keys:
            # An empty list would let any key take part (PROTOCOL 10.1.1).
            raise CannotCheckError(
                "No party of this job could be reached.",
                "Check the URLs, or name the parties' keys with --allow.",
            )
        return tuple(sorted(keys, key=lambda key: key.raw))

    def _socket(self) -> ListeningSocket | None:
        if self._listen is None:
            return None
        from tallystick.service.server import listening_socket

        return listening_socket(self._listen)

    def _publish(
        self, driver: Driver, sock: ListeningSocket | None
    ) -> tuple[Any, asyncio.Task[None]] | None:
        if sock is None:
            return None
        from tallystick.service.log_app import log_app
        from tallystick.service.server import HttpServer

        app = log_app(
            self._log.read, lambda: driver.published, driver.arbiter.session.session, tell=_tell
        )
        server = HttpServer(app, sock)
        note(f"The log is published at port {server.port}.")
        return server, asyncio.create_task(server.serve())

    def write_evidence(self, session: Session) -> None:
        """Write the evidence of each game that has ended, once."""
        for match in session.matches:
            if match.ended and match.number not in self._written:
                path = self._log.directory / evidence_name(match.number)
                write_file(path, [match.evidence().to_bytes()])
                self._written.add(match.number)


def _tell(error: BaseException) -> None:
    note(f"The log could not be shown: {error}")


def _finish(driver: Driver, out: Path, as_json: bool) -> None:
    """Write the result, print it, and end with its exit code."""
    import json

    from tallystick.cli.output import plain
    from tallystick.cli.sessions import exit_code, say_session, session_json

    session = driver.arbiter.session
    found = session_json(session, driver.seats)
    text = json.dumps(plain(found), indent=2, ensure_ascii=True) + "\n"
    write_file(out / RESULT, [text.encode("ascii")])
    if as_json:
        print_json({**found, "out": out})
    else:
        say_session(session, driver.seats, out)
        say(f"result      {out / 'result.json'}")
    if code := exit_code(session):
        finish(code)
