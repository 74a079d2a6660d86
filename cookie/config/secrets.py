"""The surroundings: the only file that reads settings from the environment."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from ipc.disk.paths import default_data_dir

# What a tool never inherits (processes.md "Secrets, rights, environment"): a child that could
# answer for us to systemd, or speak to the daemon as a person does. `pass_env` gives some back.
WITHHELD: Final = frozenset(
    {"NOTIFY_SOCKET", "JOURNAL_STREAM", "CREDENTIALS_DIRECTORY", "COOKIE_DAEMON_TOKEN"}
)
WITHHELD_PREFIXES: Final = ("WATCHDOG_", "LISTEN_")


class Surroundings(Struct, frozen=True, kw_only=True):
    """What this process was started into, as far as cookie's own settings go."""

    data_dir: Path
    runtime_dir: str | None  # $XDG_RUNTIME_DIR
    temporary: str
    uid: int


def surroundings(
    data_dir: str | None = None, environ: Mapping[str, str] = os.environ
) -> Surroundings:
    """Read them; `data_dir` is what the command line said and replaces the default whole."""
    temporary = environ.get("TMPDIR", "")
    return Surroundings(
        data_dir=Path(data_dir).expanduser().absolute() if data_dir else default_data_dir(),
        runtime_dir=environ.get("XDG_RUNTIME_DIR"),
        temporary=temporary.rstrip("/") if temporary.startswith("/") else "/tmp",  # noqa: S108
        uid=os.getuid(),
    )


def tool_environment(
    secret_names: Iterable[str] = (),
    pass_env: Iterable[str] = (),
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """What a tool's environment is made of: ours, minus secrets and what is only meant for us.

    `secret_names` are the variables that the loaded config names by `${env:}`, `pass_env` those a
    person gives to tools all the same. A variable that is not UTF-8 can't travel in a plan.
    """
    given = frozenset(pass_env)
    withheld = WITHHELD | frozenset(secret_names)
    return {
        name: value
        for name, value in environ.items()
        if (name in given or not (name in withheld or name.startswith(WITHHELD_PREFIXES)))
        and _is_text(name)
        and _is_text(value)
    }


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
