"""How a request proves who asks: the credentials of a binding, made headers by its method's id."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from ipc.events import FrozenModelBinding, ModelErrorKind
from ipc.faults import Fault
from workers.providers.base import Outside

_DECODER: Final = msgspec.json.Decoder(dict[str, str])
Maker = Callable[[FrozenModelBinding, Mapping[str, str]], dict[str, str]]


class NotGranted(Fault):
    """The credentials of a provider are not there, or not what its method needs."""

    code = "not_granted"

    def __init__(self, reason: str, kind: ModelErrorKind = "auth") -> None:
        super().__init__(reason=reason)
        self.args = (reason,)
        self.kind = kind


class Grant(Struct, frozen=True):
    """The headers that prove it, and every text in them that nobody may read."""

    headers: dict[str, str] = {}
    secrets: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Grant({', '.join(self.headers)})"


def granted(binding: FrozenModelBinding, outside: Outside) -> Grant:
    """What a request to this model is authorised by; raises NotGranted."""
    method = binding.auth or "no-auth-v1"
    if method == "no-auth-v1":
        return Grant()
    make = METHODS.get(method)
    if make is None:
        raise NotGranted(f"this version can't authenticate by {method}", "unsupported")
    values = _credentials(binding, outside)
    return Grant(make(binding, values), tuple(values.values()))


def _credentials(binding: FrozenModelBinding, outside: Outside) -> dict[str, str]:
    text = outside.secret(binding.auth_ref) if binding.auth_ref is not None else None
    where = f"[providers.{binding.provider_id}] of config.toml (api_key or auth)"
    if text is None:
        raise NotGranted(f"there is no key for {binding.provider_id}: set one in {where}")
    try:
        values = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeError) as wrong:
        reason = f"the credentials of {binding.provider_id} can't be read: check {where}"
        raise NotGranted(reason) from wrong
    return {name: _usable(value, where) for name, value in values.items()}


def _usable(value: str, where: str) -> str:
    """The value without the line end of the file it was read from."""
    bare = value.strip()
    if not bare:
        raise NotGranted(f"the key is empty: check {where}, and the variable it is read from")
    if not (bare.isascii() and bare.isprintable()):
        raise NotGranted(f"the key has a character that no header can carry: check {where}")
    return bare


def _value(binding: FrozenModelBinding, values: Mapping[str, str], name: str) -> str:
    try:
        return values[name]
    except KeyError:
        raise NotGranted(f"{binding.auth} needs {name} for {binding.provider_id}") from None


def _bearer(field: str) -> Maker:
    return lambda binding, values: {"authorization": f"Bearer {_value(binding, values, field)}"}


def _header(name: str | None) -> Maker:
    """A header with the bare key; None: it is named by the binding."""

    def make(binding: FrozenModelBinding, values: Mapping[str, str]) -> dict[str, str]:
        return {name or binding.auth_header or "x-api-key": _value(binding, values, "api_key")}

    return make


# The ids of spec 1.13 that need no more than a header.
METHODS: Final[dict[str, Maker]] = {
    "bearer-api-key-v1": _bearer("api_key"),
    "oauth-access-token-v1": _bearer("access_token"),
    "api-key-header-v1": _header(None),
    "anthropic-api-key-v1": _header("x-api-key"),
    "azure-api-key-v1": _header("api-key"),
    "google-api-key-header-v1": _header("x-goog-api-key"),
}
