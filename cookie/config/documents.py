"""One agent document as its author meant it, and the fault of one that can't be used."""

from pathlib import Path

from msgspec import Struct

from ipc.events.base import AgentMode, DocumentSource, FallbackEntry
from ipc.faults import Fault, clean
from ipc.ids import AgentId
from ipc.rules import Rule


class BadDocument(Fault):
    """An agent document that can't be used; its text is one line: file, line, key, reason."""

    code = "bad_agent_document"

    def __init__(self, path: Path, reason: str, *, line: int | None = None, key: str = "") -> None:
        super().__init__(path=str(path), line=line or 0, key=key, reason=reason)
        where = f"{path}:{line}" if line is not None else str(path)
        self.args = (clean(f"{where}: {key + ': ' if key else ''}{reason}", 2000),)


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds of an agent's requests; 0 = none of the document's own."""

    max_output_tokens: int = 0
    timeout_ms: int = 0  # of internal agents


class AgentDocument(Struct, frozen=True, kw_only=True):
    """One document as its author meant it. `permissions` are in the order they were written."""

    agent: AgentId
    path: str
    source: DocumentSource
    description: str
    mode: AgentMode
    enabled: bool
    body: str
    models: tuple[FallbackEntry, ...] = ()
    limits: Limits = Limits()
    permissions: tuple[Rule, ...] = ()
    agent_md: bool | None = None

    @property
    def runs_as_root(self) -> bool:
        """Whether a root session may have it, models aside."""
        return self.enabled and self.mode in {"primary", "all"}

    @property
    def takes_delegation(self) -> bool:
        """Whether another agent may delegate to it."""
        return self.enabled and self.mode in {"subagent", "all"}
