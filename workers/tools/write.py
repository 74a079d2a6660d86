"""The tool `write`: a file gets a whole new content, atomically."""

from typing import Annotated, ClassVar

from msgspec import Meta

from ipc.content import ToolResult
from ipc.rules import Action
from ipc.seams.failpoints import ARMED, hit
from workers.tools.base import Room, Tool, ToolFailure, off_loop
from workers.tools.diff import WHOLE_BYTES_MAX, diff_display, whole_change
from workers.tools.paths import (
    absolute,
    label_of,
    publish,
    quoted,
    read_whole,
    refuse_artifact,
)


class Write(Tool, frozen=True, kw_only=True):
    """Write a file: create it, with the directories it needs, or replace its whole content.

    The old content or the new one is there at any time, never a part.
    """

    name: ClassVar[str] = "write"
    action: ClassVar[Action] = "write"
    parallel: ClassVar[bool] = False
    system_texts: ClassVar[tuple[str, ...]] = ("filePath",)

    filePath: Annotated[  # noqa: N815 - the argument's name in every prompt
        str, Meta(description="Path of the file, absolute or relative to the workspace")
    ]
    content: Annotated[str, Meta(description="The whole new content")]

    def label(self, workspace: str) -> str:
        """The path: relative inside the workspace, absolute outside."""
        return label_of(self.filePath, workspace)

    def primary_argument(self) -> str:
        """The path as asked for."""
        return self.filePath

    async def run(self, room: Room) -> ToolResult:
        """Stage, sync, rename. Raises ToolFailure, and then the file is as it was."""
        refuse_artifact(self.filePath)
        return await off_loop(lambda: self._write(room.workspace))

    def _write(self, workspace: str) -> ToolResult:
        path, shown = absolute(self.filePath, workspace), self.label(workspace)
        data = self.content.encode()
        old = _old_content(path, shown)
        if ARMED:
            hit("tool.effect")
        written = publish(path, data, shown)
        how = "Created" if written.created else "Replaced"
        diff = diff_display(shown, old, whole_change(old, data)) if old is not None else None
        return ToolResult(
            title=f"{how} {quoted(shown)}",
            output=f"{how} {shown}: {len(data)} bytes",
            metadata={
                "bytes": len(data),
                "created": written.created,
                "new_sha256": written.digest,
            },
            display=() if diff is None else (diff,),
        )


def _old_content(path: str, shown: str) -> bytes | None:
    """What is about to be replaced, for the diff; None when it can't or needn't be shown."""
    try:
        return read_whole(path, shown, WHOLE_BYTES_MAX)[0]
    except ToolFailure as none:
        return b"" if none.code == "not_found" else None
