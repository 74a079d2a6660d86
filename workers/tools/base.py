"""What a tool is: its typed arguments, the room it works in, and how a model's JSON becomes one."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache
from inspect import cleandoc
from typing import Any, ClassVar, Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from ipc.content import COUNT_MAX, ToolError, ToolResult
from ipc.faults import clean
from ipc.ids import CallId, Digest, SessionId
from ipc.plan import ToolOutput
from ipc.rules import Action
from ipc.seams.clock import Clock

MESSAGE_CHARS_MAX: Final = 2000  # of what a model is told about a call that could not be made
QUOTED_CHARS_MAX: Final = 200  # of a model's own words that such a message repeats
CLEANUP_S: Final = 1.8  # a cancelled call has 2 s (spec 1.8); this much of it is spent waiting

T = TypeVar("T")


# --- the room ------------------------------------------------------------------------------------


class ArtifactWriter(AbstractContextManager["ArtifactWriter"], Protocol):
    """One artifact on its way to the disk; leaving the context without `finish` discards it."""

    @property
    def size(self) -> int:
        """Bytes so far."""
        ...

    def write(self, chunk: bytes) -> None:
        """Add bytes; raises OSError, after which only `discard` makes sense."""
        ...

    def finish(self) -> Digest:
        """Make it durable under its digest; raises OSError."""
        ...

    def discard(self) -> None:
        """Throw away what was not finished."""
        ...


class ArtifactReader(AbstractContextManager["ArtifactReader"], Protocol):
    """An open, verified artifact."""

    @property
    def size(self) -> int:
        """Bytes in all."""
        ...

    def page(self, offset: int, count: int) -> bytes:
        """At most `count` bytes from `offset`; empty beyond the end."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class ArtifactStore(Protocol):
    """The artifacts of the tree. Every method blocks on the disk."""

    def put(self, data: bytes) -> Digest:
        """Keep `data`; raises OSError, and then nothing is kept."""
        ...

    def writer(self) -> ArtifactWriter:
        """A new artifact to be written in pieces."""
        ...

    def open(self, digest: Digest) -> ArtifactReader:
        """An artifact to read pages of; raises a Fault when it is missing or damaged."""
        ...


class Room(Protocol):
    """All that one tool call can touch."""

    @property
    def workspace(self) -> str:
        """The absolute directory that relative paths start from."""
        ...

    @property
    def env(self) -> Mapping[str, str]:
        """The whole environment of a process started here, the mark of its tree included."""
        ...

    @property
    def call_id(self) -> CallId: ...

    @property
    def session_id(self) -> SessionId: ...

    @property
    def artifacts(self) -> ArtifactStore: ...

    @property
    def limits(self) -> ToolOutput:
        """How much of one output stream a model is shown."""
        ...

    @property
    def clock(self) -> Clock: ...

    async def progress(self, message: str, chunk: str | None = None) -> None:
        """Tell people how the call goes; at most 1024 characters each."""
        ...


# --- a tool --------------------------------------------------------------------------------------


