"""What a headless run is made from: the plan, the tree's place, the instance it runs in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from cookie.cli import whereabouts
from cookie.config.agents import load_agents
from cookie.config.secrets import tool_environment
from cookie.config.settings import load_config
from cookie.daemon.instance import Incarnation, Places, enter, instance_dir
from cookie.daemon.listing import find, selection_of
from cookie.daemon.listing import newest as newest_of
from cookie.daemon.locks import check_ground
from cookie.daemon.supervisor import TreeOrder
from cookie.models.compile import Selection, build_plan
from ipc.disk.paths import workspace_paths
from ipc.events import RunSelection
from ipc.ids import new_session_id
from ipc.plan import ModelRetry, encode_plan
from ipc.rules import PermissionMode

INSTANCE: Final = "run"  # all `cookie run` of a data directory; each has an incarnation of its own


class Setup(Struct, frozen=True, kw_only=True):
    """Everything that can be wrong before a worker has its tree, found to be right."""

    tree: TreeOrder
    selection: RunSelection
    model_retry: ModelRetry
    incarnation: Incarnation
    wedged_after_s: float


def prepare(
    *,
    data_dir: str | None,
    resume: str | None,
    newest: bool,
    model: str | None,
    agent: str | None,
    variant: str | None = None,
    preset: str | None = None,
    permission_mode: PermissionMode,
    allowed_tools: Sequence[str],
    max_turns: int,
) -> Setup:
    """Read the config and find the tree; raises a Fault that a person can act on, or OSError."""
    around, cwd = whereabouts.around(data_dir), whereabouts.folder()
    config = load_config(around.data_dir, Path(cwd))
    check_ground(around.data_dir)
    settings = config.settings
    workspace = workspace_paths(around.data_dir, cwd)
    root = new_session_id()
    before: RunSelection | None = None
    if resume is not None or newest:
        root = find(workspace, cwd, resume) if resume else newest_of(workspace, cwd).session_id
        before = selection_of(workspace, root)
    plan = build_plan(
        settings,
        Selection(model=model, variant=variant, agent=agent, preset=preset, before=before),
        authored=load_agents(around.data_dir, Path(cwd)),
        permission_mode=permission_mode,
        allowed_tools=allowed_tools,
        max_turns=max_turns,
        env=tool_environment(config.vault.variables, settings.workers.pass_env),
        unusable=config.unusable,
    )
    assert plan.default_selection is not None, "build_plan chose no model and said nothing"
    wanted = plan.secrets()
    places = Places(around.runtime_dir, around.temporary, around.uid)
    return Setup(
        tree=TreeOrder(
            root=root,
            fresh=resume is None and not newest,
            workspace=workspace,
            data_dir=str(around.data_dir),
            cwd=cwd,
            revision=plan.revision,
            plan=encode_plan(plan),
            secrets=tuple(ref for ref in config.vault.refs() if ref in wanted),
            secret=config.vault.value,
        ),
        selection=plan.default_selection,
        model_retry=plan.model_retry,
        wedged_after_s=settings.workers.wedged_after_s(),
        incarnation=enter(instance_dir(places, around.data_dir, INSTANCE)),
    )
