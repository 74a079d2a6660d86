"""The runtime: handshake, the snapshot of what can run, and provider connections."""

from typing import Any, Literal

from msgspec import Struct

from ipc.content import Count
from ipc.events.base import AgentMode, FallbackEntry, ModelCapabilities
from ipc.ids import AgentId, ClientId, ModelKey, ProviderId, Revision, VariantName

RUNTIME_SCHEMA = 5

CatalogSource = Literal["network", "cache", "bootstrap"]
ProviderConfiguration = Literal["unconfigured", "authored", "stored", "authored_and_stored"]
EffectiveAuth = Literal[
    "authored_api_key", "authored_override", "provider_store", "no_auth", "unavailable"
]
RuntimeReason = Literal[
    "startup",
    "catalog_refreshed",
    "catalog_fallback",
    "config_reloaded",
    "provider_connected",
    "provider_disconnected",
    "provider_store_changed",
    "provider_store_reloaded",
    "agent_reloaded",
]


class HandshakeParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first request of a connection; anything before it is refused."""

    protocol_version: int


class HandshakeResult(Struct, frozen=True, kw_only=True):
    """The versions are equal; what this daemon speaks beside the protocol."""

    protocol_version: int
    extensions: tuple[str, ...] = ()


class CatalogState(Struct, frozen=True, kw_only=True):
    """How good the model catalogue is that the runtime was compiled from."""

    stale: bool
    model_quarantine_count: Count = 0
    provider_quarantine_count: Count = 0
    last_error: str | None = None
    quarantine_digest: str | None = None


class RuntimeAgent(Struct, frozen=True, kw_only=True):
    """An agent that a person may pick."""

    id: AgentId
    mode: AgentMode
    enabled: bool
    runnable_as_root: bool
    delegation_targets: tuple[AgentId, ...] = ()
    resolved_fallback: tuple[FallbackEntry, ...] = ()


class RuntimeModel(Struct, frozen=True, kw_only=True):
    """A model that can be called now."""

    key: ModelKey
    display_name: str
    capabilities: ModelCapabilities
    variant_order: tuple[VariantName, ...] = ()
    variants: dict[VariantName, dict[str, Any]] = {}
    default_variant: VariantName | None = None


class Support(Struct, frozen=True, kw_only=True):
    """Whether a provider can be used here, and why not."""

    state: Literal["supported", "unsupported"]
    reason: str | None = None


class SetupField(Struct, frozen=True, kw_only=True):
    """Something a provider must be told beside its credential."""

    name: str
    required: bool = True
    secret: bool = False
    description: str | None = None


class DurableConnection(Struct, frozen=True, kw_only=True):
    """A provider connection in the store; never its credential."""

    generation: Count
    auth_method: str
    connected_at: str
    setup: dict[str, str] = {}


class RuntimeProvider(Struct, frozen=True, kw_only=True):
    """A provider and how far its set-up is."""

    id: ProviderId
    presence: Literal["current", "removed"]
    support: Support
    configuration: ProviderConfiguration
    effective_auth_state: EffectiveAuth
    auth_methods: tuple[str, ...] = ()
    setup_fields: tuple[SetupField, ...] = ()
    durable_connection: DurableConnection | None = None
    quarantine: str | None = None


class RuntimeSnapshot(Struct, frozen=True, kw_only=True):
    """What can run under one runtime revision (schema 5)."""

    schema: int
    runtime_revision: Revision
    agent_revision: Revision
    model_revision: Revision
    catalog_revision: Revision
    manifest_revision: Revision
    provider_state_revision: Revision
    recipe_registry_revision: Revision
    catalog_source: CatalogSource
    catalog_state: CatalogState
    provider_store_generation: Count
    agents: tuple[RuntimeAgent, ...]
    models: tuple[RuntimeModel, ...]
    providers: tuple[RuntimeProvider, ...]


class RuntimeSnapshotResult(Struct, frozen=True, kw_only=True):
    """The snapshot in force."""

    snapshot: RuntimeSnapshot


class ProviderConnectParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Store a connection. Its repr shows no credential."""

    provider_id: ProviderId
    expected_catalog_revision: Revision
    auth_method: str
    client_connect_id: ClientId
    setup: dict[str, str] = {}
    credentials: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"ProviderConnectParams({self.provider_id!r}, {self.auth_method!r})"


class ProviderConnectResult(Struct, frozen=True, kw_only=True):
    """The stored connection and the runtime it led to; `replayed`: this was asked before."""

    durable_connection: DurableConnection
    effective_auth_source: EffectiveAuth
    replayed: bool
    runtime: RuntimeSnapshot


class ProviderDisconnectParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Forget a connection, if it is still the one that was looked at."""

    provider_id: ProviderId
    client_request_id: ClientId
    expected_provider_state_revision: Revision
    expected_runtime_revision: Revision
    expected_connection_generation: Count | None = None


class DurableReceipt(Struct, frozen=True, kw_only=True):
    """Proof that the store was changed."""

    receipt_id: str
    committed_at: str
    provider_state_revision: Revision
    store_revision: Revision


class ProviderDisconnectResult(Struct, frozen=True, kw_only=True):
    """What became of the connection, and the runtime without it."""

    disconnected: bool
    durable_receipt: DurableReceipt
    effective_auth_state: EffectiveAuth
    provider_id: ProviderId
    replayed: bool
    runtime: RuntimeSnapshot


class RuntimeChanged(Struct, frozen=True, kw_only=True):
    """Notification: the runtime was compiled anew. `reasons` are sorted as RuntimeReason is."""

    snapshot: RuntimeSnapshot
    reasons: tuple[RuntimeReason, ...]
    previous_revision: Revision | None = None
