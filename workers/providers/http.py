"""One model behind HTTP: a family's codec with credentials, time limits and one connection pool.

A request is one POST and is never sent again from here: whoever takes the parts decides that, and
counts what was sent. When its parts are taken no more, its connection is gone.
"""

import asyncio
import contextlib
import io
import os
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Sequence
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

import aiohttp
from msgspec import structs

from ipc.events import FrozenModelBinding, ModelErrorStage
from ipc.faults import Fault
from ipc.seams.failpoints import ARMED, hit
from workers.providers import errors, route
from workers.providers.auth import NotGranted, granted
from workers.providers.base import (
    CannotEncode,
    Decoder,
    Done,
    Failed,
    HttpCall,
    Media,
    Outside,
    Part,
    Request,
    Wire,
    failure,
)
from workers.providers.reveal import media_of, own_headers, revealed
from workers.providers.scrub import Scrubber
from workers.providers.sse import TooLong
from workers.providers.unreached import Way, broken_off, unreached
from workers.providers.watch import Silence, Watch

if TYPE_CHECKING:
    import ssl

USER_AGENT: Final = "cookie-agent"
REFUSAL_BYTES_MAX: Final = 64 * 1024  # read of the body of an error
REFUSAL_S: Final = 5.0  # ... and for how long
KEEP_ALIVE_S: Final = 45.0  # a connection that nobody uses; most servers close theirs later
WHOLE_BYTES_MAX: Final = 512 * 1024  # of a request's body that is sent in one piece
UNSENT_BYTES_MAX: Final = 128 * 1024  # of a longer one that the kernel holds and has not sent
LINGER_S: Final = 0.25  # for a whole turn's response to end, so that its connection can be kept

_SUCCESS: Final = range(200, 300)
_LAST: Final = (Done, Failed)
_AT_ONCE: Final = struct.pack("ii", 1, 0)
_LOWAT: Final = getattr(socket, "TCP_NOTSENT_LOWAT", 25)  # not in every build of Python

WireType = Callable[[FrozenModelBinding], Wire]


class AfterFork(Fault):
    """A connection pool was made before a fork: its connections belong to another process."""

    code = "client_after_fork"


class HttpProvider:
    """A model that is asked with POSTs in its family's words."""

    def __init__(self, wire: WireType, binding: FrozenModelBinding, outside: Outside) -> None:
        self._wire = wire
        self._binding = binding
        self._outside = outside

    def encode(self, request: Request, media: Media) -> HttpCall:
        """The call of a request in the family's words, without secrets; see `Wire.encode`.

        For who has to find the block that a refusal names by its place in those words.
        """
        return self._wire(self._binding).encode(request, media)

    async def stream(self, request: Request) -> AsyncGenerator[Part, None]:
        """The parts of one turn; see `Provider.stream`."""
        if ARMED:
            hit("provider.first_part")
        exchange = _Exchange(self._binding, self._outside)
        try:
            failed = await exchange.open(self._wire, request)
            if failed is not None:
                yield failed
            while not exchange.over:
                for part in await exchange.more():
                    yield part
        finally:
            exchange.close()


async def close(outside: Outside) -> None:
    """Close the connection pool, if one was made; the next request makes another."""
    pool, outside.client = outside.client, None
    if isinstance(pool, _Pool) and pool.pid == os.getpid():
        for response in pool.ending:
            response.close()
        await pool.session.close()


# --- the connection pool -----------------------------------------------------------------------


