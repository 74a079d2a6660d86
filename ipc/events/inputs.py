"""Events of what reaches a session from outside the model: input, seeds, skills, files."""

from typing import Literal

from msgspec import Struct

from ipc.content import Count, UserInput
from ipc.events.base import Event
from ipc.ids import Digest, InvocationId

Role = Literal["user", "assistant"]


class UserInputAdmitted(Event, frozen=True, kw_only=True, tag="user_input_admitted"):
    """An input was accepted for an open run, which has not seen it yet. Only inside a run.

    Followed by its user_input_submitted (first in, first out), by a user_input_recalled_v2, or
    voided by the end of the run.
    """

    input: UserInput


class UserInputSubmitted(Event, frozen=True, kw_only=True, tag="user_input_submitted"):
    """An input became part of the history that the model sees.

    Either runless, right before the run_started it causes, or inside a run: then the oldest
    pending user_input_admitted is meant, and the event comes between a finished batch of tools
    (or a turn without tools) and the next model_attempt_started.
    """

    input: UserInput


class UserInputRecalled(Event, frozen=True, kw_only=True, tag="user_input_recalled"):
    """The newest pending input was taken back. Read only: writers use user_input_recalled_v2."""

    input: UserInput


class UserInputRecalledV2(Event, frozen=True, kw_only=True, tag="user_input_recalled_v2"):
    """A pending input was taken back before the model saw it.

    `user_input_seq` is the seq of its user_input_admitted; nothing more comes for that input.
    """

    input: UserInput
    user_input_seq: Count


class UserInputTransformed(Event, frozen=True, kw_only=True, tag="user_input_transformed"):
    """A plugin changed an input. Comes right before the admitted or submitted event of `input`."""

    original_input: UserInput
    input: UserInput


class UserInputApplied(Event, frozen=True, kw_only=True, tag="user_input_applied"):
    """A submitted input reached the model: a request that holds it was prepared.

    `user_input_seq` is the seq of its user_input_submitted. At most once for each input.
    """

    user_input_seq: Count


class MessageInjected(Event, frozen=True, kw_only=True, tag="message_injected"):
    """A message entered the history without a person or a model. Where an input might come."""

    role: Role
    input: UserInput


class SeedTurn(Struct, frozen=True, kw_only=True):
    """One turn that a child inherits from its parent: text alone."""

    role: Role
    text: str


class DelegatedContextSeeded(Event, frozen=True, kw_only=True, tag="delegated_context_seeded"):
    """A child's history begins with text of its parent. At most once, before the first input."""

    invocation_id: InvocationId
    turns: tuple[SeedTurn, ...]


class SkillLoaded(Event, frozen=True, kw_only=True, tag="skill_loaded"):
    """A skill's text entered the history. Where an input might come, or while its call runs."""

    name: str
    args: str
    base_dir: str
    source_path: str
    rendered_body: str
    supporting_files: tuple[str, ...] = ()  # at most 10


class SkillInvocationNoted(Event, frozen=True, kw_only=True, tag="skill_invocation_noted"):
    """A skill was used whose text is in the history already. After a skill_loaded of `name`."""

    name: str


class AgentMdEntry(Struct, frozen=True, kw_only=True):
    """One AGENTS.md as a run got it; `source` is its path, relative inside the workspace."""

    source: str
    text: str
    original_bytes: Count
    truncated: bool = False


class AgentMdLoaded(Event, frozen=True, kw_only=True, tag="agent_md_loaded"):
    """What the workspace tells its agents entered the history. Root sessions only, runless.

    Right before the user_input_submitted of a run, when it is not what the history holds already.
    """

    entries: tuple[AgentMdEntry, ...]


class AgentMdSkipped(Event, frozen=True, kw_only=True, tag="agent_md_skipped"):
    """An AGENTS.md that could not be used, and why. Where an agent_md_loaded might come."""

    source: str
    reason: str
    original_bytes: Count = 0


class RehydratedFile(Struct, frozen=True, kw_only=True):
    """A file's text as it was when the context was filled again."""

    path: str
    content: str
    sha256: Digest
    byte_length: Count


class ContextRehydrated(Event, frozen=True, kw_only=True, tag="context_rehydrated"):
    """Recently read files entered the history again. Right after a checkpoint, at most once."""

    files: tuple[RehydratedFile, ...]
