"""What becomes of one POST: each fault has its class, its words and its end; nothing is left."""

import asyncio
import math
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from ipc.content import MediaBlock, TextBlock
from ipc.events import ModelErrorKind, ModelErrorStage, ModelErrorSummary
from ipc.events.base import ModelTimeouts
from ipc.ids import Digest, ProviderId, SecretRef
from tests.fakes.clock import FakeClock
from tests.fakes.conversation import SESSION, parts_of, request, user
from tests.fakes.double import Answer, Double, drip, ok, say
from tests.fakes.models import (
    FAMILIES,
    GENEROUS,
    KEY,
    Family,
    binding_of,
    keys,
    outside_of,
    tiny_turn,
)
from tests.fakes.turns import event, openai_error
from workers.providers.base import Done, Failed, Part, Request, TextPart, UserMessage
from workers.providers.http import AfterFork

TINY = FAMILIES[0]
HELLO = request(user("hello"))
SHORT_MS = 200  # of a limit that a test runs into
PAGE = (
    b"<!DOCTYPE html><html><head><title>502 Bad &amp; Gateway</title></head><body>x</body></html>"
)


async def ask(url: str, family: Family = TINY, asked: Request = HELLO, **more: Any) -> list[Part]:
    """All parts of one request to a model there."""
    async with outside_of() as outside:
        return await parts_of(family.make(binding_of(family, url, **more), outside), asked)


async def failed(url: str, family: Family = TINY, **more: Any) -> ModelErrorSummary:
    """The failure that one request comes to; nothing may come before it."""
    (part,) = await ask(url, family, **more)
    assert isinstance(part, Failed), part
    return part.error


def limits(**more: int) -> ModelTimeouts:
    return msgspec.structs.replace(GENEROUS, **more)


def text_of(parts: Sequence[Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, TextPart))


async def nothing_left(double: Double) -> None:
    """No connection at the double, no task here but this one and the runner's."""
    assert await asyncio.to_thread(double.wait, lambda: double.open == 0)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert [task for task in others if "TestRunner" not in repr(task)] == []


async def read_all() -> None:
    """Give the loop its turns to read what has come."""
    for _ in range(20):
        await asyncio.sleep(0)


async def answered(double: Double, count: int) -> None:
    """So many answers are out to their ends, and were read."""
    assert await asyncio.to_thread(double.wait, lambda: double.answered == count)
    await read_all()


# --- every family, every fault -----------------------------------------------------------------


class Fault(Struct, frozen=True, kw_only=True):
    """What a server does, and what that has to come to."""

    answer: Any  # or a function of the family
    kind: ModelErrorKind
    retryable: bool
    stage: ModelErrorStage
    words: str
    status: int | None = None
    retry_after_ms: int | None = None
    timeouts: ModelTimeouts = GENEROUS
    text: str = ""  # what was said before


def _turn(family: Family) -> list[bytes]:
    return family.turn(["one ", "two ", "three"])


def _until_two(family: Family) -> tuple[list[bytes], int]:
    """A turn, and how many of its events are there when "two " is said."""
    turn = _turn(family)
    return turn, next(at for at, each in enumerate(turn, 1) if b"two" in each)


