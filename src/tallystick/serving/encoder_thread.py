"""The one thread that owns an encoder, for many clients: texts wait in a queue that serves the keys
in turn, those that fill a pass are computed together, and each encoding is signed and kept before
its client hears of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from tallystick.answers.encoding_job import EncodingJob, EncodingRequest
from tallystick.api.encoding import Encoder, GivenEncoding
from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import Array
from tallystick.errors import UsageError
from tallystick.serving.api_keys import ServingLimits
from tallystick.serving.fair import FairQueue
from tallystick.serving.fields import ending
from tallystick.serving.keeping import AnswerKeeper, KeptRoom


@dataclass(frozen=True, eq=False)
class KeptEncoding:
    """An encoding, and the id under which it is kept."""

    id: str
    encoding: GivenEncoding


@dataclass(eq=False)
class WantedEncoding:
    """The encoding of a text for the key `owner`. `room` is where it will be kept; the thread
    releases it, once the text has been put into its queue."""

    owner: str
    request: EncodingRequest
    room: KeptRoom
    result: Future[KeptEncoding] = field(default_factory=Future)


class EncoderThread:
    """Encodes with one model. It calls `tell` with faults of this machine."""

    def __init__(
        self,
        encoder: Encoder,
        key: PrivateKey,
        keeper: AnswerKeeper,
        limits: ServingLimits,
        tell: Callable[[BaseException], None],
    ) -> None:
        self.encoder = encoder
        self._key, self._keeper, self._limits, self._tell = key, keeper, limits, tell
        self._waiting: FairQueue[WantedEncoding] = FairQueue()
        self._underway = 0
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="tallystick-encoder", daemon=True)

    def start(self) -> None:
        """Begin. Every program is derived before. Raises as `Encoder`."""
        _ = self.encoder.engine  # opened before the first text waits
        for name in self.encoder.statement.programs:
            self.encoder.program(name)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether encodings are given."""
        return self._thread.is_alive() and not self._closed

    @property
    def load(self) -> tuple[int, int]:
        """How many encodings are under way, and how many wait."""
        with self._changed:
            return self._underway, len(self._waiting)

    def submit(self, wanted: Sequence[WantedEncoding]) -> None:
        """Put texts of one key into the queue, all or none. Raises ApiError."""
        limits = self._limits
        with self._changed:
            if self._closed:
                raise ending()
            self._waiting.put_all(wanted, limits.key_texts, limits.texts, "texts")
            self._changed.notify_all()

    def cancel(self, wanted: Sequence[WantedEncoding]) -> None:
        """Nobody waits for these encodings any more."""
        with self._changed:
            for one in wanted:
                if self._waiting.remove(one):
                    one.room.release()

    def close(self) -> None:
        """End. Whoever still waits gets an error."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()
        for one in self._waiting.clear():
            one.room.release()
            if one.result.set_running_or_notify_cancel():
                one.result.set_exception(ending())

    def _run(self) -> None:
        while (first := self._next(wait=True)) is not None:
            taken = self._pass(first)
            found = self._values([job for _, job in taken])
            for (one, job), values in zip(taken, found, strict=True):
                try:
                    if isinstance(values, BaseException):
                        raise values
                    encoding = self.encoder.signed(job, values, self._key, self._keeper.days)
                    kept = KeptEncoding(self._keeper.keep(encoding, one.owner, one.room), encoding)
                except BaseException as error:
                    self._tell(error)
                    self._end(one, error)
                else:
                    self._end(one, kept)

    def _values(self, jobs: list[EncodingJob]) -> Sequence[Array | BaseException]:
        """The values of each text, or what has failed. Where a pass fails its texts are computed
        one by one, so that one of them does not take the others with it."""
        try:
            return self.encoder.values(jobs)
        except BaseException as error:
            if len(jobs) < 2:
                return [error for _ in jobs]
            self._tell(error)
        return [found for job in jobs for found in self._values([job])]

    def _pass(self, first: WantedEncoding) -> list[tuple[WantedEncoding, EncodingJob]]:
        """This text, and those behind it in turn until there are as many places as a pass has rows:
        a key waits for the texts of one pass, and not for all of another key."""
        taken: list[tuple[WantedEncoding, EncodingJob]] = []
        places, one = 0, first
        while True:
            try:
                job = self.encoder.prepare(one.request)
            except BaseException as error:
                if not isinstance(error, UsageError):  # else the text is at fault
                    self._tell(error)
                self._end(one, error)
            else:
                taken.append((one, job))
                places += len(job.text)
            if places >= self.encoder.engine.longest or (another := self._next()) is None:
                return taken
            one = another

    def _end(self, one: WantedEncoding, found: KeptEncoding | BaseException) -> None:
        one.room.release()
        with self._changed:
            self._underway -= 1
        if isinstance(found, BaseException):
            one.result.set_exception(found)
        else:
            one.result.set_result(found)

    def _next(self, wait: bool = False) -> WantedEncoding | None:
        with self._changed:
            while not self._closed:
                if (one := self._waiting.take(lambda _: True)) is not None:
                    # From here on nobody takes its result away.
                    if one.result.set_running_or_notify_cancel():
                        self._underway += 1
                        return one
                    one.room.release()
                    continue
                if not wait:
                    break
                self._changed.wait()
            return None
