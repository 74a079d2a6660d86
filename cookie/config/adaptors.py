"""What each adaptor of a provider asks for: authentication, setup and cache; facts, no code.

A row here is all that the config needs of a family. Whether this build can also talk to it is
`BUILT`: a provider of another adaptor loads, is checked, and its models can't be used.
"""

from typing import Final, Literal

from msgspec import Struct

CacheFamily = Literal["anthropic", "bedrock", "openai", "compatible"]

SCRIPTED: Final = "scripted"
HTTP: Final = frozenset(
    {"anthropic", "anthropic-compatible", "openai-chat", "openai-responses", "openai-compatible"}
    | {"google-gemini"}
)
BUILT: Final = HTTP | {"rehearsal", SCRIPTED}


class Adaptor(Struct, frozen=True):
    """One row; `methods` is empty for an adaptor that reaches no server."""

    methods: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()  # fields that must be there
    setup_may: tuple[str, ...] = ()
    cache: CacheFamily | None = None
    efforts: bool = True  # reasoning = { type = "effort", ... }
    budgets: bool = False  # reasoning by a switch or a number of tokens
    endpoints: bool = False  # adaptor_options.request_endpoint chooses between two wires
    openai: bool = False  # knows organization, project and store
    anthropic: bool = False  # knows beta


class Method(Struct, frozen=True):
    """A way to authenticate: its credential fields, and what a person may add."""

    fields: tuple[str, ...] = ()
    fields_may: tuple[str, ...] = ()
    header_names: tuple[str, ...] = ()  # parameters.header_name, which is then required


METHODS: Final[dict[str, Method]] = {
    "no-auth-v1": Method(),
    "bearer-api-key-v1": Method(("api_key",)),
    "api-key-header-v1": Method(("api_key",), header_names=("x-api-key", "api-key")),
    "anthropic-api-key-v1": Method(("api_key",)),
    "google-api-key-header-v1": Method(("api_key",)),
    "oauth-access-token-v1": Method(("access_token",)),
    "aws-sigv4-credentials-v1": Method(("access_key_id", "secret_access_key"), ("session_token",)),
    "azure-api-key-v1": Method(("api_key",)),
}

_OPENAI: Final = Adaptor(
    ("bearer-api-key-v1", "no-auth-v1"), cache="openai", endpoints=True, openai=True
)
_ANTHROPIC: Final = Adaptor(
    ("anthropic-api-key-v1",), cache="anthropic", budgets=True, anthropic=True
)
_AZURE: Final = Adaptor(
    ("azure-api-key-v1",),
    ("deployment", "api_version"),
    ("model", "version", "deployment_type"),
    cache="openai",
    endpoints=True,
)

ADAPTORS: Final[dict[str, Adaptor]] = {
    "scripted": Adaptor((), ("script",), budgets=True),
    "openai-compatible": Adaptor(
        ("bearer-api-key-v1", "api-key-header-v1", "no-auth-v1"),
        cache="compatible",
        endpoints=True,
    ),
    "openai-chat": _OPENAI,
    "openai-responses": _OPENAI,
    "anthropic": _ANTHROPIC,
    "anthropic-compatible": _ANTHROPIC,
    "google-gemini": Adaptor(("google-api-key-header-v1",), budgets=True),
    "google-vertex-gemini": Adaptor(
        ("oauth-access-token-v1",), ("project", "location"), ("resource",), budgets=True
    ),
    "aws-bedrock-converse": Adaptor(
        ("aws-sigv4-credentials-v1",), ("region",), cache="bedrock", budgets=True
    ),
    "azure-openai-chat": _AZURE,
    "azure-openai-responses": _AZURE,
    "cohere-v2-chat": Adaptor(("bearer-api-key-v1",), efforts=False, budgets=True),
}
