"""The date of a request, and how a chat template writes it (ANSWERS 5.1, 5.6).

The C library's strftime reads the locale and the time zone of its machine, and differs between
systems. Nothing here does.
"""

from __future__ import annotations

import datetime
import re

_FORM = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2})?")
_DIRECTIVE = re.compile("%(-?)(.?)", re.DOTALL)
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def moment_of(date: str) -> datetime.datetime:
    """The moment that a request's date names. Raises ValueError."""
    if not _FORM.fullmatch(date):
        raise ValueError("not of the form YYYY-MM-DD or YYYY-MM-DDThh:mm:ss")
    return datetime.datetime.fromisoformat(date)


def reads_date(template: str | None) -> bool:
    """Whether a chat template may ask for the date (ANSWERS 5.6)."""
    return template is not None and "strftime_now" in template


def written(moment: datetime.datetime, form: str) -> str:
    """`moment` by the directives of ANSWERS 5.6. Raises ValueError for any other one."""
    by_name = {
        "Y": f"{moment.year:04}",
        "y": f"{moment.year % 100:02}",
        "m": f"{moment.month:02}",
        "B": _MONTHS[moment.month - 1],
        "b": _MONTHS[moment.month - 1][:3],
        "d": f"{moment.day:02}",
        "e": f"{moment.day:2}",
        "j": f"{moment.timetuple().tm_yday:03}",
        "A": _DAYS[moment.weekday()],
        "a": _DAYS[moment.weekday()][:3],
        "H": f"{moment.hour:02}",
        "I": f"{(moment.hour + 11) % 12 + 1:02}",
        "p": "AM" if moment.hour < 12 else "PM",
        "M": f"{moment.minute:02}",
        "S": f"{moment.second:02}",
        "%": "%",
    }

    def replaced(found: re.Match[str]) -> str:
        bare, name = found.groups()
        if name not in by_name:
            raise ValueError(f"it writes a date by {found[0]!r}, which no clause defines")
        text = by_name[name]
        # Without what fills it up: of a number, and never the last digit.
        return text[:-1].lstrip("0 ") + text[-1] if bare and text.strip().isdecimal() else text

    return _DIRECTIVE.sub(replaced, form)
