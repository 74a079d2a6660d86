"""A desk without a disk, tools that do what their argument says, and a run's story in words."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ipc.content import TextBlock, ToolCallBlock, ToolResult, user_text
from ipc.events import (
    AgentSnapshot,
    ApprovalFinalized,
    FrozenModelBinding,
    ModelAttemptStarted,
    ModelTurnCommitted,
    Payload,
    Pricing,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunInterrupted,
    RunStarted,
    StoredEvent,
    TextDelta,
    ToolCallExecuting,
    ToolCallProgress,
    ToolCallStarted,
    ToolCallTerminated,
    UserInputAdmitted,
    UserInputSubmitted,
    tag_of,
)
from ipc.fold import SessionState, SessionView, apply
from ipc.ids import CallId
from ipc.plan import ModelRetry, Plan, RunLimits
from ipc.rules import Action, PermissionMode, Rule
from ipc.seams.clock import REAL, Clock
from tests.fakes.logs import AGENT, ANY, BINDING, REVISIONS, SELECTION, Log
from workers.providers.base import Provider
from workers.run.desk import Desk, Kit
from workers.tools.base import Room, Tool, ToolFailure

Append = Callable[[Sequence[Payload]], Awaitable[None]]

# What stands at the beginning of every run and is not worth a word in a story.
SETTING: Final = frozenset(
    {"session_created", "session_title_committed", "run_started", "model_request_prepared"}
)
WORKSPACE: Final = "/w"
INSTANT: Final = "2026-01-02T03:04:05.000Z"
ONCE: Final = ModelRetry(standard_retries=0, overload_retries=0)


def allowing(*actions: Action, effect: Any = "allow") -> AgentSnapshot:
    """An agent with one rule for each action, whatever the label."""
    rules = tuple(Rule(action=action, resource="*", effect=effect) for action in actions)
    return msgspec.structs.replace(AGENT, permissions=rules)


ALLOWED: Final = allowing("read", "bash", "write")


class MemoryDesk:
    """A real fold behind the desk's words. `before` is called ahead of each append and delta.

    Without a clock all happens in one instant.
    """

    def __init__(self, events: Sequence[StoredEvent] = (), clock: Clock | None = None) -> None:
        self.events: list[StoredEvent] = []
        self.before: Append | None = None
        self._clock = clock
        self._state = SessionState()
        for event in events:
            self.take(event)

    @property
    def state(self) -> SessionView:
        return self._state.view()

    @property
    def payloads(self) -> list[Payload]:
        return [event.payload for event in self.events]

    def open(
        self,
        words: str = "go on",
        agent: AgentSnapshot = ALLOWED,
        binding: FrozenModelBinding = BINDING,
        fallbacks: Sequence[FrozenModelBinding] = (),
    ) -> "MemoryDesk":
        """A session that was just told something."""
        log = Log()
        log.created()
        log.user(words)
        log.run = "run"
        log.add(
            RunStarted(
                client_run_id=ANY,
                input_through_seq=2,
                selection=SELECTION,
                agent=agent,
                selected_suffix=(binding, *fallbacks),
                revisions=REVISIONS,
            )
        )
        for event in log.events:
            self.take(event)
        return self

    def put(self, *payloads: Payload) -> None:
        """Append at once."""
        for payload in payloads:
            run = None if self._state.run is None else self._state.run.run_id
            self.take(
                StoredEvent(
                    session_id="session",  # type: ignore[arg-type]
                    run_id=run,
                    seq=self._state.seq + 1,
                    timestamp=INSTANT if self._clock is None else self._clock.now(),
                    payload=payload,
                )
            )

    async def append(self, *payloads: Payload) -> None:
        if self.before is not None:
            await self.before(payloads)
        await asyncio.sleep(0)  # the disk
        self.put(*payloads)

    async def in_turn(self, decide: Callable[[], Sequence[Payload]]) -> None:
        await asyncio.sleep(0)  # the mailbox
        payloads = decide()
        if self.before is not None:
            await self.before(payloads)
        self.put(*payloads)

    async def delta(self, payload: Payload) -> None:
        if self.before is not None:
            await self.before((payload,))
        self.put(payload)

    def take(self, event: StoredEvent) -> None:
        apply(self._state, event)
        self.events.append(event)


class Stage:
    """Where the tools of a test play: what they did, in order, and the doors that they wait at."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.doors: dict[str, asyncio.Event] = {}

    def door(self, name: str) -> asyncio.Event:
        return self.doors.setdefault(name, asyncio.Event())


class StageRoom:
    """A room that leads to the stage and nowhere else."""

    def __init__(self, stage: Stage, desk: Desk, call_id: CallId) -> None:
        self.stage = stage
        self.call_id = call_id
        self._desk = desk

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a tool of this test asks for {name}")

    async def progress(self, message: str, chunk: str | None = None) -> None:
        await self._desk.delta(
            ToolCallProgress(tool_call_id=self.call_id, message=message, output_chunk=chunk)
        )


