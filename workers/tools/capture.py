"""What a process prints: counted, previewed head and tail, kept whole in artifacts, told live."""

import asyncio
import codecs
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from ipc.content import Truncation
from ipc.faults import Fault, clean
from ipc.ids import Digest
from ipc.plan import ToolOutput
from workers.tools.base import ArtifactReader, ArtifactStore, ArtifactWriter, ToolFailure

MANIFEST_BYTES_MAX: Final = 64 << 10
HELD_BYTES_MAX: Final = 64 << 10  # of one stream, before it goes to a file
CHUNK_CHARS_MAX: Final = 1024  # of one progress event
FLUSH_S: Final = 0.05
FLUSH_CHARS: Final = 4096
LIVE_CHARS_MAX: Final = 1 << 20  # told live of one call
SILENT: Final = "\n[… what follows is not shown live; the result has it]\n"


# --- the manifest --------------------------------------------------------------------------------


class ManifestStream(Struct, frozen=True, kw_only=True):
    """One named stream of a captured output."""

    name: str
    digest: Digest
    bytes: int


class Manifest(Struct, frozen=True, kw_only=True, tag_field="kind", tag="tool_output"):
    """A captured output: an artifact that names one artifact a stream, in declaration order."""

    streams: tuple[ManifestStream, ...]
    complete: bool = True  # whether the process came to its end by itself


