"""The base of every durable event, and the words that many of them share."""

from typing import Any, ClassVar, Final, Literal

from msgspec import Struct

from ipc.content import Count
from ipc.ids import (
    AgentId,
    Fingerprint,
    ModelKey,
    PresetName,
    ProviderId,
    Revision,
    SecretRef,
    VariantName,
)
from ipc.rules import Rule

AGENT_SNAPSHOT_SCHEMA: Final = 6

Outcome = Literal["completed", "failed", "cancelled", "interrupted"]
AgentMode = Literal["primary", "subagent", "all", "internal"]
DocumentSource = Literal["builtin", "user", "workspace"]


class Event(Struct, frozen=True, kw_only=True, gc=False, tag_field="type"):
    """A fact in the past tense; `type` names it. Each docstring says what comes before and after.

    `chars_max` bounds text fields at the writer only: a reader takes what a newer writer wrote.
    """

    # gc=False, for all that derive from it: a frozen record of decoded JSON can be in no cycle,
    # and a session keeps so many of them that walking them made a long fold a sixth slower.

    chars_max: ClassVar[dict[str, int]] = {}


class Revisions(Struct, frozen=True, kw_only=True):
    """The seven revisions that a session or a run was made under."""

    agent: Revision
    catalog: Revision
    manifest: Revision
    model: Revision
    provider_state: Revision
    recipe_registry: Revision
    runtime: Revision


class ModelSelection(Struct, frozen=True, kw_only=True):
    """A model somebody chose; no variant = the model's default one, "base" = none at all."""

    model: ModelKey
    variant: VariantName | None = None


class RunSelection(Struct, frozen=True, kw_only=True, gc=False):
    """Who answers, with which model, out of which preset."""

    agent: AgentId
    model: ModelSelection
    preset: PresetName | None = None


class ResolvedModel(Struct, frozen=True, kw_only=True):
    """The model that a request really went to."""

    model: ModelKey
    provider_id: ProviderId
    adaptor: str
    wire_model: str
    variant: VariantName | None = None
    endpoint: str | None = None


class MediaLimit(Struct, frozen=True, kw_only=True):
    """How much media of the listed MIME types one request to a model may hold."""

    mime_types: tuple[str, ...]
    max_bytes: Count  # of each, decoded
    max_count: Count


class ModelCapabilities(Struct, frozen=True, kw_only=True):
    """What a model can do, as far as the run loop has to know."""

    tools: bool = True
    reasoning: bool = False
    parallel_tools: bool = True
    input_media: tuple[str, ...] = ()  # MIME types or "image/*" patterns it accepts
    media_limits: tuple[MediaLimit, ...] = ()
    native_replay: Literal["unsupported", "optional", "required"] = "optional"


class Generation(Struct, frozen=True, kw_only=True):
    """What a model is asked with beside the conversation; None = the provider's own default.

    `tool_choice` is "auto", "none", "required" or "named:" and the name of a tool.
    """

    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    tool_choice: str | None = None


class ReasoningWish(Struct, frozen=True, kw_only=True):
    """How hard a model shall think: exactly one of the three is given."""

    effort: str | None = None  # a word of the family: "none", "low", "high", "default", ...
    enabled: bool | None = None
    budget_tokens: Count | None = None


class ModelTimeouts(Struct, frozen=True, kw_only=True):
    """When a request is given up, in ms; `stream_idle_ms` is of silence about content."""

    connect_ms: Count = 10_000
    headers_ms: Count = 30_000
    credentials_ms: Count = 30_000
    stream_idle_ms: Count = 90_000
    total_ms: Count = 3_600_000


class Pricing(Struct, frozen=True, kw_only=True):
    """Rates in pico-USD for a million tokens; None = this kind has no price of its own."""

    input: Count
    output: Count
    reasoning: Count | None = None
    cache_read: Count | None = None
    cache_write: Count | None = None


class FrozenModelBinding(Struct, frozen=True, kw_only=True, gc=False):
    """All that a run needs to call one model, also after a resume. Holds no secret."""

    model: ModelKey
    provider_id: ProviderId
    adaptor: str
    wire_model: str
    variant: VariantName | None = None
    endpoint: str | None = None
    setup: dict[str, Any] = {}
    auth_ref: SecretRef | None = None
    context_limit: Count | None = None  # tokens; None = unknown
    max_output: Count | None = None  # tokens; None = unknown
    capabilities: ModelCapabilities = ModelCapabilities()
    cache: dict[str, Any] | None = None
    pricing: Pricing | None = None
    auth: str | None = None  # the method's id (spec 1.13); None = no-auth-v1
    auth_header: str | None = None  # the header's name, where the method leaves it open
    headers: dict[str, str] = {}  # what a person adds; one that is secret is in `secrets` alone
    secrets: dict[str, SecretRef] = {}  # by place: "endpoint", "headers.<name>", "setup.<name>"
    generation: Generation = Generation()
    reasoning: ReasoningWish | None = None
    options: dict[str, Any] = {}  # what only some adaptors know: beta, organization, ...
    timeouts: ModelTimeouts = ModelTimeouts()

    def resolved(self) -> ResolvedModel:
        """What the events of a request to this model say about it."""
        return ResolvedModel(
            model=self.model,
            provider_id=self.provider_id,
            adaptor=self.adaptor,
            wire_model=self.wire_model,
            variant=self.variant,
            endpoint=self.endpoint,
        )


class FallbackEntry(Struct, frozen=True, kw_only=True):
    """One link of an agent's model chain, as its document declares it."""

    model: ModelKey
    variant: VariantName | None = None
    cache: dict[str, Any] | None = None


class DelegationPolicy(Struct, frozen=True, kw_only=True):
    """Whom an agent may delegate to, and how deep the tree may get below its session."""

    targets: tuple[AgentId, ...]
    effective_depth_ceiling: Count


class AgentSnapshot(Struct, frozen=True, kw_only=True, gc=False):
    """An agent as it was when a session or a run was admitted (schema 6).

    `composed_prompt` is at most 128 KiB; `max_output_tokens` 0 = no cap of the document's own.
    """

    schema: int
    agent: AgentId
    description: str
    mode: AgentMode
    document_source: DocumentSource
    composed_prompt: str
    document_fingerprint: Fingerprint
    prompt_fingerprint: Fingerprint
    permissions: tuple[Rule, ...]
    fallback_chain: tuple[FallbackEntry, ...]
    selected_suffix_start: Count
    delegation: DelegationPolicy | None = None
    max_output_tokens: Count = 0
    agent_md: bool | None = None  # None: as the setting `[agent_md] enabled` says
