"""Times as numbers: what the log writes, what other programs might, and what is no time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc.instants import milliseconds
from ipc.seams.clock import REAL


@pytest.mark.parametrize(
    ("timestamp", "wanted"),
    [
        ("1970-01-01T00:00:00.000Z", 0),
        ("2026-01-02T03:04:05.678Z", 1_767_323_045_678),
        ("2026-01-02T04:04:05.678+01:00", 1_767_323_045_678),
        ("2026-01-02T03:04:05.678", 1_767_323_045_678),
        ("2026-01-02T03:04:05Z", 1_767_323_045_000),
        ("", 0),
        ("yesterday", 0),
        ("2026-13-02T03:04:05Z", 0),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000),
    ],
)
def test_a_time_is_so_many_milliseconds(timestamp: str, wanted: int) -> None:
    assert milliseconds(timestamp) == wanted


def test_what_our_clock_writes_is_read() -> None:
    first, second = milliseconds(REAL.now()), milliseconds(REAL.now())
    assert 1_577_836_800_000 < first <= second


@given(st.text())
def test_no_text_makes_it_raise(timestamp: str) -> None:
    assert isinstance(milliseconds(timestamp), int)
