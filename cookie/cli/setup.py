"""What a headless run is made from: the plan, the tree's place, the instance it runs in."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from cookie.config.secrets import surroundings, tool_environment
from cookie.config.settings import load_settings
from cookie.daemon.instance import Incarnation, Places, enter, instance_dir
from cookie.daemon.listing import find
from cookie.daemon.listing import newest as newest_of
from cookie.daemon.supervisor import TreeOrder
from cookie.models.compile import Selection, build_plan
from ipc.disk.paths import workspace_paths
from ipc.events import RunSelection
from ipc.ids import new_session_id
from ipc.plan import encode_plan
from ipc.rules import PermissionMode

INSTANCE: Final = "run"  # all `cookie run` of a data directory; each has an incarnation of its own


class Setup(Struct, frozen=True, kw_only=True):
    """Everything that can be wrong before a worker has its tree, found to be right."""

    tree: TreeOrder
    selection: RunSelection
    incarnation: Incarnation


def prepare(
    *,
    data_dir: str | None,
    resume: str | None,
    newest: bool,
    model: str | None,
    agent: str | None,
    permission_mode: PermissionMode,
    allowed_tools: Sequence[str],
    max_turns: int,
) -> Setup:
    """Read the config and find the tree; raises a Fault that a person can act on, or OSError."""
    around = surroundings(data_dir)
    cwd = os.path.realpath(Path.cwd())
    settings = load_settings(around.data_dir, Path(cwd))
    plan = build_plan(
        settings,
        Selection(model=model, agent=agent),
        permission_mode=permission_mode,
        allowed_tools=allowed_tools,
        max_turns=max_turns,
        env=tool_environment(pass_env=settings.workers.pass_env),
    )
    assert plan.default_selection is not None, "build_plan chose no model and said nothing"
    workspace = workspace_paths(around.data_dir, cwd)
    root = new_session_id()
    if resume is not None:
        root = find(workspace, cwd, resume)
    elif newest:
        root = newest_of(workspace, cwd).session_id
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
        ),
        selection=plan.default_selection,
        incarnation=enter(instance_dir(places, around.data_dir, INSTANCE)),
    )