class _Pool:
    """The one session of a worker, and where it was made."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.loop = asyncio.get_running_loop()
        self.tls: ssl.SSLContext | None = None
        self.ending: set[aiohttp.ClientResponse] = set()  # of whole turns; see LINGER_S
        self.session = aiohttp.ClientSession(
            connector=_Connector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"user-agent": USER_AGENT, "accept-encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=None),  # a Watch bounds each request
        )

    def trust(self, outside: Outside) -> "ssl.SSLContext":
        """What certificates are checked against, made for the first endpoint that has one."""
        if self.tls is None:
            self.tls = route.trust(outside.http, outside.environ)
        return self.tls


class _Connector(aiohttp.TCPConnector):
    """Tells an exchange which connection it got, so that it can end it without waiting."""

    async def connect(self, *args: Any, **kwargs: Any) -> Any:
        """The connection for a request; see `aiohttp.BaseConnector.connect`."""
        connection = await super().connect(*args, **kwargs)
        if (exchange := _EXCHANGE.get(None)) is not None:
            exchange.connected(connection.transport)
        return connection


def _pool(outside: Outside) -> _Pool:
    pool = outside.client
    if not isinstance(pool, _Pool) or (pool.pid == os.getpid() and pool.loop.is_closed()):
        pool = outside.client = _Pool()
    if pool.pid != os.getpid():
        raise AfterFork(made_in=pool.pid, used_in=os.getpid())
    return pool


_EXCHANGE: ContextVar["_Exchange"] = ContextVar("exchange")

# --- one request -------------------------------------------------------------------------------


class _Exchange:
    """One POST and its response: opened once, then read until it is over."""

    def __init__(self, binding: FrozenModelBinding, outside: Outside) -> None:
        self._binding = binding
        self._outside = outside
        self._limits = binding.timeouts
        self._scrub = Scrubber()
        self._way = Way(provider=binding.provider_id, place="its endpoint")
        self._watch = Watch(self._limits.total_ms / 1000)
        self._response: aiohttp.ClientResponse | None = None
        self._decoder: Decoder | None = None
        self._stage: ModelErrorStage = "connect"
        self._progress = 0
        self._kept = False
        self._length = 0  # of the request's body
        self._upload: io.BytesIO | None = None  # ... if it is a long one
        self.transport: asyncio.Transport | None = None  # from the connection until its end
        self.over = False

    async def open(self, wire: WireType, request: Request) -> Failed | None:
        """Send the request and read the response's headers; what went wrong, if it did."""
        failed = await self._open(wire, request)
        if failed is not None:
            self.over = True
            return self._scrub.failed(failed)
        return None

    async def more(self) -> Sequence[Part]:
        """The parts in the next bytes; after the last one it is over."""
        assert self._response is not None
        try:
            with self._watch:
                data = await self._response.content.readany()
        except Silence as silence:
            return self._ended([self._silent(silence)])
        except Exception as error:  # noqa: BLE001  whatever broke, it is an attempt that failed
            return self._broken(self._response, error)
        parts = self._decoded(data)
        if parts and isinstance(parts[-1], _LAST):
            return self._ended(parts)
        return parts

    def close(self) -> None:
        """End it now: what is not over is given up, and its connection with it."""
        self._watch.close()
        if not self._kept:
            _give_up(self.transport, self._response)

    # --- sending ---

    async def _open(self, wire: WireType, request: Request) -> Failed | None:
        try:
            binding, secrets = revealed(self._binding, self._outside)
            self._scrub.add(*secrets)
            grant = granted(binding, self._outside)
        except NotGranted as missing:
            return failure(missing.kind, str(missing), stage="credentials")
        self._scrub.add(*grant.secrets)
        try:
            codec = wire(binding)
            call = codec.encode(request, await media_of(request, self._outside))
        except CannotEncode as wrong:
            return failure(wrong.kind, str(wrong), stage="request_encode")
        except Exception as error:  # noqa: BLE001  a mistake of ours costs an attempt, not the run
            words = f"the request can't be written: {error!r}"
            return failure("invalid_request", words, stage="request_encode")
        said = {name.lower(): value for name, value in call.headers.items()}
        headers = said | grant.headers | own_headers(binding, request)
        sent = {name: value for name, value in headers.items() if value}
        failed = await self._send(structs.replace(call, headers=sent))
        return await self._answered(codec) if failed is None else failed

    async def _send(self, call: HttpCall) -> Failed | None:
        pool = _pool(self._outside)
        try:
            url = urlsplit(call.url)
            proxy = self._proxy(url)
            secure = url.scheme == "https" or (proxy is not None and proxy.scheme == "https")
            tls = pool.trust(self._outside) if secure else True
            self._way = self._place(url, proxy)
        except (route.BadRoute, ValueError) as wrong:
            return failure("invalid_request", str(wrong), stage="connect")
        self._watch.limit(self._limits.connect_ms / 1000)
        token = _EXCHANGE.set(self)
        try:
            with self._watch:
                self._response = await pool.session.post(
                    call.url,
                    data=self._body_of(call),
                    headers=call.headers,
                    allow_redirects=False,
                    proxy=proxy.geturl() if proxy is not None else None,
                    ssl=tls,
                )
        except Silence as silence:
            return self._silent(silence)
        except Exception as error:  # noqa: BLE001  whatever broke, it is an attempt that failed
            return unreached(error, self._way, self._stage)
        finally:
            _EXCHANGE.reset(token)
        return None

    def _body_of(self, call: HttpCall) -> bytes | io.BytesIO:
        """The body to send; a long one goes in pieces, so that the loop does not stand still."""
        self._length = len(call.body)
        if self._length > WHOLE_BYTES_MAX:
            self._upload = io.BytesIO(call.body)
        return self._upload or call.body

    def connected(self, transport: asyncio.Transport | None) -> None:
        """There is a connection: from now on the response's headers are waited for."""
        self.transport = transport
        if transport is not None and self._upload is not None:
            # Or megabytes of a slow upload would wait in the kernel, and seem to be sent.
            _set(transport, socket.IPPROTO_TCP, _LOWAT, UNSENT_BYTES_MAX)
        self._watch.limit(self._limits.headers_ms / 1000, self._taken)

    def _taken(self) -> int:
        """Bytes of the request that are on their way: while they get more, nobody is silent."""
        upload = self._upload
        unsent = self.transport.get_write_buffer_size() if self.transport is not None else 0
        sent = self._length if upload is None or upload.closed else upload.tell()
        done = sent - unsent
        self._stage = "request_send" if done < self._length else "response_headers"
        return done

    def _proxy(self, url: SplitResult) -> SplitResult | None:
        ref = self._outside.http.proxy
        configured = self._outside.secret(ref) if ref is not None else None
        if ref is not None and not configured:
            raise route.BadRoute("the proxy of [http] proxy is not there any more")
        proxy = route.proxy_of(url, configured, self._outside.environ)
        if proxy is not None and proxy.password:
            self._scrub.add(proxy.geturl(), proxy.password, unquote(proxy.password))
        return proxy

    def _place(self, url: SplitResult, proxy: SplitResult | None) -> Way:
        secret = "endpoint" in self._binding.secrets
        if secret:
            self._scrub.add(url.hostname or "")
        return Way(
            provider=self._binding.provider_id,
            place="its endpoint" if secret else route.place(url),
            local=route.is_loopback(url.hostname or ""),
            proxy=route.place(proxy) if proxy is not None else None,
        )

    # --- reading ---

    async def _answered(self, codec: Wire) -> Failed | None:
        assert self._response is not None
        response = self._response
        self._stage = "stream_decode"
        if response.status not in _SUCCESS or "html" in response.content_type:
            return await self._refused(response)
        self._decoder = codec.decoder(response.content_type)
        self._watch.limit(self._limits.stream_idle_ms / 1000)
        return None

    async def _refused(self, response: aiohttp.ClientResponse) -> Failed:
        body = await self._body(response)
        cut = len(body) >= REFUSAL_BYTES_MAX
        return errors.refusal(
            response.status,
            {name.lower(): self._scrub.text(value) for name, value in response.headers.items()},
            self._scrub.body(body[:REFUSAL_BYTES_MAX], cut=cut),
            content_type=response.content_type,
            asked=errors.Asked(
                provider=self._binding.provider_id,
                model=self._binding.wire_model,
                auth=self._binding.auth,
                local=self._way.local,
            ),
            now=datetime.fromisoformat(self._outside.clock.now()).timestamp(),
        )

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        """The beginning of a body, as much as comes in time: it is only there to be read out."""
        body = bytearray()
        self._watch.limit(min(REFUSAL_S, self._limits.total_ms / 1000))
        try:
            while len(body) < REFUSAL_BYTES_MAX:
                with self._watch:
                    data = await response.content.readany()
                if not data:
                    break
                body += data
        except Silence:
            pass
        except Exception:  # noqa: BLE001  the status is known, and says enough
            body += _left(response)
        return bytes(body)

    def _decoded(self, data: bytes) -> Sequence[Part]:
        """The parts that these bytes complete; no bytes are the end of the body."""
        assert self._decoder is not None
        try:
            parts = self._decoder.feed(data) if data else self._decoder.end()
        except TooLong:
            return [self._unreadable("one event is longer than any answer")]
        except Exception as error:  # noqa: BLE001  a body nobody thought of may not end the run
            return [self._unreadable(repr(error))]
        if self._decoder.progress != self._progress:
            self._progress = self._decoder.progress
            self._watch.progress()
        if not data and not (parts and isinstance(parts[-1], _LAST)):
            return [*parts, self._unreadable("its end was not understood")]
        return parts

    def _broken(self, response: aiohttp.ClientResponse, error: Exception) -> Sequence[Part]:
        """The connection is gone: the parts of what had come before, then why."""
        data = _left(response)
        parts = self._decoded(data) if data else ()
        if parts and isinstance(parts[-1], _LAST):
            return self._ended(parts)
        return self._ended([*parts, broken_off(error, self._way)])

    def _ended(self, parts: Sequence[Part]) -> Sequence[Part]:
        self.over = True
        last = parts[-1]
        if isinstance(last, Failed):
            return [*parts[:-1], self._scrub.failed(self._known(last))]
        self._keep()
        return parts

    def _keep(self) -> None:
        """The turn is whole: give its response a moment to end, so its connection can be kept."""
        response, transport, pool = self._response, self.transport, _pool(self._outside)
        assert response is not None
        self._kept = True
        if response.closed:
            return

        def end() -> None:
            timer.cancel()
            pool.ending.discard(response)
            _give_up(transport, response)

        timer = asyncio.get_running_loop().call_later(LINGER_S, end)
        pool.ending.add(response)
        response.content.on_eof(end)

    def _known(self, failed: Failed) -> Failed:
        """The failure with what the response says beside its parts."""
        assert self._response is not None
        error, response = failed.error, self._response
        headers = {name.lower(): value for name, value in response.headers.items()}
        return Failed(
            error=structs.replace(
                error,
                bytes_received=error.bytes_received or response.content.total_bytes,
                request_id=error.request_id or errors.request_id(headers),
            )
        )

    # --- failures ---

    def _silent(self, silence: Silence) -> Failed:
        who, limits = self._way.place, self._limits
        if silence.total:
            words = f"the whole request to {who} took longer than {_seconds(limits.total_ms)}"
            return failure("timeout", words, stage=self._stage)
        words = {
            "connect": f"no connection to {who} within {_seconds(limits.connect_ms)}",
            "request_send": f"{who} took nothing of the request for {_seconds(limits.headers_ms)}",
            "response_headers": f"{who} did not answer within {_seconds(limits.headers_ms)}",
        }.get(self._stage, f"{who} said nothing for {_seconds(limits.stream_idle_ms)}")
        return failure("timeout", words, stage=self._stage)

    def _unreadable(self, why: str) -> Failed:
        words = f"the answer of {self._way.place} can't be read: {why}"
        return failure("invalid_response", words, stage="stream_decode")


def _left(response: aiohttp.ClientResponse) -> bytes:
    """What had come before a connection broke; aiohttp raises before it gives that out.

    It may be the provider's own word on why.
    """
    response.content.set_exception(None)  # type: ignore[arg-type]
    return response.content.read_nowait()


def _give_up(transport: asyncio.Transport | None, response: aiohttp.ClientResponse | None) -> None:
    """End an exchange whose response has not ended; one that has gave its connection back."""
    if transport is not None and (response is None or not response.closed):
        _abort(transport)
    if response is not None:
        response.close()


def _abort(transport: asyncio.Transport) -> None:
    """Close a connection at once, without sending what is left of a request, here or in the kernel.

    With a reset the other side learns of it though it does not read.
    """
    _set(transport, socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    transport.abort()


def _set(transport: asyncio.Transport, level: int, option: int, value: int | bytes) -> None:
    """Set an option of its socket, if it still has one and the system knows it."""
    sock = transport.get_extra_info("socket")
    with contextlib.suppress(OSError, ValueError):
        sock.setsockopt(level, option, value)


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"
