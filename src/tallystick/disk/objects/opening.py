"""Opening a run, a job or a data set by its path or by its URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tallystick.disk.files import make_directory
from tallystick.disk.mounts import mounted, named
from tallystick.disk.objects.address import is_url, parse_address, refuse_flat
from tallystick.disk.objects.cache import cache_bytes, mirror_directory
from tallystick.disk.objects.mirror import Mirror
from tallystick.disk.objects.store import Objects
from tallystick.errors import TallystickError


@contextmanager
def opened(place: str | Path) -> Iterator[Path]:
    """The directory to give to any function that reads a run, a job or a data set.

    A path is that directory itself. A URL (`s3://`, `gs://`, `az://`, `file:///`) becomes a
    directory of this process whose files come from the store as they are opened. It goes at the
    end of the context, and other processes must open the URL for themselves. Errors name the URL.

    Raises UsageError for a malformed URL, CannotCheckError without the package obstore, StoreError.
    """
    if not is_url(str(place)):
        refuse_flat(str(place))
        yield Path(place)
        return
    with opened_objects(Objects(parse_address(str(place)))) as directory:
        yield directory


@contextmanager
def opened_objects(objects: Objects) -> Iterator[Path]:
    """As `opened`, for a store that is open already. Raises StoreError."""
    with mirror_directory() as own:
        make_directory(own / "files")
        make_directory(own / "coming")
        mirror = Mirror(objects, own / "files", own / "coming", cache_bytes())
        try:
            with mounted(mirror):
                yield mirror.directory
        except TallystickError as error:
            error.message = named(error.message)
            error.args = (error.message,)
            raise
        finally:
            mirror.close()
