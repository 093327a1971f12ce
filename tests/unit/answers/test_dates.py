"""The date of a request and its directives (ANSWERS 5.1, 5.6), against the C library's own."""

from __future__ import annotations

import datetime

import pytest

from tallystick.answers.template import moment_of, written

DIRECTIVES = "YymBbdejAaHIpMS%"


@pytest.mark.parametrize("hour", [0, 1, 11, 12, 13, 23])
@pytest.mark.parametrize("day", range(1, 29, 3))
def test_directives_are_those_of_strftime_in_the_c_locale(day: int, hour: int) -> None:
    for month in range(1, 13):
        moment = datetime.datetime(2020 + month, month, day, hour, 7, 0)
        for name in DIRECTIVES:
            for form in (f"%{name}", f"[%{name}%{name}] \u00e9"):
                assert written(moment, form) == moment.strftime(form)
        for name in "mdjHIMS":
            assert written(moment, f"%-{name}") == moment.strftime(f"%-{name}")


@pytest.mark.parametrize(
    "text",
    [
        "", "today", "2026", "20261128", "2026-13-01", "2026-02-30", "0000-01-01", "2026-1-1",
        "2026-11-28T10:00", "2026-11-28 10:00:00", "2026-11-28T25:00:00", "2026-11-28T10:00:00Z",
        "2026-11-28T10:00:00+01:00", "2026-11-28\n", "\u0662026-11-28",
    ],
)  # fmt: skip
def test_what_is_no_date(text: str) -> None:
    with pytest.raises(ValueError):
        moment_of(text)


def test_a_date_and_a_time() -> None:
    assert moment_of("2026-11-28") == datetime.datetime(2026, 11, 28)
    assert moment_of("2026-11-28T10:02:03") == datetime.datetime(2026, 11, 28, 10, 2, 3)
