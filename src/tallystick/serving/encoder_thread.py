"""The one thread that owns an encoder, for many clients: texts wait in a queue that serves the keys
in turn, and each encoding is signed and kept before its client hears of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from tallystick.answers.encoding_request import EncodingRequest
from tallystick.api.encoding import Encoder, GivenEncoding
from tallystick.commit.signing import PrivateKey
from tallystick.errors import UsageError
from tallystick.serving.fair import FairQueue
from tallystick.serving.keeping import AnswerKeeper, KeptRoom
from tallystick.serving.limits import ServingLimits
from tallystick.serving.refusals import ending


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
        """Begin. Every program of the statement is derived before. Raises as `Encoder`."""
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
            one.result.set_exception(ending())

    def _run(self) -> None:
        while (one := self._next()) is not None:
            try:
                encoding = self.encoder.encode(one.request, self._key, self._keeper.days)
                kept = KeptEncoding(self._keeper.keep(encoding, one.owner, one.room), encoding)
            except BaseException as error:
                if not isinstance(error, UsageError):  # else the text is at fault
                    self._tell(error)
                one.result.set_exception(error)
            else:
                one.result.set_result(kept)
            finally:
                one.room.release()
                with self._changed:
                    self._underway = 0

    def _next(self) -> WantedEncoding | None:
        with self._changed:
            while not self._closed:
                if (one := self._waiting.take(lambda _: True)) is not None:
                    self._underway = 1
                    return one
                self._changed.wait()
            return None
