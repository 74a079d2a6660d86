import array
import fcntl
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from ipc.ids import SessionId
from ipc.life import NoBirth, recv_birth, send_birth
from ipc.orders import (
    BIRTH_BYTES_MAX,
    BIRTH_DESCRIPTORS_MAX,
    BIRTH_PREFIX_BYTES,
    BadOrder,
    Birth,
    encode_birth,
)

BIRTH = Birth(
    root_id=SessionId("r"),
    root_dir="/d/.staging-r",
    final_dir="/d/r",
    published=False,
    data_dir="/d",
    cwd="/w",
    link_path="/l/w",
    identity="r.1",
    nonce="n",
    epoch=1,
    on_eof="end",
    role="writer",
)
HOUR = 3600.0

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    parent, child = socket.socketpair()
    with parent, child:
        yield parent, child


def held() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def rights(*fds: int) -> list[tuple[int, int, "array.array[int]"]]:
    return [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]


def test_a_birth_arrives_with_its_descriptors_and_they_are_close_on_exec(
    ends: Ends, tmp_path: Path
) -> None:
    parent, child = ends
    lock, log = (os.open(tmp_path / name, os.O_RDWR | os.O_CREAT) for name in ("lock", "log"))
    send_birth(parent, BIRTH, (lock, log))
    birth, fds = recv_birth(child)

    assert birth == BIRTH
    assert [os.fstat(fd).st_ino for fd in fds] == [os.fstat(fd).st_ino for fd in (lock, log)]
    assert all(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for fd in fds)
    assert set(fds).isdisjoint({lock, log})
    for fd in (*fds, lock, log):
        os.close(fd)


def test_a_birth_without_descriptors_is_one_too(ends: Ends) -> None:
    send_birth(ends[0], BIRTH, ())
    assert recv_birth(ends[1]) == (BIRTH, ())


def test_the_socket_is_left_as_it_was_and_only_the_birth_was_read(ends: Ends) -> None:
    parent, child = ends
    child.setblocking(False)
    send_birth(parent, BIRTH, ())
    parent.send(b"later")
    recv_birth(child)

    assert child.gettimeout() == 0.0
    assert parent.gettimeout() is None
    assert child.recv(100) == b"later"
    parent.close()
    assert child.recv(100) == b""


def test_a_birth_that_comes_byte_by_byte_arrives(ends: Ends) -> None:
    parent, child = ends
    data = encode_birth(BIRTH)

    def drip() -> None:
        parent.sendmsg([data[:1]], rights(child.fileno()))
        for at in range(1, len(data)):
            parent.send(data[at : at + 1])

    dripping = threading.Thread(target=drip)
    dripping.start()
    birth, fds = recv_birth(child)
    dripping.join()
    assert birth == BIRTH
    assert len(fds) == 1
    os.close(fds[0])


def test_a_birth_bigger_than_the_socket_takes_at_once_arrives(ends: Ends) -> None:
    parent, child = ends
    parent.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    big = msgspec.structs.replace(BIRTH, cwd="x" * 500_000)
    sending = threading.Thread(target=send_birth, args=(parent, big, (child.fileno(),)))
    sending.start()
    birth, fds = recv_birth(child)
    sending.join()
    assert birth == big
    assert len(fds) == 1
    os.close(fds[0])


@pytest.mark.parametrize("sent", [0, 2, BIRTH_PREFIX_BYTES, BIRTH_PREFIX_BYTES + 10])
def test_an_end_before_the_birth_is_no_birth_and_keeps_no_descriptor(ends: Ends, sent: int) -> None:
    parent, child = ends
    before = held()
    if sent:
        parent.sendmsg([encode_birth(BIRTH)[:sent]], rights(child.fileno()))
    parent.shutdown(socket.SHUT_WR)
    with pytest.raises(NoBirth, match="closed"):
        recv_birth(child, HOUR)
    assert held() == before


def test_a_birth_that_does_not_come_in_time_is_none(ends: Ends) -> None:
    with pytest.raises(NoBirth, match="timed out"):
        recv_birth(ends[1], 0.01)
    ends[0].send(encode_birth(BIRTH)[:10])
    with pytest.raises(NoBirth, match="timed out"):
        recv_birth(ends[1], 0.01)


def test_too_many_descriptors_are_refused_and_all_closed(ends: Ends) -> None:
    parent, child = ends
    many = (child.fileno(),) * (BIRTH_DESCRIPTORS_MAX + 1)
    with pytest.raises(NoBirth, match="too many"):
        send_birth(parent, BIRTH, many)

    for count in (BIRTH_DESCRIPTORS_MAX + 1, 100):
        before = held()
        one, other = socket.socketpair()
        with one, other:
            one.sendmsg([encode_birth(BIRTH)], rights(*([child.fileno()] * count)))
            with pytest.raises(NoBirth, match="too many"):
                recv_birth(other, HOUR)
        assert held() == before


def test_what_is_no_birth_is_refused_and_its_descriptors_closed(ends: Ends) -> None:
    parent, child = ends
    before = held()
    for data in (b"\0\0\0\3abc", b"\0\0\0\0", b"\xff\xff\xff\xff"):
        parent.sendmsg([data], rights(child.fileno()))
        with pytest.raises(BadOrder):
            recv_birth(child, HOUR)
    assert held() == before


def test_a_birth_that_is_too_big_sends_nothing(ends: Ends) -> None:
    parent, child = ends

    with pytest.raises(BadOrder):
        send_birth(parent, msgspec.structs.replace(BIRTH, cwd="x" * BIRTH_BYTES_MAX), ())
    child.setblocking(False)
    with pytest.raises(BlockingIOError):
        child.recv(1)


def test_a_birth_for_nobody_is_told_to_its_sender(ends: Ends) -> None:
    parent, child = ends
    child.close()
    with pytest.raises(NoBirth):
        send_birth(parent, BIRTH, (parent.fileno(),))


def test_a_receiver_that_takes_nothing_does_not_hold_its_sender(ends: Ends) -> None:
    parent, _ = ends
    parent.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    with pytest.raises(NoBirth, match="timed out"):
        send_birth(parent, msgspec.structs.replace(BIRTH, cwd="x" * 900_000), (), 0.05)
