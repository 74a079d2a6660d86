"""The life socket of a worker: one Birth with its descriptors, then nothing but its EOF."""

import array
import os
import socket
import time
from typing import Final

from ipc.faults import Fault
from ipc.orders import (
    BIRTH_DESCRIPTORS_MAX,
    BIRTH_PREFIX_BYTES,
    Birth,
    birth_length,
    decode_birth,
    encode_birth,
)

BIRTH_S: Final = 10.0

_INT_BYTES: Final = array.array("i").itemsize
# Room for one more than may come: only so it shows that somebody sent too many.
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE((BIRTH_DESCRIPTORS_MAX + 1) * _INT_BYTES)
_CLOEXEC: Final[int] = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # not on Darwin


class NoBirth(Fault):
    """The other end closed, was too slow or sent something else; no worker was born of it."""

    code = "no_birth"


def send_birth(
    sock: socket.socket, birth: Birth, fds: tuple[int, ...], deadline_s: float = BIRTH_S
) -> None:
    """Send the one message of a life socket, `fds` beside its first byte.

    The caller keeps its own copies of the descriptors and closes them when it wants. Raises NoBirth
    when the other end is gone or takes nothing for `deadline_s`; BadOrder when it is too big. The
    socket's timeout is put back.
    """
    if len(fds) > BIRTH_DESCRIPTORS_MAX:
        raise NoBirth(reason="too many descriptors", fds=len(fds), limit=BIRTH_DESCRIPTORS_MAX)
    data = memoryview(encode_birth(birth))
    until = time.monotonic() + deadline_s
    before = sock.gettimeout()
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        while data:
            sock.settimeout(_left(until))
            sent = sock.sendmsg([data], rights)
            data, rights = data[sent:], []
    except OSError as error:
        raise NoBirth(reason=str(error) or "timed out") from error
    finally:
        sock.settimeout(before)


def recv_birth(sock: socket.socket, deadline_s: float = BIRTH_S) -> tuple[Birth, tuple[int, ...]]:
    """Read the one message of a life socket and the descriptors beside it, all close-on-exec.

    The descriptors belong to the caller. Raises NoBirth (EOF first, too slow, too many
    descriptors) or BadOrder; then every received descriptor is closed again. Reads not one byte
    beyond the message. The socket's timeout is put back.
    """
    until = time.monotonic() + deadline_s
    before = sock.gettimeout()
    fds: list[int] = []
    try:
        prefix = _exactly(sock, BIRTH_PREFIX_BYTES, until, fds)
        birth = decode_birth(_exactly(sock, birth_length(prefix), until, fds))
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    finally:
        sock.settimeout(before)
    return birth, tuple(fds)


def _exactly(sock: socket.socket, count: int, until: float, fds: list[int]) -> bytes:
    data = bytearray()
    while len(data) < count:
        sock.settimeout(_left(until))
        try:
            chunk = _take(sock, count - len(data), fds)
        except OSError as error:
            raise NoBirth(reason=str(error) or "timed out") from error
        if not chunk:
            raise NoBirth(reason="the other end closed", bytes=len(data))
        data += chunk
    return bytes(data)


def _take(sock: socket.socket, count: int, fds: list[int]) -> bytes:
    chunk, ancillary, flags, _ = sock.recvmsg(count, _ANCILLARY_BYTES, _CLOEXEC)
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            received = array.array("i")
            received.frombytes(data[: len(data) - len(data) % _INT_BYTES])
            fds.extend(received)
            for fd in received:
                os.set_inheritable(fd, False)  # where there is no MSG_CMSG_CLOEXEC
    if flags & socket.MSG_CTRUNC or len(fds) > BIRTH_DESCRIPTORS_MAX:
        raise NoBirth(reason="too many descriptors", limit=BIRTH_DESCRIPTORS_MAX)
    return chunk


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:  # a timeout of 0 would make the socket non-blocking
        raise NoBirth(reason="timed out")
    return left
