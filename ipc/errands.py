"""What is asked of an errand worker, and what it answers: one order on its stdin, one answer back.

An errand belongs to no tree (docs/decisions/0010). Both are JSON, from one build to itself.
"""

from typing import Final, Literal

from msgspec import Struct

from ipc.events.approvals import ApprovalReasonCode, RuleSource
from ipc.rules import Action, Effect, PermissionMode, Rule

EXPLAIN: Final = "--errand=explain"  # the one errand there is so far: Explain, then Explained


class Explain(Struct, frozen=True, kw_only=True):
    """What do these rules make of a call? It is told as a model does, or in a person's words.

    A person names a tool or an action and the label; no `text` stands for a call without one.
    """

    rules: tuple[Rule, ...]  # of the agent
    overlay: tuple[Rule, ...]
    workspace: str
    mode: PermissionMode
    name: str
    text: str | None = None
    arguments: str | None = None  # a model's JSON text; `text` is not looked at


class Weighed(Struct, frozen=True, kw_only=True):
    """A rule that matches, and what its strength is made of."""

    source: RuleSource
    place: int  # among the rules of its source, from 0
    rule: Rule
    literal: int
    wildcards: int


class Consequence(Struct, frozen=True, kw_only=True):
    """What the gate does with the call: it runs, is refused, or a person is asked."""

    outcome: Literal["allow", "deny", "ask"]
    reason: ApprovalReasonCode | None = None
    ends_run: bool = False


class Explained(Struct, frozen=True, kw_only=True, tag="explained"):
    """What becomes of a call, and why.

    With `refused`, it comes to no rule: the model is told that. `weighed` is strongest first, and
    the first one decides; when there is none, nothing matched and the effect is deny.
    """

    tool: str | None = None
    refused: str | None = None
    action: Action | None = None
    label: str | None = None
    tools: tuple[str, ...] = ()  # of this build that fall under the action
    visible: bool = False  # whether they are offered
    rules: int = 0  # of the action, in both layers
    weighed: tuple[Weighed, ...] = ()
    effect: Effect = "deny"
    unattended: Consequence | None = None  # under the mode, and nobody can be asked
    attended: Consequence | None = None


class Unreadable(Struct, frozen=True, kw_only=True, tag="unreadable"):
    """The words stand for no call, and why; `names` are those of tools and actions."""

    reason: str
    names: tuple[str, ...]


Explanation = Explained | Unreadable
