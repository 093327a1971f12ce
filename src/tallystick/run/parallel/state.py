"""What an auditor keeps to take an audit up again: the results of segments that agreed.

    audit.json              the audit: run (by segments.binding), segments, drawn ones, secret
    segment-A-B.json        the outcome of steps A to B - 1
    lock                    held by the auditor

The directory is the auditor's own: whoever may write it writes the verdict. So it may not lie in
the run, nobody else may write it, and its files have the auditor's signature. Only segments that
agreed are kept. One that did not is repeated when the audit is taken up, since the reason may be a
file that was mended meanwhile. A verdict ends the state: its files are removed, and the next audit
repeats everything.

The key lies with the user's caches, once for all audits, and never beside a state. So a directory
that came with a run, or was planted, is none of this auditor's, whoever owns its files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallystick.commit.encoding import JsonValue, canonical_json
from tallystick.commit.signing import PrivateKey, pae
from tallystick.disk.files import (
    locked,
    make_directory,
    remove_file,
    remove_temporaries,
    sync_path,
    write_file,
)
from tallystick.disk.keys import load_private_key, private_directory, require_own, save_private_key
from tallystick.disk.manifest import Manifest, load_manifest, manifest_bytes
from tallystick.disk.objects.opening import cache_directory
from tallystick.disk.regular import lies_in, names, present
from tallystick.errors import CorruptFileError, StorageError, UsageError
from tallystick.run.parallel.task import Segment
from tallystick.run.show.audit_report import StretchOutcome, outcome_of

_TYPE = "application/vnd.tallystick.audit-state.v1+json"
_MEMBER = "signature"


def own_key() -> PrivateKey:
    """This user's key for states of audits, made where there is none. Raises StorageError,
    CannotCheckError, UsageError where others may write it."""
    path = cache_directory() / "audits.pem"
    if not present(path):
        make_directory(path.parent)
        with suppress(StorageError):  # another auditor has just made it; else reading it says why
            save_private_key(PrivateKey.generate(), path)
    require_own(path)
    return load_private_key(path)


def signed_manifest(key: PrivateKey, body: Manifest) -> bytes:
    """The file of `body`, signed."""
    signature: JsonValue = key.sign(pae(_TYPE, canonical_json(body))).hex()
    return manifest_bytes({**body, _MEMBER: signature})


def require_signed(key: PrivateKey, path: Path, found: Manifest) -> None:
    """Raise UsageError unless `found`, read from `path`, is what `key` has signed."""
    body = {name: value for name, value in found.items() if name != _MEMBER}
    try:
        signature = bytes.fromhex(str(found.get(_MEMBER)))
    except ValueError:
        signature = b""
    if not key.public.verifies(signature, pae(_TYPE, canonical_json(body))):
        raise UsageError(
            f"{path} was not written by an audit of yours, so its author could have written the "
            "verdict.",
            "Choose another directory with --state. The audit then repeats everything. (The key "
            "that signs your own results is in the directory of TALLYSTICK_CACHE.)",
        )


FORMAT = "tallystick-audit/1"
SEGMENT_FORMAT = "tallystick-audit-segment/1"
MANIFEST, LOCK = "audit.json", "lock"
_SEGMENT = re.compile(r"segment-([0-9]{1,13})-([0-9]{1,13})\.json", re.ASCII)
_REMOVE = "Remove it, or name another --state directory."


@dataclass
class AuditPlan:
    """What an audit is going to repeat: `chosen` of `segments`; they differ for a sample, whose
    `secret` chose them."""

    binding: bytes
    segments: list[Segment]
    chosen: list[Segment]
    secret: bytes | None = None

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "binding": self.binding.hex(),
            "chosen": [[s.first, s.last] for s in self.chosen],
            "format": FORMAT,
            "secret": self.secret.hex() if self.secret is not None else None,
            "segments": [[s.first, s.last] for s in self.segments],
        }


@dataclass
class Kept:
    """The state directory of one audit, open. Without a directory nothing is kept."""

    directory: Path | None
    key: PrivateKey | None = None  # signs what is kept
    done: dict[Segment, StretchOutcome] = field(default_factory=dict)

    def secret(self, plan: AuditPlan) -> bytes | None:
        """The secret of the sample that is taken up again, None where there is none.

        Raises UsageError where the directory holds another audit, CorruptFileError,
        DigestMismatchError where its manifest is damaged.
        """
        found = self._manifest()
        if found is None:
            return None
        self._require_same(found, plan, ("binding", "segments"))
        if found["secret"] is None:
            raise self._foreign("no sample")
        self._require_own(MANIFEST, found)
        return bytes.fromhex(str(found["secret"]))

    def begin(self, plan: AuditPlan) -> None:
        """Take up the audit of `plan`, or begin to keep it. Raises as `secret`."""
        if self.directory is None:
            return
        found = self._manifest()
        if found is None:
            self._clear()
            assert self.key is not None
            data = signed_manifest(self.key, plan.as_json())
            write_file(self.directory / MANIFEST, [data], 0o600)
            return
        self._require_same(found, plan, tuple(plan.as_json()))
        self._require_own(MANIFEST, found)
        for name in sorted(names(self.directory)):
            if _SEGMENT.fullmatch(name):
                self._take_up(name, plan)

    def keep(self, plan: AuditPlan, segment: Segment, outcome: StretchOutcome) -> None:
        """Keep the outcome of a segment that agreed. Raises StorageError."""
        if self.directory is None:
            return
        body: dict[str, Any] = {
            "binding": plan.binding.hex(),
            "format": SEGMENT_FORMAT,
            "outcome": outcome.as_json(),
        }
        name = f"segment-{segment.first}-{segment.last}.json"
        assert self.key is not None
        write_file(self.directory / name, [signed_manifest(self.key, body)], 0o600)

    def end(self) -> None:
        """A verdict stands: keep nothing. Raises StorageError."""
        if self.directory is not None:
            remove_file(self.directory / MANIFEST)  # first: without it the others count for nothing
            self._clear()
            sync_path(self.directory)

    def _clear(self) -> None:
        assert self.directory is not None
        for name in names(self.directory):
            if _SEGMENT.fullmatch(name):
                remove_file(self.directory / name)

    def _manifest(self) -> dict[str, JsonValue] | None:
        if self.directory is None or not present(self.directory / MANIFEST):
            return None
        return self._load(MANIFEST, FORMAT)

    def _load(self, name: str, form: str) -> dict[str, JsonValue]:
        assert self.directory is not None
        path = self.directory / name
        require_own(path)
        return load_manifest(path, "state of an audit", form)

    def _require_own(self, name: str, found: dict[str, JsonValue]) -> None:
        assert self.directory is not None and self.key is not None
        require_signed(self.key, self.directory / name, found)

    def _require_same(
        self, found: dict[str, JsonValue], plan: AuditPlan, members: Sequence[str]
    ) -> None:
        own = plan.as_json()
        what = {
            "binding": "another run, another state of this one, or another version of Tallystick",
            "segments": "other segments: the run's stored states are not those of then, or "
            "--steps is another one",
            "chosen": "another sample, or none",
            "secret": "another secret, or none",
        }
        for member in members:
            if found.get(member) != own[member]:
                raise self._foreign(what.get(member, "something else"))

    def _foreign(self, of: str) -> UsageError:
        return UsageError(
            f"{self.directory} contains an audit in progress of {of}.",
            "Choose another directory with --state, or remove this one to start again.",
        )

    def _take_up(self, name: str, plan: AuditPlan) -> None:
        assert self.directory is not None
        path = self.directory / name
        body = self._load(name, SEGMENT_FORMAT)
        try:
            match = _SEGMENT.fullmatch(name)
            assert match is not None
            segment = Segment(int(match[1]), int(match[2]))
            value: Any = body["outcome"]
            outcome = outcome_of(value)
            fits = (outcome.first, outcome.last) == (segment.first, segment.last)
            if body["binding"] != plan.binding.hex() or not fits or not outcome.agreed:
                raise ValueError("it is not of this audit")
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFileError(
                f"{path} is not a result of this audit: {error}.", _REMOVE
            ) from None
        if segment not in plan.chosen:
            raise CorruptFileError(f"{path} does not belong to a segment of this audit.", _REMOVE)
        self._require_own(name, body)
        self.done[segment] = outcome


@contextmanager
def kept(directory: Path | None, run: Path) -> Iterator[Kept]:
    """The state in `directory`, held against other auditors; None keeps nothing.

    Raises UsageError for a directory in the run or of another user, StorageError where another
    auditor holds it.
    """
    if directory is None:
        yield Kept(None)
        return
    if lies_in(directory, run):
        raise UsageError(
            f"{directory} is inside the run, whose owner can write there.",
            "Keep the audit's state in a directory of your own.",
        )
    private_directory(directory)
    strangers = [
        name
        for name in sorted(names(directory))
        if name.removesuffix(".part") not in (MANIFEST, LOCK)
        and not _SEGMENT.fullmatch(name.removesuffix(".part"))
    ]
    if strangers:
        raise UsageError(
            f"{directory} contains other files ({strangers[0]}).",
            "Choose a new or empty directory.",
        )
    with locked(directory / LOCK, "auditor"):
        remove_temporaries(directory, directory)
        yield Kept(directory, own_key())
