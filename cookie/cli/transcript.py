"""A session as a page of Markdown for people: what was said, done and skipped, in order."""

from collections.abc import Iterator
from typing import Final

from cookie.cli import attempts
from ipc.content import MediaBlock, TextBlock, ThinkingBlock, ToolCallBlock, UserInput
from ipc.disk.log import LogRead, SkippedLine
from ipc.events import (
    AgentMdSkipped,
    AttemptAbandoned,
    DelegateChildTerminated,
    DelegateFinished,
    DelegateFinishedV2,
    Event,
    InternalSummary,
    ModelFallback,
    PluginDiagnostic,
    RunCancelled,
    RunFailed,
    RunInterrupted,
    SessionReverted,
    SkillInvocationNoted,
    WorkerRecovered,
)
from ipc.faults import clean
from ipc.fold import (
    CallState,
    CheckpointEntry,
    Entry,
    InjectedEntry,
    InstructionsEntry,
    NoticeEntry,
    RehydratedEntry,
    SeedEntry,
    SessionState,
    SkillEntry,
    TurnEntry,
    UserEntry,
)

OUTPUT_LINES_MAX: Final = 40  # of one call's output; the log has the rest
FENCE: Final = "```"
CODE_CHARS_MAX: Final = 400  # of a call's argument, in its own line


def markdown(state: SessionState, read: LogRead) -> str:
    """The page; ends in a newline. Control characters that a terminal might obey are replaced.

    `read` is the pass over the log that `state` was folded from, at its end.
    """
    lines = [*_heading(state), *_unread(read)]
    for entry in state.entries:
        lines += _entry(entry)
    if state.run is not None:
        lines += ["", "_A run is open._"]
    total = state.usage.total
    lines += ["", f"_{total.input_tokens} tokens in, {total.output_tokens} out._"]
    return "\n".join(map(_harmless, lines)).strip("\n") + "\n"


def _heading(state: SessionState) -> Iterator[str]:
    created = state.created
    yield f"# {_flat(state.title.text or 'Untitled session')}"
    yield ""
    yield f"- session: `{state.session_id}`"
    if created is not None:
        yield f"- folder: {_code(created.cwd_identity)}"
        yield f"- agent: {created.creation_agent.agent}, {created.creation_selection.model.model}"
    yield f"- {state.seq} events, last at {_flat(state.last_timestamp)}, {state.status}"


def _unread(read: LogRead) -> Iterator[str]:
    """What of the log is not on the page, or not as it was written."""
    if read.skipped_count:
        yield from ("", f"> {_lines(read.skipped_count)} of the log could not be read:")
        yield from (f"> - {_place(note)}: {_flat(note.reason)}" for note in read.skipped)
        yield from _rest(read.skipped_count, len(read.skipped))
    if read.gap_count:
        yield from ("", "> Events that are in no line:")
        for gap in read.gaps:
            seqs = f"{gap.first}" if gap.first == gap.last else f"{gap.first} to {gap.last}"
            yield f"> - seq {seqs}"
        yield from _rest(read.gap_count, len(read.gaps))
    if read.degraded_count:
        yield from ("", f"> {_lines(read.degraded_count)} could be read in part only:")
        for line in read.degraded:
            yield f"> - seq {line.seq}: {_flat('; '.join(line.notes))}"
        yield from _rest(read.degraded_count, len(read.degraded))


def _lines(count: int) -> str:
    return f"{count} line" if count == 1 else f"{count} lines"


def _place(note: SkippedLine) -> str:
    where = f"seq {note.seq}" if note.seq is not None else f"byte {note.offset}"
    return f"{where} ({_flat(note.type)})" if note.type else where


def _rest(count: int, shown: int) -> Iterator[str]:
    if count > shown:
        yield f"> - and {count - shown} more"


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
                yield from ("", f"## {turn.role} (inherited)", "", *_split(turn.text))
        case SkillEntry(event=event):
            yield from ("", f"_Skill {_code(event.name)} was loaded._")
        case InstructionsEntry(entries=entries):
            sources = ", ".join(_code(one.source) for one in entries)
            yield from ("", f"_Instructions were read from {sources}._")
        case RehydratedEntry(files=files):
            paths = ", ".join(_code(file.path) for file in files)
            yield from ("", f"_Read again: {paths}._")
        case CheckpointEntry(event=event) if isinstance(event.checkpoint, InternalSummary):
            yield from ("", "## Summary of what came before", "")
            yield from _split(event.checkpoint.summary)
        case CheckpointEntry():
            yield from ("", "_What came before was replaced by the model's own summary._")
        case NoticeEntry(event=event):
            if (told := _notice(event)) is not None:
                yield from ("", f"_{_flat(told)}_")


