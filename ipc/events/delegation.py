"""Events of delegation, in the parent's log except where one says so."""

from msgspec import Struct

from ipc.content import Count
from ipc.events.base import AgentSnapshot, Event, FrozenModelBinding, Outcome, Revisions
from ipc.events.inputs import SeedTurn
from ipc.ids import CallId, Digest, Fingerprint, InvocationId, RunId, SessionId


class StagedSkill(Struct, frozen=True, kw_only=True):
    """The skill a child is going to work by, as it was when the delegation was reserved."""

    name: str
    args: str
    source_path: str
    sha256: Digest


class DelegationRequest(Struct, frozen=True, kw_only=True):
    """What the caller asked for, after defaults."""

    prompt: str
    description: str
    title: str
    background: bool
    inherit_context: bool
    resume_session_id: SessionId | None = None
    seeded_context: tuple[SeedTurn, ...] = ()
    staged_skill: StagedSkill | None = None


class DelegationReservation(Struct, frozen=True, kw_only=True):
    """Who delegates to whom, under which invocation."""

    parent_session_id: SessionId
    parent_run_id: RunId
    parent_tool_call_id: CallId
    child_session_id: SessionId
    invocation_id: InvocationId


class DelegationReserved(Event, frozen=True, kw_only=True, tag="delegation_reserved"):
    """A delegation will happen. After all decisions about its call, before the child exists.

    Ends in exactly one delegation_finished of its invocation.
    """

    request: DelegationRequest
    request_fingerprint: Fingerprint
    reservation: DelegationReservation
    child_agent: AgentSnapshot
    selected_suffix: tuple[FrozenModelBinding, ...]
    revisions: Revisions


class DelegationStarted(Event, frozen=True, kw_only=True, tag="delegation_started"):
    """The child session exists on disk. Once, after delegation_reserved."""

    invocation_id: InvocationId
    child_session_id: SessionId


class DelegationRunStarted(Event, frozen=True, kw_only=True, tag="delegation_run_started"):
    """The child began a run for this invocation. After delegation_started."""

    invocation_id: InvocationId
    child_run_id: RunId


class DelegationRunAttached(Event, frozen=True, kw_only=True, tag="delegation_run_attached"):
    """The invocation's prompt joined a run the child had open. After delegation_started."""

    invocation_id: InvocationId
    child_run_id: RunId


class DelegationFinished(Event, frozen=True, kw_only=True, tag="delegation_finished"):
    """A delegation is over; its slot is free. Ends its delegation_reserved, exactly once."""

    invocation_id: InvocationId
    child_session_id: SessionId
    status: Outcome
    child_run_id: RunId | None = None
    reason: str | None = None


class DelegateQueued(Event, frozen=True, kw_only=True, tag="delegate_queued"):
    """A background child waits for a slot. After delegation_started; `position` counts from 1."""

    session_id: SessionId
    position: Count | None = None


class DelegateFinished(Event, frozen=True, kw_only=True, tag="delegate_finished"):
    """A background child came to its end. Read only: writers use delegate_finished_v2."""

    session_id: SessionId
    status: Outcome
    preview: str
    total_lines: Count


class DelegateFinishedV2(Event, frozen=True, kw_only=True, tag="delegate_finished_v2"):
    """A background child came to its end; the parent's model is told so. Once an invocation.

    `preview` is at most 20 lines and 2 KiB of the child's last message. Comes before the
    delegation_finished of the same invocation, inside a run or runless.
    """

    session_id: SessionId
    invocation_id: InvocationId
    status: Outcome
    preview: str
    total_lines: Count


class DelegateChildTerminated(Event, frozen=True, kw_only=True, tag="delegate_child_terminated"):
    """In the child's log: its delegated work ended so. After the end of the run it names."""

    status: Outcome
    reason: str | None = None
