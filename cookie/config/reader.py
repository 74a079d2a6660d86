"""Reads the texts of one config file that may name the environment or hold a secret."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from cookie.config.files import BadConfig, KeyPath, Layer
from cookie.config.schema import a_text, is_plain
from cookie.config.secrets import Kept
from ipc.ids import ProviderId, SecretRef

T = TypeVar("T", bound=Struct)

VALUE_BYTES_MAX: Final = 65_536  # of one text after its variables are filled in

# Where `${env:NAME}` is read. A `*` stands for any name.
ENV_PLACES: Final[tuple[tuple[str, ...], ...]] = (
    ("providers", "*", "endpoint"),
    ("providers", "*", "base_url"),
    ("providers", "*", "setup", "*"),
    ("providers", "*", "api_key"),
    ("providers", "*", "auth", "values", "*"),
    ("providers", "*", "auth_override", "values", "*"),
    ("providers", "*", "headers", "*"),
    ("providers", "*", "models", "*", "headers", "*"),
    ("providers", "*", "models", "*", "variants", "*", "headers", "*"),
    ("mcp", "servers", "*", "env", "*"),
    ("mcp", "servers", "*", "headers", "*"),
    ("mcp", "servers", "*", "url"),
    ("mcp", "servers", "*", "oauth", "client_secret"),
    ("plugins", "*", "env", "*"),
    ("http", "proxy"),
)


class Reader:
    """One file, and what was found in it beside its settings.

    `secrets` are the values by owner and field; `lacking` the first complaint about a variable
    that is not set, by owner: such an owner can't be used, which is no mistake of the file.
    """

    def __init__(self, layer: Layer, environ: Mapping[str, str]) -> None:
        self.layer = layer
        self.secrets: dict[str, dict[str, str]] = {}
        self.lacking: dict[str, BadConfig] = {}
        self.variables: set[str] = set()
        self._environ = environ

    def __repr__(self) -> str:
        return f"Reader({self.layer!r})"

    def text(
        self,
        key: KeyPath,
        value: object,
        owner: str,
        field: str,
        *,
        secret: bool,
        left: tuple[str, ...] = (),
        empty: bool = False,
        check: Callable[[str], str | None] | None = None,
    ) -> str | Kept:
        """One text as it is used; a Kept when it is a secret or comes from the environment.

        `left` are names that somebody fills in later; such a text keeps its `$$`. `check` says
        what is wrong with the text that came out, without repeating it.
        """
        words = a_text(self.layer, key, value, bytes_max=VALUE_BYTES_MAX, empty=empty)
        if not secret and "$" not in words:
            return self._plain(key, words, check)
        from cookie.config import templates  # noqa: PLC0415 - only for what is no plain text

        meant = templates.loose_variable(words) if secret else None
        if meant is not None and words != f"${{env:{meant}}}":
            raise self.layer.wrong(key, f'is read as it stands; write "${{env:{meant}}}"')
        try:
            template = templates.read(words, left)
        except templates.BadTemplate as bad:
            raise self.layer.wrong(key, str(bad)) from None
        ref = SecretRef(provider_id=ProviderId(owner), field=field)
        kept = Kept(ref=ref, shown=template.shown(secret=secret))
        self.variables |= template.names
        try:
            result = template.value(self._environ, later=bool(left))
        except templates.NotSet as lacks:
            return self._lack(key, owner, lacks.variable, str(lacks), kept)
        wrong = self._wrong(result, empty=empty, check=check)
        if wrong is not None and template.names:
            name = min(template.names)
            why = f"the environment variable {name} makes a text that {wrong}"
            return self._lack(key, owner, name, why, kept)
        if wrong is not None:
            raise self.layer.wrong(key, wrong)
        if not secret and not template.names:
            return result
        self.secrets.setdefault(owner, {})[field] = result
        return kept

    def path(self, key: KeyPath, text: str) -> str:
        """A path of the file, made absolute: relative ones start at the file's own folder."""
        if not is_plain(text):
            raise self.layer.wrong(key, "is no path: it holds a control character")
        try:
            return str(self.layer.path.parent / Path(text).expanduser())
        except RuntimeError:
            raise self.layer.wrong(key, "begins with ~ and a name that nobody here has") from None

    def stray(self) -> None:
        """Refuse a `${env:` where it is not read; raises BadConfig."""
        todo: list[tuple[KeyPath, object]] = [((), self.layer.table)]
        while todo:
            key, value = todo.pop()
            if isinstance(value, dict):
                todo += [((*key, str(name)), child) for name, child in value.items()]
            elif isinstance(value, list):
                todo += [(key, child) for child in value]
            elif isinstance(value, str) and "${env:" in value and not env_is_read(key):
                raise self.layer.wrong(key, STRAY)

    def with_fields(self, found: T, made: Mapping[str, Any]) -> T:
        """The record with other values in some of its fields."""
        return msgspec.structs.replace(found, **made)

    def _lack(self, key: KeyPath, owner: str, variable: str, why: str, kept: Kept) -> Kept:
        """Note that an owner lacks a variable; what it can't have it still names."""
        reason = f"{why}: set it, or give it a value here with ${{env:{variable}:-...}}"
        self.lacking.setdefault(owner, self.layer.wrong(key, reason))
        return kept

    def _plain(self, key: KeyPath, words: str, check: Callable[[str], str | None] | None) -> str:
        wrong = None if check is None else check(words)
        if wrong is not None:
            raise self.layer.wrong(key, wrong)
        return words

    def _wrong(
        self, result: str, *, empty: bool, check: Callable[[str], str | None] | None
    ) -> str | None:
        """What is wrong with a text whose variables are filled in."""
        if not result and not empty:
            return "is empty"
        if not is_plain(result):
            return "holds a control character or a line break"
        if len(result.encode("utf-8", "surrogatepass")) > VALUE_BYTES_MAX:
            return "is too long"
        return None if check is None else check(result)


STRAY: Final = (
    "${env:...} is not read here; it is in endpoint, base_url, setup, api_key, auth values and "
    "headers of a provider, url, env and headers of an MCP server, env of a plugin, and http.proxy"
)


def env_is_read(key: KeyPath) -> bool:
    """Whether `${env:NAME}` stands for a variable in this place."""
    return any(
        len(place) == len(key) and all(a in {"*", b} for a, b in zip(place, key, strict=True))
        for place in ENV_PLACES
    )
