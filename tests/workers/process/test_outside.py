"""What a worker gives its adaptors: secrets that were granted, media of its tree, one way out."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ipc.content import MediaBlock
from ipc.ids import Digest, ProviderId, SecretRef, new_session_id
from ipc.orders import Birth, Grant
from ipc.plan import Http
from ipc.seams import proc
from workers.process import worker as process
from workers.process.worker import Worker
from workers.providers import http

KEY = SecretRef(provider_id=ProviderId("p"), field="auth")


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[Worker]:
    root = new_session_id()
    (tmp_path / root).mkdir()
    lock = os.open(tmp_path / root / "owner.lock", os.O_RDWR | os.O_CREAT)
    birth = Birth(
        root_id=root,
        root_dir=str(tmp_path / root),
        final_dir=str(tmp_path / root),
        published=True,
        data_dir=str(tmp_path),
        cwd=str(tmp_path),
        link_path="/nowhere",
        identity="x",
        nonce="n",
        epoch=1,
        on_eof="end",
        role="writer",
    )
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Worker(birth, lock, theirs)
    os.close(lock)


def block(digest: Digest, size: int = 5) -> MediaBlock:
    return MediaBlock(mime="image/png", digest=digest, byte_length=size)


async def test_media_are_the_bytes_of_an_artifact_or_nothing(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = worker._artifacts.put(b"bytes")

    assert await worker._media(block(digest)) == b"bytes"
    assert await worker._media(block(Digest("0" * 64))) is None
    assert await worker._media(block(digest, process.MEDIA_BYTES_MAX + 1)) is None
    monkeypatch.setattr(process, "MEDIA_BYTES_MAX", 4)
    assert await worker._media(block(digest, 4)) is None  # whatever the block says of its size
    monkeypatch.undo()
    wrong = Digest("1" * 64)
    (worker._artifacts.directory / wrong).write_bytes(b"other")
    assert await worker._media(block(wrong)) is None


async def test_nobody_may_look_when_a_secret_comes(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    monkeypatch.setattr(proc, "set_subreaper", lambda: True)
    monkeypatch.setattr(
        proc, "set_dumpable", lambda *, dumpable: order.append(f"{dumpable} {worker._secrets}")
    )
    outside = worker._outside(Http(), {"A": "b"})

    assert outside.secret(KEY) is None
    worker._on_order(Grant(KEY, None), [b"sk-1"])

    assert order == ["False {}"]
    assert outside.secret(KEY) == "sk-1"


async def test_plans_that_go_the_same_way_out_share_it(worker: Worker) -> None:
    one = worker._outside(Http(), {"A": "b"})

    assert worker._outside(Http(), {"A": "b"}) is one
    assert worker._outside(Http(ca_file="/x"), {"A": "b"}) is not one
    assert worker._outside(Http(), {}) is not one


async def test_connections_that_will_not_close_hold_nothing_up(
    worker: Worker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def never(_outside: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(http, "close", never)
    monkeypatch.setattr(process, "CLIENT_END_S", 0.0)
    await worker._close_connections()
    assert capsys.readouterr().err == ""
    worker._outside(Http(), {}).client = object()
    await worker._close_connections()
    assert "did not close in time" in capsys.readouterr().err


async def test_frames_that_are_no_frames_are_told_of_and_not_without_end(
    worker: Worker, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(process.REFUSED_MAX + 3):
        worker._on_refused(f"reason {number}", "supervisor")

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == process.REFUSED_MAX
    assert lines[0] == "cookie: a frame of the supervisor was refused: reason 0"