FAULTS = {
    "reset before headers": Fault(
        answer=Answer(reset="before"),
        kind="transport",
        retryable=True,
        stage="response_headers",
        words="closed the connection before it answered",
    ),
    "reset after headers": Fault(
        answer=Answer(reset="after"),
        kind="transport",
        retryable=True,
        stage="response_body",
        words="the connection broke in the middle of the answer",
    ),
    "reset in the stream": Fault(
        answer=lambda family: ok(_turn(family)[: _until_two(family)[1]], reset="end"),
        kind="transport",
        retryable=True,
        stage="response_body",
        words="the connection broke in the middle of the answer",
        text="one two ",
    ),
    "stall before headers": Fault(
        answer=Answer(stall_before=math.inf),
        kind="timeout",
        retryable=True,
        stage="response_headers",
        words="did not answer within 0.2 s",
        timeouts=limits(headers_ms=SHORT_MS),
    ),
    "pings only": Fault(
        answer=lambda family: ok([family.ping] * 2000, every=0.005),
        kind="timeout",
        retryable=True,
        stage="stream_decode",
        words="said nothing for 0.2 s",
        timeouts=limits(stream_idle_ms=SHORT_MS),
    ),
    "stall after two deltas": Fault(
        answer=lambda family: ok(_turn(family), stall_after=_until_two(family)[1]),
        kind="timeout",
        retryable=True,
        stage="stream_decode",
        words="said nothing for 1 s",
        timeouts=limits(stream_idle_ms=1000),
        text="one two ",
    ),
    "longer than the total": Fault(
        answer=lambda family: ok([family.ping] * 2000, every=0.005),
        kind="timeout",
        retryable=True,
        stage="stream_decode",
        words="took longer than 0.3 s",
        timeouts=limits(total_ms=300),
    ),
    "an end without a terminal marker": Fault(
        answer=lambda family: ok(_turn(family)[: _until_two(family)[1]]),
        kind="unexpected_eof",
        retryable=True,
        stage="stream_finalize",
        words="",
        text="one two ",
    ),
    "a connection closed in the middle": Fault(
        answer=lambda family: ok(_turn(family), cut_after=_until_two(family)[1]),
        kind="unexpected_eof",
        retryable=True,
        stage="response_body",
        words="the response ended in the middle",
        text="one two ",
    ),
    "429 with seconds": Fault(
        answer=say(429, openai_error("slow", "rate_limit_error"), ("Retry-After", "7")),
        kind="rate_limited",
        retryable=True,
        stage="response_headers",
        words="double answered 429: slow",
        status=429,
        retry_after_ms=7000,
    ),
    "429 with a date": Fault(
        answer=say(
            429,
            openai_error("slow", "rate_limit_error"),
            ("Date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("Retry-After", "Sun, 06 Nov 1994 08:59:37 GMT"),
        ),
        kind="rate_limited",
        retryable=True,
        stage="response_headers",
        words="slow",
        status=429,
        retry_after_ms=600_000,
    ),
    "429 of an empty account": Fault(
        answer=say(429, openai_error("no more", "insufficient_quota", "insufficient_quota")),
        kind="quota",
        retryable=False,
        stage="response_headers",
        words="the account at double has run out",
        status=429,
    ),
    "529": Fault(
        answer=say(
            529, {"type": "error", "error": {"type": "overloaded_error", "message": "Full"}}
        ),
        kind="overload",
        retryable=True,
        stage="response_headers",
        words="double answered 529: Full",
        status=529,
    ),
    "500": Fault(
        answer=say(500, openai_error("oh", "server_error")),
        kind="provider",
        retryable=True,
        stage="response_headers",
        words="double answered 500: oh",
        status=500,
    ),
    "503": Fault(
        answer=say(503, {}),
        kind="overload",
        retryable=True,
        stage="response_headers",
        words="double answered 503: without a word",
        status=503,
    ),
    "401": Fault(
        answer=say(401, openai_error("bad key", "invalid_request_error", "invalid_api_key")),
        kind="auth",
        retryable=False,
        stage="response_headers",
        words="check [providers.double] (api_key or auth) of config.toml",
        status=401,
    ),
    "403": Fault(
        answer=say(403, openai_error("not you", "permission_error")),
        kind="permission_denied",
        retryable=False,
        stage="response_headers",
        words="may not use m",
        status=403,
    ),
    "404": Fault(
        answer=say(404, openai_error("The model m does not exist", "invalid_request_error")),
        kind="model_not_found",
        retryable=False,
        stage="response_headers",
        words="check the model's name (m)",
        status=404,
    ),
    "context overflow": Fault(
        answer=lambda family: say(*family.overflow),
        kind="context_length",
        retryable=False,
        stage="response_headers",
        words="the conversation is longer than this model can read",
        status=400,
    ),
    "a gateway's page": Fault(
        answer=say(502, PAGE),
        kind="provider",
        retryable=True,
        stage="response_headers",
        words='double answered 502: a web page "502 Bad & Gateway"',
        status=502,
    ),
    "a page instead of an answer": Fault(
        answer=say(200, PAGE),
        kind="invalid_response",
        retryable=False,
        stage="response_headers",
        words="there is no model at this address",
        status=200,
    ),
    "a redirect": Fault(
        answer=say(307, {}, ("Location", "https://elsewhere.example/v1?x=1")),
        kind="invalid_request",
        retryable=False,
        stage="response_headers",
        words="a redirect to elsewhere.example, which is not followed",
        status=307,
    ),
    "an error in the stream": Fault(
        answer=lambda family: ok([*_turn(family)[: _until_two(family)[1]], family.error]),
        kind="overload",
        retryable=True,
        stage="stream_decode",
        words="too many at once|verloaded",
        text="one two ",
    ),
    "an error in the stream, then silence": Fault(
        answer=lambda family: ok([family.error], stall_after=1),
        kind="overload",
        retryable=True,
        stage="stream_decode",
        words="too many at once|verloaded",
    ),
    "an error in the stream, then a cut": Fault(
        answer=lambda family: ok([family.error, b"x"], cut_after=1),
        kind="overload",
        retryable=True,
        stage="stream_decode",
        words="too many at once|verloaded",
    ),
}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_fault_has_its_class_its_words_and_costs_one_post(
    family: Family, fault: Fault
) -> None:
    answer = fault.answer(family) if callable(fault.answer) else fault.answer
    with Double(answer) as double:
        *parts, last = await ask(double.url, family, timeouts=fault.timeouts)

        assert isinstance(last, Failed)
        error = last.error
        assert (error.kind, error.retryable, error.stage) == (
            fault.kind,
            fault.retryable,
            fault.stage,
        ), error.message
        assert any(words in error.message for words in fault.words.split("|")), error.message
        assert error.retry_after_ms == fault.retry_after_ms
        if fault.status is not None:
            assert error.http_status == fault.status
        assert "<" not in error.message
        assert KEY not in str(error)
        assert text_of(parts) == fault.text
        assert double.posts == 1
        await nothing_left(double)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
async def test_a_whole_turn_comes_with_the_key_in_its_place(family: Family) -> None:
    with Double(ok(family.turn("hello there"))) as double:
        *parts, last = await ask(double.url, family)

        assert isinstance(last, Done)
        assert last.content == (TextBlock(text="hello there"),)
        assert text_of(parts) == "hello there"
        (seen,) = double.seen
        name, value = family.header
        assert (seen.method, seen.headers[name]) == ("POST", value)
        assert seen.headers["content-type"] == "application/json"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
async def test_a_turn_that_drips_byte_by_byte_is_the_same_turn(family: Family) -> None:
    pieces = family.turn(["größer ", "als 😀"])
    with Double(ok(pieces), drip(pieces), drip(pieces, 7, framing="close")) as double:
        turns = [(await ask(double.url, family))[-1] for _ in range(3)]

    assert isinstance(turns[0], Done)
    assert turns[0].content == (TextBlock(text="größer als 😀"),)
    assert turns[1:] == turns[:1] * 2


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
async def test_an_event_of_five_megabytes_is_text_like_any_other(family: Family) -> None:
    text = "0123456789abcdef" * (5 * 65_536)
    with Double(ok(family.turn(text))) as double:
        parts = await ask(double.url, family)

    assert text_of(parts) == text
    assert isinstance(parts[-1], Done)


# --- connections -------------------------------------------------------------------------------


async def test_requests_of_a_worker_share_one_connection() -> None:
    answers = [ok(tiny_turn("a")), say(429, {}), ok(tiny_turn("b"))]
    with Double(*answers) as double:
        async with outside_of() as outside:
            provider = TINY.make(binding_of(TINY, double.url), outside)
            ends = []
            for number in range(len(answers)):
                ends.append((await parts_of(provider, HELLO))[-1])
                await answered(double, number + 1)

        assert [type(end) for end in ends] == [Done, Failed, Done]
        assert (double.posts, double.connections) == (3, 1)
        await nothing_left(double)


async def test_no_cookie_is_kept() -> None:
    answer = ok(tiny_turn("a"))
    cookies = msgspec.structs.replace(answer, headers=(*answer.headers, ("set-cookie", "a=b")))
    with Double(cookies) as double:
        async with outside_of() as outside:
            provider = TINY.make(binding_of(TINY, double.url), outside)
            for _ in range(2):
                await parts_of(provider, HELLO)

        assert [seen.headers.get("cookie") for seen in double.seen] == [None, None]


@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_pooled_connection_that_died_is_at_most_a_failure_to_retry(how: str) -> None:
    """The server ends it while nobody uses it: what was sent is never sent again from here."""
    first = ok(tiny_turn("a"), close=how == "close")
    second = Answer(reset="before") if how == "reset" else ok(tiny_turn("b"))
    with Double(first, second, ok(tiny_turn("c"))) as double:
        async with outside_of() as outside:
            provider = TINY.make(binding_of(TINY, double.url), outside)
            ends = [(await parts_of(provider, HELLO))[-1] for _ in range(3)]

        assert double.posts == 3
        kinds = [end.error.kind if isinstance(end, Failed) else "done" for end in ends]
        assert kinds == ["done", "transport" if how == "reset" else "done", "done"]


async def test_a_turn_is_there_at_its_terminal_marker_though_the_response_never_ends() -> None:
    pieces = tiny_turn("a")
    with Double(ok(pieces, stall_after=len(pieces)), ok(tiny_turn("b"))) as double:
        async with outside_of() as outside:
            provider = TINY.make(binding_of(TINY, double.url), outside)
            assert isinstance((await parts_of(provider, HELLO))[-1], Done)
            assert isinstance((await parts_of(provider, HELLO))[-1], Done)

            assert await asyncio.to_thread(double.wait, lambda: double.open == 1)
        assert double.connections == 2
        await nothing_left(double)


async def test_a_pool_from_before_a_fork_is_refused() -> None:
    with Double(ok(tiny_turn("a"))) as double:
        async with outside_of() as outside:
            provider = TINY.make(binding_of(TINY, double.url), outside)
            await parts_of(provider, HELLO)
            outside.client.pid = os.getpid() + 1

            with pytest.raises(AfterFork):
                await anext(provider.stream(HELLO))
            outside.client.pid = os.getpid()


CANCELS = {
    "in the header wait": Answer(stall_before=math.inf),
    "in a slow drip": ok([event({"text": "a"})] * 10_000, every=0.01),
    "in a stalled body": ok([event({"text": "a"})], stall_after=1),
    "in pings": ok([event({"ping": 1})] * 10_000, every=0.01),
    "in a stalled refusal": Answer(status=500, body=(b"x",), stall_after=1),
    "in an upload": Answer(read=False, stall_before=math.inf),
}


@pytest.mark.parametrize("answer", CANCELS.values(), ids=CANCELS)
async def test_cancelling_leaves_no_connection_and_no_task(answer: Answer) -> None:
    asked = request(user("x" * (8 << 20)) if not answer.read else user("hello"))
    with Double(answer) as double:
        async with outside_of() as outside:
            provider = TINY.make(binding_of(TINY, double.url), outside)
            task = asyncio.create_task(parts_of(provider, asked))
            assert await asyncio.to_thread(double.wait, lambda: double.posts == 1)
            task.cancel()

            with pytest.raises(asyncio.CancelledError):
                await task
            await nothing_left(double)


@pytest.mark.parametrize("tls", [False, True])
async def test_cancelling_while_it_connects_leaves_nothing(tls: bool) -> None:
    """A server that accepts and says nothing: TLS waits for its handshake, HTTP for headers."""
    with Double(Answer(stall_before=math.inf)) as double:
        url = double.url.replace("http", "https") if tls else double.url
        async with outside_of() as outside:
            task = asyncio.create_task(parts_of(TINY.make(binding_of(TINY, url), outside), HELLO))
            assert await asyncio.to_thread(double.wait, lambda: double.connections == 1)
            task.cancel()

            with pytest.raises(asyncio.CancelledError):
                await task
            await nothing_left(double)


async def test_leaving_a_stream_early_closes_its_connection() -> None:
    with Double(ok([event({"text": "a"})] * 3, stall_after=3)) as double:
        async with outside_of() as outside:
            provider = TINY.make(binding_of(TINY, double.url), outside)
            async with aclosing(provider.stream(HELLO)) as parts:
                assert await anext(parts) == TextPart("a")
            await nothing_left(double)


async def test_content_that_keeps_coming_outlives_the_idle_limit() -> None:
    words = [f"{number} " for number in range(20)]
    with Double(ok(tiny_turn(words), every=SHORT_MS / 5000)) as double:
        parts = await ask(double.url, timeouts=limits(stream_idle_ms=SHORT_MS))

    assert text_of(parts) == "".join(words)
    assert isinstance(parts[-1], Done)


async def test_a_slow_consumer_is_not_taken_for_a_silent_provider() -> None:
    """A part is held for longer than the limit; only then goes the model on."""
    go_on = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield event({"text": "a"})
        go_on.wait(10)
        yield from tiny_turn("b")

    with Double(Answer(body=pieces())) as double:
        async with outside_of() as outside:
            timeouts = limits(stream_idle_ms=SHORT_MS)
            provider = TINY.make(binding_of(TINY, double.url, timeouts=timeouts), outside)
            seen = []
            async for part in provider.stream(HELLO):
                if not seen:
                    await asyncio.to_thread(double.wait, lambda: False, 2 * SHORT_MS / 1000)
                    asyncio.get_running_loop().call_soon(go_on.set)
                seen.append(part)

    assert text_of(seen) == "ab"
    assert isinstance(seen[-1], Done)


async def test_what_came_before_a_break_is_told_though_it_was_taken_late() -> None:
    """The connection is gone before the consumer asks for more: the model's own word is not."""
    go_on = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield event({"text": "a"})
        go_on.wait(10)
        yield event({"text": "b"})
        yield TINY.error

    with Double(Answer(body=pieces(), cut_after=3)) as double:
        async with outside_of() as outside:
            provider = TINY.make(binding_of(TINY, double.url), outside)
            seen = []
            async for part in provider.stream(HELLO):
                if not seen:
                    go_on.set()
                    assert await asyncio.to_thread(double.wait, lambda: double.open == 0)
                    await read_all()
                seen.append(part)

    assert text_of(seen) == "ab"
    assert isinstance(seen[-1], Failed)
    assert seen[-1].error.kind == "overload"


async def test_a_connection_is_kept_though_its_response_ends_after_the_turn() -> None:
    go_on = threading.Event()

    def pieces() -> Iterator[bytes]:
        yield from tiny_turn("a")
        go_on.wait(10)

    with Double(Answer(body=pieces()), ok(tiny_turn("b"))) as double:
        async with outside_of() as outside:
            provider = TINY.make(binding_of(TINY, double.url), outside)
            assert isinstance((await parts_of(provider, HELLO))[-1], Done)
            go_on.set()
            await answered(double, 1)
            assert isinstance((await parts_of(provider, HELLO))[-1], Done)

        assert (double.posts, double.connections) == (2, 1)


# --- before there is a response ----------------------------------------------------------------


def _dead_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as ears:
        return int(ears.getsockname()[1])


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
async def test_a_refused_connection_asks_whether_the_local_server_runs(family: Family) -> None:
    port = _dead_port()
    error = await failed(f"http://127.0.0.1:{port}", family)

    assert (error.kind, error.stage, error.retryable) == ("transport", "connect", True)
    assert error.message == (
        f"nothing takes connections at 127.0.0.1:{port}; is the local server running?"
    )


async def test_a_name_that_nobody_knows_is_said_to_be_one() -> None:
    error = await failed("http://no-such-host.invalid")

    assert (error.kind, error.stage, error.retryable) == ("transport", "connect", True)
    assert "the name in no-such-host.invalid:80 can't be found" in error.message


async def test_a_server_that_never_accepts_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as ears:
        full = [socket.socket() for _ in range(4)]
        for sock in full:
            sock.setblocking(False)
            sock.connect_ex(ears.getsockname())
        try:
            error = await failed(
                f"http://127.0.0.1:{ears.getsockname()[1]}", timeouts=limits(connect_ms=SHORT_MS)
            )
        finally:
            for sock in full:
                sock.close()

    assert (error.kind, error.stage, error.retryable) == ("timeout", "connect", True)
    assert "within 0.2 s" in error.message


async def test_an_upload_that_nobody_reads_is_given_up() -> None:
    asked = request(user("x" * (8 << 20)))
    with Double(Answer(read=False, stall_before=math.inf)) as double:
        error = await failed(double.url, asked=asked, timeouts=limits(headers_ms=SHORT_MS))

        assert (error.kind, error.stage) == ("timeout", "request_send")
        assert "took nothing of the request for 0.2 s" in error.message
        await nothing_left(double)


async def test_an_upload_that_is_read_slowly_is_waited_for() -> None:
    asked = request(user("x" * (12 << 20)))
    slowly = msgspec.structs.replace(ok(tiny_turn("a")), read_every=SHORT_MS / 25_000)
    with Double(slowly) as double:
        parts = await ask(double.url, asked=asked, timeouts=limits(headers_ms=SHORT_MS))

    assert isinstance(parts[-1], Done)
    assert len(double.seen[0].json["texts"][0]) == 12 << 20


async def test_a_server_that_speaks_no_http_is_named_so() -> None:
    with Double(Answer(raw=b"220 mail.example ESMTP\r\n\r\n")) as double:
        error = await failed(double.url)

    assert (error.kind, error.stage, error.retryable) == (
        "invalid_response",
        "response_headers",
        False,
    )
    assert "does not answer in HTTP" in error.message


@pytest.mark.parametrize("endpoint", ["", "no url", "http://", "http://[::1", "ftp://x/y"])
async def test_an_endpoint_that_is_no_address_fails_its_request(endpoint: str) -> None:
    error = await failed("", endpoint=endpoint)

    assert (error.kind, error.retryable) == ("invalid_request", False)


async def test_a_body_that_breaks_the_decoder_is_a_failed_attempt() -> None:
    with Double(ok([event("{not json")])) as double:
        error = await failed(double.url)

    assert (error.kind, error.stage, error.retryable) == (
        "invalid_response",
        "stream_decode",
        False,
    )
    assert "can't be read" in error.message


# --- refusals ----------------------------------------------------------------------------------


async def test_the_body_of_a_refusal_is_read_in_bounds_and_kept_clean() -> None:
    body = {"error": {"message": "a\x1b[31m\nb" + "z" * 300_000}}
    with Double(say(400, body), say(400, body["error"], ("x-request-id", "r1"))) as double:
        error = await failed(double.url)
        small = await failed(double.url)

    assert error.response_body is not None
    assert len(error.response_body) == 4096
    assert error.bytes_received == 65_536
    for text in (error.message, error.response_body, small.message):
        assert text.isprintable()
    assert len(small.message) < 2_000
    assert small.request_id == "r1"


async def test_a_refusal_whose_body_stalls_is_told_with_what_came() -> None:
    answer = Answer(
        status=500,
        headers=(("content-type", "application/json"),),
        body=(b'{"error":{"message":"half',),
        stall_after=1,
    )
    with Double(answer) as double:
        error = await failed(double.url, timeouts=limits(total_ms=1_000))

        assert (error.kind, error.http_status) == ("provider", 500)
        assert "half" in error.message
        await nothing_left(double)


async def test_a_refusal_that_ends_in_a_reset_is_told_too() -> None:
    """As of a server that closes without having read all of the request."""
    whole = say(413, openai_error("too large", "request_too_large"))
    with Double(msgspec.structs.replace(whole, reset="end")) as double:
        error = await failed(double.url)

    assert (error.kind, error.http_status) == ("invalid_request", 413)
    assert "too large" in error.message


async def test_a_date_to_wait_for_is_taken_by_our_clock_if_theirs_is_unknown() -> None:
    answer = say(429, {}, ("Retry-After", "Fri, 02 Jan 2026 03:05:05 GMT"))
    with Double(answer) as double:
        async with outside_of(clock=FakeClock()) as outside:
            parts = await parts_of(TINY.make(binding_of(TINY, double.url), outside), HELLO)

    assert isinstance(parts[0], Failed)
    assert parts[0].error.retry_after_ms == 60_000


# --- what a request carries --------------------------------------------------------------------

HEADER = SecretRef(provider_id=ProviderId("double"), field="headers.x-team-token")
ENDPOINT = SecretRef(provider_id=ProviderId("double"), field="endpoint")


async def test_a_person_adds_headers_fills_them_and_takes_them_away() -> None:
    added = {
        "x-session": "s-${session_id}",
        "x-parent": "${parent_session_id}",
        "x-price": "$$5",
        "user-agent": "mine",
        "authorization": "Other way",
        "accept": "",
    }
    secrets = {HEADER: "hush-hush-1"}
    with Double(ok(tiny_turn("a"))) as double:
        async with outside_of(secret=keys(secrets)) as outside:
            binding = binding_of(
                TINY, double.url, headers=added, secrets={"headers.x-team-token": HEADER}
            )
            await parts_of(TINY.make(binding, outside), HELLO)

    headers = double.seen[0].headers
    assert {name: headers.get(name) for name in (*added, "x-team-token")} == {
        "x-session": f"s-{SESSION}",
        "x-parent": None,
        "x-price": "$5",
        "user-agent": "mine",
        "authorization": "Other way",
        "accept": "*/*",
        "x-team-token": "hush-hush-1",
    }


async def test_media_that_can_be_read_reaches_the_wire() -> None:
    blocks = [
        MediaBlock(mime="image/png", digest=Digest(f"sha256:{digit * 64}"), byte_length=3)
        for digit in "abc"
    ]

    async def media(block: MediaBlock) -> bytes | None:
        if block is blocks[2]:
            raise OSError("gone")
        return b"png" if block is blocks[0] else None

    with Double(ok(tiny_turn("a"))) as double:
        async with outside_of(media=media) as outside:
            asked = request(UserMessage(content=tuple(blocks)))
            await parts_of(TINY.make(binding_of(TINY, double.url), outside), asked)

    assert double.seen[0].json == {"texts": [""], "media": [3]}


async def test_a_key_that_is_not_granted_is_no_request_at_all() -> None:
    with Double() as double:
        async with outside_of(secret=lambda _ref: None) as outside:
            (part,) = await parts_of(TINY.make(binding_of(TINY, double.url), outside), HELLO)

        assert double.connections == 0
    assert isinstance(part, Failed)
    assert (part.error.kind, part.error.stage, part.error.retryable) == (
        "auth",
        "credentials",
        False,
    )
    assert part.error.message == (
        "there is no key for double: set one in [providers.double] of config.toml (api_key or auth)"
    )


@pytest.mark.parametrize(
    "answer",
    [
        say(401, openai_error(f"Incorrect key {KEY} for hush-hush-1 at /secret-path", "x")),
        say(401, {"error": {"message": f"a {KEY}", "code": KEY}}, ("x-request-id", KEY)),
        say(500, f"<html><title>{KEY} hush-hush-1</title>/secret-path".encode()),
        say(400, b" " * (65_536 - 12) + KEY.encode()),
        ok([event({"error": f"{KEY} hush-hush-1 /secret-path", "code": KEY})]),
    ],
)
async def test_no_secret_comes_back_in_an_error(answer: Answer) -> None:
    with Double(answer) as double:
        secrets = {HEADER: "hush-hush-1", ENDPOINT: f"{double.url}/secret-path"}
        async with outside_of(secret=keys(secrets)) as outside:
            places = {"headers.x-team-token": HEADER, "endpoint": ENDPOINT}
            binding = binding_of(TINY, "", endpoint=None, secrets=places)
            (part,) = await parts_of(TINY.make(binding, outside), HELLO)

    assert isinstance(part, Failed)
    said = str(part.error)
    assert not [secret for secret in (KEY, KEY[:8], "hush-hush-1") if secret in said]
    assert double.url not in said
    assert double.seen[0].path == "/secret-path/turn"
