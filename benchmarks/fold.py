"""Decode and fold a session log: events a second at 30,000 and at 300,000 events.

The log is made like a recorded one (85% deltas: text as models stream it, commands that report
progress) and read from a file in chunks. The baseline, in the same run and in turns with it, is
plain decoding of the same lines. Bars: 150,000 events a second at both sizes, and at 300,000
events at least 0.8 of the rate at 30,000. Exit 1 when a bar is missed.

    python benchmarks/fold.py [rounds]
"""

import gc
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ipc.content import TextBlock, ToolCallBlock, ToolResult, Usage, user_text
from ipc.events import (
    DELTAS,
    AgentSnapshot,
    Event,
    FrozenModelBinding,
    ModelAttemptStarted,
    ModelRequestPrepared,
    ModelSelection,
    ModelTurn,
    ModelTurnCommitted,
    ModelUsageRecorded,
    OperationDigest,
    ReasoningDelta,
    Revisions,
    RootOrigin,
    RunCompleted,
    RunSelection,
    RunStarted,
    SessionCreated,
    StoredEvent,
    TextDelta,
    ToolCallExecuting,
    ToolCallOwner,
    ToolCallProgress,
    ToolCallStarted,
    ToolCallTerminated,
    ToolPresentation,
    UserInputSubmitted,
)
from ipc.events.codec import Read, encode, read_line
from ipc.fold import SessionState, apply
from ipc.ids import new_attempt_id, new_call_id, new_run_id, new_session_id

SMALL, LARGE = 30_000, 300_000
BAR_RATE = 150_000  # events a second
BAR_RATIO = 0.8  # of the small log's rate
CHUNK = 1 << 16  # bytes, as `ipc.disk.log` reads
ROUNDS = 5
TURNS_PER_RUN = 8

HASH: Any = "sha256:" + "0123456789abcdef" * 4
MODEL: Any = "rehearsal/tour"
BINDING = FrozenModelBinding(
    model=MODEL,
    provider_id="rehearsal",  # type: ignore[arg-type]
    adaptor="scripted",
    wire_model="tour",
)
SELECTION = RunSelection(
    agent="primary",  # type: ignore[arg-type]
    model=ModelSelection(model=MODEL),
)
REVISIONS = Revisions(**dict.fromkeys(Revisions.__struct_fields__, HASH))
AGENT = AgentSnapshot(
    schema=6,
    agent="primary",  # type: ignore[arg-type]
    description="Works on code.",
    mode="primary",
    document_source="builtin",
    composed_prompt="You work on code. " * 200,
    document_fingerprint=HASH,
    prompt_fingerprint=HASH,
    permissions=(),
    fallback_chain=(),
    selected_suffix_start=0,
)
WORDS = ["the", "fold", "gives", "every", "event", "its", "meaning,", "once", "in", "place\n"]


def payloads() -> Iterator[tuple[bool, Event]]:
    """(inside a run, payload) of a session without end: runs of eight turns with a call each."""
    yield (
        False,
        SessionCreated(
            origin=RootOrigin(),
            cwd_identity="/home/somebody/project",
            creation_agent=AGENT,
            creation_selection=SELECTION,
            revisions=REVISIONS,
        ),
    )
    turn = 0
    for run in itertools.count():
        yield False, UserInputSubmitted(input=user_text(f"Do the next thing, number {run}."))
        yield (
            True,
            RunStarted(
                client_run_id=f"run-{run}",  # type: ignore[arg-type]
                input_through_seq=1,
                selection=SELECTION,
                agent=AGENT,
                selected_suffix=(BINDING,),
                revisions=REVISIONS,
            ),
        )
        for _ in range(TURNS_PER_RUN):
            turn += 1
            yield from ((True, payload) for payload in one_turn(turn))
        yield True, RunCompleted(final_text="done")


