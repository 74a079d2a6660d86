"""Models as part streams: one module an adaptor, made by name, so that unused ones stay unread."""

from importlib import import_module
from typing import TYPE_CHECKING, Final, cast

from ipc.faults import Fault

if TYPE_CHECKING:
    from ipc.events import FrozenModelBinding
    from workers.providers.base import Outside, Provider

# Each module has `make(binding, outside) -> Provider`. A new family is one row here.
ADAPTORS: Final[dict[str, str]] = {
    "anthropic": "workers.providers.anthropic",
    "anthropic-compatible": "workers.providers.anthropic",
    "openai-chat": "workers.providers.chat",
    "openai-compatible": "workers.providers.chat",
    "openai-responses": "workers.providers.responses",
    "google-gemini": "workers.providers.google",
    "rehearsal": "workers.providers.rehearsal",
    "scripted": "workers.providers.scripted",
}
LOCAL: Final = frozenset({"rehearsal", "scripted"})  # those that speak to no server


class UnknownAdaptor(Fault):
    """A binding names an adaptor that this build does not have."""

    code = "unknown_adaptor"


def make(binding: "FrozenModelBinding", outside: "Outside") -> "Provider":
    """The provider of a frozen binding; raises UnknownAdaptor. What else is wrong, it streams."""
    module = ADAPTORS.get(binding.adaptor)
    endpoint = binding.options.get("request_endpoint")  # of servers that speak both of OpenAI's
    if endpoint is not None:
        module = ADAPTORS["openai-responses" if endpoint == "responses" else "openai-chat"]
    if module is None:
        raise UnknownAdaptor(adaptor=binding.adaptor, model=binding.model)
    return cast("Provider", import_module(module).make(binding, outside))