def _said(given: UserInput) -> Iterator[str]:
    for block in given.content:
        if isinstance(block, TextBlock):
            yield from _split(block.text)
        else:
            yield _media(block)


def _media(block: MediaBlock) -> str:
    name = f"{_flat(block.name)}, " if block.name else ""
    return f"[{name}{_flat(block.mime)}, {block.byte_length} bytes]"


def _turn(entry: TurnEntry) -> Iterator[str]:
    calls = {call.content_index: call for call in entry.calls}
    yield from ("", f"## {entry.event.resolved_model.model}")
    for index, block in enumerate(entry.event.turn.content):
        match block:
            case TextBlock(text=text):
                yield from ("", *_split(text))
            case ThinkingBlock(text=text, redacted=False) if text:
                yield from ("", *(f"> {line}" for line in _split(text)))
            case ThinkingBlock():
                continue
            case ToolCallBlock():
                yield from _call(block, calls.get(index))
            case MediaBlock():
                yield from ("", _media(block))


def _call(block: ToolCallBlock, call: CallState | None) -> Iterator[str]:
    presented = call.started.presentation if call is not None and call.started else None
    title = presented.title if presented is not None else block.name
    argument = presented.primary_argument if presented is not None else block.arguments
    shown = f"**{_flat(title)}**"
    yield from ("", f"{shown} {_code(argument)}" if argument else shown)
    ended = call.ended if call is not None else None
    if ended is None:
        yield from ("", "_No result._")
        return
    if ended.error is not None:
        told = f"{ended.outcome}: {ended.error.code}: {ended.error.message}"
        yield from ("", f"_{_flat(told)}_")
    if ended.result is not None:
        yield from _output(ended.result.output)
        yield from (_media(one) for one in ended.result.attachments)


def _output(text: str) -> Iterator[str]:
    lines = _split(text.rstrip())
    if not any(lines):
        return
    fence = FENCE
    while any(line.lstrip().startswith(fence) for line in lines):
        fence += "`"
    yield from ("", fence, *lines[:OUTPUT_LINES_MAX])
    if len(lines) > OUTPUT_LINES_MAX:
        yield f"... {_lines(len(lines) - OUTPUT_LINES_MAX)} more"
    yield fence


def _split(text: str) -> list[str]:
    """Lines as people count them: one that ends as on Windows has nothing odd at its end."""
    return text.replace("\r\n", "\n").split("\n")


def _flat(text: str) -> str:
    return " ".join(text.split())


def _code(text: str) -> str:
    flat = clean(_flat(text), CODE_CHARS_MAX)
    fence = "`"
    while fence in flat:
        fence += "`"
    return f"`{flat}`" if fence == "`" else f"{fence} {flat} {fence}"


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
        case AttemptAbandoned(error=None):
            return "An attempt came to nothing."
        case AttemptAbandoned(error=error) if error is not None:
            return f"An attempt failed: {attempts.trouble(error)}: {error.message}"
        case ModelFallback(to=to):
            return f"The run went on with {to.model}."
        case SessionReverted(through_seq=seq):
            return f"What came after event {seq} was taken back."
        case AgentMdSkipped(source=source, reason=reason):
            return f"{source} was not read: {reason}"
        case PluginDiagnostic(plugin=plugin, message=message):
            return f"The plugin {plugin}: {message}"
        case SkillInvocationNoted(name=name):
            return f"The skill {name} was used again."
        case DelegateFinished() | DelegateFinishedV2():
            return f"The subagent {event.session_id} has ended: {event.status}"
        case DelegateChildTerminated(status=status):
            return f"What was delegated has ended: {status}"
        case _:
            return None


def _harmless(line: str) -> str:
    return clean(line.replace("\t", "    "), len(line) * 4 + 4)
