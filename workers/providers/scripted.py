"""The adaptor `scripted`: a model that says what a script tells it to, on the real part stream.

It ships, so that people test their agents and we test our rooms without a model: as a provider
(`setup = {script = "path.yaml"}`) and in process (`Scripted([[Say("hello")]])`).
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final

import msgspec

from ipc.content import FinishReason, Usage
from ipc.events import FrozenModelBinding
from ipc.seams.clock import REAL, Clock
from ipc.seams.failpoints import ARMED, hit
from workers.providers.base import (
    Assembler,
    Done,
    Failed,
    Message,
    Outside,
    Part,
    Provider,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    failure,
)
from workers.providers.script import (
    Call,
    Cut,
    Delay,
    Fail,
    Finish,
    Report,
    Say,
    Script,
    Stall,
    Step,
    Think,
    Turn,
    fill,
)
from workers.providers.scriptfile import BadScript, load_script

# A wire would let others run between its packets; so does a script, or its text would hold the
# loop from the first delta to the last.
BREATH_PARTS: Final = 64

Turns = Script | Sequence[Turn | Sequence[Step] | Step]


class Scripted:
    """A provider that plays a script: turns as values, or one that `load_script` has read.

    The same request always gets the same parts. `seen` lists the requests so far, unless `keep`
    is off. Waits go through `clock`.
    """

    def __init__(self, turns: Turns, *, clock: Clock = REAL, keep: bool = True) -> None:
        self._script = turns if isinstance(turns, Script) else Script(tuple(map(_turn, turns)))
        self._clock = clock
        self._keep = keep
        self.seen: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        """The parts of the turn that answers `request`; see `Provider.stream`."""
        if ARMED:
            hit("provider.first_part")
        if self._keep:
            self.seen.append(request)
        turn = self._script.choose(request)
        if turn is None:
            yield _no_turn(self._script, request)
            return
        take = _Take(request, self._clock)
        breath = BREATH_PARTS
        for step in turn.steps:
            if isinstance(step, Say | Think):
                parts = take.deltas(step)
                for _ in range(step.repeat):
                    for part in parts:
                        if step.every:
                            await self._clock.sleep(step.every)
                        breath -= 1
                        if not breath:
                            breath = BREATH_PARTS
                            await asyncio.sleep(0)
                        yield part
                continue
            for _ in range(step.repeat if isinstance(step, Call) else 1):
                other = await take.do(step)
                if other is not None:
                    yield other
        if not take.assembler.ended:
            yield take.done(None)


class Unreadable:
    """A provider whose script can't be read: it says so to each request, as a failure."""

    def __init__(self, bad: BadScript) -> None:
        self._bad = bad

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        """One Failed that names the file, the line and what is expected."""
        if ARMED:
            hit("provider.first_part")
        yield failure("invalid_request", str(self._bad), stage="request_validation")


def make(binding: FrozenModelBinding, outside: Outside) -> Provider:
    """The provider of `setup.script`, a path; a bad script fails its requests, not the making."""
    path = binding.setup.get("script")
    if not isinstance(path, str):
        return Unreadable(
            BadScript(f"{binding.model}", 1, "expected setup.script, the path of a script")
        )
    return scripted(path, clock=outside.clock)


def scripted(path: str, *, clock: Clock) -> Provider:
    """The provider of the script at `path`."""
    try:
        return Scripted(load_script(path), clock=clock, keep=False)
    except BadScript as bad:
        return Unreadable(bad)


class _Take:
    """One turn while it is played."""

    def __init__(self, request: Request, clock: Clock) -> None:
        self.assembler = Assembler()
        self._request = request
        self._clock = clock
        self._usage = Usage()
        self._calls = 0

    def deltas(self, step: Say | Think) -> list[Part]:
        """The parts of one repetition of `step`; the turn is given the text of all of them."""
        texts = (step.text,) if isinstance(step.text, str) else step.text
        pieces = [piece for text in texts for piece in self._cut(step, text)]
        whole = "".join(pieces) * step.repeat
        if isinstance(step, Say):
            self.assembler.text(whole)
            return [TextPart(piece) for piece in pieces]
        if step.signature is None:
            self.assembler.thinking(whole)
            return [ThinkingPart(piece) for piece in pieces]
        *first, last = [ThinkingPart(piece) for piece in pieces] or [ThinkingPart("")]
        parts = [*first, ThinkingPart(last.text, step.signature)]
        for part in parts * step.repeat:
            self.assembler.add(part)
        return [*parts]

    def _cut(self, step: Say | Think, template: str) -> list[str]:
        text = fill(template, self._request.messages)
        size = step.chars or (-(-len(text) // step.chunks) if step.chunks else len(text))
        return [text[at : at + size] for at in range(0, len(text), size)] if text else []

    async def do(self, step: Step) -> Part | None:
        """Everything but words: the part of `step`, if it has one."""
        match step:
            case Call():
                return self._call(step)
            case Delay(seconds):
                await self._clock.sleep(seconds)
            case Report(usage):
                self._usage = usage
            case Finish(reason):
                return self.done(reason)
            case Stall():
                await asyncio.get_running_loop().create_future()
            case Fail():
                return self._fail(step)
            case Cut():
                end = "the stream ended without its terminal marker"
                return self._fail(Fail("unexpected_eof", end, "stream_finalize"))
            case Say() | Think():
                raise AssertionError("words are streamed, not done")
        return None

    def done(self, reason: FinishReason | None) -> Done:
        """The turn, whole."""
        natural: FinishReason = "tool_calls" if self._calls else "stop"
        return self.assembler.done(reason or natural, self._usage)

    def _call(self, step: Call) -> ToolCallPart:
        self._calls += 1
        messages = self._request.messages
        if step.raw is None:
            arguments = msgspec.json.encode(_filled(step.args, messages)).decode()
        else:
            arguments = fill(step.raw, messages)
        part = ToolCallPart(
            model_call_id=step.id or f"call_{self._request.turn + 1}_{self._calls}",
            name=step.name,
            arguments=arguments,
        )
        self.assembler.add(part)
        return part

    def _fail(self, step: Fail) -> Failed:
        content = self.assembler.content()
        received = len(msgspec.json.encode(content)) if content else 0
        failed = failure(
            step.kind,
            step.message,
            stage=step.stage or ("stream_decode" if received else "response_headers"),
            retryable=step.retryable,
            http_status=step.http_status,
            vendor_code=step.vendor_code,
            retry_after_ms=step.retry_after_ms,
            bytes_received=received,
            response_body=step.response_body,
        )
        self.assembler.add(failed)
        return failed


def _turn(turn: Turn | Sequence[Step] | Step) -> Turn:
    if isinstance(turn, Turn):
        return turn
    return Turn(tuple(turn)) if isinstance(turn, Sequence) else Turn((turn,))


def _no_turn(script: Script, request: Request) -> Failed:
    asked = f"turn {request.turn + 1}, attempt {request.attempt}"
    message = f"the script {script.name} has no turn for this request ({asked} of the session)"
    return failure("invalid_request", message, stage="request_validation")


def _filled(value: Any, messages: Sequence[Message]) -> Any:
    """`value` with the placeholders in its texts replaced; names of fields stay as they are."""
    if isinstance(value, str):
        return fill(value, messages)
    if isinstance(value, dict):
        return {key: _filled(each, messages) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(each, messages) for each in value]
    return value
