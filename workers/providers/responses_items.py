"""The output items of a turn as they may be sent back (OpenAI's Responses): what stays, what goes.

A turn is kept in its own items where these say more than its text and calls: reasoning that only
the provider can read, calls of tools that ran there, whatever is newer than this code.
"""

from typing import Any, Final

Item = dict[str, Any]  # one element of `input` or `output`

# With store=false an id names nothing at the provider, and the API looks up what has one: "Item
# with id 'rs_...' not found. Items are not persisted when `store` is set to false". It also holds
# an id to its neighbours ("'fc_...' was provided without its required 'reasoning' item"), so that
# one id without the others is refused too. OpenAI's own stateless client sends none of these; a
# call and its result are joined by call_id alone. Items of other types keep theirs, since the
# API's schema wants it (mcp_call, program, ...).
_NAMELESS: Final = frozenset(
    {"message", "reasoning", "function_call", "custom_tool_call", "web_search_call", "compaction"}
)
_STATELESS: Final = frozenset({"message", "reasoning", "function_call"})  # their status is ours
_PLAIN: Final = {  # what our own blocks say as well
    "message": {"type", "role", "content"},
    "function_call": {"type", "call_id", "name", "arguments"},
}


def is_item(item: object) -> bool:
    """Whether this is an item at all."""
    return isinstance(item, dict) and isinstance(item.get("type"), str)


def sendable(items: list[Item]) -> list[Item]:
    """Without what the API refuses: calls that nobody answers, and reasoning that leads nowhere."""
    answered = [item.get("call_id") for item in items if item["type"].endswith("_output")]
    kept = [
        item
        for item in items
        if not _asks(item) or item["type"] == "function_call" or item["call_id"] in answered
    ]
    while kept and kept[-1]["type"] == "reasoning":
        kept.pop()
    return kept


def _asks(item: Item) -> bool:
    return item["type"].endswith("_call") and isinstance(item.get("call_id"), str)


def kept_item(item: Item) -> Item | None:
    """An item as it may be sent back; None if it says nothing without what the provider keeps."""
    kind = item["type"]
    dropped = {"created_by"}
    if kind in _NAMELESS:
        dropped.add("id")
    if kind in _STATELESS:
        dropped.add("status")
    kept = {name: value for name, value in item.items() if name not in dropped}
    # Null means the same as nothing in what comes, but not everywhere in what goes.
    kept = {name: value for name, value in kept.items() if value is not None}
    if kind == "message":
        kept["content"] = [_kept_part(part) for part in parts_in(item, "content") if _says(part)]
        return kept if kept["content"] else None
    if kind == "reasoning":
        kept.setdefault("summary", [])
        if not kept.get("content"):
            kept.pop("content", None)
        return kept if kept.get("encrypted_content") or kept.get("content") else None
    return kept


def _kept_part(part: Item) -> Item:
    return {
        name: value
        for name, value in part.items()
        if name != "logprobs" and value not in (None, [])
    }


def _says(part: Item) -> bool:
    text = part.get("text", part.get("refusal"))
    return not isinstance(text, str) or bool(text.strip())


def says_more(item: Item) -> bool:
    """Whether an item holds what its blocks do not."""
    plain = _PLAIN.get(item["type"])
    if plain is None or not item.keys() <= plain:
        return True
    if item["type"] == "function_call":
        return False
    return any(not part.keys() <= {"type", "text"} for part in item["content"])


def parts_in(item: Item, name: str) -> list[Item]:
    """The objects of one of its lists."""
    found = item.get(name)
    return [part for part in found if isinstance(part, dict)] if isinstance(found, list) else []
