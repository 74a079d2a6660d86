"""A double of a model's server on the loopback: raw sockets, one small plan a request.

It runs in threads of its own, so that this process and real commands in others can talk to it. It
records what it is sent, sends what the plan says byte for byte, and waits only where the plan says.
The turns of each family are in `tests/fakes/turns.py`, and can be had from here.
"""

import contextlib
import json
import math
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from msgspec import Struct

from tests.fakes.turns import Call, anthropic_turn, chat_turn, gemini_turn, responses_turn

__all__ = [
    "Answer",
    "Call",
    "Double",
    "Seen",
    "anthropic_turn",
    "chat_turn",
    "drip",
    "gemini_turn",
    "ok",
    "responses_turn",
    "say",
]

HEAD_BYTES_MAX = 256 * 1024
PIECE_BYTES = 64 * 1024


class Seen(Struct, frozen=True, kw_only=True):
    """A request as it came: header names in lower case, `at` when its first byte was here."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float  # time.monotonic()
    connection: int  # on which connection, from 1

    @property
    def json(self) -> Any:
        """Its body, read."""
        return json.loads(self.body)


class Answer(Struct, frozen=True, kw_only=True):
    """What is done with one request; the defaults are a quick and whole 200.

    `body` goes out piece by piece, each as one chunk where `framing` is "chunked"; it may be an
    iterator that waits for the test. Stalls last for
    those seconds, or until the other side goes; math.inf is only until then.
    """

    reset: Literal["", "before", "after", "end"] = ""  # RST: before or after the headers, the body
    read: bool = True  # False: the request's body is never read
    read_every: float = 0.0  # seconds before each piece of the request's body is read
    stall_before: float = 0.0  # seconds before the headers
    status: int = 200
    headers: Sequence[tuple[str, str]] = (("content-type", "text/event-stream"),)
    body: Iterable[bytes] = ()
    framing: Literal["chunked", "length", "close"] = "chunked"
    every: float = 0.0  # seconds before each piece
    stall_after: int | None = None  # so many pieces and then nothing
    cut_after: int | None = None  # so many pieces and then a connection closed without an end
    close: bool = False  # close the connection after a whole answer
    raw: bytes | None = None  # sent instead of headers and body


Chooser = Callable[[int, Seen], Answer]


def ok(pieces: Sequence[bytes], **more: Any) -> Answer:
    """A stream of these pieces."""
    return Answer(body=tuple(pieces), **more)


def drip(pieces: Sequence[bytes], size: int = 1, **more: Any) -> Answer:
    """A stream cut to `size` bytes a piece, whatever an event is."""
    whole = b"".join(pieces)
    return ok([whole[at : at + size] for at in range(0, len(whole), size)], **more)


def say(status: int, body: Any, *headers: tuple[str, str], **more: Any) -> Answer:
    """A short answer: JSON, or a text as the page it is (bytes)."""
    page = isinstance(body, bytes)
    data = body if page else json.dumps(body).encode()
    kind = ("content-type", "text/html; charset=utf-8" if page else "application/json")
    return Answer(status=status, headers=(kind, *headers), body=(data,), framing="length", **more)


class Double:
    """A server inside a `with` block: `url` is its address, `seen` what it was sent so far.

    Give answers, one a request, the last one for all that follow; or one function that chooses.
    `tls` makes it https. `tunnel` makes it a proxy that leads each CONNECT to that port here.
    """

    def __init__(
        self,
        *answers: Answer | Chooser,
        tls: ssl.SSLContext | None = None,
        tunnel: int | None = None,
        port: int = 0,
    ) -> None:
        self._answers = answers or (Answer(),)
        self._tls = tls
        self._tunnel = tunnel
        self._changed = threading.Condition()
        self._over = False
        self._threads: list[threading.Thread] = []
        self._open: dict[int, socket.socket] = {}
        self._ears = socket.create_server(("127.0.0.1", port))
        if any(
            isinstance(each, Answer) and (each.read_every or not each.read)
            for each in self._answers
        ):
            self._ears.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, PIECE_BYTES)
        self.port: int = self._ears.getsockname()[1]
        self.connections = 0  # ever made
        self.answered = 0  # requests whose answer is out, or was given up
        self.seen: list[Seen] = []

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def posts(self) -> int:
        """How many POSTs came, those included that got no answer."""
        return sum(seen.method == "POST" for seen in self.seen)

    @property
    def open(self) -> int:
        """How many connections are open."""
        return len(self._open)

    def wait(self, so: Callable[[], bool], seconds: float = 10.0) -> bool:
        """Until it is so; asked again with each request and each connection's begin and end."""
        with self._changed:
            return self._changed.wait_for(so, seconds)

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._changed:
            self._over = True
            held = [self._ears, *self._open.values()]
        for sock in held:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._ears.close()
        for thread in self._threads:
            thread.join()

    # --- connections ---

    def _start(self, work: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._ears.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changed:
                if self._over:
                    sock.close()
                    return
                self.connections += 1
                number = self.connections
                self._open[number] = sock
                self._changed.notify_all()
            self._start(self._serve, number, sock)

    def _serve(self, number: int, sock: socket.socket) -> None:
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                with self._changed:
                    self._open[number] = sock
            reader = _Reader(sock)
            while self._one(number, sock, reader):
                pass
        except (OSError, ValueError):
            pass  # the other side went, or talks what nobody understands
        finally:
            sock.close()
            with self._changed:
                del self._open[number]
                self._changed.notify_all()

    def _one(self, number: int, sock: socket.socket, reader: "_Reader") -> bool:
        """Serve one request; whether another may follow."""
        head = reader.head()
        if head is None:
            return False
        method, path, headers = head
        planned = self._planned(len(self.seen))
        unread = method == "CONNECT" or (planned is not None and not planned.read)
        seen = Seen(
            method=method,
            path=path,
            headers=headers,
            body=b"" if unread else reader.body(headers, planned.read_every if planned else 0.0),
            at=reader.began,
            connection=number,
        )
        with self._changed:
            self.seen.append(seen)
            self._changed.notify_all()
        if method == "CONNECT" and self._tunnel is not None:
            _lead(sock, self._tunnel)
            return False
        again = _send(sock, planned or self._chosen(seen))
        with self._changed:
            self.answered += 1
            self._changed.notify_all()
        return again

    def _planned(self, number: int) -> Answer | None:
        answer = self._answers[min(number, len(self._answers) - 1)]
        return answer if isinstance(answer, Answer) else None

    def _chosen(self, seen: Seen) -> Answer:
        choose = self._answers[min(self.seen.index(seen), len(self._answers) - 1)]
        assert not isinstance(choose, Answer)
        return choose(self.seen.index(seen), seen)


class _Reader:
    """Reads requests off a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._rest = b""
        self.began = 0.0  # when the first byte of the last request was here

    def head(self) -> tuple[str, str, dict[str, str]] | None:
        """Method, path and headers of the next request; None when there is none."""
        if not self._rest and not self._more():
            return None
        self.began = time.monotonic()
        if not self._rest[:1].isalpha():
            raise ValueError("no HTTP")
        while b"\r\n\r\n" not in self._rest:
            if len(self._rest) > HEAD_BYTES_MAX or not self._more():
                return None
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        pairs = (line.partition(":") for line in lines)
        return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}

    def body(self, headers: dict[str, str], every: float = 0.0) -> bytes:
        """The body of the request with these headers."""
        if headers.get("transfer-encoding", "") != "chunked":
            return self._take(int(headers.get("content-length", "0")), every)
        pieces = []
        while size := int(self._line(), 16):
            pieces.append(self._take(size))
            self._line()
        self._line()
        return b"".join(pieces)

    def _line(self) -> bytes:
        while b"\r\n" not in self._rest:
            if not self._more():
                raise ValueError("cut")
        line, _, self._rest = self._rest.partition(b"\r\n")
        return line

    def _take(self, size: int, every: float = 0.0) -> bytes:
        pieces = [self._rest[:size]]
        self._rest = self._rest[size:]
        missing = size - len(pieces[0])
        while missing:
            if every and _gone(self._sock, every):
                raise ValueError("cut")
            piece = self._sock.recv(min(missing, PIECE_BYTES))
            if not piece:
                raise ValueError("cut")
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def _more(self) -> bool:
        data = self._sock.recv(PIECE_BYTES)
        self._rest += data
        return bool(data)


def _send(sock: socket.socket, answer: Answer) -> bool:
    """Do what the answer says; whether the connection can serve another request."""
    if answer.stall_before and _gone(sock, answer.stall_before):
        return False
    if answer.reset == "before":
        return _reset(sock)
    if answer.raw is not None:
        sock.sendall(answer.raw)
        return False
    sock.sendall(_head(answer))
    if answer.reset == "after":
        return _reset(sock)
    for number, piece in enumerate(answer.body):
        if number in {answer.stall_after, answer.cut_after}:
            break
        if answer.every and _gone(sock, answer.every):
            return False
        sock.sendall(
            b"%x\r\n%b\r\n" % (len(piece), piece) if answer.framing == "chunked" else piece
        )
    if answer.reset == "end":
        return _reset(sock)
    if answer.stall_after is not None:
        return not _gone(sock, math.inf)
    if answer.cut_after is not None:
        return False
    if answer.framing == "chunked":
        sock.sendall(b"0\r\n\r\n")
    return answer.framing != "close" and not answer.close and answer.read


def _head(answer: Answer) -> bytes:
    headers = [*answer.headers]
    if answer.framing == "length":
        headers.append(("content-length", str(sum(map(len, tuple(answer.body))))))
    elif answer.framing == "chunked":
        headers.append(("transfer-encoding", "chunked"))
    if answer.framing == "close" or answer.close:
        headers.append(("connection", "close"))
    lines = [f"HTTP/1.1 {answer.status} Said", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def _gone(sock: socket.socket, seconds: float) -> bool:
    """Wait so long; True as soon as the other side has gone. What it says stays unread."""
    gone = select.poll()
    gone.register(sock, getattr(select, "POLLRDHUP", select.POLLHUP))
    return bool(gone.poll(None if seconds == math.inf else seconds * 1000))


def _reset(sock: socket.socket) -> bool:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    return False


def _lead(sock: socket.socket, port: int) -> None:
    """Be the tunnel of a proxy: carry bytes both ways until one side ends."""
    with socket.create_connection(("127.0.0.1", port)) as inner:
        sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        other = {sock: inner, inner: sock}
        while True:
            ready, _, _ = select.select([sock, inner], [], [])
            for each in ready:
                data = each.recv(PIECE_BYTES)
                if not data:
                    return
                other[each].sendall(data)
