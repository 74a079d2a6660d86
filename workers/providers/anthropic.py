"""Anthropic's Messages: a request in its words, and its stream or its one object as a turn."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from ipc.events import FrozenModelBinding
from workers.providers.anthropic_answer import Stream, Whole
from workers.providers.anthropic_messages import Json, check, messages, text_block
from workers.providers.base import CannotEncode, Decoder, HttpCall, Media, Request, ToolSpec

if TYPE_CHECKING:
    from workers.providers.base import Outside, Provider

ENDPOINT: Final = "https://api.anthropic.com/v1"
VERSION: Final = "2023-06-01"
EXTENDED_TTL: Final = "extended-cache-ttl-2025-04-11"

MAX_TOKENS: Final = 4096  # the wire must name a number; this where nobody knows the model's
BUDGET_TOKENS_MIN: Final = 1024  # the API takes no smaller one
BUDGET_TOKENS: Final = 16_384  # of a model that is to think and knows no better word for it
ANSWER_TOKENS: Final = 4096  # stay for what is said after the thinking
LOOKBACK_BLOCKS: Final = 18  # the API looks for what it kept at most 20 blocks before a marker

_ENCODE: Final = msgspec.json.Encoder().encode


def make(binding: FrozenModelBinding, outside: "Outside") -> "Provider":
    """The provider of an `anthropic` or `anthropic-compatible` binding."""
    from workers.providers.http import HttpProvider  # noqa: PLC0415 - codecs do without its aiohttp

    return HttpProvider(Anthropic, binding, outside)


class Anthropic:
    """The wire of one model behind `/messages`."""

    def __init__(self, binding: FrozenModelBinding) -> None:
        self._binding = binding
        self._line = _line(binding.wire_model)
        self._cache = _cache(binding)
        self._url = (binding.endpoint or ENDPOINT).rstrip("/") + "/messages"

    def encode(self, request: Request, media: Media) -> HttpCall:
        """The call of one attempt. What grows with a session, its messages, comes last."""
        said = messages(request.messages, media)
        check(said)
        body: Json = {"model": self._binding.wire_model}
        body |= self._generation(request)
        body["stream"] = True
        tools = request.tools
        if not tools and (tools := _called(said)):
            body["tool_choice"] = {"type": "none"}
        if tools:
            body["tools"] = _tools(tools, self._cache.tools)
        if request.system.strip():
            body["system"] = [_marked(text_block(request.system), self._cache.system)]
        headers = self._headers(long="1h" in _marks(body))
        body["messages"] = _rolling(said, self._cache.rolling)
        return HttpCall(url=self._url, headers=headers, body=_encoded(body))

    def decoder(self, content_type: str) -> Decoder:
        """Of server-sent events, unless the response says that it is JSON."""
        kind = content_type.partition(";")[0].strip().lower()
        return Whole() if kind.endswith("json") else Stream()

    def _headers(self, *, long: bool) -> dict[str, str]:
        headers = {
            "content-type": "application/json",
            "accept": "text/event-stream",
            "anthropic-version": VERSION,
        }
        asked = self._binding.options.get("beta") or ()
        beta = [asked] if isinstance(asked, str) else list(asked)
        if long:
            beta.append(EXTENDED_TTL)
        if beta:
            headers["anthropic-beta"] = ",".join(dict.fromkeys(beta))
        return headers

    def _generation(self, request: Request) -> Json:
        """How long, how hard and how freely, in words that don't contradict each other."""
        wish, line = self._binding.generation, self._line
        limit = self._binding.max_output
        asked = request.max_output_tokens or limit or MAX_TOKENS
        cap = asked if limit is None else min(asked, limit)
        thinking, effort = _thinking(self._binding, line)
        if thinking is not None and "budget_tokens" in thinking:
            thinking, cap = _within(thinking, cap, limit)
        thinks = line.thinks(thinking)
        body: Json = {"max_tokens": cap}
        if thinking is not None:
            body["thinking"] = thinking
        if effort is not None:
            body["output_config"] = {"effort": effort}
        # A model that thinks takes no temperature but 1, and the newer ones take none at all.
        if not thinks and not line.no_sampling:
            if wish.temperature is not None:
                body["temperature"] = wish.temperature
            elif wish.top_p is not None:  # the API refuses both at once
                body["top_p"] = wish.top_p
        stop = [each for each in wish.stop if each.strip()]
        if stop:
            body["stop_sequences"] = stop
        choice = self._tool_choice(request.tools, thinks=thinks)
        if choice is not None:
            body["tool_choice"] = choice
        return body

    def _tool_choice(self, tools: Sequence[ToolSpec], *, thinks: bool) -> Json | None:
        asked = self._binding.generation.tool_choice
        if not tools:
            return None
        if asked == "none":
            return {"type": "none"}
        choice: Json = {"type": "auto"}
        name = (asked or "").removeprefix("named:")
        # The API refuses to have a thinking model forced to call something.
        if asked == "required" and not thinks:
            choice = {"type": "any"}
        elif asked != name and not thinks and any(tool.name == name for tool in tools):
            choice = {"type": "tool", "name": name}
        if not self._binding.capabilities.parallel_tools:
            choice["disable_parallel_tool_use"] = True
        return None if choice == {"type": "auto"} and asked is None else choice


