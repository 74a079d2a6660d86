"""Artifacts: durable under their digest, private, verified, read in pages."""

import contextlib
import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipc.ids import Digest
from ipc.seams.fs import REAL, Fs
from tests.fakes.fs import Fault, FaultyFs, Op, RecordingFs
from tests.fakes.store import staged
from workers.store.artifacts import (
    PAGE_BYTES_MAX,
    PART_PREFIX,
    ArtifactCorrupt,
    ArtifactMissing,
    Artifacts,
    ArtifactUri,
    BadArtifactUri,
    parse_uri,
)
from workers.store.tree import OwnedTree


def artifacts(tmp_path: Path, fs: Fs = REAL) -> Artifacts:
    paths, fd = staged(tmp_path)
    tree = OwnedTree(paths.directory, fd, fs)
    _open_trees.append(tree)
    return Artifacts(tree)


_open_trees: list[OwnedTree] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _open_trees:
        _open_trees.pop().release()


def sha(data: bytes) -> Digest:
    return Digest(hashlib.sha256(data).hexdigest())


def names_in(store: Artifacts) -> list[str]:
    return [path.name for path in store.directory.iterdir()]


def parts_left(store: Artifacts) -> list[str]:
    return [name for name in names_in(store) if name.startswith(PART_PREFIX)]


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 9000])
def test_what_was_put_is_read_back_by_its_digest(tmp_path: Path, data: bytes) -> None:
    store = artifacts(tmp_path)
    digest = store.put(data)
    assert digest == sha(data)
    with store.open(digest) as reader:
        assert reader.size == len(data)
        assert b"".join(reader.chunks()) == data
    assert (store.directory / digest).stat().st_mode & 0o777 == 0o600
    assert store.directory.stat().st_mode & 0o777 == 0o700
    assert parts_left(store) == []


def test_a_put_is_durable_in_file_and_name_when_it_returns(tmp_path: Path) -> None:
    fs = RecordingFs()
    store = artifacts(tmp_path, fs)
    digest = store.put(b"data")
    path = store.directory / digest
    assert not fs.loose
    assert not fs.hazards
    assert fs.synced[str(path)] == 4


def test_an_artifact_is_written_in_pieces_and_named_at_the_end(tmp_path: Path) -> None:
    store = artifacts(tmp_path)
    with store.writer() as writer:
        for piece in (b"one ", b"two ", b"three"):
            writer.write(piece)
        assert len(names_in(store)) == 1
        digest = writer.finish()
    assert digest == sha(b"one two three")
    assert names_in(store) == [digest]


def test_a_writer_that_is_left_before_its_end_leaves_nothing(tmp_path: Path) -> None:
    store = artifacts(tmp_path)
    with contextlib.suppress(ZeroDivisionError), store.writer() as writer:
        writer.write(b"half")
        raise ZeroDivisionError
    assert names_in(store) == []


def test_the_same_bytes_again_renew_the_time_and_mend_a_damaged_file(tmp_path: Path) -> None:
    store = artifacts(tmp_path)
    digest = store.put(b"data")
    path = store.directory / digest
    path.write_bytes(b"dama")
    os.utime(path, (0, 0))
    assert store.put(b"data") == digest
    assert path.read_bytes() == b"data"
    assert path.stat().st_mtime > 1


def test_a_damaged_artifact_is_never_handed_out(tmp_path: Path) -> None:
    store = artifacts(tmp_path)
    digest = store.put(b"data")
    (store.directory / digest).write_bytes(b"date")
    with pytest.raises(ArtifactCorrupt) as corrupt:
        store.open(digest)
    assert corrupt.value.facts == {"digest": digest, "found": sha(b"date")}


def test_an_artifact_that_is_not_there_is_missing(tmp_path: Path) -> None:
    store = artifacts(tmp_path)
    with pytest.raises(ArtifactMissing):
        store.open(sha(b"never"))


def test_a_link_is_no_artifact(tmp_path: Path) -> None:
    store = artifacts(tmp_path)
    store.put(b"there is a directory")
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    (store.directory / sha(b"secret")).symlink_to(secret)
    with pytest.raises(OSError, match="symbolic links") as refused:
        store.open(sha(b"secret"))
    assert refused.value.errno == errno.ELOOP


def test_pages_are_cut_at_the_end_and_at_the_limit(tmp_path: Path) -> None:
    store = artifacts(tmp_path)
    data = bytes(PAGE_BYTES_MAX + 10)
    with store.open(store.put(data)) as reader:
        assert len(reader.page(0, 1 << 40)) == PAGE_BYTES_MAX
        assert reader.page(PAGE_BYTES_MAX, 100) == bytes(10)
        assert reader.page(len(data), 5) == b""


def test_an_artifact_stays_readable_when_its_tree_is_renamed(tmp_path: Path) -> None:
    store = artifacts(tmp_path)
    tree = _open_trees[0]
    with store.writer() as writer:
        writer.write(b"begun before")
        final = tree.paths.directory.with_name("published")
        tree.paths.directory.rename(final)
        tree.moved(final)
        digest = writer.finish()
    with store.open(digest) as reader:
        assert reader.page(0, 100) == b"begun before"


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
def test_a_put_that_fails_leaves_no_name_and_no_part(tmp_path: Path, call: str) -> None:
    def counts(op: Op) -> bool:
        return op.call == call and (PART_PREFIX in op.path or call == "rename")

    store = artifacts(tmp_path, FaultyFs(Fault(0, errno.ENOSPC), counts))
    with pytest.raises(OSError, match="No space"):
        store.put(b"data")
    assert names_in(store) == []
    assert store.put(b"data") == sha(b"data")


DIGEST = Digest("ab" * 32)


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        (f"artifact://{DIGEST}", ArtifactUri(DIGEST)),
        (f"artifact://{DIGEST}/stdout", ArtifactUri(DIGEST, "stdout")),
        (f"artifact://{DIGEST}/a.b_c-1", ArtifactUri(DIGEST, "a.b_c-1")),
    ],
)
def test_a_reference_is_read_and_written_alike(text: str, uri: ArtifactUri) -> None:
    assert parse_uri(text) == uri
    assert str(uri) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "artifact://",
        f"artifact://{DIGEST.upper()}",
        f"artifact://{DIGEST[:-1]}",
        f"artifact://{DIGEST}0",
        f"artifact://sha256/{DIGEST}",
        f"artifact://{DIGEST}/",
        f"artifact://{DIGEST}/a/b",
        f"artifact://{DIGEST}/..",
        f"artifact://{DIGEST}?page=1",
        f"artifact://{DIGEST}#x",
        f"artifact://{DIGEST}\n",
        f" artifact://{DIGEST}",
        f"Artifact://{DIGEST}",
        f"artifact://{DIGEST}/{'x' * 65}",
    ],
)
def test_anything_else_is_no_reference(text: str) -> None:
    with pytest.raises(BadArtifactUri):
        parse_uri(text)
