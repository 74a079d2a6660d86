"""The tool `read`: a page of a text file, the names in a directory, a page of an artifact."""
# ruff: noqa: PTH119, PTH120 - names are cut as text, as everywhere in paths

import os
import re
import stat
import unicodedata
from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from ipc.content import ListingDisplay, ToolResult
from ipc.faults import Fault
from ipc.rules import Action
from ipc.seams.fs import REAL as FS
from workers.store.artifacts import parse_uri
from workers.tools.base import ArtifactReader, ArtifactStore, Room, Tool, ToolFailure, off_loop
from workers.tools.capture import stream_of
from workers.tools.pages import Page, take_page
from workers.tools.paths import (
    SNIFF_BYTES,
    absolute,
    is_artifact,
    label_of,
    open_regular,
    os_failure,
    quoted,
    refuse_binary,
)

BOM: Final = b"\xef\xbb\xbf"
ARTIFACT_LINES_MAX: Final = 2000  # of one page (spec 1.18)
ENTRIES_MAX: Final = 100_000  # of a directory that are looked at
LISTED_MAX: Final = 200  # names in what a person is shown
SIMILAR_MAX: Final = 3
SAME_LOOKS: Final = "looks the same but is spelled with other characters"

_BREAKING = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")  # control characters, line ends


class Read(Tool, frozen=True, kw_only=True):
    """Read a text file, list a directory, or page through an artifact:// URI.

    The output of this tool is paged by its own arguments and not cut by the output limits.
    """

    name: ClassVar[str] = "read"
    action: ClassVar[Action] = "read"
    parallel: ClassVar[bool] = True
    system_texts: ClassVar[tuple[str, ...]] = ("filePath",)

    filePath: Annotated[  # noqa: N815 - the argument's name in every prompt
        str,
        Meta(description="Path, absolute or relative to the workspace, or an artifact:// URI"),
    ]
    offset: Annotated[int, Meta(ge=0, description="Lines to skip (0 = from the start)")] = 0
    limit: Annotated[int, Meta(ge=1, description="How many lines to read at most")] = 2000

    def label(self, workspace: str) -> str:
        """The path, relative inside the workspace and absolute outside, or the URI verbatim."""
        return label_of(self.filePath, workspace)

    def primary_argument(self) -> str:
        """The path as asked for."""
        return self.filePath

    async def run(self, room: Room) -> ToolResult:
        """One page. Raises ToolFailure."""
        if is_artifact(self.filePath):
            return await off_loop(lambda: self._artifact(room.artifacts))
        return await off_loop(lambda: self._path(room.workspace))

    # --- files and directories

    def _path(self, workspace: str) -> ToolResult:
        path, shown = absolute(self.filePath, workspace), self.label(workspace)
        try:
            status = FS.stat(path)
        except FileNotFoundError as error:
            raise ToolFailure("not_found", f"{quoted(shown)} does not exist{_similar(path)}") from (
                error
            )
        except OSError as error:
            raise os_failure(error, shown) from error
        if stat.S_ISDIR(status.st_mode):
            return self._directory(path, shown)
        return self._file(path, shown)

    def _file(self, path: str, shown: str) -> ToolResult:
        fd, status = open_regular(path, shown)
        try:
            head = FS.pread(fd, SNIFF_BYTES, 0)
            refuse_binary(head, status.st_size, shown)
            page = take_page(lambda at, count: FS.pread(fd, count, at), self.offset, self.limit)
        except OSError as error:
            raise os_failure(error, shown) from error
        finally:
            FS.close(fd)
        lines, clean_text = _decoded(page)
        numbered = "".join(
            f"{number}: {line}\n" for number, line in enumerate(lines, start=page.first + 1)
        )
        output = f"<path>{shown}</path>\n<type>file</type>\n<content>\n{numbered}</content>"
        if not clean_text:
            output += "\n[Some bytes are not UTF-8; they are shown as \ufffd.]"
        return ToolResult(
            title=f"Read {quoted(shown)}",
            output=output + self._where(shown, page.total, page.next_offset, len(lines), "lines"),
            metadata=self._facts("file", page.total, page.next_offset),
        )

    def _directory(self, path: str, shown: str) -> ToolResult:
        try:
            entries, complete = _entries(path)
        except OSError as error:
            raise os_failure(error, shown) from error
        page = entries[self.offset : self.offset + self.limit]
        end = self.offset + len(page)
        following = end if end < len(entries) else None
        total = len(entries) if complete else None
        listed = "".join(f"{name}\n" for name in page)
        output = f"<path>{shown}</path>\n<type>directory</type>\n<entries>\n{listed}</entries>"
        if not complete:
            output += f"\n[There are more than {ENTRIES_MAX} names; only so many are looked at.]"
        return ToolResult(
            title=f"Listed {quoted(shown)}",
            output=output + self._where(shown, total, following, len(page), "names"),
            metadata=self._facts("directory", total, following),
            display=(ListingDisplay(path=shown, entries=tuple(page[:LISTED_MAX])),),
        )

    # --- artifacts

    def _artifact(self, artifacts: ArtifactStore) -> ToolResult:
        limit = min(self.limit, ARTIFACT_LINES_MAX)
        try:
            with _open_artifact(self.filePath, artifacts) as reader:
                page = take_page(reader.page, self.offset, limit)
        except Fault as fault:
            raise ToolFailure(fault.code, str(fault)) from fault
        except OSError as error:
            raise os_failure(error, self.filePath) from error
        lines, _ = _decoded(page, keep_cr=True)
        output = "\n".join(lines)
        shown = self.filePath
        return ToolResult(
            title=f"Read {quoted(shown)}",
            output=output + self._where(shown, page.total, page.next_offset, len(lines), "lines"),
            metadata=self._facts("artifact", page.total, page.next_offset) | {"limit": limit},
        )

    # --- both

    def _where(
        self, shown: str, total: int | None, following: int | None, count: int, noun: str
    ) -> str:
        """What stands below a page that is not the whole: where it lies and how to read on."""
        of = "" if total is None else f" of {total}"
        if following is not None:
            more = f'read(filePath="{shown}", offset={following})'
            return f"\n[{noun.capitalize()} {self.offset + 1}-{following}{of}. Read on: {more}]"
        if count == 0 and self.offset:
            return f"\n[Nothing at offset {self.offset}: there are {total} {noun}.]"
        if self.offset:
            return f"\n[{noun.capitalize()} {self.offset + 1}-{self.offset + count}{of}, the end.]"
        return ""

    def _facts(self, kind: str, total: int | None, following: int | None) -> dict[str, Any]:
        facts = {"kind": kind, "offset": self.offset, "limit": self.limit, "total_lines": total}
        return facts if following is None else facts | {"next_offset": following}


