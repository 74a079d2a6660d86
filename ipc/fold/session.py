"""The session itself: its birth, its title, its permission overlay, and what a revert undoes."""

from bisect import bisect_right
from typing import Final

from ipc.events import (
    DelegatedTitle,
    FallbackTitle,
    InternalAgentTitle,
    PermissionOverlay,
    SessionCreated,
    SessionPermissionOverlaySet,
    SessionReverted,
    SessionTitleCommitted,
    StoredEvent,
    UserClearedTitle,
    UserResetTitle,
    UserSetTitle,
)
from ipc.fold.runs import cut_short
from ipc.fold.state import NoticeEntry, SessionState
from ipc.fold.table import apply, meaning
from ipc.rules import Action, Rule

# What a revert takes back. The rest of SessionState are facts about the world: a child that was
# started runs on, a client id that was used stays used, a voided grant stays void.
FOLLOWS_REVERT: Final = (
    "approvals",
    "calls",
    "checkpoint",
    "created",
    "entries",
    "grants",
    "internal",
    "journal",
    "open_calls",
    "overlay",
    "overlay_seq",
    "pending",
    "run",
    "runs",
    "standing",
    "title",
    "transforms",
    "turns",
    "usage",
    "waiting",
)


@meaning(SessionCreated)
def _created(state: SessionState, event: SessionCreated, at: StoredEvent) -> None:
    if state.created is None:
        state.session_id = at.session_id
        state.created = event


@meaning(SessionReverted)
def _reverted(state: SessionState, event: SessionReverted, at: StoredEvent) -> None:
    # One mechanism for every noun: the journal is cut and what stays is folded again. Undoing
    # each noun by itself was refused: each field would need a history of its own,
    # and a forgotten one would show only after somebody reverted.
    cut = bisect_right(state.journal, event.through_seq, key=_seq)
    if cut < len(state.journal):
        visible = SessionState()
        for stored in state.journal[:cut]:
            apply(visible, stored)
        for name in FOLLOWS_REVERT:
            setattr(state, name, getattr(visible, name))
    cut_short(state, at.seq, "reverted")
    state.reverted_seq = at.seq
    state.entries.append(NoticeEntry(at.seq, at.run_id, event))


def _seq(stored: StoredEvent) -> int:
    return stored.seq


@meaning(SessionPermissionOverlaySet)
def _overlay(state: SessionState, event: SessionPermissionOverlaySet, at: StoredEvent) -> None:
    tightened = _tightened(state.overlay, event.overlay)
    for key, grant in state.grants.items():
        asked = state.approvals.get(grant.approval_id)
        # A grant whose question is not in this log could be of any action: fail closed.
        if tightened and (asked is None or asked.request.operation.action in tightened):
            state.voided_grants.add(key)
    state.overlay = event.overlay
    state.overlay_seq = at.seq


def _tightened(old: PermissionOverlay | None, new: PermissionOverlay) -> set[Action]:
    """The actions for which the new rules may refuse what the old ones let pass."""
    before = set(old.rules) if old is not None else set[Rule]()
    after = set(new.rules)
    stricter = {rule.action for rule in after - before if rule.effect != "allow"}
    return stricter | {rule.action for rule in before - after if rule.effect == "allow"}


@meaning(SessionTitleCommitted)
def _title(state: SessionState, event: SessionTitleCommitted, at: StoredEvent) -> None:
    title = state.title
    shown = title.text
    title.input_through_seq = event.input_through_seq
    match event.change:
        case UserSetTitle(client_rename_id=rename, title=text):
            title.user, title.user_title = "set", text
            state.client_rename_ids[rename] = at.seq
        case UserClearedTitle(client_rename_id=rename):
            title.user, title.user_title = "cleared", None
            if rename is not None:
                state.client_rename_ids[rename] = at.seq
        case UserResetTitle(client_rename_id=rename):
            title.user, title.user_title = "none", None
            if rename is not None:
                state.client_rename_ids[rename] = at.seq
        case InternalAgentTitle(title=text):
            title.generated, title.generated_by = text, "internal"
        case DelegatedTitle(title=text):
            # A child that is resumed keeps the name it was born with (spec 1.11).
            if title.generated_by in {"none", "fallback"}:
                title.generated, title.generated_by = text, "delegated"
        case FallbackTitle(title=text):
            if title.generated_by in {"none", "fallback"}:
                title.generated, title.generated_by = text, "fallback"
    if title.text != shown:
        title.updated_seq = at.seq
