"""The double itself: it sends what its plan says, records what it is sent, and ends on time."""

import json
import socket
import time

import pytest

from tests.fakes.double import (
    Answer,
    Call,
    Double,
    anthropic_turn,
    chat_turn,
    drip,
    gemini_turn,
    ok,
    responses_turn,
    say,
)
from workers.providers.sse import Events

POST = b"POST /v1/x HTTP/1.1\r\nHost: h\r\nX-A: 1\r\nContent-Length: 2\r\n\r\n{}"


def drain(sock: socket.socket) -> bytes:
    """What comes until the other side ends."""
    got = b""
    while data := sock.recv(65_536):
        got += data
    return got


def talk(double: Double, *sent: bytes) -> bytes:
    """All that comes back on one connection after these bytes."""
    with socket.create_connection(("127.0.0.1", double.port), timeout=10) as sock:
        for data in sent:
            sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        return drain(sock)


def test_a_plan_is_sent_byte_for_byte_one_chunk_a_piece() -> None:
    with Double(ok([b"data: 1\n\n", b"x"])) as double:
        assert talk(double, POST) == (
            b"HTTP/1.1 200 Said\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n1\r\nx\r\n0\r\n\r\n"
        )


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (
            say(429, {"a": 1}, ("retry-after", "7")),
            b'retry-after: 7\r\ncontent-length: 8\r\n\r\n{"a": 1}',
        ),
        (ok([b"a", b"b"], framing="close"), b"connection: close\r\n\r\nab"),
        (ok([b"a", b"b"], cut_after=1), b"\r\n\r\n1\r\na\r\n"),
        (ok([b"a", b"b"], stall_after=1), b"\r\n\r\n1\r\na\r\n"),
        (drip([b"ab", b"c"], framing="close"), b"\r\n\r\nabc"),
        (Answer(raw=b"what?"), b"what?"),
        (Answer(stall_before=60), b""),
    ],
)
def test_an_answer_ends_as_it_should(answer: Answer, end: bytes) -> None:
    with Double(answer) as double:
        got = talk(double, POST)

    assert got.endswith(end)
    assert bool(got) is bool(end)


@pytest.mark.parametrize("reset", ["before", "after", "end"])
def test_a_reset_is_a_reset(reset: str) -> None:
    with (
        Double(ok([b"a"], reset=reset)) as double,
        socket.create_connection(("127.0.0.1", double.port), timeout=10) as sock,
    ):
        sock.sendall(POST)
        with pytest.raises(ConnectionResetError):
            drain(sock)


def test_it_records_requests_on_one_connection() -> None:
    chunked = (
        b"POST /y HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[1\r\n1\r\n]\r\n0\r\n\r\n"
    )
    began = time.monotonic()
    with Double(say(200, 1), say(500, 2)) as double:
        got = talk(double, POST[:30], POST[30:] + chunked, b"GET /z HTTP/1.1\r\n\r\n")

    assert (got.count(b"HTTP/1.1 200 Said"), got.count(b"HTTP/1.1 500 Said")) == (1, 2)
    assert [(seen.method, seen.path, seen.body, seen.connection) for seen in double.seen] == [
        ("POST", "/v1/x", b"{}", 1),
        ("POST", "/y", b"[1]", 1),
        ("GET", "/z", b"", 1),
    ]
    assert double.seen[0].headers == {"host": "h", "x-a": "1", "content-length": "2"}
    assert double.seen[0].json == {}
    assert began <= double.seen[0].at <= double.seen[1].at <= time.monotonic()
    assert (double.posts, double.connections, double.open) == (2, 1, 0)


def test_a_function_can_choose_by_what_was_asked() -> None:
    with Double(lambda number, seen: say(200, [number, seen.json])) as double:
        assert talk(double, POST).endswith(b"[0, {}]")
        assert talk(double, POST).endswith(b"[1, {}]")


def test_a_stall_ends_with_the_double() -> None:
    with (
        socket.socket() as sock,
        Double(ok([b"a"], stall_after=1)) as double,
    ):
        sock.connect(("127.0.0.1", double.port))
        sock.sendall(POST)
        assert double.wait(lambda: double.posts == 1)
    assert double.open == 0


CALLS = (Call("c1", "bash", {"command": "ls"}), Call("c2", "read", {"path": "ä"}))


@pytest.mark.parametrize("turn", [anthropic_turn, chat_turn, responses_turn, gemini_turn])
def test_a_turn_is_events_of_json(turn: object) -> None:
    assert callable(turn)
    pieces = turn(["a", "b"], CALLS, thinking="hm")
    events = Events()
    found = [event for piece in pieces for event in events.feed(piece)]

    assert len(found) == len(pieces)
    said = [json.loads(data) for _, data in found if data != b"[DONE]"]
    text = json.dumps(said, ensure_ascii=False)
    assert all(word in text for word in ("hm", "c1", "c2", "bash", "read"))
    assert all(
        name in {"", event["type"]} for (name, _), event in zip(found, said, strict=False) if name
    )