# --- how hard a model thinks -------------------------------------------------------------------


class _Line(NamedTuple):
    """What a model's name says about its thinking, as far as Anthropic names its models.

    From platform.claude.com/docs/en/build-with-claude/thinking-troubleshooting: manual budgets
    are all that models before 4.6 know, and refused from 4.7 on; from 5 on thinking is on
    unless it is turned off, which some models refuse. Any other name is taken at its word.
    """

    name: str
    version: tuple[int, int]

    @property
    def adaptive(self) -> bool:
        """Whether it may be left to decide how much to think."""
        return self.version >= (4, 6)

    @property
    def no_budgets(self) -> bool:
        """Whether it refuses to be told a number of tokens."""
        return self.version >= (4, 7)

    @property
    def no_sampling(self) -> bool:
        """Whether it refuses any temperature and top_p."""
        return self.version >= (4, 7)

    @property
    def always(self) -> bool:
        """Whether thinking can't be turned off."""
        return self.name in {"fable", "mythos"} or (self.name == "opus" and self.version >= (5, 5))

    @property
    def off(self) -> Json | None:
        """How to say that there is to be no thinking."""
        if self.always:
            return None
        between = self.name == "sonnet" and self.version >= (5, 5)
        return {"type": "between_tools" if between else "disabled"}

    @property
    def on(self) -> Json:
        """How to say that there is to be some, and that it is to be seen."""
        if not self.adaptive:
            return {"type": "enabled", "budget_tokens": BUDGET_TOKENS}
        shown = {"display": "summarized"} if self.no_budgets else {}  # the default is to hide it
        return {"type": "adaptive", **shown}

    def thinks(self, thinking: Json | None) -> bool:
        """Whether a request with this `thinking` makes the model think."""
        if thinking is None:
            return self.version >= (5, 0)
        return bool(thinking["type"] != "disabled")


_CLAUDE: Final = re.compile(r"claude-(.*)")
_NUMBER: Final = re.compile(r"(?<![a-z\d])\d{1,2}(?![a-z\d])")  # a date has eight digits
_NAME: Final = re.compile(r"fable|haiku|mythos|opus|sonnet")


def _line(model: str) -> _Line:
    """`claude-sonnet-4-5-20250929`, `anthropic/claude-opus-4.6` or `claude-3-opus-latest`."""
    found = _CLAUDE.search(model.lower())
    if found is None:
        return _Line("", (0, 0))
    rest = found[1]
    name = _NAME.search(rest)
    numbers = [int(each) for each in _NUMBER.findall(rest)[:2]]
    if not numbers and name is not None and name[0] in {"fable", "mythos"}:
        numbers = [5]  # the names that began with it
    major, minor = (*numbers, 0, 0)[:2]
    return _Line("" if name is None else name[0], (major, minor))


