"""A session as a page: the whole page of one that has it all, and what may not be on it."""

from pathlib import Path

import pytest

from cookie.cli.transcript import OUTPUT_LINES_MAX, markdown
from ipc.content import MediaBlock, ThinkingBlock, ToolError, Usage, UserInput
from ipc.disk.log import LogRead, read_log
from ipc.events import (
    AgentMdEntry,
    AgentMdLoaded,
    AgentMdSkipped,
    ContextCheckpointCommitted,
    Event,
    MessageInjected,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    SessionReverted,
    SkillInvocationNoted,
    UserInputSubmitted,
    WorkerRecovered,
)
from ipc.events.codec import encode
from ipc.fold import SessionState, apply
from tests.fakes.logs import Log, call, text, titled_or_not, tool_round  # type: ignore[attr-defined]