def _open_artifact(uri: str, artifacts: ArtifactStore) -> ArtifactReader:
    digest, stream = parse_uri(uri)
    if stream is None:
        return artifacts.open(digest)
    with artifacts.open(digest) as manifest:
        found = stream_of(manifest, stream)
    return artifacts.open(found)


def _decoded(page: Page, *, keep_cr: bool = False) -> tuple[list[str], bool]:
    """The lines of a page as text, and whether every byte of them was UTF-8."""
    lines: list[str] = []
    strict = True
    for number, raw in enumerate(page.lines):
        line = raw if keep_cr else raw.removesuffix(b"\r")
        if not keep_cr and number == page.first == 0:
            line = line.removeprefix(BOM)  # so that line 1 reads as an edit has to spell it
        try:
            text = line.decode()
        except UnicodeDecodeError as bad:
            text = line.decode("utf-8", "replace")
            if number in page.cut and bad.reason == "unexpected end of data":
                text = text[:-1]  # the cut went through a character
            else:
                strict = False
        if number in page.cut:
            text += f" [… {page.cut[number]} bytes of this line are left out]"
        lines.append(text.replace("\0", "\ufffd"))
    return lines, strict


def _entries(path: str) -> tuple[list[str], bool]:
    """The names in a directory in order, `/` behind directories; and whether these are all."""
    names: list[str] = []
    with os.scandir(path) as found:
        for entry in found:
            if len(names) == ENTRIES_MAX:
                return sorted(names), False
            names.append(_name(entry.name) + ("/" if _is_dir(entry) else ""))
    return sorted(names), True


def _is_dir(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads nowhere, or to where we may not look
        return False


def _name(name: str) -> str:
    """A file name as it has to be asked for, except for what is not UTF-8 or breaks its line."""
    return _BREAKING.sub("\ufffd", os.fsencode(name).decode("utf-8", "replace"))


def _similar(path: str) -> str:
    """Names beside a missing path that may have been meant."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

    wanted = os.path.basename(path)
    try:
        names = [name.rstrip("/") for name in _entries(os.path.dirname(path))[0]]
    except OSError:
        return ""
    twins = [name for name in names if _looks(name) == _looks(wanted)]
    if twins:
        # Told and never opened instead: which file is meant is the model's to say.
        return f"; {', '.join(map(ascii, twins[:SIMILAR_MAX]))} {SAME_LOOKS}"
    close = get_close_matches(wanted, names, n=SIMILAR_MAX)
    return f"; did you mean {' or '.join(map(quoted, close))}?" if close else ""


def _looks(name: str) -> str:
    plain = unicodedata.normalize("NFKC", name)
    return " ".join(plain.split()).casefold()
