"""The disk layout: keys, paths, private files, the read-only log reader, the metadata cache."""

import errno
import hashlib
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from ipc.content import user_text
from ipc.disk import log as log_module
from ipc.disk.files import make_private, prepare_workspace, replace, write_once
from ipc.disk.log import DegradedLine, Gap, SessionUnreadable, SkippedLine, read_log
from ipc.disk.metadata import BadMetadata, Metadata, read_metadata, write_metadata
from ipc.disk.paths import (
    SessionPaths,
    default_data_dir,
    workdir_key,
    workspace_paths,
)
from ipc.events import RootOrigin, SessionCreated, StoredEvent, UserInputSubmitted
from ipc.events.codec import encode
from ipc.ids import SessionId
from ipc.seams.fs import REAL
from tests.fakes.fs import Fault, FaultyFs, Op, RecordingFs
from tests.fakes.samples import all_samples, samples

SESSION = SessionId("01890000-0000-7000-8000-00000000000a")
CREATED: Any = samples(SessionCreated)[0]


def line(seq: int, text: str = "x", session: str = SESSION) -> bytes:
    payload = CREATED if seq == 1 else UserInputSubmitted(input=user_text(text))
    return encode(
        StoredEvent(
            session_id=SessionId(session),
            run_id=None,
            seq=seq,
            timestamp="2026-01-02T03:04:05.678Z",
            payload=payload,
        )
    )


def log_of(tmp_path: Path, *lines: bytes, end: bytes = b"\n") -> Path:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b"\n".join(lines) + end)
    return path


def seqs(path: Path) -> list[int]:
    return [event.seq for event in read_log(path).events()]


# --- keys and paths


@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        ("project", "-project"),
        ("My Project!", "-my-project"),
        ("a--b  c", "-a-b-c"),
        ("_x_", "-x"),
        ("v1.2_rc-3", "-v1.2_rc-3"),
        ("Überweg", "-berweg"),
        ("日本", ""),
        ("---", ""),
        ("n" * 40, "-" + "n" * 32),
        ("n" * 31 + "-tail", "-" + "n" * 31),
    ],
)
def test_a_workspace_key_is_the_hash_of_its_real_path_and_a_readable_rest(
    tmp_path: Path, name: str, suffix: str
) -> None:
    cwd = tmp_path / name
    cwd.mkdir()
    real = os.fsencode(os.path.realpath(cwd))
    digits = hashlib.blake2b(real).hexdigest()[:16]
    assert workdir_key(cwd) == digits + suffix
    link = tmp_path / "link"
    link.symlink_to(cwd)
    assert workdir_key(link) == digits + suffix


