"""What a provider's API refuses of a request, written from its public protocol and nothing of ours.

One function a wire takes the body that was encoded and raises Refused with the reason. They refuse
more than every server does: what any of them is known to refuse, and what nobody should send.
"""

import base64
import json
import re
from collections.abc import Collection, Iterable
from typing import Any, NoReturn

Json = dict[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
GOOGLE_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class Refused(AssertionError):
    """A request that its API would answer with a 400."""


def refuse(where: str, why: str) -> NoReturn:
    raise Refused(f"{where}: {why}")


def need(truth: object, where: str, why: str) -> None:
    if not truth:
        refuse(where, why)


# --- what all have in common -------------------------------------------------------------------


def decoded(body: bytes) -> Json:
    """The JSON object of a body, held to what JSON is and to the characters that all take."""

    def pairs(found: list[tuple[str, Any]]) -> Json:
        keys = [key for key, _ in found]
        need(len(keys) == len(set(keys)), "body", f"a key comes twice: {sorted(keys)}")
        return dict(found)

    def constant(word: str) -> NoReturn:
        refuse("body", f"{word} is no JSON")

    try:
        made = json.loads(body.decode(), object_pairs_hook=pairs, parse_constant=constant)
    except ValueError as error:
        refuse("body", f"no JSON: {error}")
    need(isinstance(made, dict), "body", "no object")
    _characters(made, "body")
    return made  # type: ignore[no-any-return]


def _characters(value: Any, where: str) -> None:
    match value:
        case str():
            need("\0" not in value, where, "holds a NUL")
            need(not re.search("[\ud800-\udfff]", value), where, "holds half a character")
        case dict():
            for key, one in value.items():
                _characters(key, where)
                _characters(one, f"{where}.{key}")
        case list():
            for index, one in enumerate(value):
                _characters(one, f"{where}.{index}")
        case _:
            pass


def keys(value: Any, where: str, must: str, may: str = "") -> Json:
    """An object with these fields and no others."""
    need(isinstance(value, dict), where, "is no object")
    required, allowed = set(must.split()), set(may.split())
    need(required <= value.keys(), where, f"lacks {sorted(required - value.keys())}")
    extra = value.keys() - required - allowed
    need(not extra, where, f"extra inputs are not permitted: {sorted(extra)}")
    return value  # type: ignore[no-any-return]


def one_of(value: Any, where: str, choices: Collection[Any]) -> None:
    need(isinstance(value, str) and value in choices, where, f"{value!r} is none of {choices}")


def words(value: Any, where: str) -> str:
    need(isinstance(value, str), where, "is no string")
    need(value.strip(), where, "text must be non-empty")
    return value  # type: ignore[no-any-return]


def elements(value: Any, where: str) -> list[tuple[str, Any]]:
    need(isinstance(value, list), where, "is no array")
    need(value, where, "must not be empty")
    return [(f"{where}.{index}", one) for index, one in enumerate(value)]


def in_base64(value: Any, where: str) -> None:
    need(isinstance(value, str) and value, where, "holds no data")
    try:
        base64.b64decode(value, validate=True)
    except ValueError:
        refuse(where, "is no base64")


def data_url(value: Any, where: str, kinds: Collection[str] = ()) -> None:
    need(isinstance(value, str), where, "is no string")
    if value.startswith("https://"):
        return
    found = re.fullmatch(r"data:([\w.+-]+/[\w.+-]+);base64,(.*)", value, re.DOTALL)
    need(found, where, "is no data URL")
    assert found is not None
    need(not kinds or found[1] in kinds, where, f"unsupported {found[1]}")
    in_base64(found[2], where)


def schema(value: Any, where: str) -> None:
    """The JSON Schema of an object, as far as a server looks."""
    keys(value, where, "type", " ".join(value) if isinstance(value, dict) else "")
    need(value["type"] == "object", where, "a tool's schema is that of an object")
    properties = value.get("properties", {})
    need(isinstance(properties, dict), where, "properties is no object")
    required = value.get("required", [])
    need(set(required) <= set(properties), where, "requires what it does not have")
    for name, one in properties.items():
        need(isinstance(one, dict | bool), f"{where}.{name}", "is no schema")


def json_object(text: Any, where: str) -> None:
    need(isinstance(text, str), where, "arguments are a string of JSON")
    try:
        made = json.loads(text)
    except ValueError as error:
        refuse(where, f"arguments are no JSON: {error}")
    need(isinstance(made, dict), where, "arguments are no JSON object")
    _characters(made, where)


def different(names: Iterable[str], where: str) -> None:
    given = list(names)
    need(len(given) == len(set(given)), where, f"must be unique: {given}")


# --- Anthropic's Messages ----------------------------------------------------------------------


def anthropic(body: bytes, *, paused: bool = False, beta: str = "") -> None:
    """POST /v1/messages; `paused`: the last turn is sent back to be gone on with."""
    asked = keys(
        decoded(body),
        "body",
        "model max_tokens messages",
        "system tools tool_choice thinking temperature top_p top_k stop_sequences stream "
        "metadata service_tier output_config",
    )
    words(asked["model"], "model")
    need(type(asked["max_tokens"]) is int and asked["max_tokens"] > 0, "max_tokens", "too small")
    for at, tool in elements(asked["tools"], "tools") if "tools" in asked else ():
        keys(tool, at, "name input_schema", "description cache_control type strict")
        need(NAME.fullmatch(tool["name"]), at, f"name {tool['name']!r}")
        schema(tool["input_schema"], f"{at}.input_schema")
    different((tool["name"] for tool in asked.get("tools", ())), "tools")
    system = asked.get("system", "none")
    if isinstance(system, str):
        words(system, "system")
    else:
        for at, block in elements(system, "system"):
            keys(block, at, "type text", "cache_control")
            words(block["text"], at)
    _anthropic_thinking(asked)
    _anthropic_messages(asked, paused=paused)
    _anthropic_cache(asked, beta)


def _anthropic_thinking(asked: Json) -> None:
    thinking = asked.get("thinking", {"type": "disabled"})
    one_of(thinking.get("type"), "thinking", ("enabled", "disabled", "adaptive", "between_tools"))
    if thinking["type"] != "enabled":
        return
    keys(thinking, "thinking", "type budget_tokens", "display")
    budget = thinking["budget_tokens"]
    need(budget >= 1024, "thinking", "budget_tokens must be at least 1024")
    need(budget < asked["max_tokens"], "thinking", "max_tokens must be above budget_tokens")
    need(asked.get("temperature", 1) == 1, "temperature", "must be 1 when thinking")
    choice = asked.get("tool_choice", {"type": "auto"})["type"]
    need(choice in {"auto", "none"}, "tool_choice", "may not force use when thinking")


def _anthropic_messages(asked: Json, *, paused: bool) -> None:
    said = elements(asked["messages"], "messages")
    need(said[0][1].get("role") == "user", "messages.0", "first message must use the user role")
    seen: set[str] = set()
    open_calls: list[str] = []
    before = ""
    for at, message in said:
        keys(message, at, "role content")
        role = message["role"]
        one_of(role, f"{at}.role", ("user", "assistant"))
        need(role != before, at, f"roles must alternate, but {role} comes twice")
        before = role
        content = message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        blocks = elements(content, f"{at}.content")
        for place, block in blocks:
            _anthropic_block(block, place, role)
        results = [block["tool_use_id"] for _, block in blocks if block["type"] == "tool_result"]
        need(
            sorted(results) == sorted(open_calls),
            at,
            f"tool_use ids {open_calls} need tool_result blocks immediately after, not {results}",
        )
        kinds = [block["type"] == "tool_result" for _, block in blocks]
        need(kinds == sorted(kinds, reverse=True), at, "tool_result blocks must come first")
        open_calls = [block["id"] for _, block in blocks if block["type"] == "tool_use"]
        need(not seen & set(open_calls), at, "tool_use ids must be unique")
        different(open_calls, at)
        seen |= set(open_calls)
        last = blocks[-1][1]["type"]
        thought = role == "assistant" and last in {"thinking", "redacted_thinking"}
        need(not thought, at, "the final block in an assistant message cannot be thinking")
    need(not open_calls, "messages", f"tool_use ids without tool_result: {open_calls}")
    need(before == "user" or paused, "messages", "the conversation must end with a user message")
    need(not seen or asked.get("tools"), "tools", "requests with tool_use must define tools")


_ANTHROPIC_BLOCKS = {
    "text": ("text", "citations", "user assistant"),
    "image": ("source", "", "user"),
    "document": ("source", "title context citations", "user"),
    "thinking": ("thinking signature", "", "assistant"),
    "redacted_thinking": ("data", "", "assistant"),
    "tool_use": ("id name input", "caller", "assistant"),
    "tool_result": ("tool_use_id", "content is_error", "user"),
    "server_tool_use": ("id name input", "caller", "assistant"),
    "web_search_tool_result": ("tool_use_id content", "caller", "assistant"),
}


def _anthropic_block(block: Any, at: str, role: str, allowed: Collection[str] = ()) -> None:
    need(isinstance(block, dict), at, "is no object")
    kind = block.get("type")
    one_of(kind, at, allowed or _ANTHROPIC_BLOCKS)
    must, may, roles = _ANTHROPIC_BLOCKS[kind]
    keys(block, at, f"type {must}", f"{may} cache_control")
    need(role in roles, at, f"{kind} may not stand in a message of the {role}")
    match kind:
        case "text":
            words(block["text"], at)
        case "image":
            keys(block["source"], at, "type media_type data")
            one_of(block["source"]["media_type"], at, IMAGES)
            in_base64(block["source"]["data"], at)
        case "document":
            source = keys(block["source"], at, "type media_type data")
            one_of(source["type"], at, ("base64", "text"))
            if source["type"] == "base64":
                one_of(source["media_type"], at, ("application/pdf",))
                in_base64(source["data"], at)
            else:
                words(source["data"], at)
        case "thinking":
            need(isinstance(block["thinking"], str), at, "thinking is no string")
            words(block["signature"], f"{at}.signature")
        case "redacted_thinking":
            words(block["data"], at)
        case "tool_use":
            need(re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]), f"{at}.id", f"{block['id']!r}")
            need(NAME.fullmatch(block["name"]), f"{at}.name", f"{block['name']!r}")
            need(isinstance(block["input"], dict), f"{at}.input", "is no object")
        case "tool_result" if isinstance(block.get("content", "none"), str):
            words(block.get("content", "none"), at)
        case "tool_result":
            for place, inner in elements(block["content"], f"{at}.content"):
                _anthropic_block(inner, place, "user", ("text", "image", "document"))
        case _:
            pass


