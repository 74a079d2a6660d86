"""What runs are told: agents, models, limits, permissions and tool environment, frozen.

The supervisor makes a plan from the config, seals it with its revision and sends it; a run keeps
the plan it was admitted under. On the wire it is JSON. It names secrets (SecretRef) and never holds
one: their bytes travel in `orders.Grant` alone.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipc.content import Count
from ipc.events.base import AgentSnapshot, FrozenModelBinding, Revisions, RunSelection
from ipc.faults import Fault
from ipc.ids import AgentId, Fingerprint, ModelKey, Revision, SecretRef, VariantName
from ipc.rules import RULES_MAX, PermissionMode, Rule

PLAN_BYTES_MAX: Final = 16 * 1024 * 1024
ENV_BYTES_MAX: Final = 256 * 1024  # names and values together
UNSEALED: Final = Revision("")


class BadPlan(Fault):
    """A plan that can't be read, contradicts itself or is over a limit."""

    code = "bad_plan"


class RunLimits(Struct, frozen=True, kw_only=True):
    """Where a run is stopped; None = nowhere. A supervisor's own clock is not among them."""

    max_turns: Count | None = None  # model turns of the root run
    prepared_tools_max: Count = 64
    cleanup_ms: Count = 2000  # of one cancelled tool


class ModelRetry(Struct, frozen=True, kw_only=True):
    """How often a model is asked again (spec 1.8): 0 = never, negative = without end."""

    standard_retries: int = 3
    overload_retries: int = 5
    backoff_ceiling_ms: Count = 60_000


class ToolOutput(Struct, frozen=True, kw_only=True):
    """How much of one stream of a tool's output a model sees."""

    max_lines: Count = 2000
    max_bytes: Count = 51_200


class AgentMd(Struct, frozen=True, kw_only=True):
    """Whether AGENTS.md files are read, and how much of each."""

    enabled: bool = True
    max_bytes: Count = 32_768
    preset_dirs: tuple[str, ...] = ()  # where a preset's or the shared AGENTS.md may lie, in order


class Http(Struct, frozen=True, kw_only=True):
    """How requests to models get out, before what the environment says (HTTPS_PROXY, ...).

    The proxy's address may hold a password, so it is a secret.
    """

    ca_file: str | None = None  # an absolute path of PEM certificates
    proxy: SecretRef | None = None


class Skill(Struct, frozen=True, kw_only=True):
    """A skill a person put somewhere; its text is read when it is used."""

    name: str
    description: str
    source_path: str
    visible: bool = True


class Plan(Struct, frozen=True, kw_only=True):
    """One revision of what runs are told. Equal content has an equal revision.

    Its repr is the revision alone: an environment is nobody's business.
    """

    revision: Revision = UNSEALED
    revisions: Revisions
    agents: tuple[AgentSnapshot, ...]  # every agent that may run, internal ones included
    models: tuple[FrozenModelBinding, ...]  # one for each model and variant that may be called
    default_selection: RunSelection | None = None  # None: no model can run
    limits: RunLimits = RunLimits()
    model_retry: ModelRetry = ModelRetry()
    tool_output: ToolOutput = ToolOutput()
    agent_md: AgentMd = AgentMd()
    permission_mode: PermissionMode = "auto_approve"
    overlay: tuple[Rule, ...] = ()  # laid over the agents' rules, for example by --allowed-tools
    attended: bool = True  # False: nobody answers, so what would be asked is rejected
    approval_timeout_ms: Count = 0  # 0 = a question waits for ever
    env: dict[str, str] = {}  # of every tool, whole; no variable that holds a secret
    pass_env: tuple[str, ...] = ()  # names in `env` that are there because a person said so
    skills: tuple[Skill, ...] = ()
    http: Http = Http()
    loop_warning: bool = True
    link_patience_ms: Count = 30_000

    def __repr__(self) -> str:
        return f"Plan({self.revision or 'unsealed'})"

    def agent(self, agent: AgentId) -> AgentSnapshot | None:
        """The agent of that id."""
        return next((found for found in self.agents if found.agent == agent), None)

    def model(
        self, model: ModelKey, variant: VariantName | None = None
    ) -> FrozenModelBinding | None:
        """The binding of that model in exactly that variant; None = the model without one."""
        wanted = (model, variant)
        return next((one for one in self.models if (one.model, one.variant) == wanted), None)

    def secrets(self) -> frozenset[SecretRef]:
        """Every secret that a run under this plan may need."""
        refs = [ref for one in self.models for ref in (one.auth_ref, *one.secrets.values())]
        return frozenset(ref for ref in (*refs, self.http.proxy) if ref is not None)


_decoder = msgspec.json.Decoder(Plan)


def fingerprint(value: Any) -> Fingerprint:
    """ "sha256:" and the SHA-256 of a value's canonical JSON: keys sorted, no blanks."""
    text = msgspec.json.encode(value, order="deterministic")
    return Fingerprint(f"sha256:{hashlib.sha256(text).hexdigest()}")


def sealed(plan: Plan) -> Plan:
    """The plan with the revision of its content; raises BadPlan when it contradicts itself."""
    for why in _troubles(plan):
        raise BadPlan(reason=why)
    return msgspec.structs.replace(plan, revision=_revision(plan))


def encode_plan(plan: Plan) -> bytes:
    """A sealed plan as JSON; raises BadPlan when it is too big."""
    assert plan.revision != UNSEALED, "sealed() first"
    text = msgspec.json.encode(plan)
    if len(text) > PLAN_BYTES_MAX:
        raise BadPlan(reason="too big", bytes=len(text), limit=PLAN_BYTES_MAX)
    return text


def decode_plan(text: bytes) -> Plan:
    """Read a plan. Raises BadPlan, also when its content is not that of its revision.

    A plan of a newer build keeps its revision though fields of it are passed over here, so the
    revision is only checked when nothing was.
    """
    try:
        plan = _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as bad:
        raise BadPlan(reason=str(bad)[:200]) from None
    if msgspec.json.encode(plan) == text and plan.revision != _revision(plan):
        raise BadPlan(reason="the content is not that of its revision", revision=plan.revision)
    return plan


def _revision(plan: Plan) -> Revision:
    return Revision(fingerprint(msgspec.structs.replace(plan, revision=UNSEALED)))


def _troubles(plan: Plan) -> Iterator[str]:
    if len({one.agent for one in plan.agents}) < len(plan.agents):
        yield "an agent is there twice"
    if len({(one.model, one.variant) for one in plan.models}) < len(plan.models):
        yield "a model is there twice in one variant"
    if len(plan.overlay) > RULES_MAX:
        yield f"more than {RULES_MAX} overlay rules"
    size = sum(len(name.encode()) + len(value.encode()) for name, value in plan.env.items())
    if size > ENV_BYTES_MAX:
        yield f"the environment has {size} bytes, more than {ENV_BYTES_MAX}"
    chosen = plan.default_selection
    if chosen is not None and plan.agent(chosen.agent) is None:
        yield "the default agent is not among the agents"