def test_a_path_that_is_no_text_has_a_key(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (tmp_path / name).mkdir()
    assert workdir_key(tmp_path / name).endswith("-caf")


def test_a_workspace_is_found_by_its_hash_whatever_suffix_it_was_made_with(tmp_path: Path) -> None:
    fresh = workspace_paths(tmp_path, tmp_path).directory
    assert fresh == tmp_path / "sessions" / workdir_key(tmp_path)
    old = fresh.with_name(f"{fresh.name[:16]}-an-older-rule")
    old.mkdir(parents=True)
    assert workspace_paths(tmp_path, tmp_path).directory == old
    fresh.mkdir()
    assert workspace_paths(tmp_path, tmp_path).directory == fresh


def test_the_files_of_a_tree_are_where_the_layout_says() -> None:
    space = workspace_paths(Path("/d"), "/")
    tree = space.tree(SESSION)
    root = Path(f"/d/sessions/{workdir_key('/')}/{SESSION}")
    assert tree.lock == root / "owner.lock"
    assert tree.root.events == root / "events.jsonl"
    assert tree.root.metadata == root / "metadata"
    assert tree.artifacts == root / "artifacts"
    assert tree.index == root / "subagents" / "index.json"
    assert tree.child(SESSION).events == root / "subagents" / SESSION / "events.jsonl"
    assert space.new(12, "ab").directory == root.with_name(".new-12-ab")
    assert space.staging(SESSION).directory == root.with_name(f".staging-{SESSION}")
    assert space.dead("ab").directory == root.with_name(".dead-ab")
    assert default_data_dir() == Path.home() / ".cookie-agent"


# --- small files


def test_a_workspace_is_made_once_privately_and_never_changed(tmp_path: Path) -> None:
    space = workspace_paths(tmp_path / "data", tmp_path)
    fs = RecordingFs()
    prepare_workspace(fs, space, tmp_path)
    assert space.layout.read_bytes() == b'{"version":2}\n'
    assert space.cwd.read_bytes() == os.fsencode(os.path.realpath(tmp_path))
    assert not fs.loose
    for path in [space.directory, *space.directory.parents][:3]:
        assert path.stat().st_mode & 0o777 == 0o700
    assert {p.stat().st_mode & 0o777 for p in space.directory.iterdir()} == {0o600}

    space.layout.write_bytes(b"another version")
    prepare_workspace(REAL, space, tmp_path)
    assert space.layout.read_bytes() == b"another version"
    assert len(list(space.directory.iterdir())) == 2


def test_only_the_first_writer_of_a_written_once_file_wins(tmp_path: Path) -> None:
    assert write_once(REAL, tmp_path / "f", b"first")
    assert not write_once(REAL, tmp_path / "f", b"second")
    assert (tmp_path / "f").read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


def test_a_file_in_the_way_of_a_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(NotADirectoryError):
        make_private(REAL, tmp_path / "f" / "d")


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
def test_a_replace_that_fails_leaves_the_old_file_whole(tmp_path: Path, call: str) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")

    def counts(op: Op) -> bool:
        return op.call == call

    with pytest.raises(OSError, match="No space"):
        replace(FaultyFs(Fault(0, errno.ENOSPC), counts), path, b"new")
    assert path.read_bytes() == b"old"
    replace(REAL, path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_replace_is_durable_in_content_and_name(tmp_path: Path) -> None:
    fs = RecordingFs()
    replace(fs, tmp_path / "f", b"new")
    assert not fs.loose
    assert not fs.hazards


# --- the log reader


def test_every_event_is_read_back_with_its_own_bytes(tmp_path: Path) -> None:
    events = [
        StoredEvent(
            session_id=SESSION,
            run_id=None,
            seq=seq,
            timestamp="2026-01-02T03:04:05.678Z",
            payload=payload,  # type: ignore[arg-type]
        )
        for seq, payload in enumerate([CREATED, *all_samples()], 1)
    ]
    lines = [encode(event) for event in events]
    read = read_log(log_of(tmp_path, *lines), SESSION)
    assert list(read) == list(zip(events, lines, strict=True))
    assert (read.skipped, read.gaps, read.degraded, read.tail) == ([], [], [], "whole")
    assert read.last_seq == len(events)
    assert read.size == (tmp_path / "events.jsonl").stat().st_size


def test_lines_are_split_at_newlines_only(tmp_path: Path) -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\rg"
    path = log_of(tmp_path, line(1), line(2, text), line(3))
    assert seqs(path) == [1, 2, 3]


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1000])
def test_the_size_of_a_chunk_makes_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(log_module, "CHUNK_BYTES", size)
    path = log_of(tmp_path, line(1), line(2), b"", b"junk", line(3, "y" * 500), line(4), end=b"")
    read = read_log(path)
    assert [event.seq for event in read.events()] == [1, 2, 3, 4]
    offset = len(line(1)) + len(line(2)) + 3
    assert [(note.offset, note.length) for note in read.skipped] == [(offset, 4)]
    assert read.tail == "unended"
    assert read.size == path.stat().st_size


def test_an_unreadable_line_is_skipped_with_what_can_be_told_of_it(tmp_path: Path) -> None:
    unknown = line(3).replace(b'"user_input_submitted"', b'"from_the_future"')
    path = log_of(tmp_path, line(1), b"{", unknown, line(4), b"\xff\xfe")
    read = read_log(path)
    assert [event.seq for event in read.events()] == [1, 4]
    first, second, third = read.skipped
    assert first.offset == len(line(1)) + 1
    assert first.length == 1
    assert (second.seq, second.type) == (3, "from_the_future")
    assert third.length == 2
    assert read.skipped_count == 3
    assert read.gaps == [Gap(2, 3)]