def _anthropic_cache(asked: Json, beta: str) -> None:
    places: list[tuple[str, Json]] = []

    def look(value: Any, at: str) -> None:
        for place, one in enumerate(value) if isinstance(value, list) else ():
            if isinstance(one, dict):
                look(one.get("content"), f"{at}.{place}")
                if "cache_control" in one:
                    places.append((f"{at}.{place}", one))

    for part in ("tools", "system", "messages"):
        look(asked.get(part), part)
    need(len(places) <= 4, "cache_control", f"a maximum of 4 blocks, found {len(places)}")
    short = False
    for at, block in places:
        mark = keys(block["cache_control"], at, "type", "ttl")
        need(mark["type"] == "ephemeral", at, "cache_control is ephemeral")
        one_of(mark.get("ttl", "5m"), at, ("5m", "1h"))
        kind = block.get("type")
        need(kind not in {"thinking", "redacted_thinking"}, at, "thinking can't be cached")
        if mark.get("ttl") == "1h":
            need(not short, at, "a ttl='1h' block must not come after a ttl='5m' block")
            need("extended-cache-ttl" in beta, at, "needs the extended-cache-ttl beta")
        else:
            short = True


# --- OpenAI's Responses ------------------------------------------------------------------------


def responses(body: bytes) -> None:
    """POST /v1/responses, stateless."""
    asked = keys(
        decoded(body),
        "body",
        "model input",
        "instructions tools tool_choice parallel_tool_calls stream store include reasoning text "
        "max_output_tokens temperature top_p prompt_cache_key prompt_cache_retention "
        "prompt_cache_options truncation metadata service_tier user safety_identifier",
    )
    words(asked["model"], "model")
    if "instructions" in asked:
        words(asked["instructions"], "instructions")
    need(asked.get("max_output_tokens", 16) >= 16, "max_output_tokens", "at least 16")
    need(len(asked.get("prompt_cache_key", "")) <= 64, "prompt_cache_key", "too long")
    for at, tool in elements(asked["tools"], "tools") if "tools" in asked else ():
        keys(tool, at, "type name parameters", "strict description")
        need(tool["type"] == "function" and NAME.fullmatch(tool["name"]), at, "tool")
        schema(tool["parameters"], at)
    different((tool["name"] for tool in asked.get("tools", ())), "tools")
    _responses_input(elements(asked["input"], "input"), stateless=asked.get("store") is False)