def _thinking(binding: FrozenModelBinding, line: _Line) -> tuple[Json | None, str | None]:
    """What to say about thinking and about effort; None = nothing."""
    wish = binding.reasoning
    if wish is None or wish.effort == "default":
        return None, None
    if wish.effort == "none" or wish.enabled is False or wish.budget_tokens == 0:
        return line.off, "low" if line.always else None
    if wish.effort is not None:
        effort = "low" if wish.effort == "minimal" else wish.effort
        return line.on if line.adaptive else None, effort
    if wish.budget_tokens is None or line.no_budgets:
        return line.on, None
    budget = max(wish.budget_tokens, BUDGET_TOKENS_MIN)
    return {"type": "enabled", "budget_tokens": budget}, None


def _within(thinking: Json, cap: int, limit: int | None) -> tuple[Json | None, int]:
    """A budget that leaves room for an answer below `max_tokens`, which rises for it if it may."""
    wished: int = thinking["budget_tokens"]
    room = min(ANSWER_TOKENS, cap)
    if cap < wished + room:
        cap = wished + room if limit is None else min(wished + room, limit)
    budget = min(wished, cap - min(room, cap // 2))
    if budget < BUDGET_TOKENS_MIN:
        return None, cap
    return {"type": "enabled", "budget_tokens": budget}, cap


# --- what is sent ------------------------------------------------------------------------------


class _Cache(NamedTuple):
    """The markers by place; None = none."""

    tools: str | None
    system: str | None
    rolling: str | None


def _cache(binding: FrozenModelBinding) -> _Cache:
    table = {"tools": "1h", "system": "1h", "rolling": "5m"} | (binding.cache or {})
    tools, system, rolling = (
        None if table[place] == "off" else str(table[place]) for place in _Cache._fields
    )
    if tools == "5m" and system == "1h":  # what is kept longer must come first
        system = "5m"
    return _Cache(tools, system, rolling)


def _marked(block: Json, ttl: str | None) -> Json:
    if ttl is None:
        return block
    marker = {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}
    return {**block, "cache_control": marker}


def _marks(body: Json) -> set[str | None]:
    """How long what is said before the messages is to be kept."""
    marked = (*body.get("tools", ())[-1:], *body.get("system", ()))
    return {block.get("cache_control", {}).get("ttl") for block in marked}


def _rolling(said: list[Json], ttl: str | None) -> list[Json]:
    """The messages with a marker at the end of the last one, as far as that can be marked.

    A turn with very many calls gets another one before it, or what was kept up to there would
    not be found.
    """
    if ttl is None:
        return said
    marked = list(said)
    marked[-1] = _marked_at_end(said[-1], ttl)
    if said[:-2] and sum(len(message["content"]) for message in said[-2:]) > LOOKBACK_BLOCKS:
        marked[-3] = _marked_at_end(said[-3], ttl)
    return marked


def _marked_at_end(message: Json, ttl: str) -> Json:
    blocks = list(message["content"])
    for index in reversed(range(len(blocks))):
        if blocks[index]["type"] in _CACHEABLE:
            blocks[index] = _marked(blocks[index], ttl)
            return {**message, "content": blocks}
    return message


_CACHEABLE: Final = frozenset({"text", "image", "document", "tool_use", "tool_result"})


def _tools(tools: Sequence[ToolSpec], ttl: str | None) -> list[Json]:
    made = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
        for tool in tools
    ]
    if made:
        made[-1] = _marked(made[-1], ttl)
    return made


def _called(said: list[Json]) -> tuple[ToolSpec, ...]:
    """The tools that a history calls, for a request without any: the API wants them defined."""
    names = {
        block["name"]: None
        for message in said
        for block in message["content"]
        if block["type"] == "tool_use"
    }
    return tuple(ToolSpec(name=name, description="", parameters=_ANYTHING) for name in names)


_ANYTHING: Final[Json] = {"type": "object"}


def _encoded(body: Json) -> bytes:
    try:
        return _ENCODE(body)
    except (TypeError, ValueError, RecursionError) as error:  # a lone surrogate is a ValueError
        raise CannotEncode(f"the request is no JSON: {error}") from error
