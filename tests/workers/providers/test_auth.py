"""How a request proves who asks: each method's header, and what is said when there is no key."""

import json

import pytest

from ipc.events import FrozenModelBinding
from ipc.ids import ModelKey, ProviderId, SecretRef
from workers.providers.auth import Grant, NotGranted, granted
from workers.providers.base import Outside

REF = SecretRef(provider_id=ProviderId("box"), field="auth")


def grant(method: str | None, text: str | None, header: str | None = None) -> Grant:
    """What a provider of this method with these credentials is granted."""
    binding = FrozenModelBinding(
        model=ModelKey("box/m"),
        provider_id=ProviderId("box"),
        adaptor="tiny",
        wire_model="m",
        auth=method,
        auth_ref=REF if method else None,
        auth_header=header,
    )
    return granted(binding, Outside(secret=lambda ref: text if ref == REF else None))


@pytest.mark.parametrize(
    ("method", "header", "headers"),
    [
        ("bearer-api-key-v1", None, {"authorization": "Bearer k-1"}),
        ("api-key-header-v1", "api-key", {"api-key": "k-1"}),
        ("anthropic-api-key-v1", None, {"x-api-key": "k-1"}),
        ("google-api-key-header-v1", None, {"x-goog-api-key": "k-1"}),
        ("azure-api-key-v1", None, {"api-key": "k-1"}),
    ],
)
def test_a_method_puts_the_key_in_its_header(
    method: str, header: str | None, headers: dict[str, str]
) -> None:
    assert grant(method, '{"api_key":" k-1\\n"}', header) == Grant(headers, ("k-1",))


def test_an_access_token_is_a_bearer_too() -> None:
    made = grant("oauth-access-token-v1", '{"access_token":"t-1"}')

    assert made == Grant({"authorization": "Bearer t-1"}, ("t-1",))


@pytest.mark.parametrize("method", [None, "no-auth-v1"])
def test_without_a_method_nothing_is_sent(method: str | None) -> None:
    assert grant(method, None) == Grant()


@pytest.mark.parametrize(
    ("method", "text", "kind", "words"),
    [
        ("bearer-api-key-v1", None, "auth", "there is no key for box: set one in [providers.box]"),
        ("bearer-api-key-v1", "{", "auth", "can't be read"),
        ("bearer-api-key-v1", '{"api_key":7}', "auth", "can't be read"),
        ("bearer-api-key-v1", '{"api_key":""}', "auth", "the key is empty"),
        ("bearer-api-key-v1", '{"api_key":" \\n"}', "auth", "the key is empty"),
        ("bearer-api-key-v1", '{"api_key":"k\\nx"}', "auth", "that no header can carry"),
        ("bearer-api-key-v1", '{"api_key":"ké"}', "auth", "that no header can carry"),
        ("bearer-api-key-v1", "{}", "auth", "needs api_key for box"),
        ("aws-sigv4-credentials-v1", "{}", "unsupported", "can't authenticate by aws-sigv4"),
    ],
)
def test_what_is_not_granted_is_said_without_the_secret(
    method: str, text: str | None, kind: str, words: str
) -> None:
    with pytest.raises(NotGranted) as caught:
        grant(method, text)

    assert caught.value.kind == kind
    assert words in str(caught.value)


def test_a_grant_does_not_show_its_key() -> None:
    key = "k-123456"
    made = grant("bearer-api-key-v1", json.dumps({"api_key": key}))

    assert key not in repr(made)