def _responses_input(items: list[tuple[str, Any]], *, stateless: bool) -> None:
    open_calls: list[str] = []
    seen: set[str] = set()
    thought = ""
    for at, item in items:
        need(isinstance(item, dict), at, "is no object")
        kind = item.get("type", "message")
        theirs = kind == "message" and item.get("role") != "assistant"
        if thought and (theirs or kind == "function_call_output"):
            refuse(thought, "reasoning was provided without its required following item")
        thought = at if kind == "reasoning" else ""
        need(not (stateless and item.get("id")), at, "items are not persisted, so ids aren't found")
        match kind:
            case "message":
                need(not (theirs and open_calls), at, f"no tool output found for {open_calls}")
                _responses_message(item, at)
            case "function_call":
                keys(item, at, "type call_id name arguments", "id status")
                call = words(item["call_id"], f"{at}.call_id")
                need(len(call) <= 64, f"{at}.call_id", "string too long")
                need(call not in seen, at, f"call_id {call} comes twice")
                need(NAME.fullmatch(item["name"]), f"{at}.name", f"{item['name']!r}")
                json_object(item["arguments"], f"{at}.arguments")
                seen.add(call)
                open_calls.append(call)
            case "function_call_output":
                keys(item, at, "type call_id output", "id status")
                need(item["call_id"] in open_calls, at, f"no tool call found for {item['call_id']}")
                open_calls.remove(item["call_id"])
                if isinstance(item["output"], str):
                    words(item["output"], at)
                else:
                    for place, part in elements(item["output"], f"{at}.output"):
                        _responses_part(part, place, ("input_text", "input_image", "input_file"))
            case "reasoning":
                keys(item, at, "type summary", "id encrypted_content content status")
                need(item.get("encrypted_content") or item.get("content"), at, "says nothing")
            case "web_search_call" | "compaction":
                pass
            case _:
                refuse(at, f"invalid type {kind!r}")
    need(not thought, thought, "reasoning was provided without its required following item")
    need(not open_calls, "input", f"no tool output found for function call {open_calls}")


