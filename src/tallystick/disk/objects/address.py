"""The address of a run, a job or a data set on an object store: `s3://bucket/prefix` and the like.

An address holds no key, no token and no option: credentials and the store's endpoint come from the
environment, by the names that the store's own tools use (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL …).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tallystick.errors import UsageError

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# `Path` makes one slash of the two.
_FLAT = re.compile(r"(s3|gs|az|file):/[^/]")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SCHEMES = {"s3": "S3", "gs": "Google", "az": "Azure", "file": "a directory"}
_EXAMPLE = (
    "Write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///DIRECTORY."
)


@dataclass(frozen=True)
class Address:
    """A place on a store: `bucket` is empty for a directory, and `prefix` has no slash at its
    ends."""

    scheme: str
    bucket: str
    prefix: str

    @property
    def url(self) -> str:
        """The address as a person writes it."""
        return f"{self.scheme}://{self.bucket}/{self.prefix}".rstrip("/")

    def key(self, name: str) -> str:
        """The URL of the object `name` under the prefix."""
        return f"{self.url}/{name}"


def is_url(text: str) -> bool:
    """True if `text` is meant as an address, whether or not it is a good one."""
    return _URL.match(text) is not None


def refuse_flat(text: str) -> None:
    """Raise UsageError for an address that went through `Path`, which takes one slash away."""
    if _FLAT.match(text):
        raise UsageError(
            f"{text!r} was a URL, but `Path` has turned it into a file name.",
            "Pass the URL as a string.",
        )


def parse_address(text: str) -> Address:
    """The address that `text` is. Raises UsageError for any other."""
    scheme, _, rest = text.partition("://")
    scheme = scheme.lower()
    if scheme not in SCHEMES:
        raise UsageError(f"{text!r} is not the URL of a known object store.", _EXAMPLE)
    if any(c in rest for c in "?#%\\") or any(ord(c) < 32 for c in rest):
        raise UsageError(f"{text!r} contains a character that no URL may have.", _EXAMPLE)
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")):
        if prefix or scheme == "file":
            raise UsageError(f"{text!r} is not a plain path.", _EXAMPLE)
        raise UsageError(f"{text!r} names a whole bucket.", "Add a prefix. " + _EXAMPLE)
    if scheme == "file" and bucket:
        raise UsageError(
            f"{text!r} names the machine {bucket}.",
            "Write file:///DIRECTORY for a local directory.",
        )
    if scheme != "file" and not _BUCKET.fullmatch(bucket):
        raise UsageError(
            f"{text!r} has no plain bucket name.",
            _EXAMPLE + " Credentials come from the environment.",
        )
    return Address(scheme, bucket, prefix)