def stream_of(manifest: ArtifactReader, stream: str) -> Digest:
    """The artifact of a stream that a manifest names; raises ToolFailure."""
    text = manifest.page(0, MANIFEST_BYTES_MAX)
    try:
        read = msgspec.json.decode(text, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        message = "that artifact has no streams; read it without a stream's name"
        raise ToolFailure("artifact_no_streams", message) from bad
    for found in read.streams:
        if found.name == stream:
            return found.digest
    known = ", ".join(found.name for found in read.streams)
    raise ToolFailure("artifact_no_stream", f"no stream {clean(stream, 64)}; it has {known}")


# --- the preview ---------------------------------------------------------------------------------


class Shown(NamedTuple):
    """What of a stream a model is shown: a head and, when that is not all, a tail."""

    head: str
    tail: str
    whole: bool
    lines: int  # shown
    bytes: int  # shown
    next_line: int  # index of the first line not shown whole, from 0


class Preview:
    """The head and the tail of a stream of bytes, in memory of about twice the limit."""

    def __init__(self, limits: ToolOutput) -> None:
        self.size = 0  # bytes of the stream
        self._newlines = 0
        self._last = b"\n"
        self._limits = limits
        self._head = bytearray()
        self._tail = bytearray()

    @property
    def lines(self) -> int:
        """Lines of the stream; a last one without a newline counts."""
        return self._newlines + (self._last != b"\n")

    @property
    def fits(self) -> bool:
        """Whether the whole stream is within the limits."""
        return self.size <= self._limits.max_bytes and self.lines <= self._limits.max_lines

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        room = self._limits.max_bytes - len(self._head)
        if room > 0:
            self._head += chunk[:room]
        half = self._limits.max_bytes // 2
        self._tail += chunk[-half:] if half else b""
        if len(self._tail) > 2 * half:
            del self._tail[: len(self._tail) - half]
        self.size += len(chunk)
        self._newlines += chunk.count(b"\n")
        self._last = chunk[-1:] or self._last

    def shown(self) -> Shown:
        """What to show. Cut at line ends where there are some, never inside a character."""
        if self.fits:
            text = _text(bytes(self._head))
            return Shown(text, "", True, self.lines, self.size, self.lines)
        lines, size = self._limits.max_lines // 2, self._limits.max_bytes // 2
        head = _first_lines(bytes(self._head[:size]), lines)
        tail = _last_lines(bytes(self._tail[-size:] if size else b""), lines)
        kept = head.count(b"\n") + tail.count(b"\n") + (tail[-1:] not in {b"", b"\n"})
        return Shown(
            _text(head), _text(tail), False, kept, len(head) + len(tail), head.count(b"\n")
        )


def _first_lines(data: bytes, lines: int) -> bytes:
    end = -1
    for _ in range(lines):
        following = data.find(b"\n", end + 1)
        if following < 0:
            break
        end = following
    else:
        return data[: end + 1]
    if end + 1 > len(data) // 2:
        return data[: end + 1]
    return _without_half_character(data)  # one long line: better a part of it than none


def _without_half_character(data: bytes) -> bytes:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    waiting, _ = decoder.getstate()
    return data[: len(data) - len(waiting)]


def _last_lines(data: bytes, lines: int) -> bytes:
    begin = len(data)
    for _ in range(lines):
        # The newline before the last line shown so far; the one that ends it does not count.
        before = data.rfind(b"\n", 0, max(begin - 1, 0))
        if before < 0:
            break
        begin = before + 1
    else:
        return data[begin:]
    if len(data) - begin > len(data) // 2:
        return data[begin:]
    return data.lstrip(bytes(range(0x80, 0xC0)))  # continuation bytes of a character cut in two


def _text(data: bytes) -> str:
    # NUL is no character that every provider takes, and no terminal shows it.
    return data.decode("utf-8", "replace").replace("\0", "\ufffd")


# --- one stream ----------------------------------------------------------------------------------


class Stream:
    """One output stream of a process. Never fails: what can't be kept is counted and said."""

    def __init__(self, name: str, limits: ToolOutput, artifacts: ArtifactStore) -> None:
        self.name = name
        self.preview = Preview(limits)
        self.lost: str | None = None  # why the artifact is not whole
        self._artifacts = artifacts
        self._held = bytearray()
        self._writer: ArtifactWriter | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes: into memory while they are few, then into a file of the tree."""
        self.preview.feed(chunk)
        if self.lost is not None:
            return
        try:
            if self._writer is not None:
                self._writer.write(chunk)
                return
            self._held += chunk
            if len(self._held) > HELD_BYTES_MAX or not self.preview.fits:
                self._spill()
        except OSError as error:
            # The command goes on: its effects are worth more than its words.
            self.lost = error.strerror or str(error)

    def _spill(self) -> None:
        self._writer = self._artifacts.writer()
        held, self._held = self._held, bytearray()
        self._writer.write(bytes(held))

    def keep(self) -> ManifestStream:
        """Make what there is durable. Blocks; raises OSError."""
        if self._writer is None:
            self._spill()
        assert self._writer is not None
        size = self._writer.size
        return ManifestStream(name=self.name, digest=self._writer.finish(), bytes=size)

    def discard(self) -> None:
        """Drop the file, if there is one. Harmless after keep()."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.discard()


class Kept(NamedTuple):
    """Where the whole of an output is: the manifest, or why there is none."""

    manifest: Digest | None
    lost: str | None


def keep_streams(streams: list[Stream], artifacts: ArtifactStore, *, complete: bool) -> Kept:
    """Retain all streams, the empty ones too, and their manifest. Blocks; never raises."""
    lost = next((stream.lost for stream in streams if stream.lost is not None), None)
    if lost is not None:
        return Kept(None, lost)
    try:
        kept = tuple(stream.keep() for stream in streams)
        manifest = Manifest(streams=kept, complete=complete)
        return Kept(artifacts.put(msgspec.json.encode(manifest)), None)
    except (OSError, Fault) as error:
        return Kept(None, str(error))


class Output(NamedTuple):
    """An output as a model is shown it."""

    text: str  # empty when nothing was printed
    truncation: Truncation | None


def render(streams: list[Stream], kept: Kept | None) -> Output:
    """The previews under one another, and how to read what they leave out.

    `kept` is None exactly when every stream fits. A stream other than the first has its name
    above it.
    """
    parts: list[str] = []
    shown = [(stream, stream.preview.shown()) for stream in streams if stream.preview.size]
    for stream, view in shown:
        if stream is not streams[0]:
            parts.append(f"[{stream.name}]\n")
        parts.append(_line(view.head))
        if not view.whole:
            lines = stream.preview.lines - view.lines
            count = f"{lines} lines, " if lines > 0 else ""
            parts.append(f"[… {count}{stream.preview.size - view.bytes} bytes left out …]\n")
            parts.append(_line(view.tail))
            parts.append(_hint(stream, view, kept))
    text = "".join(parts)
    if kept is None:
        return Output(text, None)
    manifest = kept.manifest
    return Output(
        text,
        Truncation(
            kept_lines=sum(view.lines for _, view in shown),
            kept_bytes=sum(view.bytes for _, view in shown),
            total_lines=sum(stream.preview.lines for stream in streams),
            total_bytes=sum(stream.preview.size for stream in streams),
            artifact=None if manifest is None else f"artifact://{manifest}",
        ),
    )


def _line(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def _hint(stream: Stream, view: Shown, kept: Kept | None) -> str:
    assert kept is not None, "what does not fit is kept, or it is said why not"
    said = ""
    if kept.manifest is not None:
        uri = f"artifact://{kept.manifest}/{stream.name}"
        said = f'[Truncated. Read more: read(filePath="{uri}", offset={view.next_line})]\n'
    if kept.lost is not None:
        said += f"[Not all of it could be kept: {clean(kept.lost, 200)}]\n"
    return said


# --- live ----------------------------------------------------------------------------------------

Tell = Callable[[str, str | None], Coroutine[Any, Any, None]]


class Live:
    """Tells what a process prints while it runs: gathered for 50 ms or 4 KiB, in small chunks.

    After LIVE_CHARS_MAX it says that it falls silent. So what waits here is bounded, however slow
    the one who is told may be, and the process is never held up.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._waiting: list[tuple[str, str]] = []  # (stream, text)
        self._size = 0  # characters waiting
        self._left = LIVE_CHARS_MAX
        self._closed = False
        self._some = asyncio.Event()
        self._much = asyncio.Event()

    def feed(self, stream: str, chunk: bytes) -> None:
        """Take bytes of a stream; a character may be split between two calls."""
        if self._left == 0:
            return
        decoder = self._decoders.get(stream)
        if decoder is None:
            decoder = codecs.getincrementaldecoder("utf-8")("replace")
            self._decoders[stream] = decoder
        self._take(stream, decoder.decode(chunk).replace("\0", "\ufffd"))

    def _take(self, stream: str, text: str) -> None:
        if not text:
            return
        if len(text) >= self._left:
            text = text[: self._left] + SILENT
            self._left = 0
        else:
            self._left -= len(text)
        self._waiting.append((stream, text))
        self._size += len(text)
        self._some.set()
        if self._size >= FLUSH_CHARS:
            self._much.set()

    def close(self) -> None:
        """There is no more; the pump ends when it has told what waits."""
        self._closed = True
        for stream, decoder in self._decoders.items():
            if self._left:
                self._take(stream, decoder.decode(b"", final=True))
        self._some.set()
        self._much.set()

    async def pump(self) -> None:
        """Tell until closed."""
        while not self._closed:
            await self._some.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_S):
                    await self._much.wait()
            await self.flush()
        await self.flush()

    async def flush(self) -> None:
        """Tell what waits, stream by stream in the order it came."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        self._some.clear()
        self._much.clear()
        for stream, text in _joined(waiting):
            for start in range(0, len(text), CHUNK_CHARS_MAX):
                await self._tell(stream, text[start : start + CHUNK_CHARS_MAX])


def _joined(pieces: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Neighbours of one stream as one piece."""
    joined: list[tuple[str, list[str]]] = []
    for stream, text in pieces:
        if joined and joined[-1][0] == stream:
            joined[-1][1].append(text)
        else:
            joined.append((stream, [text]))
    return [(stream, "".join(texts)) for stream, texts in joined]