class ToolFailure(Exception):
    """A call came to nothing for a reason to be expected. `result` is what there is all the same.

    `code` is stable, `message` tells the model what it can do about it.
    """

    def __init__(self, code: str, message: str, result: ToolResult | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.result = result

    def error(self) -> ToolError:
        """The failure as a `tool_call_terminated` carries it."""
        return ToolError(code=self.code, message=self.message)


class Tool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every tool: a subclass's fields are its arguments, named as the model writes them.

    The first paragraph of a subclass's docstring is what the model reads about it.
    """

    name: ClassVar[str]
    action: ClassVar[Action]  # the permission it falls under
    parallel: ClassVar[bool]  # may run beside other calls of its turn
    system_texts: ClassVar[tuple[str, ...]] = ()  # arguments the system takes as C strings

    def __post_init__(self) -> None:
        # msgspec turns a ValueError in here into a decode error that names the place.
        for field in self.system_texts:
            if not getattr(self, field):
                raise ValueError(f"`{field}` is empty")
            if "\0" in getattr(self, field):
                raise ValueError(f"`{field}` contains a NUL character")
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if isinstance(value, int) and value > COUNT_MAX:
                raise ValueError(f"`{field}` is too large")

    @classmethod
    def description(cls) -> str:
        """What the model is told this tool does."""
        return " ".join(cleandoc(cls.__doc__ or cls.name).partition("\n\n")[0].split())

    def label(self, workspace: str) -> str | None:
        """What permission rules match on: a function of arguments and workspace, no I/O."""
        raise NotImplementedError

    def title(self) -> str:
        """How a person is shown the call, in a word."""
        return self.name.capitalize()

    def primary_argument(self) -> str | None:
        """The argument that tells this call from others of the tool."""
        return None

    def normalized(self) -> dict[str, Any]:
        """The arguments with every default filled in: equal calls have equal ones."""
        return {field: getattr(self, field) for field in self.__struct_fields__}

    async def run(self, room: Room) -> ToolResult:
        """Do it. Raises ToolFailure; a cancelled call cleans up within 2 s and re-raises."""
        raise NotImplementedError


class BadArguments(Struct, frozen=True):
    """A call that can't be run as the model wrote it, and what the model has to change."""

    message: str
    code: str = "invalid_arguments"

    def error(self) -> ToolError:
        """The refusal as a `tool_call_terminated` carries it."""
        return ToolError(code=self.code, message=self.message)


def parse(name: str, arguments: str, tools: Mapping[str, type[Tool]]) -> Tool | BadArguments:
    """The call that a model's JSON text stands for. No text at all stands for `{}`.

    Strict: a wrong type, an unknown or doubled key, a NUL where the system would take it, a lone
    surrogate or broken JSON is refused with a message that names it and lists the arguments.
    """
    tool = tools.get(name)
    if tool is None:
        known = ", ".join(tools) or "none"
        message = f"There is no tool {_quoted(name)}. The tools are: {known}."
        return BadArguments(message, code="unknown_tool")
    text = arguments if arguments.strip() else "{}"
    try:
        call = msgspec.json.decode(text, type=tool)
    except msgspec.ValidationError as bad:
        return _refused(tool, str(bad))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as bad:
        return _refused(tool, f"The arguments are no JSON object ({bad})")
    doubled = _doubled_keys(text)
    if doubled:
        keys = ", ".join(f"`{clean(key, QUOTED_CHARS_MAX)}`" for key in doubled)
        return _refused(tool, f"The same argument is given twice: {keys}")
    return call


def _doubled_keys(text: str) -> list[str]:
    # msgspec keeps the last of two equal keys and says nothing. `text` has decoded into a flat
    # object before, so this is no second look at unknown depths.
    doubled: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                doubled.append(key)
            seen.add(key)

    json.loads(text, object_pairs_hook=look)
    return doubled


def _refused(tool: type[Tool], why: str) -> BadArguments:
    said = clean(why, MESSAGE_CHARS_MAX // 2).rstrip(".")
    return BadArguments(f"{said}. Arguments of {tool.name}: {_usage(tool)}.")


def _usage(tool: type[Tool]) -> str:
    schema = json_schema(tool)
    required = set(schema["required"])
    return ", ".join(
        f"{name} ({field['type']}, "
        + ("required)" if name in required else f"default {json.dumps(field['default'])})")
        for name, field in schema["properties"].items()
    )


def _quoted(text: str) -> str:
    return f'"{clean(text, QUOTED_CHARS_MAX)}"'


@lru_cache(maxsize=64)
def json_schema(tool: type[Tool]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments, for providers: the same every time, no references."""
    (definition,) = msgspec.json.schema(tool)["$defs"].values()
    properties = definition["properties"]
    return {
        "type": "object",
        "properties": {field: _without_titles(properties[field]) for field in properties},
        "required": list(definition["required"]),
        "additionalProperties": False,
    }


def _without_titles(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}


def tool_table(tools: Iterable[type[Tool]]) -> dict[str, type[Tool]]:
    """Tools by name, in the order given: the order in which models are offered them."""
    return {tool.name: tool for tool in tools}


# --- work that blocks ----------------------------------------------------------------------------


async def off_loop(work: Callable[[], T]) -> T:
    """Do blocking work on a thread. Who is cancelled meanwhile still waits for its end.

    A thread can't be stopped, and an effect must not happen after its call was declared over.
    """
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await settled(future, CLEANUP_S)
        raise


async def settled(future: "asyncio.Future[Any]", seconds: float) -> bool:
    """Wait for `future` at most so long, through any cancellation, which is raised afterwards.

    Whether it is done. Its exception, if any, counts as looked at.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    cancelled = False
    while not future.done() and (left := end - loop.time()) > 0:
        try:
            await asyncio.wait({future}, timeout=left)
        except asyncio.CancelledError:
            cancelled = True
    if future.done() and not future.cancelled():
        future.exception()
    if cancelled:
        raise asyncio.CancelledError
    return future.done()