def test_a_gap_is_reported_once_for_its_range(tmp_path: Path) -> None:
    read = read_log(log_of(tmp_path, line(1), line(5), line(6), line(9))).drain()
    assert read.gaps == [Gap(2, 4), Gap(7, 8)]
    assert read.gap_count == 2
    assert read.last_seq == 9


@pytest.mark.parametrize(
    ("numbers", "kept"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([1, 1000002, 3, 4], [1, 3, 4]),
        ([1, 2, 1000003], [1, 2, 1000003]),
        ([1, 2, 7, 4, 5, 6, 7, 8], [1, 2, 4, 5, 6, 7, 8]),
        ([1, 2, 1, 4], [1, 2, 4]),
        ([1, 2, 2, 3], [1, 2, 3]),
        ([1, 5, 5, 6], [1, 5, 6]),
        ([1, 10, 20, 30], [1, 10, 20, 30]),
        ([1, 9, 3, 8, 5, 6], [1, 3, 5, 6]),
    ],
)
def test_a_number_that_the_next_line_contradicts_costs_its_own_line_only(
    tmp_path: Path, numbers: list[int], kept: list[int]
) -> None:
    lines = [line(1), *(line(2).replace(b'"seq":2,', f'"seq":{n},'.encode()) for n in numbers[1:])]
    read = read_log(log_of(tmp_path, *lines))
    assert [event.seq for event in read.events()] == kept
    assert read.skipped_count == len(numbers) - len(kept)


def test_an_event_of_another_session_is_skipped(tmp_path: Path) -> None:
    other = line(2, session="01890000-0000-7000-8000-00000000000b")
    read = read_log(log_of(tmp_path, line(1), other, line(3)))
    assert [event.seq for event in read.events()] == [1, 3]
    assert read.skipped == [
        SkippedLine(
            len(line(1)) + 1, len(other), "names another session", 2, "user_input_submitted"
        )
    ]


def test_a_mistyped_optional_field_is_noted_and_the_event_kept(tmp_path: Path) -> None:
    odd = line(2).replace(b'"engine_version":null', b'"engine_version":[7]')
    read = read_log(log_of(tmp_path, line(1), odd, line(3)))
    assert [event.seq for event in read.events()] == [1, 2, 3]
    assert read.degraded_count == 1
    assert isinstance(read.degraded[0], DegradedLine)
    assert read.degraded[0].seq == 2


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "empty"),
        ([line(2), line(3)], "another event"),
        ([line(1)[:-1] + b"!", line(2)], "not JSON"),
        ([line(1)[:40]], "not JSON"),
        ([line(1).replace(b"session_created", b"session_cremated"), line(2)], "unknown event type"),
        ([line(1, session="01890000-0000-7000-8000-00000000000b")], "of session"),
    ],
)
def test_a_session_whose_first_line_is_unreadable_does_not_open_and_says_why(
    tmp_path: Path, lines: list[bytes], why: str
) -> None:
    with pytest.raises(SessionUnreadable, match=why) as refused:
        list(read_log(log_of(tmp_path, *lines), SESSION))
    assert refused.value.code == "session_unreadable"


