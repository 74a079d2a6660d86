"""Google's Gemini: a request in the words of `streamGenerateContent`."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from ipc.events import FrozenModelBinding
from ipc.events.base import ReasoningWish
from workers.providers.base import CannotEncode, Decoder, HttpCall, Media, Request, ToolSpec
from workers.providers.google_answer import Answer
from workers.providers.google_contents import Json, contents

if TYPE_CHECKING:
    from workers.providers.base import Outside, Provider


class _Address(NamedTuple):
    """Where the models of an adaptor are; `path` may name the binding's own setup fields."""

    endpoint: str
    path: str


# Another place that speaks this wire is one row more.
ADDRESSES: Final[Mapping[str, _Address]] = {
    "google-gemini": _Address(
        "https://generativelanguage.googleapis.com/v1beta", "/models/{wire_model}"
    ),
}
VERB: Final = ":streamGenerateContent?alt=sse"

_ENCODE: Final = msgspec.json.Encoder().encode


def make(binding: FrozenModelBinding, outside: "Outside") -> "Provider":
    """The provider of a `google-gemini` binding."""
    from workers.providers.http import HttpProvider  # noqa: PLC0415 - codecs do without its aiohttp

    return HttpProvider(Google, binding, outside)


class Google:
    """The wire of one Gemini model."""

    def __init__(self, binding: FrozenModelBinding) -> None:
        self._binding = binding
        self._line = _line(binding.wire_model)
        self._url = _url(binding)

    def encode(self, request: Request, media: Media) -> HttpCall:
        """The call of one attempt. What grows with a session, its contents, comes last."""
        said = contents(request.messages, media, signs=self._line.signs)
        body: Json = {}
        if request.system.strip():
            body["systemInstruction"] = {"parts": [{"text": request.system}]}
        if request.tools:
            body["tools"] = [{"functionDeclarations": [_tool(tool) for tool in request.tools]}]
            choice = _tool_choice(self._binding.generation.tool_choice)
            if choice is not None:
                body["toolConfig"] = {"functionCallingConfig": choice}
        generation = self._generation(request)
        if generation:
            body["generationConfig"] = generation
        body["contents"] = said
        headers = {"content-type": "application/json", "accept": "text/event-stream"}
        return HttpCall(url=self._url, headers=headers, body=_encoded(body))

    def decoder(self, content_type: str) -> Decoder:
        """Of events, one object or an array of them: told by the first byte of the body."""
        return Answer()

    def _generation(self, request: Request) -> Json:
        wish = self._binding.generation
        told = {
            "maxOutputTokens": request.max_output_tokens,
            "temperature": wish.temperature,
            "topP": wish.top_p,
            "stopSequences": [each for each in wish.stop if each] or None,
            "seed": wish.seed,
            "thinkingConfig": _thinking(self._binding.reasoning, self._line),
        }
        return {name: value for name, value in told.items() if value is not None}


def _url(binding: FrozenModelBinding) -> str:
    address = ADDRESSES.get(binding.adaptor, ADDRESSES["google-gemini"])
    model = binding.wire_model.removeprefix("models/")
    fields = {**binding.setup, "wire_model": model}
    path = address.path.format_map({name: quote(str(fields[name])) for name in fields})
    return (binding.endpoint or address.endpoint).rstrip("/") + path + VERB


def _encoded(body: Json) -> bytes:
    try:
        return _ENCODE(body)
    except (TypeError, ValueError, RecursionError) as error:  # a lone surrogate is a ValueError
        raise CannotEncode(f"the request is no JSON: {error}") from error


# --- tools -------------------------------------------------------------------------------------


def _tool_choice(asked: str | None) -> Json | None:
    if asked is None:
        return None
    if asked.startswith("named:"):
        return {"mode": "ANY", "allowedFunctionNames": [asked.removeprefix("named:")]}
    return {"mode": {"none": "NONE", "required": "ANY"}.get(asked, "AUTO")}


def _tool(tool: ToolSpec) -> Json:
    """A declaration by `parametersJsonSchema`, which takes JSON Schema as it is.

    Its elder `parameters` takes a dialect of OpenAPI, and one keyword it has no field for, such
    as `$schema` or `additionalProperties`, makes the API refuse the whole request.
    """
    schema = _schema(tool.parameters)
    if "$ref" not in schema:
        schema.setdefault("type", "object")
    return {
        "name": tool.name,
        "description": tool.description,
        "parametersJsonSchema": schema,
    }


