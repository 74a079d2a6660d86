"""Which way a request gets out: proxies, exceptions from them, and whose certificates count."""

import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ipc.events import ModelErrorSummary
from ipc.ids import ProviderId, SecretRef
from ipc.plan import Http
from tests.fakes.authority import authority
from tests.fakes.conversation import parts_of, request, user
from tests.fakes.double import Answer, Double, ok, say
from tests.fakes.models import FAMILIES, binding_of, keys, outside_of, tiny_turn
from workers.providers.base import Done, Failed, Part
from workers.providers.route import BadRoute, exempt, is_loopback, proxy_of, trust

TINY = FAMILIES[0]
ENDPOINT = SecretRef(provider_id=ProviderId("double"), field="endpoint")
PROXY = SecretRef(provider_id=ProviderId("http"), field="proxy")
TURN = ok(tiny_turn("hello"))


async def ask(url: str, **outside: Any) -> Part:
    """The last part of one request to a model there."""
    async with outside_of(**outside) as made:
        return (await parts_of(TINY.make(binding_of(TINY, url), made), request(user("hi"))))[-1]


def error(part: Part) -> ModelErrorSummary:
    assert isinstance(part, Failed), part
    return part.error


# --- the decision ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "configured", "environ", "proxy"),
    [
        ("https://a.example", None, {}, None),
        ("https://a.example", None, {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a.example", None, {"https_proxy": "http://p:1"}, "http://p:1"),
        (
            "https://a.example",
            None,
            {"https_proxy": "http://p:1", "HTTPS_PROXY": "http://q:1"},
            "http://p:1",
        ),
        ("https://a.example", None, {"HTTP_PROXY": "http://p:1"}, None),
        ("http://a.example", None, {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("http://a.example", None, {"HTTPS_PROXY": "http://p:1"}, None),
        ("https://a.example", None, {"ALL_PROXY": "p:1"}, "http://p:1"),
        ("https://a.example", None, {"HTTPS_PROXY": "https://u:w@p"}, "https://u:w@p"),
        ("https://a.example", "http://c:1", {"HTTPS_PROXY": "http://p:1"}, "http://c:1"),
        ("https://a.example", "http://c:1", {"NO_PROXY": "a.example"}, None),
        ("https://a.example", None, {"HTTPS_PROXY": "  "}, None),
        ("https://a.example", None, {"HTTPS_PROXY": "http://p:1", "no_proxy": "x,.example"}, None),
        ("http://127.0.0.1:1", "http://c:1", {"ALL_PROXY": "http://p:1"}, None),
        ("http://localhost", "http://c:1", {}, None),
        ("http://[::1]:8080", "http://c:1", {}, None),
    ],
)
def test_a_proxy_is_the_configured_one_or_the_environments(
    url: str, configured: str | None, environ: dict[str, str], proxy: str | None
) -> None:
    found = proxy_of(urlsplit(url), configured, environ)

    assert (found.geturl() if found is not None else None) == proxy


@pytest.mark.parametrize("proxy", ["socks5://p:1", "http://", "http://[p", "://", "http://p:x"])
def test_a_proxy_that_can_not_be_used_is_refused_in_words(proxy: str) -> None:
    with pytest.raises(BadRoute, match="not supported"):
        proxy_of(urlsplit("https://a.example"), None, {"HTTPS_PROXY": proxy})


@pytest.mark.parametrize(
    ("host", "port", "listed", "found"),
    [
        ("a.example", 443, "", False),
        ("a.example", 443, "*", True),
        ("a.example", 443, "example", True),
        ("a.example", 443, ".example", True),
        ("a.example", 443, "*.example", True),
        ("example", 443, ".example", True),
        ("anexample", 443, "example", False),
        ("A.Example", 443, "a.EXAMPLE", True),
        ("a.example", 443, "b.example , a.example", True),
        ("a.example", 443, "b.example a.example", True),
        ("a.example", 443, "a.example:443", True),
        ("a.example", 443, "a.example:8443", False),
        ("10.1.2.3", 443, "10.0.0.0/8", True),
        ("10.1.2.3", 443, "10.1.2.3", True),
        ("11.1.2.3", 443, "10.0.0.0/8", False),
        ("a.example", 443, "10.0.0.0/8", False),
        ("fd00::1", 443, "fd00::/8", True),
        ("fd00::1", 443, "[fd00::1]:443", True),
        ("fd00::1", 443, "[fd00::1]:80", False),
        ("fd00::1", 443, "fd00::1", True),
        ("a.example", 443, ".", False),
        ("a.example", 443, ":443", False),
    ],
)
def test_no_proxy_names_hosts_domains_networks_and_ports(
    host: str, port: int, listed: str, found: bool
) -> None:
    assert exempt(host, port, listed) is found


@pytest.mark.parametrize(
    ("host", "here"),
    [
        ("localhost", True),
        ("x.localhost", True),
        ("127.3.2.1", True),
        ("::1", True),
        ("localhost.example", False),
        ("10.0.0.1", False),
        ("", False),
    ],
)
def test_this_machine_is_known_by_its_names(host: str, here: bool) -> None:
    assert is_loopback(host) is here


# --- through a proxy ---------------------------------------------------------------------------


async def test_a_plain_request_goes_to_the_proxy_with_its_password() -> None:
    with Double(TURN) as proxy:
        part = await ask(
            "http://model.example/v1",
            environ={"HTTP_PROXY": f"http://user:pass@127.0.0.1:{proxy.port}"},
        )

    assert isinstance(part, Done)
    assert proxy.seen[0].path == "http://model.example/v1/turn"
    assert proxy.seen[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"


async def test_the_configured_proxy_is_a_secret_and_wins() -> None:
    with Double(TURN) as proxy, Double() as other:
        part = await ask(
            "http://model.example",
            http=Http(proxy=PROXY),
            secret=keys({PROXY: proxy.url}),
            environ={"HTTP_PROXY": other.url},
        )

        assert isinstance(part, Done)
        assert (proxy.posts, other.connections) == (1, 0)


async def test_a_server_on_this_machine_is_reached_without_the_proxy() -> None:
    with Double(TURN) as model, Double() as proxy:
        part = await ask(model.url, environ={"ALL_PROXY": proxy.url, "HTTP_PROXY": proxy.url})

        assert isinstance(part, Done)
        assert (model.posts, proxy.connections) == (1, 0)


async def test_a_tunnel_leads_to_a_server_whose_private_ca_is_trusted(tmp_path: Path) -> None:
    ca_file, tls = authority(tmp_path, "model.example")
    with Double(TURN, tls=tls) as model, Double(tunnel=model.port) as proxy:
        url = "https://model.example/v1"
        environ = {"HTTPS_PROXY": f"http://user:pass@127.0.0.1:{proxy.port}"}
        by_config = await ask(url, environ=environ, http=Http(ca_file=str(ca_file)))
        by_environ = await ask(url, environ=environ | {"SSL_CERT_FILE": str(ca_file)})
        distrusted = error(await ask(url, environ=environ))

        assert isinstance(by_config, Done)
        assert isinstance(by_environ, Done)
        assert model.posts == 2
        assert [(seen.method, seen.path) for seen in proxy.seen] == [
            ("CONNECT", "model.example:443")
        ] * 3
        assert proxy.seen[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"
        assert "authorization" not in proxy.seen[0].headers
    assert (distrusted.kind, distrusted.stage, distrusted.retryable) == (
        "transport",
        "connect",
        False,
    )
    assert "the certificate of model.example:443 is not trusted" in distrusted.message
    assert "set [http] ca_file" in distrusted.message


async def test_a_certificate_for_another_name_is_refused_and_a_secret_name_not_told(
    tmp_path: Path,
) -> None:
    ca_file, tls = authority(tmp_path, "other.example")
    with Double(TURN, tls=tls) as model, Double(tunnel=model.port) as proxy:
        async with outside_of(
            environ={"HTTPS_PROXY": proxy.url},
            http=Http(ca_file=str(ca_file)),
            secret=keys({ENDPOINT: "https://model.example"}),
        ) as outside:
            binding = binding_of(TINY, "", endpoint=None, secrets={"endpoint": ENDPOINT})
            (part,) = await parts_of(TINY.make(binding, outside), request(user("hi")))

        assert "the certificate of its endpoint is not trusted" in error(part).message
        assert "model.example" not in str(part)
        assert model.posts == 0


@pytest.mark.parametrize(
    ("answer", "kind", "retryable", "words"),
    [
        (say(407, {}), "auth", False, "wants another user or password (407)"),
        (say(403, {}), "permission_denied", False, "refused (403"),
        (say(502, {}), "provider", True, "refused (502"),
        (Answer(reset="before"), "transport", True, "no connection to model.example:443"),
    ],
)
async def test_a_proxy_that_refuses_a_tunnel_is_named(
    answer: Answer, kind: str, retryable: bool, words: str
) -> None:
    with Double(answer) as proxy:
        proxy_url = f"http://user:hush-hush@127.0.0.1:{proxy.port}"
        found = error(await ask("https://model.example", environ={"HTTPS_PROXY": proxy_url}))

    assert (found.kind, found.stage, found.retryable) == (kind, "connect", retryable)
    assert words in found.message
    assert "hush" not in str(found)


async def test_a_proxy_that_is_not_there_is_named() -> None:
    with Double() as gone:
        port = gone.port
    found = error(
        await ask("http://model.example", environ={"HTTP_PROXY": f"http://u:hush@127.0.0.1:{port}"})
    )

    assert (found.kind, found.stage, found.retryable) == ("transport", "connect", True)
    assert f"the proxy 127.0.0.1:{port} can't be reached" in found.message


async def test_a_configured_proxy_that_is_gone_fails_instead_of_going_straight() -> None:
    with Double(TURN) as model:
        url = model.url.replace("127.0.0.1", "model.example")
        found = error(await ask(url, http=Http(proxy=PROXY)))

        assert model.connections == 0
    assert (found.kind, found.retryable) == ("invalid_request", False)


# --- certificates ------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["ca_file", "SSL_CERT_FILE"])
@pytest.mark.parametrize("content", [None, "no certificate"])
async def test_a_file_of_certificates_that_can_not_be_read_is_named(
    where: str, content: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    given: dict[str, Any] = (
        {"http": Http(ca_file=str(path))}
        if where == "ca_file"
        else {"environ": {"SSL_CERT_FILE": str(path)}}
    )
    found = error(await ask("https://model.example", **given))

    assert (found.kind, found.retryable) == ("invalid_request", False)
    assert f"{where} {path} can't be read" in found.message


def test_a_ca_of_ones_own_is_trusted_beside_the_systems(tmp_path: Path) -> None:
    ca_file, _ = authority(tmp_path, "model.example")

    mine = trust(Http(ca_file=str(ca_file)), {"SSL_CERT_FILE": "/is/not/looked/at"})
    instead = trust(Http(), {"SSL_CERT_FILE": str(ca_file)})

    assert len(mine.get_ca_certs()) == len(ssl.create_default_context().get_ca_certs()) + 1
    assert len(instead.get_ca_certs()) == 1
    for context in (mine, instead):
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_a_server_without_tls_is_said_to_have_none() -> None:
    with Double() as model:
        found = error(await ask(model.url.replace("http", "https")))

    assert (found.kind, found.stage) == ("transport", "connect")
    assert "no secure connection" in found.message or "no connection" in found.message
