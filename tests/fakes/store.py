"""The standard append scenario on a real directory, and what must be true of it afterwards.

The checks take `Parts`, so that a mutant in the place of one class can be shown to be caught.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ipc.content import user_text
from ipc.disk.log import LogRead, SessionUnreadable, read_log
from ipc.disk.paths import TreePaths, WorkspacePaths
from ipc.events import (
    Payload,
    RunCompleted,
    SessionCreated,
    TextDelta,
    UserInputSubmitted,
    is_commit,
)
from ipc.ids import AttemptId, RunId, SessionId
from ipc.seams.fs import REAL, Fs
from tests.fakes.clock import FakeClock
from tests.fakes.fs import Fault, FaultyFs, RecordingFs
from tests.fakes.samples import samples
from workers.store.artifacts import Artifacts
from workers.store.file import LogFile, LogPoisoned
from workers.store.log import LogWriter, Record, WriterThread
from workers.store.publish import AlreadyPublished, publish
from workers.store.tree import Fenced, LogBroken, OwnedTree

SESSION = SessionId("01890000-0000-7000-8000-00000000000a")
RUN = RunId("01890000-0000-7000-8000-00000000000b")
ATTEMPT = AttemptId("01890000-0000-7000-8000-00000000000c")
CREATED: Any = samples(SessionCreated)[0]
BLOCK = 512


@dataclass(frozen=True)
class Parts:
    """The classes under test; a mutant replaces one of them."""

    file: type[LogFile] = LogFile
    writer: type[LogWriter] = LogWriter
    tree: type[OwnedTree] = OwnedTree
    publish: Callable[[OwnedTree, Path], None] = publish


@dataclass
class Moment:
    """What the disk was sure of when somebody was told of something."""

    told: list[bytes]  # the lines of all commit events told so far
    content: bytes
    synced: int
    loose: set[str]


@dataclass
class Story:
    """What happened in one scenario."""

    workspace: Path
    told: list[Record] = field(default_factory=list)
    moments: list[Moment] = field(default_factory=list)
    refused: list[Exception] = field(default_factory=list)

    @property
    def tree(self) -> TreePaths:
        """Where the tree ended up."""
        space = WorkspacePaths(self.workspace)
        final, staged = space.tree(SESSION), space.staging(SESSION)
        return final if final.directory.exists() else staged

    @property
    def commits(self) -> list[bytes]:
        """The lines of the commit events that somebody was told of."""
        return [line for event, line in self.told if is_commit(event.payload)]


def user(text: str) -> Payload:
    return UserInputSubmitted(input=user_text(text))


def delta(text: str) -> Payload:
    return TextDelta(attempt_id=ATTEMPT, text=text)


def staged(workspace: Path) -> tuple[TreePaths, int]:
    """A locked tree that is not published, as the supervisor hands it over."""
    tree = WorkspacePaths(workspace).staging(SESSION)
    tree.directory.mkdir(mode=0o700, parents=True)
    fd = os.open(tree.lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return tree, fd


def locked(tree: TreePaths) -> int:
    """The lock of a tree that is there; raises BlockingIOError when it is held."""
    fd = os.open(tree.lock, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise
    return fd


async def standard_scenario(workspace: Path, fs: Fs, parts: Parts | None = None) -> Story:
    """Birth, publication, deltas, commits, an artifact; goes on after what may be gone on after."""
    parts = parts or Parts()
    story = Story(workspace)
    paths, lock = staged(workspace)
    tree = parts.tree(paths.directory, lock, fs)
    thread = WriterThread(FakeClock())

    def deliver(records: Sequence[Record]) -> None:
        story.told += records
        if isinstance(fs, RecordingFs):
            log = tree.paths.root.events
            story.moments.append(
                Moment(
                    told=story.commits,
                    content=log.read_bytes(),
                    synced=fs.synced.get(str(log), 0),
                    loose=fs.loose_above(log, workspace),
                )
            )

    try:
        try:
            file = parts.file.create(tree, tree.paths.root)
        except OSError as error:
            story.refused.append(error)
            return story
        log = parts.writer(thread, file, SESSION, 0, deliver)
        final = WorkspacePaths(workspace).tree(SESSION).directory
        birth: list[tuple[RunId | None, Payload]] = [(None, CREATED), (None, user("hello"))]
        steps = [
            partial(log.append, birth, then=partial(parts.publish, tree, final)),
            partial(_deltas, thread, log, "a" * 700, "b", "c" * 5000),
            partial(log.append, [(RUN, user("x" * 1200))]),
            partial(_deltas, thread, log, "d"),
            partial(log.append, [(RUN, user("y")), (RUN, user("z" * 2000))]),
            partial(_artifact, tree, story),
            partial(log.append, [(RUN, RunCompleted(final_text="done"))]),
        ]
        for step in steps:
            try:
                await step()
            except (LogBroken, AlreadyPublished, OSError) as error:
                story.refused.append(error)
                if log.last_seq == 0:
                    break  # a session that was never born has no history to add to
        return story
    finally:
        await thread.close()
        tree.release()


async def _deltas(thread: WriterThread, log: LogWriter, *texts: str) -> None:
    for text in texts:
        await log.delta(RUN, delta(text))
    log.flush()
    await thread.call(lambda: None)  # waits for what was sent before, and syncs nothing


async def _artifact(tree: OwnedTree, story: Story) -> None:
    try:
        Artifacts(tree).put(b"artifact" * 100)
    except OSError as error:
        story.refused.append(error)


def lines_of(path: Path) -> list[bytes]:
    """The lines that a reader takes for events."""
    return [line for _, line in read_log(path)]


def check_reopens(tree: TreePaths, must_hold: Sequence[bytes], parts: Parts | None = None) -> None:
    """Open, append, open again: all of `must_hold` and the new event are there, in rising order."""
    parts = parts or Parts()
    read = read_log(tree.root.events)
    try:
        before = list(read)
    except SessionUnreadable:
        assert not must_hold, "acknowledged events in a session that does not open"
        return
    _holds([line for _, line in before], must_hold)
    content = tree.root.events.read_bytes()
    new = asyncio.run(_append_after(tree, read, parts))
    # What was there stays as it is, and each new event has a line of its own.
    healed = content if content.endswith(b"\n") else content + b"\n"
    assert tree.root.events.read_bytes() == healed + b"".join(line + b"\n" for line in new)
    again = read_log(tree.root.events)
    after = list(again)
    assert [line for _, line in after] == [*(line for _, line in before), *new], "history changed"
    seqs = [event.seq for event, _ in after]
    assert seqs == sorted(set(seqs)), "seq does not rise"
    assert again.skipped_count == read.skipped_count, "the append made a line unreadable"
    assert again.tail == "whole"


async def _append_after(tree: TreePaths, read: LogRead, parts: Parts) -> list[bytes]:
    owned = parts.tree(tree.directory, locked(tree))
    thread = WriterThread(FakeClock())
    try:
        file = parts.file.reopen(owned, owned.paths.root, read)
        assert read.session_id is not None
        log = parts.writer(thread, file, read.session_id, read.last_seq, lambda records: None)
        records = await log.append([(None, user("after the damage"))])
        return [line for _, line in records]
    finally:
        await thread.close()
        owned.release()


def _holds(have: Sequence[bytes], must_hold: Sequence[bytes]) -> None:
    rest = iter(have)
    for line in must_hold:
        assert line in rest, f"lost, or out of order: {line[:120]!r}"


def crash_states(content: bytes, synced: int) -> Iterator[bytes]:
    """What a power cut may leave of a file: an unsynced tail gone, or a block of it never there."""
    for end in sorted({*range(synced, len(content), BLOCK), len(content)}):
        yield content[:end]
    for start in range(synced, len(content), BLOCK):
        end = min(start + BLOCK, len(content))
        yield content[:start] + bytes(end - start) + content[end:]


def check_crash_states(tmp: Path, parts: Parts | None = None) -> int:
    """At each moment somebody was told of something, no crash loses a commit event told so far."""
    fs = RecordingFs()
    story = asyncio.run(standard_scenario(tmp / "space", fs, parts))
    assert not story.refused
    assert story.moments
    assert not fs.hazards
    states = 0
    for moment in story.moments:
        assert not moment.loose, f"a crash could take the name away: {moment.loose}"
        for content in crash_states(moment.content, moment.synced):
            states += 1
            log = tmp / "crashed.jsonl"
            log.write_bytes(content)
            try:
                have = lines_of(log)
            except SessionUnreadable:
                have = []
            _holds(have, moment.told)
    return states


def damaged_copy(tree: TreePaths, content: bytes, place: Path) -> TreePaths:
    """A tree like `tree` whose log holds `content`."""
    copy = TreePaths(place)
    if not place.exists():
        place.mkdir(mode=0o700)
        copy.lock.touch(0o600)
    copy.root.events.write_bytes(content)
    return copy


def good_log(tmp: Path, commits: int = 40) -> tuple[TreePaths, list[bytes]]:
    """A published tree with a log of `commits` and as many deltas, of many lengths; its lines."""
    return asyncio.run(_good_log(tmp / "good", commits))


async def _good_log(workspace: Path, commits: int) -> tuple[TreePaths, list[bytes]]:
    paths, lock = staged(workspace)
    tree = OwnedTree(paths.directory, lock, REAL)
    thread = WriterThread(FakeClock())
    told: list[Record] = []
    log = LogWriter(thread, LogFile.create(tree, tree.paths.root), SESSION, 0, told.extend)
    await log.append([(None, CREATED)])
    for n in range(commits):
        await log.append([(RUN, user(f"{n} é\u2028\x0b\x85 " + "w" * (n * 37 % 400)))])
        await log.delta(RUN, delta("t" * (n % 7)))
    await thread.close()
    tree.release()
    return tree.paths, [line for _, line in told]


def calls_of_the_scenario(tmp: Path) -> int:
    fs = FaultyFs(Fault(1 << 30))
    story = asyncio.run(standard_scenario(tmp, fs))
    assert not story.refused
    assert len(story.told) == 10
    return fs.calls


def check_fault(tmp: Path, fault: Fault, parts: Parts | None = None) -> Story:
    fs = FaultyFs(fault)
    story = asyncio.run(standard_scenario(tmp, fs, parts))
    log = str(story.tree.root.events)
    # Whatever failed: nobody was told of what the log does not hold, and it goes on from there.
    if story.told:
        check_reopens(story.tree, [line for _, line in story.told])
    elif story.tree.root.events.exists():
        check_reopens(story.tree, [])
    syncs = [op for op in fs.failed if op.call == "fdatasync" and op.path == log]
    assert len(syncs) <= 1, "a failed sync was tried again"
    if syncs and not fault.sticky:  # else it may be the last one, of deltas, at the close
        assert any(isinstance(error, LogPoisoned) for error in story.refused)
    return story


def check_faults(tmp: Path, fault: Fault, parts: Parts | None = None) -> None:
    """`fault` at each call of the scenario in turn."""
    calls = calls_of_the_scenario(tmp / "whole")
    assert calls > 30
    told = 0
    for index in range(calls):
        story = check_fault(tmp / str(index), fault._replace(first=index), parts)
        told += len(story.told)
        if fault.short is None:
            assert story.refused, f"call {index} failed and nobody was told"
    assert told


def check_the_lock_stays_with_the_others(tmp: Path, parts: Parts | None = None) -> None:
    """A worker that lets go of its tree does not let go for the supervisor, which holds it too."""
    parts = parts or Parts()
    paths, inherited = staged(tmp / "space")
    supervisors = os.dup(inherited)
    parts.tree(paths.directory, inherited).release()
    assert is_locked(paths), "the supervisor's lock is gone"
    os.close(supervisors)
    assert not is_locked(paths), "the lock outlives all its owners"


def is_locked(tree: TreePaths) -> bool:
    """Whether nobody else could take the tree now."""
    try:
        os.close(locked(tree))
    except BlockingIOError:
        return True
    return False


def check_cuts(tmp: Path, parts: Parts | None = None) -> None:
    """A log cut at each of its last bytes takes an append that is there at the next open."""
    tree, lines = good_log(tmp, 4)
    content = tree.root.events.read_bytes()
    for cut in range(len(content) - len(lines[-1]) - 8, len(content) + 1):
        copy = damaged_copy(tree, content[:cut], tmp / "copy")
        kept = [line for line in lines if content.index(line) + len(line) <= cut]
        check_reopens(copy, kept, parts)


def check_a_changed_lock_fences(tmp: Path, parts: Parts | None = None) -> None:
    """A writer whose lock was broken by force writes nothing any more."""
    asyncio.run(_break_the_lock(tmp / "space", parts or Parts()))


async def _break_the_lock(workspace: Path, parts: Parts) -> None:
    paths, lock = staged(workspace)
    tree = parts.tree(paths.directory, lock)
    thread = WriterThread(FakeClock())
    log = parts.writer(thread, parts.file.create(tree, tree.paths.root), SESSION, 0, lambda _: None)
    try:
        await log.append([(None, CREATED)])
        before = paths.root.events.read_bytes()
        paths.lock.unlink()
        paths.lock.touch(0o600)
        with contextlib.suppress(Fenced):
            await log.append([(None, user("I was asleep"))])
        assert paths.root.events.read_bytes() == before, "a writer without its lock wrote"
    finally:
        await thread.close()
        tree.release()
