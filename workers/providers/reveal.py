"""A binding with its secrets in their places, and what a request to it carries beside its words."""

import re
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

from msgspec import structs

from ipc.content import MediaBlock
from ipc.events import FrozenModelBinding
from workers.providers.auth import NotGranted
from workers.providers.base import Media, Outside, Request, ToolMessage

if TYPE_CHECKING:
    from ipc.ids import Digest

_LATER: Final = re.compile(r"\$\$|\$\{(session_id|parent_session_id)\}")


def revealed(binding: FrozenModelBinding, outside: Outside) -> tuple[FrozenModelBinding, list[str]]:
    """The binding as its family needs it, and the secrets that are in it now; raises NotGranted."""
    endpoint, setup, headers = binding.endpoint, dict(binding.setup), dict(binding.headers)
    secrets = []
    for place, ref in binding.secrets.items():
        value = outside.secret(ref)
        if value is None:
            raise NotGranted(f"the secret {place} of {binding.provider_id} is not there any more")
        secrets.append(value)
        table, _, name = place.partition(".")
        if table == "endpoint":
            endpoint = value
        elif table in {"headers", "setup"}:
            (headers if table == "headers" else setup)[name] = value
    made = structs.replace(binding, endpoint=endpoint, setup=setup, headers=headers, secrets={})
    return made, secrets


def own_headers(binding: FrozenModelBinding, request: Request) -> dict[str, str]:
    """What a person adds, in lower case, names filled in; an empty one takes a header away."""
    # A request knows no parent yet: what names it alone is not sent.
    known = {"session_id": str(request.session_id)}
    return {
        name.lower(): _LATER.sub(lambda found: known.get(found[1], "") if found[1] else "$", text)
        for name, text in binding.headers.items()
    }


async def media_of(request: Request, outside: Outside) -> Media:
    """The bytes of the media in a request, as far as they can be read."""
    found: dict[Digest, bytes] = {}
    if outside.media is None:
        return found
    for block in _blocks(request):
        if block.digest not in found and (data := await _read(block, outside.media)) is not None:
            found[block.digest] = data
    return found


async def _read(
    block: MediaBlock, media: Callable[[MediaBlock], Awaitable[bytes | None]]
) -> bytes | None:
    try:
        return await media(block)
    except OSError:
        return None  # the model is told that it was not sent


def _blocks(request: Request) -> Iterator[MediaBlock]:
    for message in request.messages:
        blocks = message.attachments if isinstance(message, ToolMessage) else message.content
        yield from (block for block in blocks if isinstance(block, MediaBlock))
