"""The surroundings and what is secret: the only file that reads settings from the environment."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from ipc.disk.paths import default_data_dir
from ipc.faults import Fault
from ipc.ids import ProviderId, SecretRef

# What a tool never inherits (processes.md "Secrets, rights, environment"): a child that could
# answer for us to systemd, or speak to the daemon as a person does. `pass_env` gives some back.
WITHHELD: Final = frozenset(
    {"NOTIFY_SOCKET", "JOURNAL_STREAM", "CREDENTIALS_DIRECTORY", "COOKIE_DAEMON_TOKEN"}
)
WITHHELD_PREFIXES: Final = ("WATCHDOG_", "LISTEN_")


class Kept(Struct, frozen=True):
    """A setting whose value is a secret: where the value is, and what anybody may see of it."""

    ref: SecretRef
    shown: str  # "${env:NAME}" as it was written, or a mask


class NoSecret(Fault):
    """A secret was asked for that the config does not hold."""

    code = "no_secret"

    def __init__(self, ref: SecretRef) -> None:
        super().__init__(provider=ref.provider_id, field=ref.field)
        self.args = (f"there is no {ref.field} of {ref.provider_id} in the config",)


class Vault:
    """The secrets of one config: the only object that holds their values.

    It can be asked, and that is all: its repr is a count, and nothing encodes or copies it.
    `variables` are the names of all environment variables that the config reads, in any file.
    """

    __slots__ = ("_fields", "variables")

    def __init__(
        self,
        fields: Mapping[str, Mapping[str, str]] | None = None,
        variables: Iterable[str] = (),
    ) -> None:
        self._fields = {owner: dict(mine) for owner, mine in (fields or {}).items()}
        self.variables = frozenset(variables)

    def __repr__(self) -> str:
        return f"Vault({len(self)} secrets)"

    def __reduce__(self) -> str:
        raise TypeError("a vault is neither copied nor written anywhere")

    def __len__(self) -> int:
        return sum(len(mine) for mine in self._fields.values())

    def __contains__(self, ref: SecretRef) -> bool:
        return ref.field in self._fields.get(ref.provider_id, {})

    def refs(self) -> tuple[SecretRef, ...]:
        """Where each of them is, in the order of owners and fields."""
        return tuple(
            SecretRef(provider_id=ProviderId(owner), field=field)
            for owner, mine in sorted(self._fields.items())
            for field in sorted(mine)
        )

    def value(self, ref: SecretRef) -> str:
        """The value behind a reference, for `orders.Grant` and nothing else; raises NoSecret."""
        try:
            return self._fields[ref.provider_id][ref.field]
        except KeyError:
            raise NoSecret(ref) from None


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


def environment() -> dict[str, str]:
    """The variables that `${env:NAME}` in a config file may name."""
    return dict(os.environ)


def is_withheld(name: str) -> bool:
    """Whether a variable is meant for cookie alone, whatever the config says."""
    return name in WITHHELD or name.startswith(WITHHELD_PREFIXES)


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
    secret = frozenset(secret_names)
    return {
        name: value
        for name, value in environ.items()
        if (name in given or not (name in secret or is_withheld(name)))
        and _is_text(name)
        and _is_text(value)
    }


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