def _responses_message(item: Json, at: str) -> None:
    keys(item, at, "role content", "type id status phase")
    one_of(item["role"], f"{at}.role", ("user", "assistant", "system", "developer"))
    if isinstance(item["content"], str):
        words(item["content"], at)
        return
    inputs = ("input_text", "input_image", "input_file")
    allowed = ("output_text", "refusal") if item["role"] == "assistant" else inputs
    for place, part in elements(item["content"], f"{at}.content"):
        _responses_part(part, place, allowed)


def _responses_part(part: Any, at: str, allowed: Collection[str]) -> None:
    need(isinstance(part, dict), at, "is no object")
    one_of(part.get("type"), at, allowed)
    match part["type"]:
        case "input_text":
            words(keys(part, at, "type text", "prompt_cache_breakpoint")["text"], at)
        case "output_text":
            words(keys(part, at, "type text", "annotations logprobs")["text"], at)
        case "refusal":
            words(keys(part, at, "type refusal")["refusal"], at)
        case "input_image":
            keys(part, at, "type image_url", "detail prompt_cache_breakpoint")
            data_url(part["image_url"], f"{at}.image_url", IMAGES)
        case "input_file":
            keys(part, at, "type filename file_data", "prompt_cache_breakpoint")
            data_url(part["file_data"], f"{at}.file_data")
        case _:
            pass


# --- Chat Completions --------------------------------------------------------------------------

_CHAT_ALL = (
    "stream stream_options tools tool_choice parallel_tool_calls temperature top_p stop seed "
    "reasoning_effort prompt_cache_key"
)


def chat(body: bytes) -> None:
    """POST /v1/chat/completions of OpenAI."""
    more = "max_completion_tokens store prompt_cache_retention prompt_cache_options metadata user"
    asked = keys(decoded(body), "body", "model messages", f"{_CHAT_ALL} {more}")
    _chat(asked, thoughts="", roles=("developer", "system"))


def compatible(body: bytes) -> None:
    """The same of the servers that speak it too, held to the narrowest of them."""
    asked = keys(decoded(body), "body", "model messages", f"{_CHAT_ALL} max_tokens store")
    _chat(asked, thoughts="reasoning reasoning_content reasoning_details", roles=("system",))
    for index, message in enumerate(asked["messages"]):
        at = f"messages.{index}"
        need(message["role"] != "system" or index == 0, at, "a system message must be the first")
        content = message["content"]
        if message["role"] == "tool":
            need(isinstance(content, str), at, "a tool message holds a string")
        plain = isinstance(content, list) and all(part["type"] == "text" for part in content)
        need(not plain, at, "text alone must be a string")
        for call in message.get("tool_calls", ()):
            need(call["function"]["arguments"].strip(), at, "arguments are a JSON text")


