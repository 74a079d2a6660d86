"""Server-sent events: what a body says does not depend on how it was cut."""

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.providers.sse import Event, Events, TooLong

PIECES = [
    b"data",
    b"data: ",
    b"data:",
    b"event: ",
    b"event:ping",
    b": a comment",
    b":",
    b"id: 7",
    b"retry: 10",
    b"a",
    b'{"t":"x"}',
    b"\xef\xbb\xbf",
    "é😀".encode(),
    b" ",
    b"\n",
    b"\r\n",
    b"\r",
    b"\n\n",
    b"\r\n\r\n",
    b"\r\r",
]
bodies = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)


def read(*chunks: bytes, limit: int = 1 << 20) -> list[Event]:
    """What is read of a body that comes in these pieces."""
    events = Events(limit)
    return [*(event for chunk in chunks for event in events.feed(chunk)), *events.end()]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"", []),
        (b"data: a\n\n", [("", b"a")]),
        (b"data:a\n\n", [("", b"a")]),
        (b"data:  a\n\n", [("", b" a")]),
        (b"data: a\ndata: b\n\n", [("", b"a\nb")]),
        (b"data: a\ndata\ndata: b\n\n", [("", b"a\n\nb")]),
        (b"event: x\ndata: a\n\n", [("x", b"a")]),
        (b"data: a\nevent:x\n\n", [("x", b"a")]),
        (b"event: x\nevent: y\ndata: a\n\ndata: b\n\n", [("y", b"a"), ("", b"b")]),
        (b"event: x\n\ndata: a\n\n", [("", b"a")]),
        (b"data: \n\ndata\n\nevent: ping\n\n", []),
        (b": hi\n\n:data: a\ndata: b\n:\n\n", [("", b"b")]),
        (b"id: 1\nretry: 5\ndata: a\ndatax: b\n x: c\n\n", [("", b"a")]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [("", b"a"), ("", b"b"), ("", b"c")]),
        (b"data: a\n\r\ndata: b\r\n\n", [("", b"a"), ("", b"b")]),
        (b"data: a\r\ndata: b\rdata: c\n\r", [("", b"a\nb\nc")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", b"a")]),
        (b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n", []),
        (b"\n\n\n\ndata: a\n\n\n\n\n", [("", b"a")]),
        (b"data: {}\n\ndata: [DONE]", [("", b"{}"), ("", b"[DONE]")]),
        (b"data: {}\n\ndata: [DONE]\n", [("", b"{}"), ("", b"[DONE]")]),
        (b"event: \xff\ndata: \xff\n\n", [("\ufffd", b"\xff")]),
    ],
)
def test_names_and_data_are_read_as_the_standard_says(body: bytes, events: list[Event]) -> None:
    assert read(body) == events


@given(bodies, st.randoms(use_true_random=False))
def test_a_body_says_the_same_however_it_is_split(body: bytes, chance: random.Random) -> None:
    cuts = sorted(chance.randrange(len(body) + 1) for _ in range(chance.randrange(5)))
    edges = [0, *cuts, len(body)]
    pieces = [body[one:two] for one, two in itertools.pairwise(edges)]
    whole = read(body)

    assert read(*pieces) == whole
    assert read(*(body[at : at + 1] for at in range(len(body)))) == whole
    for at in range(len(body) + 1):
        assert read(body[:at], body[at:]) == whole


@given(bodies)
def test_every_kind_of_line_end_says_the_same(body: bytes) -> None:
    plain = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    for end in (b"\r\n", b"\r"):
        assert read(plain.replace(b"\n", end)) == read(plain)


def test_an_event_is_there_with_its_blank_line_and_not_before() -> None:
    events = Events()

    assert events.feed(b"data: a\n") == []
    assert events.feed(b"\n") == [("", b"a")]
    assert events.feed(b"data: b\r\n\r") == [("", b"b")]
    assert events.feed(b"\ndata: c\r") == []
    assert events.feed(b"\n") == []
    assert events.feed(b"\r\n") == [("", b"c")]
    assert events.end() == []


def test_an_event_of_five_megabytes_comes_whole() -> None:
    text = b"x" * (5 << 20)
    body = b'event: big\ndata: {"t":"' + text + b'"}\n\ndata: after\n\n'
    expected = [("big", b'{"t":"' + text + b'"}'), ("", b"after")]

    assert read(body, limit=6 << 20) == expected
    assert read(*(body[at : at + 4000] for at in range(0, len(body), 4000)), limit=6 << 20) == (
        expected
    )


@pytest.mark.parametrize("name", [b"", b"event: x\n"])
def test_an_event_may_be_as_long_as_the_bound_and_no_longer(name: bytes) -> None:
    block = name + b"data: 123456789"
    fits = block + b"\n\n"
    limit = len(block)

    for at in range(len(fits) + 1):
        assert len(read(fits[:at], fits[at:], limit=limit)) == 1
        with pytest.raises(TooLong):
            read(fits[:at], fits[at:], limit=limit - 1)
    with pytest.raises(TooLong):
        Events(limit=100).feed(b"x" * 102)