def test_a_log_that_is_not_there_is_an_error_of_the_disk(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_log(tmp_path / "none").drain()


def test_reading_changes_nothing(tmp_path: Path) -> None:
    path = log_of(tmp_path, line(1), b"junk", line(2)[:30], end=b"")
    before = path.read_bytes()
    fs = RecordingFs()
    read = read_log(path, fs=fs).drain()
    assert read.tail == "unended"
    assert {op.call for op in fs.ops} == {"open", "pread", "close"}
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["events.jsonl"]


def test_a_whole_record_without_its_newline_counts(tmp_path: Path) -> None:
    read = read_log(log_of(tmp_path, line(1), line(2), end=b"")).drain()
    assert (read.last_seq, read.tail, read.skipped_count) == (2, "unended", 0)


@pytest.mark.parametrize(
    ("lines", "end", "damaged"),
    [
        ([line(1), line(2)], b"\n", False),
        ([line(1), line(2)], b"", False),
        ([line(1), b"junk"], b"\n", True),
        ([line(1), b"junk"], b"", False),
        ([line(1), b"junk", b"torn"], b"", True),
        ([line(1), b"junk", line(2)], b"\n", False),
        ([line(1), b"junk", line(2)], b"", False),
        ([line(1), line(2), line(1)], b"\n", True),
        ([line(1), line(9), line(2)], b"", False),
    ],
)
def test_damage_behind_the_last_event_is_told_from_a_torn_line(
    tmp_path: Path, lines: list[bytes], end: bytes, *, damaged: bool
) -> None:
    read = read_log(log_of(tmp_path, *lines, end=end)).drain()
    assert read.tail_damaged is damaged


def test_notes_are_bounded_and_all_are_counted(tmp_path: Path) -> None:
    read = read_log(log_of(tmp_path, line(1), *[b"junk"] * 500, line(2))).drain()
    assert read.skipped_count == 500
    assert len(read.skipped) == log_module.NOTES_MAX


def test_a_line_without_an_end_is_passed_over_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "LINE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(log_module, "CHUNK_BYTES", 1 << 16)
    path = tmp_path / "events.jsonl"
    with path.open("wb") as log:
        log.write(line(1) + b"\n")
        for _ in range(32):
            log.write(b"a" * (1 << 20))
        log.write(b"\n" + line(2) + b"\n")
    tracemalloc.start()
    read = read_log(path).drain()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert read.last_seq == 2
    assert read.skipped == [SkippedLine(len(line(1)) + 1, 32 << 20, "longer than 1048576 bytes")]
    assert peak < 8 << 20


def test_a_closed_reader_leaves_no_descriptor(tmp_path: Path) -> None:
    path = log_of(tmp_path, *(line(seq) for seq in range(1, 50)))
    before = len(list(Path("/proc/self/fd").iterdir()))
    events = read_log(path).events()
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# --- metadata


def metadata() -> Metadata:
    return Metadata(
        session_id=SESSION,
        origin=RootOrigin(),
        cwd_identity="/w",
        status="completed",
        title_updated_seq=0,
        last_event_seq=7,
        last_activity="2026-01-02T03:04:05.678Z",
        creation_selection=CREATED.creation_selection,
        revisions=CREATED.revisions,
    )


def test_metadata_is_read_back(tmp_path: Path) -> None:
    where = SessionPaths(tmp_path)
    write_metadata(where.metadata, metadata())
    write_metadata(where.metadata, metadata())
    assert read_metadata(where.metadata, SESSION) == metadata()
    assert [path.name for path in tmp_path.iterdir()] == ["metadata"]
    assert where.metadata.stat().st_mode & 0o777 == 0o600


def test_missing_metadata_is_none(tmp_path: Path) -> None:
    assert read_metadata(tmp_path / "metadata", SESSION) is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff", b'{"session_id":"x"}', b"[" * 99999]
)
def test_damaged_metadata_is_a_diagnostic(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metadata").write_bytes(content)
    assert isinstance(read_metadata(tmp_path / "metadata", SESSION), BadMetadata)


def test_metadata_of_another_session_is_a_diagnostic(tmp_path: Path) -> None:
    write_metadata(tmp_path / "metadata", metadata())
    found = read_metadata(tmp_path / "metadata", SessionId("another"))
    assert found == BadMetadata(str(tmp_path / "metadata"), f"it is of session {SESSION}")


def test_metadata_that_the_disk_refuses_is_a_diagnostic(tmp_path: Path) -> None:
    write_metadata(tmp_path / "metadata", metadata())
    for fault in (Fault(0, errno.EIO), Fault(1, errno.EIO)):
        found = read_metadata(tmp_path / "metadata", SESSION, FaultyFs(fault))
        assert isinstance(found, BadMetadata)
