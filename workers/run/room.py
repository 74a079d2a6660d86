"""What one tool call may touch: the room that `tools/base` describes, over the session's desk."""

from collections.abc import Mapping

from ipc.events import (
    PROGRESS_CHUNK_CHARS_MAX,
    PROGRESS_MESSAGE_CHARS_MAX,
    ToolCallProgress,
)
from ipc.ids import CallId, SessionId
from ipc.plan import ToolOutput
from ipc.seams.clock import Clock
from workers.run.desk import Desk
from workers.store.artifacts import Artifacts


class CallRoom:
    """The room of one call; made when it executes, gone when it has ended."""

    def __init__(
        self,
        *,
        desk: Desk,
        call_id: CallId,
        session_id: SessionId,
        workspace: str,
        env: Mapping[str, str],
        limits: ToolOutput,
        artifacts: Artifacts,
        clock: Clock,
    ) -> None:
        self.call_id = call_id
        self.session_id = session_id
        self.workspace = workspace
        self.env = env
        self.limits = limits
        self.artifacts = artifacts
        self.clock = clock
        self._desk = desk

    async def progress(self, message: str, chunk: str | None = None) -> None:
        """Tell how the call goes; cut to what an event may hold."""
        await self._desk.delta(
            ToolCallProgress(
                tool_call_id=self.call_id,
                message=message[:PROGRESS_MESSAGE_CHARS_MAX],
                output_chunk=None if chunk is None else chunk[:PROGRESS_CHUNK_CHARS_MAX],
            )
        )
