"""A model on the loopback for benchmarks: OpenAI's chat wire from one thread, as fast as it goes.

Not a benchmark by itself. It keeps what was asked and when, and answers as it is told.
"""

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

CONFIG = """
[providers.bench]
source = "custom"
adaptor = "openai-compatible"
endpoint = "http://127.0.0.1:{port}/v1"
auth = {{ method = "no-auth-v1" }}

[providers.bench.models.one]
capabilities = {{ context_tokens = 200000, output_tokens = 8192 }}
"""
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}


def event(delta: dict[str, object], finish: str | None = None) -> bytes:
    """One chunk of a stream, chunked transfer included."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    said = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "one"}
    return chunk(b"data: " + json.dumps({**said, "choices": [choice]}).encode() + b"\n\n")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def call(number: int, command: str) -> bytes:
    """A whole turn that calls bash, with the shortest id that is still one of a kind."""
    arguments = json.dumps({"command": command}, separators=(",", ":"))  # as models write it
    one = {"index": 0, "id": f"call_{chr(96 + number)}", "type": "function"}
    asked = {**one, "function": {"name": "bash", "arguments": arguments}}
    return event({"role": "assistant", "tool_calls": [asked]}) + last("tool_calls")


def text(said: str) -> bytes:
    """A whole turn of text."""
    return event({"role": "assistant", "content": said}) + last("stop")


def last(finish: str) -> bytes:
    return event({}, finish) + chunk(b"data: [DONE]\n\n") + END


class Asked:
    """One request: its body, when its first byte came and when its answer had gone out."""

    def __init__(self, body: bytes, first_byte: float) -> None:
        self.body = body
        self.first_byte = first_byte
        self.answered = 0.0


Answer = Callable[[socket.socket, int], None]


class Model:
    """Serves one connection after the other; `answer(connection, n)` sends the n-th answer."""

    def __init__(self, answer: Answer) -> None:
        self.asked: list[Asked] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def configure(self, home: Path) -> None:
        (home / "config.toml").write_text(CONFIG.format(port=self.port))

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                while self._one(connection):
                    pass

    def _one(self, connection: socket.socket) -> bool:
        data = connection.recv(1 << 20)
        first = time.monotonic()
        if not data:
            return False
        while b"\r\n\r\n" not in data:
            data += connection.recv(1 << 20)
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        while len(body) < length:
            body += connection.recv(1 << 20)
        one = Asked(body, first)
        self.asked.append(one)
        connection.sendall(HEAD)
        self._answer(connection, len(self.asked))
        one.answered = time.monotonic()
        return True