def _chat(asked: Json, *, thoughts: str, roles: tuple[str, ...]) -> None:
    words(asked["model"], "model")
    need(len(asked.get("prompt_cache_key", "")) <= 64, "prompt_cache_key", "too long")
    if "stream_options" in asked:
        need(asked.get("stream"), "stream_options", "only when streaming")
    for at, tool in elements(asked["tools"], "tools") if "tools" in asked else ():
        keys(tool, at, "type function")
        keys(tool["function"], at, "name parameters", "description strict")
        need(NAME.fullmatch(tool["function"]["name"]), at, "name")
        schema(tool["function"]["parameters"], at)
    different((tool["function"]["name"] for tool in asked.get("tools", ())), "tools")
    seen: set[str] = set()
    open_calls: list[str] = []
    said = elements(asked["messages"], "messages")
    for at, message in said:
        need(isinstance(message, dict), at, "is no object")
        role = message.get("role")
        one_of(role, f"{at}.role", (*roles, "user", "assistant", "tool"))
        if role == "tool":
            keys(message, at, "role tool_call_id content")
            need(message["tool_call_id"] in open_calls, at, "responds to no preceding tool_calls")
            open_calls.remove(message["tool_call_id"])
            _chat_content(message["content"], at, ("text",))
            continue
        need(not open_calls, at, f"tool_call_ids without response messages: {open_calls}")
        if role == "assistant":
            open_calls = _chat_turn(message, at, thoughts)
            need(not seen & set(open_calls), at, f"tool call ids come again: {open_calls}")
            seen |= set(open_calls)
            continue
        keys(message, at, "role content", "name")
        media = ("text", "image_url", "input_audio", "file")
        _chat_content(message["content"], at, media if role == "user" else ("text",))
    need(not open_calls, "messages", f"tool_call_ids without response messages: {open_calls}")
    need(any(one["role"] == "user" for _, one in said), "messages", "no user message")
    need(said[-1][1]["role"] != "assistant", "messages", "ends with an assistant message")


def _chat_turn(message: Json, at: str, thoughts: str) -> list[str]:
    keys(message, at, "role content", f"tool_calls refusal name {thoughts}")
    content = message["content"]
    if content is not None:
        _chat_content(content, at, ("text", "refusal"))
    if "tool_calls" not in message:
        need(content is not None, at, "content or tool_calls is required")
        return []
    ids = []
    for place, call in elements(message["tool_calls"], f"{at}.tool_calls"):
        keys(call, place, "id type function", "extra_content" if thoughts else "")
        ids.append(words(call["id"], f"{place}.id"))
        need(len(call["id"]) <= 40, f"{place}.id", "string too long")
        need(call["type"] == "function", place, "type")
        keys(call["function"], place, "name arguments")
        need(NAME.fullmatch(call["function"]["name"]), place, f"{call['function']['name']!r}")
        json_object(call["function"]["arguments"], place)
    different(ids, at)
    return ids


def _chat_content(content: Any, at: str, allowed: Collection[str]) -> None:
    if isinstance(content, str):
        words(content, f"{at}.content")
        return
    for place, part in elements(content, f"{at}.content"):
        need(isinstance(part, dict), place, "is no object")
        one_of(part.get("type"), place, allowed)
        match part["type"]:
            case "text":
                words(keys(part, place, "type text", "prompt_cache_breakpoint")["text"], place)
            case "refusal":
                words(part["refusal"], place)
            case "image_url":
                keys(part, place, "type image_url", "prompt_cache_breakpoint")
                image = keys(part["image_url"], place, "url", "detail")
                data_url(image["url"], place, IMAGES)
            case "input_audio":
                keys(part, place, "type input_audio", "prompt_cache_breakpoint")
                sound = keys(part["input_audio"], place, "data format")
                one_of(sound["format"], place, ("wav", "mp3"))
                in_base64(sound["data"], place)
            case "file":
                keys(part, place, "type file", "prompt_cache_breakpoint")
                file = keys(part["file"], place, "filename file_data")
                data_url(file["file_data"], place)
            case _:
                pass


# --- Google's Gemini ---------------------------------------------------------------------------

_GOOGLE_DATA = frozenset(
    {"text", "inlineData", "fileData", "functionCall", "functionResponse"}
    | {"executableCode", "codeExecutionResult", "toolCall", "toolResponse"}
)
_GOOGLE_FORBIDDEN = frozenset({"$schema", "const"})


