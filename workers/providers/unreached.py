"""Why a request got no response, or only a part of one: what went wrong on the way, in words."""

import errno
import socket
from typing import Final

import aiohttp
from msgspec import Struct

from ipc.events import ModelErrorKind, ModelErrorStage
from workers.providers.base import Failed, failure
from workers.providers.errors import refusal

_REFUSED: Final = "Connect call failed"
_PROXY: Final = "check [http] proxy and HTTPS_PROXY"


class Way(Struct, frozen=True, kw_only=True):
    """Where a request was sent, for the words that a person reads."""

    provider: str
    place: str  # host and port, or what stands for a secret address
    local: bool = False
    proxy: str | None = None  # its host and port


def unreached(error: BaseException, way: Way, stage: ModelErrorStage) -> Failed:
    """What an exception before the response's headers comes to."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            words = (
                f"the certificate of {way.place} is not trusted: {error.certificate_error}; for a "
                "server or proxy with a private CA set [http] ca_file"
            )
            return failure("transport", words, stage="connect", retryable=False)
        case aiohttp.ClientHttpProxyError():
            return _proxy_refused(error, way)
        case aiohttp.ClientSSLError():
            return _lost(f"no secure connection to {way.place} ({_why(error)})", "connect")
        case aiohttp.ClientProxyConnectionError():
            words = f"the proxy {way.proxy} can't be reached ({_why(error)}); {_PROXY}"
            return _lost(words, "connect")
        case aiohttp.ClientConnectorError():
            return _lost(_unconnected(error, way), "connect")
        case aiohttp.ClientResponseError():
            words = f"{way.place} does not answer in HTTP; check the endpoint of {way.provider}"
            return failure("invalid_response", words, stage="response_headers")
        case aiohttp.InvalidURL() | aiohttp.NonHttpUrlClientError() | ValueError():
            words = f"the request to {way.provider} can't be written: {_why(error)}"
            return failure("invalid_request", words, stage="request_encode")
        case _:
            return _lost(_disconnected(error, way, stage), stage)


def _disconnected(error: BaseException, way: Way, stage: ModelErrorStage) -> str:
    if stage == "connect":
        return f"no connection to {way.place} ({_why(error)})"
    return f"{way.place} closed the connection before it answered ({_why(error)})"


def broken_off(error: BaseException, way: Way) -> Failed:
    """What an exception inside a response's body comes to.

    A body that ends before its last chunk is one that ended too early; a connection that broke is
    one that broke.
    """
    reset = "Connection" in str(error) or not isinstance(error, aiohttp.ClientPayloadError)
    kind: ModelErrorKind = "transport" if reset else "unexpected_eof"
    how = "the connection broke" if reset else "the response ended"
    words = f"{how} in the middle of the answer of {way.place}"
    return failure(kind, words, stage="response_body")


def _lost(words: str, stage: ModelErrorStage) -> Failed:
    return failure("transport", words, stage=stage)


def _unconnected(error: aiohttp.ClientConnectorError, way: Way) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError) or isinstance(
        error.os_error, socket.gaierror
    ):
        return f"the name in {way.place} can't be found; is the network up, the endpoint right?"
    if error.os_error.errno == errno.ECONNREFUSED or _REFUSED in str(error.os_error):
        hint = "is the local server running?" if way.local else "is the endpoint right?"
        return f"nothing takes connections at {way.place}; {hint}"
    return f"no connection to {way.place} ({_why(error)})"


def _proxy_refused(error: aiohttp.ClientHttpProxyError, way: Way) -> Failed:
    if error.status == 407:  # noqa: PLR2004  its name says no more
        words = f"the proxy {way.proxy} wants another user or password (407); {_PROXY}"
        return failure("auth", words, stage="connect", http_status=407)
    words = f"the proxy {way.proxy} refused ({error.status} {error.message}); {_PROXY}"
    like = refusal(error.status, {}, b"").error
    return failure(
        like.kind if like.retryable else "permission_denied",
        words,
        stage="connect",
        http_status=error.status,
    )


def _why(error: BaseException) -> str:
    inner = getattr(error, "os_error", None) or error
    reason = getattr(inner, "strerror", None) or str(inner)
    return reason or type(inner).__name__