class Actor(Tool, frozen=True, kw_only=True):
    """Does what its argument says.

    `how`: "" = at once; "wait" = until the door `who` opens; "meet" = opens its door and waits
    for that of `whom`; "fail", "bug" = what it says; "keep" = takes a cancellation for an answer;
    "late" = a result in spite of a cancellation; "tell" = progress; "odd" = an unwritable result.
    """

    who: str = ""
    how: str = ""
    whom: str = ""

    def label(self, workspace: str) -> str | None:
        return self.who

    async def run(self, room: Room) -> ToolResult:
        assert isinstance(room, StageRoom)
        stage = room.stage
        stage.told.append(f"{self.who} begins")
        try:
            await self._play(room, stage)
        except asyncio.CancelledError:
            stage.told.append(f"{self.who} is cancelled")
            if self.how == "keep":
                return ToolResult(title="", output="kept on")
            if self.how == "late":
                raise ToolFailure("execution", "it was cancelled") from None
            raise
        stage.told.append(f"{self.who} ends")
        output = "\ud800" if self.how == "odd" else f"{self.who} was here"
        return ToolResult(title="", output=output)

    async def _play(self, room: StageRoom, stage: Stage) -> None:
        await asyncio.sleep(0)
        match self.how:
            case "wait" | "keep" | "late":
                await stage.door(self.who).wait()
            case "meet":
                stage.door(self.who).set()
                await stage.door(self.whom).wait()
            case "tell":
                for word in ("one", "two"):
                    await room.progress(word)
            case "fail":
                raise ToolFailure("execution", "exit 1")
            case "bug":
                raise ZeroDivisionError("a bug\nof mine")


class Look(Actor, frozen=True, kw_only=True):
    """Looks."""

    name, action, parallel = "look", "read", True


class Poke(Actor, frozen=True, kw_only=True):
    """Pokes."""

    name, action, parallel = "poke", "bash", False


TOOLS: Final[Mapping[str, type[Tool]]] = {"look": Look, "poke": Poke}
PRICED: Final = msgspec.structs.replace(
    BINDING, pricing=Pricing(input=2_000_000, output=10_000_000), max_output=64
)


def plan(mode: PermissionMode = "ask", retry: ModelRetry = ONCE, **limits: Any) -> Plan:
    return Plan(
        model_retry=retry,
        revisions=REVISIONS,
        agents=(ALLOWED,),
        models=(BINDING,),
        permission_mode=mode,
        limits=RunLimits(**limits),
    )


def kit(
    provider: Provider,
    stage: Stage | None = None,
    mode: PermissionMode = "ask",
    clock: Clock = REAL,
    retry: ModelRetry = ONCE,
    **limits: Any,
) -> Kit:
    """What runs are made from. Each model is asked once, unless `retry` says otherwise."""
    there = stage or Stage()

    def provide(_binding: FrozenModelBinding) -> Provider:
        return provider

    def room(desk: Desk, call_id: CallId) -> Any:
        return StageRoom(there, desk, call_id)

    return Kit(
        plan=plan(mode, retry, **limits),
        workspace=WORKSPACE,
        clock=clock,
        tools=TOOLS,
        provider=provide,
        room=room,
        jitter=lambda: 0.5,
    )


def story(payloads: Sequence[Payload]) -> list[str]:
    """What happened, one line an event; a call is called by its `model_call_id`."""
    names: dict[CallId, str] = {
        one.tool_call_id: one.owner.model_call_id
        for one in payloads
        if isinstance(one, ToolCallStarted)
    }
    return [_line(payload, names) for payload in payloads if tag_of(type(payload)) not in SETTING]


def _line(payload: Payload, names: Mapping[CallId, str]) -> str:
    match payload:
        case UserInputSubmitted(input=given):
            return f"user: {given.text}"
        case UserInputAdmitted(input=given):
            return f"admitted: {given.text}"
        case ModelAttemptStarted(attempt_ordinal=number):
            return f"attempt {number}"
        case TextDelta(text=text):
            return f"text: {text}"
        case ModelTurnCommitted(turn=turn):
            return f"turn: {turn.finish_reason}" + "".join(f" {_word(b)}" for b in turn.content)
        case ToolCallStarted(tool_call_id=call):
            return f"{names[call]} started"
        case ToolCallExecuting(tool_call_id=call):
            return f"{names[call]} executing"
        case ToolCallProgress(tool_call_id=call, message=message):
            return f"{names[call]}: {message}"
        case ToolCallTerminated(tool_call_id=call, outcome=outcome, error=error):
            why = "" if error is None else f": {error.code}"
            return f"{names.get(call, call)} {outcome}{why}"
        case ApprovalFinalized(decision=decision):
            return f"approval {decision.outcome}: {decision.reason_code}"
        case RunCompleted(final_text=text):
            return f"run completed: {text}"
        case RunFailed(error=error):
            return f"run failed: {error}"
        case RunCancelled(reason=reason) | RunInterrupted(reason=reason):
            return f"{tag_of(type(payload)).replace('_', ' ')}: {reason}"
        case _:
            return tag_of(type(payload))


def _word(block: Any) -> str:
    if isinstance(block, TextBlock):
        return repr(block.text)
    return block.model_call_id if isinstance(block, ToolCallBlock) else type(block).__name__


def admit(desk: MemoryDesk, words: str) -> None:
    """A person steers."""
    desk.put(UserInputAdmitted(input=user_text(words)))
