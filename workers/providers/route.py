"""Which way a request gets out: straight or through a proxy, and whose certificates it trusts."""

import ssl
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult, urlsplit

from ipc.faults import Fault
from ipc.plan import Http

_PORTS: Final = {"https": 443, "http": 80}
_PROXIES: Final = {
    "https": ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"),
    "http": ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"),
}


class BadRoute(Fault):
    """A proxy or a file of certificates that was asked for can't be used."""

    code = "bad_route"

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)
        self.args = (reason,)


def is_loopback(host: str) -> bool:
    """Whether it names this machine, without looking a name up."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def place(url: SplitResult) -> str:
    """Host and port of an address, for people; ValueError if there is no such port."""
    host = url.hostname or ""
    return f"{f'[{host}]' if ':' in host else host}:{port(url)}"


def port(url: SplitResult) -> int | None:
    """The port of an address, said or not."""
    return url.port or _PORTS.get(url.scheme)


def proxy_of(
    url: SplitResult, configured: str | None, environ: Mapping[str, str]
) -> SplitResult | None:
    """The proxy for `url`: the configured one, else the environment's; raises BadRoute.

    NO_PROXY holds for both. This machine is never reached through a proxy.
    """
    host = url.hostname or ""
    if is_loopback(host):
        return None
    named = configured or _from(environ, *_PROXIES.get(url.scheme, ()))
    if not named or exempt(host, port(url), _from(environ, "no_proxy", "NO_PROXY")):
        return None
    try:
        proxy = urlsplit(named if "://" in named else f"http://{named}")
        usable = bool(proxy.hostname and port(proxy))
    except ValueError:
        proxy, usable = SplitResult("", "", "", "", ""), False
    if not usable or proxy.scheme not in _PORTS:
        kind = f"{proxy.scheme} proxies are" if proxy.hostname else "a proxy like this is"
        raise BadRoute(
            f"{kind} not supported: give [http] proxy or HTTPS_PROXY as http://host:port"
        )
    return proxy


def exempt(host: str, port: int | None, no_proxy: str) -> bool:
    """Whether a list like NO_PROXY names the host.

    Entries are names (with all below them), "*", addresses, networks, and any with ":port".
    """
    return any(_names(entry, host.lower(), port) for entry in no_proxy.replace(",", " ").split())


def _names(entry: str, host: str, port: int | None) -> bool:
    name, wanted = _split_port(entry.lower())
    if wanted is not None and wanted != port:
        return False
    if name == "*":
        return True
    try:
        return ip_address(host) in ip_network(name, strict=False)
    except ValueError:
        bare = name.removeprefix("*").removeprefix(".")
        return bool(bare) and (host == bare or host.endswith(f".{bare}"))


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        inside, _, rest = entry[1:].partition("]")
        return inside, int(rest[1:]) if rest[1:].isdecimal() else None
    name, _, port = entry.rpartition(":")
    if name and ":" not in name and port.isdecimal():
        return name, int(port)
    return entry, None


def _from(environ: Mapping[str, str], *names: str) -> str:
    return next((environ[name].strip() for name in names if environ.get(name, "").strip()), "")


def trust(http: Http, environ: Mapping[str, str]) -> ssl.SSLContext:
    """What a server's certificate is checked against; raises BadRoute. Costs tens of ms.

    `ca_file` is trusted beside the system's own; else SSL_CERT_FILE and SSL_CERT_DIR stand in
    for those, as they do for OpenSSL.
    """
    file, folder = environ.get("SSL_CERT_FILE") or None, environ.get("SSL_CERT_DIR") or None
    try:
        if http.ca_file is not None:
            context = ssl.create_default_context()
            context.load_verify_locations(http.ca_file)
        else:
            context = ssl.create_default_context(cafile=file, capath=folder)
    except (OSError, ssl.SSLError) as wrong:
        named = f"[http] ca_file {http.ca_file}" if http.ca_file else f"SSL_CERT_FILE {file}"
        raise BadRoute(f"the certificates of {named} can't be read: {wrong}") from wrong
    context.set_alpn_protocols(["http/1.1"])
    return context
