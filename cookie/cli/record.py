"""What a headless run shows of the events it is told: records, streamed text, the summary."""

from typing import Final

import msgspec
from msgspec import Struct, structs

from cookie.cli.output import Output
from cookie.cli.verdict import Ended, Summary, Verdict, cancellation
from ipc.events import (
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunInterrupted,
    RunStarted,
    StoredEvent,
    TextDelta,
    ToolCallProgress,
)
from ipc.fold import Rollup, SessionState, apply
from ipc.ids import CallId, ClientId, RunId, SessionId
from ipc.methods.records import UsageRollup, UsageTotals
from ipc.methods.runs import Stream

PICO: Final = 10**12
_ENDS: Final = (RunCompleted, RunFailed, RunCancelled, RunInterrupted)


class ToolOutput(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_output"):
    """A piece of a running tool's output (spec 1.1, with --verbose)."""

    call_id: CallId
    stream: Stream
    byte_offset: int
    data: str


class Recorder:
    """Folds the events of one run and writes what the output shape asks for."""

    def __init__(self, output: Output, shape: str, *, stream: bool, verbose: bool) -> None:
        self.state = SessionState()
        self.ended: Ended | None = None
        self.run_id: RunId | None = None
        self._output = output
        self._json = shape == "json"
        self._text = shape == "text"
        self._stream = stream
        self._verbose = verbose
        self.midline = False  # streamed text stands on a line that is not ended
        self._offsets: dict[tuple[CallId, Stream], int] = {}
        self._early: list[tuple[StoredEvent, bytes]] = []
        self._client_id: ClientId | None = None
        self._decode = msgspec.json.Decoder(StoredEvent).decode

    def watch(self, *, client_id: ClientId | None = None, run_id: RunId | None = None) -> None:
        """Which run is ours: the one this command starts, or the one a worker goes on with."""
        self._client_id = client_id
        if run_id is not None:
            self._found(run_id)

    def forget(self) -> None:
        """The run that was watched is over and was not the one that this command is for."""
        self.run_id = self.ended = None

    def take(self, line: bytes) -> StoredEvent:
        """One event of our session, in order; `line` is shown exactly as it came."""
        event = self._decode(line)
        payload = event.payload
        if self.run_id is None:
            if type(payload) is RunStarted and payload.client_run_id == self._client_id:
                self._found(event.run_id)
            elif event.run_id is not None or self._early:
                # Of a run that may yet turn out to be ours, or behind one: the fold wants order.
                self._early.append((event, line))
                return event
        if event.run_id is None or event.run_id == self.run_id:
            self._show(event, line)
        return event

    def summary(self, session_id: SessionId, verdict: Verdict) -> Summary:
        """The last record; `verdict` is also of a run that nobody recorded the end of."""
        ended = self.ended
        finalized = [a.finalized for a in self.state.approvals.values() if a.finalized is not None]
        return Summary(
            session_id=session_id,
            run_id=self.run_id,
            status=verdict.status,
            exit_code=verdict.exit_code,
            turns=len(self.state.turns),
            approval_rejections=sum(f.decision.outcome == "rejected" for f in finalized),
            event_recoveries=0,
            cancellation=None if ended is None else cancellation(ended),
            final_text=self.final_text,
            error=verdict.error,
            usage=_rollup(self.state),
        )

    @property
    def final_text(self) -> str:
        """The answer; empty unless the run completed."""
        return (self.ended.final_text or "") if isinstance(self.ended, RunCompleted) else ""

    def finish(self, session_id: SessionId, verdict: Verdict) -> None:
        """Write what comes last: the summary, or the answer unless it was streamed."""
        if self._json:
            self._output.record(self.summary(session_id, verdict))
        elif self._text and not self._stream:
            self._output.put(_ended_line(self.final_text))
        elif self.midline:
            self._output.put("\n")
            self.midline = False

    def _found(self, run_id: RunId | None) -> None:
        self.run_id = run_id
        early, self._early = self._early, []
        for event, line in early:
            if event.run_id is None or event.run_id == run_id:
                self._show(event, line)

    def _show(self, event: StoredEvent, line: bytes) -> None:
        apply(self.state, event)
        payload = event.payload
        if isinstance(payload, _ENDS):
            self.ended = payload
        if self._json:
            self._output.event(line)
            if self._verbose and type(payload) is ToolCallProgress:
                self._tool_output(payload)
        elif self._stream:
            if type(payload) is TextDelta:
                if payload.text:
                    self._output.put(payload.text)
                    self.midline = not payload.text.endswith("\n")
            elif self.midline:
                self._output.put("\n")
                self.midline = False

    def _tool_output(self, progress: ToolCallProgress) -> None:
        chunk = progress.output_chunk
        if not chunk:
            return
        # A tool that has streams says in the message which of them the chunk is from.
        stream: Stream = "stderr" if progress.message == "stderr" else "stdout"
        which = (progress.tool_call_id, stream)
        offset = self._offsets.get(which, 0)
        self._offsets[which] = offset + len(chunk.encode())
        self._output.record(
            ToolOutput(call_id=progress.tool_call_id, stream=stream, byte_offset=offset, data=chunk)
        )


def _ended_line(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"


def _rollup(state: SessionState) -> UsageRollup:
    by_model = {model: _totals(rollup) for model, rollup in state.usage.by_model.items()}
    totals = structs.asdict(_totals(state.usage.total))
    return UsageRollup(**totals, by_model=by_model)


def _totals(rollup: Rollup) -> UsageTotals:
    cost = rollup.cost_pico_usd
    return UsageTotals(
        request_count=rollup.request_count,
        input_tokens=rollup.input_tokens,
        output_tokens=rollup.output_tokens,
        reasoning_tokens=rollup.reasoning_tokens,
        cache_read_tokens=rollup.cache_read_tokens,
        cache_write_tokens=rollup.cache_write_tokens,
        cache_hit_rate=rollup.cache_hit_rate,
        estimated_cost_usd=None if cost is None else cost / PICO,
    )