def google(body: bytes, *, signs: bool = False) -> None:
    """POST /v1beta/models/...:streamGenerateContent; `signs`: of a model that signs its calls."""
    asked = keys(
        decoded(body),
        "body",
        "contents",
        "tools toolConfig systemInstruction generationConfig safetySettings",
    )
    if "systemInstruction" in asked:
        for at, part in elements(asked["systemInstruction"]["parts"], "systemInstruction"):
            words(keys(part, at, "text")["text"], at)
    declared = [
        one
        for at, tool in (elements(asked["tools"], "tools") if "tools" in asked else ())
        for _, one in elements(keys(tool, at, "functionDeclarations")["functionDeclarations"], at)
    ]
    for one in declared:
        keys(one, "tools", "name", "description parameters parametersJsonSchema")
        need(GOOGLE_NAME.fullmatch(one["name"]), "tools", f"invalid function name {one['name']!r}")
        if "parametersJsonSchema" in one:
            schema(one["parametersJsonSchema"], f"tools.{one['name']}")
            _google_schema(one["parametersJsonSchema"], f"tools.{one['name']}")
    different((one["name"] for one in declared), "tools")
    _google_contents(elements(asked["contents"], "contents"), signs=signs)


def _google_schema(value: Any, at: str) -> None:
    if isinstance(value, dict):
        unknown = _GOOGLE_FORBIDDEN & value.keys()
        need(not unknown, at, f"unknown name {sorted(unknown)}")
        for name, one in value.items():
            if name != "properties":
                _google_schema(one, f"{at}.{name}")
        for name, one in value.get("properties", {}).items():
            _google_schema(one, f"{at}.{name}")
    elif isinstance(value, list):
        for one in value:
            _google_schema(one, at)


def _google_contents(said: list[tuple[str, Any]], *, signs: bool) -> None:
    need(said[0][1].get("role") == "user", "contents.0", "must begin with a user turn")
    before = ""
    open_calls: list[Json] = []
    for at, content in said:
        keys(content, at, "role parts")
        role = content["role"]
        one_of(role, f"{at}.role", ("user", "model"))
        need(role != before, at, f"please ensure that turns alternate: {role} comes twice")
        before = role
        parts = elements(content["parts"], f"{at}.parts")
        for place, part in parts:
            _google_part(part, place, role)
        answers = [part["functionResponse"] for _, part in parts if "functionResponse" in part]
        need(
            len(answers) == len(open_calls),
            at,
            "the number of function response parts must equal that of function call parts",
        )
        for call, answer in zip(open_calls, answers, strict=True):
            need(call["name"] == answer["name"], at, "a response names another function")
            need(call.get("id") == answer.get("id"), at, "a response has the id of another call")
        calls = [part for _, part in parts if "functionCall" in part]
        open_calls = [part["functionCall"] for part in calls]
        different((call["id"] for call in open_calls if "id" in call), at)
        if signs and calls:
            need(calls[0].get("thoughtSignature"), at, "a call is missing a thought_signature")
    need(before == "user", "contents", "must end with a user turn")


def _google_part(part: Any, at: str, role: str) -> None:
    need(isinstance(part, dict), at, "is no object")
    data = _GOOGLE_DATA & part.keys()
    need(len(data) == 1, at, f"required oneof field 'data' must have one value, has {data}")
    (kind,) = data
    keys(part, at, kind, "thought thoughtSignature partMetadata videoMetadata")
    theirs = {"functionResponse", "inlineData", "fileData"}
    need(role == "model" or kind in theirs | {"text"}, at, f"{kind} is the model's to say")
    need(role == "user" or kind != "functionResponse", at, "a response is not the model's to say")
    value = part[kind]
    match kind:
        case "text":
            need(isinstance(value, str), at, "is no string")
            need(value.strip() or part.get("thoughtSignature"), at, "text must not be empty")
        case "inlineData":
            keys(value, at, "mimeType data")
            need("/" in value["mimeType"], at, "unsupported MIME type")
            in_base64(value["data"], at)
        case "functionCall":
            keys(value, at, "name", "args id")
            need(GOOGLE_NAME.fullmatch(value["name"]), at, f"invalid name {value['name']!r}")
            need(isinstance(value.get("args", {}), dict), at, "args is no object")
        case "functionResponse":
            keys(value, at, "name response", "id parts")
            need(isinstance(value["response"], dict), at, "response is no object")
            for place, inner in elements(value["parts"], at) if "parts" in value else ():
                keys(inner, place, "inlineData")
                in_base64(inner["inlineData"]["data"], place)
        case _:
            pass
