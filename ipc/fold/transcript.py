"""The transcript: what people, the model and others said, in order, and what still waits."""

from ipc.content import UserInput
from ipc.events import (
    AgentMdLoaded,
    AgentMdSkipped,
    ContextCheckpointCommitted,
    ContextCompactionAutoDisabled,
    ContextRehydrated,
    DelegatedContextSeeded,
    Event,
    MessageInjected,
    ModelTurnCommitted,
    PluginDiagnostic,
    PluginEventAdded,
    SkillInvocationNoted,
    SkillLoaded,
    StoredEvent,
    UserInputAdmitted,
    UserInputApplied,
    UserInputRecalled,
    UserInputRecalledV2,
    UserInputSubmitted,
    UserInputTransformed,
)
from ipc.fold.runs import stand
from ipc.fold.state import (
    CheckpointEntry,
    InjectedEntry,
    InstructionsEntry,
    NoticeEntry,
    RehydratedEntry,
    SeedEntry,
    SessionState,
    SkillEntry,
    TurnEntry,
    UserEntry,
)
from ipc.fold.table import meaning

# --- input -------------------------------------------------------------------------------------


@meaning(UserInputTransformed)
def _transformed(state: SessionState, event: UserInputTransformed, _at: StoredEvent) -> None:
    state.transforms.append((event.original_input, event.input))


@meaning(UserInputAdmitted)
def _admitted(state: SessionState, event: UserInputAdmitted, at: StoredEvent) -> None:
    if state.run is not None:  # the end of a run voids what waits, and so does its absence
        state.pending[at.seq] = event.input


@meaning(UserInputSubmitted)
def _submitted(state: SessionState, event: UserInputSubmitted, at: StoredEvent) -> None:
    original = _original(state, event.input)
    _settle(state, event.input, original)
    state.entries.append(UserEntry(at.seq, at.run_id, event.input, original))


@meaning(UserInputRecalledV2)
def _recalled(state: SessionState, event: UserInputRecalledV2, _at: StoredEvent) -> None:
    state.pending.pop(event.user_input_seq, None)


@meaning(UserInputRecalled)
def _newest_recalled(state: SessionState, _event: UserInputRecalled, _at: StoredEvent) -> None:
    if state.pending:
        state.pending.popitem()


@meaning(UserInputApplied)
def _applied(_state: SessionState, _event: UserInputApplied, _at: StoredEvent) -> None:
    """For those who look into a log: the input was history since it was submitted."""


def _original(state: SessionState, given: UserInput) -> UserInput | None:
    for index, (original, changed) in enumerate(state.transforms):
        if changed == given:
            del state.transforms[index]
            return original
    return None


def _settle(state: SessionState, given: UserInput, original: UserInput | None) -> None:
    """Take the input out of the lane: the oldest that says the same.

    By what it says and not by its place: when the line of one admission cannot be read, the
    next in the lane must not be taken for it and be lost.
    """
    for seq, waiting in state.pending.items():
        if waiting in (given, original):
            del state.pending[seq]
            return


# --- entries -----------------------------------------------------------------------------------


@meaning(ModelTurnCommitted)
def _turn(state: SessionState, event: ModelTurnCommitted, at: StoredEvent) -> None:
    entry = TurnEntry(at.seq, at.run_id, event)
    state.entries.append(entry)
    state.turns[event.model_turn_seq] = entry
    state.turns_ever = max(state.turns_ever, event.model_turn_seq)
    if event.turn.usage.input_tokens is not None:
        state.usage.last_input_tokens = event.turn.usage.input_tokens
    run = state.run
    if run is not None:
        run.attempt = run.setback = run.last_error = None
        run.turns += 1
        run.last_turn = entry
        run.attempts = run.asked = run.failures = run.overloads = run.lost = 0
        run.fallbacks = run.retry_ordinal = 0
        stand(state, run)


@meaning(MessageInjected)
def _injected(state: SessionState, event: MessageInjected, at: StoredEvent) -> None:
    state.entries.append(InjectedEntry(at.seq, at.run_id, event.role, event.input))


@meaning(DelegatedContextSeeded)
def _seeded(state: SessionState, event: DelegatedContextSeeded, at: StoredEvent) -> None:
    state.entries.append(SeedEntry(at.seq, event.turns))


@meaning(SkillLoaded)
def _skill(state: SessionState, event: SkillLoaded, at: StoredEvent) -> None:
    state.entries.append(SkillEntry(at.seq, event))


@meaning(ContextCheckpointCommitted)
def _checkpoint(state: SessionState, event: ContextCheckpointCommitted, at: StoredEvent) -> None:
    entry = CheckpointEntry(at.seq, event)
    state.entries.append(entry)
    state.checkpoint = entry
    if state.run is not None:
        state.run.compaction_failures = 0


@meaning(AgentMdLoaded)
def _instructions(state: SessionState, event: AgentMdLoaded, at: StoredEvent) -> None:
    state.entries.append(InstructionsEntry(at.seq, event.entries))


@meaning(ContextRehydrated)
def _rehydrated(state: SessionState, event: ContextRehydrated, at: StoredEvent) -> None:
    state.entries.append(RehydratedEntry(at.seq, event.files))


@meaning(
    AgentMdSkipped,
    SkillInvocationNoted,
    PluginEventAdded,
    PluginDiagnostic,
    ContextCompactionAutoDisabled,
)
def _shown(state: SessionState, event: Event, at: StoredEvent) -> None:
    state.entries.append(NoticeEntry(at.seq, at.run_id, event))