_MAPS: Final = frozenset({"properties", "$defs", "definitions", "patternProperties"})
_LISTS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_ONES: Final = frozenset({"items", "additionalProperties", "not"})


def _schema(schema: Mapping[str, Any]) -> Json:
    """The schema without what the API refuses even there.

    From the words about `responseJsonSchema`, which has the same reader: definitions live in
    `$defs`, beside a `$ref` nothing may stand. `$schema` says nothing to it, `const` is unknown.
    """
    made: Json = {}
    for name, value in schema.items():
        if name in _MAPS and isinstance(value, dict):
            key = "$defs" if name == "definitions" else name
            made[key] = {each: _sub(value[each]) for each in value}
        elif name in _LISTS and isinstance(value, list):
            made[name] = [_sub(each) for each in value]
        elif name in _ONES:
            made[name] = _sub(value)
        elif name == "const":
            made.setdefault("enum", [value])
        elif name == "$ref" and isinstance(value, str):
            made[name] = value.replace("#/definitions/", "#/$defs/")
        elif name != "$schema":
            made[name] = value
    if "$ref" in made:
        return {name: value for name, value in made.items() if name.startswith("$")}
    return made


def _sub(schema: object) -> Any:
    return _schema(schema) if isinstance(schema, dict) else schema


# --- how hard a model thinks -------------------------------------------------------------------


class _Line(NamedTuple):
    """What a model's name says about its thinking, as far as Google names its models.

    From ai.google.dev/gemini-api/docs/thinking and .../thought-signatures: from 3 on a model
    thinks at a level, can't be told not to, and signs its calls; before, it takes a budget.
    """

    version: tuple[int, int]
    pro: bool
    lite: bool

    @property
    def signs(self) -> bool:
        return self.version >= (3, 0)

    @property
    def least(self) -> Json:
        """As little thinking as the model can be told to do."""
        if self.signs:
            return {"thinkingLevel": "LOW" if self.pro else "MINIMAL"}
        return {"thinkingBudget": self._bounds[0] if self.pro and self._known else 0}

    def level(self, effort: str) -> Json:
        """An effort as a level, or as the budget that Google itself takes it for."""
        if self.signs:
            word = _LEVELS.get(effort, effort.upper())
            return {"thinkingLevel": "LOW" if self.pro and word == "MINIMAL" else word}
        return self.budget(_BUDGETS.get(effort, DYNAMIC))

    def budget(self, tokens: int) -> Json:
        """A budget inside what the model takes."""
        if self._known and tokens != DYNAMIC:
            least, most = self._bounds
            tokens = min(max(tokens, least), most)
        return {"thinkingBudget": tokens}

    @property
    def _known(self) -> bool:
        return self.version == (2, 5)

    @property
    def _bounds(self) -> tuple[int, int]:
        if self.pro:
            return 128, 32_768
        return 512 if self.lite else 1, 24_576


DYNAMIC: Final = -1  # the model decides

_LEVELS: Final = {"max": "HIGH", "none": "MINIMAL"}
# https://ai.google.dev/gemini-api/docs/openai: what its compatible wire makes of the words.
_BUDGETS: Final = {
    "minimal": 1024,
    "low": 1024,
    "medium": 8192,
    "high": 24_576,
    "xhigh": 32_768,
    "max": 32_768,
}
_GEMINI: Final = re.compile(r"gemini-(?:(\d{1,2})(?:\.(\d))?(?=-|$)|.*-latest$)")


def _line(model: str) -> _Line:
    """`gemini-2.5-pro`, `gemini-3.1-flash-lite-preview`, `gemini-flash-latest`."""
    name = model.lower()
    found = _GEMINI.search(name)
    pro, lite = "-pro" in name, "-lite" in name
    if found is None:
        return _Line((0, 0), pro, lite)
    if found[1] is None:  # the latest one, whichever that is
        return _Line((3, 0), pro, lite)
    return _Line((int(found[1]), int(found[2] or 0)), pro, lite)


def _thinking(wish: ReasoningWish | None, line: _Line) -> Json | None:
    """What to say about thinking; what is thought is asked for whenever there is to be some."""
    if wish is None or wish.effort == "default":
        return None
    if wish.effort == "none" or wish.enabled is False or wish.budget_tokens == 0:
        return line.least
    seen: Json = {"includeThoughts": True}
    if wish.effort is not None:
        return seen | line.level(wish.effort)
    if wish.budget_tokens is not None:
        return seen | line.budget(wish.budget_tokens)
    return seen if line.signs else seen | line.budget(DYNAMIC)