def one_turn(turn: int) -> Iterator[Event]:
    attempt, call = new_attempt_id(), new_call_id()
    resolved = BINDING.resolved()
    yield ModelAttemptStarted(
        attempt_id=attempt,
        attempt_ordinal=1,
        fallback_index=0,
        retry_ordinal=0,
        prompt_fingerprint=HASH,
        resolved_model=resolved,
    )
    yield ModelRequestPrepared(attempt_id=attempt, prompt_fingerprint=HASH)
    for place in range(8):
        yield ReasoningDelta(attempt_id=attempt, text=WORDS[place % len(WORDS)] + " ")
    for place in range(24):
        yield TextDelta(attempt_id=attempt, text=WORDS[place % len(WORDS)] + " ")
    asked = ToolCallBlock(
        model_call_id=f"call_{turn}", name="bash", arguments='{"command":"make test"}'
    )
    yield ModelTurnCommitted(
        attempt_id=attempt,
        model_turn_seq=turn,
        input_through_seq=turn,
        resolved_model=resolved,
        turn=ModelTurn(
            content=(TextBlock(text=" ".join(WORDS * 2)), asked),
            finish_reason="tool_calls",
            usage=Usage(input_tokens=9000, output_tokens=64),
        ),
    )
    yield ModelUsageRecorded(
        model_turn_seq=turn,
        agent_id=AGENT.agent,
        resolved_model=resolved,
        usage=Usage(input_tokens=9000, output_tokens=64),
    )
    owner = ToolCallOwner(model_turn_seq=turn, content_index=1, model_call_id=asked.model_call_id)
    yield ToolCallStarted(
        tool_call_id=call,
        owner=owner,
        operation_fingerprint=OperationDigest(digest=HASH),
        presentation=ToolPresentation(title="make test"),
    )
    yield ToolCallExecuting(tool_call_id=call)
    for step in range(10):
        chunk = "tests/ipc/fold/test_table.py ........\n"
        yield ToolCallProgress(tool_call_id=call, message=f"step {step}", output_chunk=chunk)
    yield ToolCallTerminated(
        tool_call_id=call,
        owner=owner,
        outcome="completed",
        result=ToolResult(title="make test", output="tests/x.py ..........\n" * 20),
    )


def write(path: Path, count: int) -> float:
    """Write a log of `count` events; the share of deltas in it."""
    session, run, deltas = new_session_id(), new_run_id(), 0
    with path.open("wb") as file:
        for seq, (inside, payload) in enumerate(itertools.islice(payloads(), count), start=1):
            if isinstance(payload, RunStarted):
                run = new_run_id()
            deltas += type(payload) in DELTAS
            event = StoredEvent(
                engine_version="0.1.0",
                session_id=session,
                run_id=run if inside else None,
                seq=seq,
                timestamp="2026-01-02T03:04:05.678Z",
                payload=payload,  # type: ignore[arg-type]
            )
            file.write(encode(event) + b"\n")
    return deltas / count


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a log, read in chunks."""
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            whole = (rest + chunk).split(b"\n")
            rest = whole.pop()
            yield from whole


def decode_only(path: Path) -> int:
    count = 0
    for line in lines(path):
        count += isinstance(read_line(line), Read)
    return count


def decode_and_fold(path: Path) -> int:
    state = SessionState()
    for line in lines(path):
        read = read_line(line)
        if isinstance(read, Read):
            apply(state, read.event)
    return state.seq


def rate(work: Callable[[Path], int], path: Path, count: int) -> float:
    gc.collect()
    start = time.perf_counter()
    done = work(path)
    elapsed = time.perf_counter() - start
    assert done == count, (done, count)
    return count / elapsed


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    rates: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        logs = {count: Path(folder) / f"{count}.jsonl" for count in (SMALL, LARGE)}
        for count, path in logs.items():
            share = write(path, count)
            print(f"log of {count:,} events: {share:.0%} deltas, {path.stat().st_size:,} bytes")
        for _ in range(rounds):
            for count, path in logs.items():
                for work in (decode_only, decode_and_fold):
                    found = rate(work, path, count)
                    rates.setdefault((work.__name__, count), []).append(found)
    median = {key: statistics.median(found) for key, found in rates.items()}
    for (name, count), middle in median.items():
        spread = " ".join(f"{found:,.0f}" for found in sorted(rates[name, count]))
        print(f"{name:16} {count:>8,} events: {middle:>9,.0f} events/s  ({spread})")
    small, large = median["decode_and_fold", SMALL], median["decode_and_fold", LARGE]
    base = median["decode_only", LARGE]
    print(f"fold at {LARGE:,} over {SMALL:,} events: {large / small:.2f} (bar {BAR_RATIO})")
    print(f"fold over plain decoding at {LARGE:,}: {large / base:.2f}")
    print(f"slowest median: {min(small, large):,.0f} events/s (bar {BAR_RATE:,})")
    return 0 if min(small, large) >= BAR_RATE and large / small >= BAR_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
