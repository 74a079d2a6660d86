"""A session as a page of Markdown for people: what was said, done and skipped, in order."""

from collections.abc import Iterator, Sequence
from typing import Final

from ipc.content import TextBlock, ThinkingBlock, ToolCallBlock, UserInput
from ipc.disk.log import LogRead
from ipc.events import (
    AttemptAbandoned,
    Event,
    InternalSummary,
    ModelFallback,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    WorkerRecovered,
)
from ipc.faults import clean
from ipc.fold import (
    CallState,
    CheckpointEntry,
    Entry,
    InjectedEntry,
    NoticeEntry,
    SeedEntry,
    SessionState,
    SkillEntry,
    TurnEntry,
    UserEntry,
)

OUTPUT_LINES_MAX: Final = 40  # of one call's output; the log has the rest
FENCE: Final = "```"


def markdown(state: SessionState, read: LogRead) -> str:
    """The page; ends in a newline. Control characters that a terminal might obey are replaced."""
    lines = [*_heading(state), *_skipped(read)]
    for entry in state.entries:
        lines += _entry(entry)
    if state.run is not None:
        lines += ["", "_A run is open._"]
    total = state.usage.total
    lines += ["", f"_{total.input_tokens} tokens in, {total.output_tokens} out._"]
    return "\n".join(_harmless(line) for line in lines).strip("\n") + "\n"


def _heading(state: SessionState) -> Iterator[str]:
    created = state.created
    yield f"# {state.title.text or 'Untitled session'}"
    yield ""
    yield f"- session: `{state.session_id}`"
    if created is not None:
        yield f"- folder: `{created.cwd_identity}`"
        yield f"- agent: {created.creation_agent.agent}, {created.creation_selection.model.model}"
    yield f"- {state.seq} events, last at {state.last_timestamp}, {state.status}"


def _skipped(read: LogRead) -> Iterator[str]:
    if read.skipped_count:
        yield ""
        yield f"> {read.skipped_count} lines of the log could not be read:"
        for note in read.skipped:
            where = f"seq {note.seq}" if note.seq is not None else f"byte {note.offset}"
            yield f"> - {where}: {note.reason}"
        if read.skipped_count > len(read.skipped):
            yield f"> - and {read.skipped_count - len(read.skipped)} more"
    for gap in read.gaps:
        missing = str(gap.first) if gap.first == gap.last else f"{gap.first} to {gap.last}"
        yield f"> - missing: seq {missing}"


def _entry(entry: Entry) -> Iterator[str]:
    match entry:
        case UserEntry(input=given):
            yield from ("", "## You", "", *_said(given))
        case InjectedEntry(role=role, input=given):
            yield from ("", f"## {role} (injected)", "", *_said(given))
        case TurnEntry():
            yield from _turn(entry)
        case SeedEntry(turns=turns):
            for turn in turns:
                yield from ("", f"## {turn.role} (inherited)", "", *turn.text.split("\n"))
        case SkillEntry(event=event):
            yield from ("", f"_Skill `{event.name}` was loaded._")
        case CheckpointEntry(event=event) if isinstance(event.checkpoint, InternalSummary):
            yield from ("", "## Summary of what came before", "")
            yield from event.checkpoint.summary.split("\n")
        case NoticeEntry(event=event):
            if (told := _notice(event)) is not None:
                yield from ("", f"_{told}_")
        case _:
            return


def _said(given: UserInput) -> Sequence[str]:
    return given.text.split("\n")


def _turn(entry: TurnEntry) -> Iterator[str]:
    calls = {call.content_index: call for call in entry.calls}
    yield from ("", f"## {entry.event.resolved_model.model}")
    for index, block in enumerate(entry.event.turn.content):
        match block:
            case TextBlock(text=text):
                yield from ("", *text.split("\n"))
            case ThinkingBlock(text=text, redacted=False) if text:
                yield ""
                yield from (f"> {line}" for line in text.split("\n"))
            case ToolCallBlock():
                yield from _call(block, calls.get(index))
            case _:
                continue


def _call(block: ToolCallBlock, call: CallState | None) -> Iterator[str]:
    presented = call.started.presentation if call is not None and call.started else None
    title = presented.title if presented is not None else block.name
    argument = presented.primary_argument if presented is not None else block.arguments
    yield from ("", f"**{title}** {_code(argument)}" if argument else f"**{title}**")
    ended = call.ended if call is not None else None
    if ended is None:
        yield from ("", "_No result._")
        return
    if ended.error is not None:
        yield from ("", f"_{ended.outcome}: {ended.error.code}: {ended.error.message}_")
    output = ended.result.output.split("\n") if ended.result is not None else []
    if any(line.strip() for line in output):
        fence = FENCE
        while any(line.lstrip().startswith(fence) for line in output):
            fence += "`"
        yield from ("", fence, *output[:OUTPUT_LINES_MAX])
        if len(output) > OUTPUT_LINES_MAX:
            yield f"... {len(output) - OUTPUT_LINES_MAX} lines more"
        yield fence


def _code(text: str) -> str:
    flat = " ".join(text.split())
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"


def _notice(event: Event) -> str | None:
    match event:
        case RunFailed(error=error):
            return f"The run failed: {error}"
        case RunCancelled(reason=reason):
            return f"The run was cancelled: {reason or 'no reason given'}"
        case RunInterrupted(reason=reason):
            return f"The run was interrupted: {reason or 'no reason given'}"
        case WorkerRecovered(cause=cause):
            return f"A new worker took over: {cause}"
        case AttemptAbandoned():
            return "An attempt came to nothing."
        case ModelFallback(to=to):
            return f"The run went on with {to.model}."
        case _:
            return None


def _harmless(line: str) -> str:
    return clean(line.replace("\t", "    "), len(line) * 4 + 4)
