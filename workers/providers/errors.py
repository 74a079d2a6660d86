"""What a provider's refusal means: one table from its statuses, codes and words to our kinds; pure.

It serves a response that is no success (`refusal`) and an error inside one that is (`in_stream`).
"""

import math
import re
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from ipc.content import COUNT_MAX
from ipc.events import ModelErrorKind, ModelErrorStage
from workers.providers.base import PASSING, Failed, failure

WORDS_CHARS_MAX: Final = 1500  # of a provider's own words inside our message
READ_CHARS_MAX: Final = 4096  # of them that are searched for what they mean
PAGE_CHARS_MAX: Final = 8192  # of a web page that is searched for its title

# Codes that say which kind it is whatever the status says; compared in lower case.
_CODES: Final[dict[ModelErrorKind, str]] = {
    "rate_limited": "rate_limit_error rate_limit_exceeded rate_limited rate_limit "
    "rate_limit_reached too_many_requests resource_exhausted throttlingexception throttling_error",
    "overload": "overloaded_error overloaded server_overloaded server_is_overloaded "
    "engine_overloaded engine_overloaded_error slow_down unavailable unavailable_error "
    "service_unavailable service_unavailable_error serviceunavailableexception "
    "modelnotreadyexception capacity_exceeded",
    "timeout": "timeout_error request_timeout deadline_exceeded gateway_timeout "
    "modeltimeoutexception",
    "auth": "authentication_error invalid_api_key incorrect_api_key api_key_invalid "
    "unauthenticated unauthorized invalid_authentication invalid_authentication_error "
    "unrecognizedclientexception expiredtokenexception",
    "permission_denied": "permission_error permission_denied forbidden accessdeniedexception "
    "access_denied unsupported_country_region_territory",
    "model_not_found": "model_not_found deploymentnotfound invalid_model model_not_available",
    "context_length": "context_length_exceeded exceed_context_size_error "
    "context_window_exceeded model_context_window_exceeded prompt_too_long",
    "quota": "insufficient_quota billing_error billing_not_active billing_hard_limit_reached "
    "insufficient_credits insufficient_balance payment_required exceeded_current_quota_error "
    "quota_exceeded usage_limit_reached servicequotaexceededexception usage_not_included",
    "content_filter": "content_filter content_policy_violation responsibleaipolicyviolation "
    "content_filtered bio_policy cyber_policy misalignment_policy_violation "
    "image_content_policy_violation",
    "invalid_request": "data_residency_mismatch invalid_encrypted_content invalid_image "
    "invalid_image_format invalid_image_url invalid_image_mode invalid_base64_image "
    "image_too_large image_too_small image_parse_error image_file_too_large image_file_not_found "
    "unsupported_image_media_type empty_image_file failed_to_download_image",
    "unsupported": "unimplemented",
}
_KIND_OF_CODE: Final = {code: kind for kind, codes in _CODES.items() for code in codes.split()}

# Codes that many different mistakes share: a status or the words know better.
_VAGUE: Final[dict[str, ModelErrorKind]] = {
    "invalid_request_error": "invalid_request",
    "invalid_request": "invalid_request",
    "invalid_argument": "invalid_request",
    "invalid_prompt": "invalid_request",
    "bad_request": "invalid_request",
    "validationexception": "invalid_request",
    "request_too_large": "invalid_request",
    "failed_precondition": "invalid_request",
    "not_found_error": "model_not_found",
    "not_found": "model_not_found",
    "api_error": "provider",
    "server_error": "provider",
    "internal": "provider",
    "internal_error": "provider",
    "internal_server_error": "provider",
    "internalserverexception": "provider",
}

_STATUSES: Final[dict[int, ModelErrorKind]] = {
    401: "auth",
    402: "quota",
    403: "permission_denied",
    404: "model_not_found",
    410: "model_not_found",
    407: "auth",
    408: "timeout",
    409: "provider",
    425: "provider",
    429: "rate_limited",
    499: "provider",
    500: "provider",
    501: "unsupported",
    502: "provider",
    503: "overload",
    504: "provider",
    529: "overload",
}
_FINE: Final = range(200, 300)
_REDIRECTS: Final = range(300, 400)
_GATEWAYS: Final = range(520, 528)  # Cloudflare's: its customer's server is not well
_PROXY_WANTS_KEY: Final = 407
_NO_WORDS: Final = frozenset({401, 403, 407, 408})  # statuses that say it all
_BUSY: Final = frozenset({429, 503, 529})  # ... that may speak of tokens, but of those of a minute
_WRONG: Final = frozenset({None, 400, 422})  # ... behind which much hides; None: in a stream
_NOWHERE: Final = frozenset({404, 405, 410})
_UNPAID: Final = frozenset({None, 400, 402, 429})
_FAILING: Final = frozenset({None, 500, 502, 504})

# Looked for in lower case or not, over line ends too; compiled when something was refused.
_CONTEXT: Final = (
    r"prompt (?:is )?too long|input (?:is )?too long|context[ _]?(?:length|window|limit|size)"
    r"|maximum context|exceeds? the maximum number of tokens|maximum prompt length"
    r"|reduce the length of the (?:messages|prompt|input)|too many (?:input )?tokens"
    r"|input token count|token count.{0,40}\bexceeds|input tokens exceed"
)
_QUOTA: Final = (
    r"insufficient[ _](?:quota|balance|credits?|funds)|exceeded your current quota"
    r"|credit balance is too low|requires more credits|billing|payment required|limit: 0\b"
)
_KEY: Final = (
    r"(?:api[ _-]?key|(?:bearer|access) token)\b.{0,24}"
    r"\b(?:not valid|invalid|incorrect|missing|expired)"
    r"|(?:invalid|incorrect|missing|expired) (?:api[ _-]?key|x-api-key|(?:bearer|access) token)"
)
_NO_MODEL: Final = (
    r"\bmodel\b.{0,200}\b(?:not found|not exist|unknown|not a valid|not supported|not available)"
    r"|not a valid model|(?:invalid|unknown|unsupported) model\b|no such model"
)
_NO_PAGE: Final = (
    r"invalid url|unknown[ _]url|page not found|no (?:such )?route|(?:route|endpoint|path|resource|"
    r"url)\b.{0,200}\bnot found|cannot (?:post|get) /"
)
_URL: Final = r"https?://\S+"  # ".../account/billing" is where to read, no reason
_OVERLOADED: Final = r"\boverloaded\b|at capacity|over capacity"
_TITLE: Final = r"<(title|h1)\b[^>]*>(.*?)</\1\s*>"
_HIDDEN: Final = r"<(script|style|head)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>"
_FLAGS: Final = re.IGNORECASE | re.DOTALL

_REQUEST_IDS: Final = (
    "request-id",
    "x-request-id",
    "x-amzn-requestid",
    "apim-request-id",
    "x-ms-request-id",
    "x-goog-request-id",
    "x-generation-id",
    "cf-ray",
)


class Asked(Struct, frozen=True, kw_only=True):
    """Who refused, for the words that a person reads."""

    provider: str = "the provider"
    model: str = ""
    auth: str | None = None  # the id of the method the key was sent by
    local: bool = False  # the endpoint is on this machine


NOBODY: Final = Asked()


class _Told(Struct, kw_only=True):
    """What a body says, whichever of the vendors' shapes it has."""

    words: str = ""
    codes: list[str] = []
    request_id: str | None = None
    pause_ms: int | None = None
    daily: bool = False  # a quota that is full until tomorrow
    page: bool = False  # a web page


def refusal(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    content_type: str = "",
    asked: Asked = NOBODY,
    now: float | None = None,
) -> Failed:
    """What a response that is no success comes to.

    `headers` are looked up in lower case. `now` is the wall time in seconds since 1970, for a
    Retry-After that is a date where the response doesn't say what time it is there.
    """
    told = _told(body, content_type)
    kind = "invalid_response" if status in _FINE else _kind(status, told)
    pause_ms = retry_after_ms(headers, now)
    return failure(
        kind,
        _message(kind, status, told, headers, asked),
        stage="response_headers",
        retryable=kind in PASSING,
        http_status=status,
        vendor_code=_vendor_code(told.codes),
        request_id=request_id(headers) or told.request_id,
        retry_after_ms=told.pause_ms if pause_ms is None else pause_ms,
        bytes_received=len(body),
        response_body=_one_line(body.decode(errors="replace")) or None,
    )


def in_stream(
    *,
    message: str,
    vendor_code: str | None = None,
    status: int | None = None,
    stage: ModelErrorStage = "stream_decode",
    bytes_received: int = 0,
) -> Failed:
    """What an error inside a 2xx response comes to, by the same table; no words: `provider`."""
    if status is None and vendor_code is not None and vendor_code.isdecimal():
        status = int(vendor_code)
    told = _Told(words=_one_line(message), codes=[vendor_code] if vendor_code else [])
    kind = _kind(status, told)
    words = told.words[:WORDS_CHARS_MAX] or vendor_code or "no reason given"
    return failure(
        kind,
        f"the provider reported an error in the middle of its answer: {words}",
        stage=stage,
        http_status=status,
        vendor_code=vendor_code,
        bytes_received=bytes_received,
    )


# --- which kind --------------------------------------------------------------------------------


def _kind(status: int | None, told: _Told) -> ModelErrorKind:
    codes = [code.lower() for code in told.codes]
    sure = next((_KIND_OF_CODE[code] for code in codes if code in _KIND_OF_CODE), None)
    if sure == "rate_limited" and _is_quota(codes, told):
        return "quota"
    vague = next((_VAGUE[code] for code in codes if code in _VAGUE), None)
    return sure or _by_words(status, told) or _by_status(status) or vague or "provider"


def _vendor_code(codes: list[str]) -> str | None:
    """The most telling one: a number only repeats the status."""
    return next((code for code in codes if not code.isdecimal()), codes[0] if codes else None)


def _is_quota(codes: list[str], told: _Told) -> bool:
    if "resource_exhausted" in codes:
        # Google says "check your plan and billing details" to each limit, of a minute too.
        return told.daily or "limit: 0" in told.words
    return _unpaid(told)


def _unpaid(told: _Told) -> bool:
    return _says(_QUOTA, re.sub(_URL, "", told.words))


def _by_words(status: int | None, told: _Told) -> ModelErrorKind | None:
    if told.page:
        return "invalid_request" if status in _NOWHERE else None
    if status in _NO_WORDS:
        return None
    if status in _NOWHERE:
        return "invalid_request" if _no_page(told) else None
    words = told.words
    kinds: tuple[tuple[ModelErrorKind, bool], ...] = (
        ("quota", status in _UNPAID and _unpaid(told)),
        ("context_length", status not in _BUSY and _says(_CONTEXT, words)),
        ("auth", status in _WRONG and _says(_KEY, words)),
        ("model_not_found", status in _WRONG and _says(_NO_MODEL, words)),
        ("overload", status in _FAILING and _says(_OVERLOADED, words)),
    )
    return next((kind for kind, holds in kinds if holds), None)


def _no_page(told: _Told) -> bool:
    return "unknown_url" in told.codes or _says(_NO_PAGE, told.words)


def _by_status(status: int | None) -> ModelErrorKind | None:
    if status is None or status in _FINE:
        return None
    return _STATUSES.get(status, "provider" if status in _GATEWAYS else "invalid_request")


# --- what a body says --------------------------------------------------------------------------


def _told(body: bytes, content_type: str) -> _Told:
    text = body.decode(errors="replace").strip()
    if "html" in content_type.lower() or text[:15].lower().startswith(("<!doctype", "<html")):
        return _Told(words=_page_words(text), page=True)
    told = _Told()
    try:
        _look(msgspec.json.decode(body), told)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Told(words=_one_line(text))
    told.words = _one_line(told.words)
    return told


def _look(value: Any, told: _Told) -> None:
    """Collect from one level of a body, the inner error first: it knows the code better."""
    if isinstance(value, list):
        value = value[0] if value else None  # Google wraps a stream's error in a list
    if isinstance(value, str):
        told.words = told.words or value
    if not isinstance(value, dict):
        return
    for key in ("error", "innererror"):
        _look(value.get(key), told)
    told.codes += [
        str(value[key])
        for key in ("code", "type", "status", "__type")
        if isinstance(value.get(key), str | int) and value[key] not in {"error", "object"}
    ]
    for key in ("message", "detail", "msg"):
        _look(value.get(key), told)
    said = value.get("request_id")
    told.request_id = told.request_id or (said if isinstance(said, str) else None)
    _look_at_details(value, told)


def _look_at_details(value: dict[str, Any], told: _Told) -> None:
    metadata = value.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if isinstance(raw, str) and raw not in told.words:  # OpenRouter: what the upstream said
        told.words = f"{told.words}: {raw}"
    details = value.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict):
            _look_at_detail(detail, told)


def _look_at_detail(detail: dict[str, Any], told: _Told) -> None:
    """One of Google's details: its own code, how long to wait, which quota it was."""
    if isinstance(detail.get("reason"), str):
        told.codes.insert(0, detail["reason"])
    if isinstance(delay := detail.get("retryDelay"), str):
        told.pause_ms = _milliseconds(delay.removesuffix("s"), 1000)
    for violation in _dicts(detail.get("violations")):
        told.daily = told.daily or "PerDay" in str(violation.get("quotaId"))


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    return (
        (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())
    )


def _page_words(text: str) -> str:
    import html  # noqa: PLC0415  pages are rare, its table of names is long

    text = text[:PAGE_CHARS_MAX]
    found = re.search(_TITLE, text, _FLAGS)
    inner = found[2] if found and found[2].strip() else text
    return _one_line(html.unescape(re.sub(_HIDDEN, " ", inner, flags=_FLAGS)))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _says(pattern: str, words: str) -> bool:
    return re.search(pattern, words[:READ_CHARS_MAX], _FLAGS) is not None


# --- headers -----------------------------------------------------------------------------------


def request_id(headers: Mapping[str, str]) -> str | None:
    """The name the provider gave to this exchange."""
    return next((headers[name] for name in _REQUEST_IDS if headers.get(name)), None)


def retry_after_ms(headers: Mapping[str, str], now: float | None = None) -> int | None:
    """How long the provider asks to be left alone: `retry-after-ms`, or seconds, or a date."""
    if (exact := _milliseconds(headers.get("retry-after-ms", ""), 1)) is not None:
        return exact
    asked = headers.get("retry-after", "")
    if (seconds := _milliseconds(asked, 1000)) is not None:
        return seconds
    until = _epoch(asked)
    # The date is by the provider's clock; where that can be read, ours may be wrong.
    there = _epoch(headers.get("date", ""))
    since = now if there is None else there
    if until is None or since is None:
        return None
    return max(0, math.ceil((until - since) * 1000))


def _milliseconds(text: str, unit: int) -> int | None:
    try:
        value = float(text) * unit
    except ValueError:
        return None
    return min(math.ceil(value), COUNT_MAX) if 0 <= value < math.inf else None


def _epoch(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp() if text else None
    except (ValueError, OverflowError):
        return None


# --- words for a person ------------------------------------------------------------------------


def _message(
    kind: ModelErrorKind, status: int, told: _Told, headers: Mapping[str, str], asked: Asked
) -> str:
    if status in _REDIRECTS:
        return _redirected(status, headers, asked)
    said = told.words[:WORDS_CHARS_MAX].removesuffix(".")
    told_us = "a web page" if told.page else ""
    quoted = " ".join(filter(None, (told_us, f'"{said}"' if told.page and said else said)))
    head = f"{asked.provider} answered {status}"
    return f"{head}: {quoted or 'without a word'}{_advice(kind, status, told, asked)}"


def _redirected(status: int, headers: Mapping[str, str], asked: Asked) -> str:
    from urllib.parse import urlsplit  # noqa: PLC0415  redirects are rare

    try:
        to = urlsplit(headers.get("location", "")).hostname or "another path"
    except ValueError:
        to = "a place that can't be read"
    return (
        f"{asked.provider} answered {status}: a redirect to {to}, which is not followed, for the "
        f"request holds a key; if that is the right place, make it the endpoint of "
        f"[providers.{asked.provider}] in config.toml"
    )


_KEYS: Final = {
    "anthropic-api-key-v1": "an Anthropic API key",
    "google-api-key-header-v1": "a Google AI API key",
    "azure-api-key-v1": "an Azure API key",
    "oauth-access-token-v1": "an access token",
    "aws-sigv4-credentials-v1": "AWS credentials",
}


def key_of(asked: Asked) -> str:
    """Which kind of key, in words, and where it is written."""
    if asked.auth in {None, "no-auth-v1"}:
        wanted = "no key was sent: add one in"
    else:
        wanted = f"it was sent {_KEYS.get(asked.auth or '', 'an API key')}: check"
    return f"{wanted} [providers.{asked.provider}] (api_key or auth) of config.toml"


def _advice(kind: ModelErrorKind, status: int, told: _Told, asked: Asked) -> str:
    if status == _PROXY_WANTS_KEY:
        return "; the proxy wants a password: check [http] proxy or HTTPS_PROXY"
    advice = _advice_of(kind, told, asked)
    return f"; {advice}" if advice else ""


def _advice_of(kind: ModelErrorKind, told: _Told, asked: Asked) -> str:
    where = f"[providers.{asked.provider}] of config.toml"
    match kind:
        case "auth":
            return key_of(asked)
        case "permission_denied" if told.page:
            return "that is a gateway or a firewall speaking, not the model"
        case "permission_denied":
            return f"the key is known there, but may not use {asked.model or 'this model'}"
        case "model_not_found":
            return (
                f"check the model's name ({asked.model or 'unknown'}) and the endpoint in {where}"
            )
        case "quota":
            return f"the account at {asked.provider} has run out: add credit or raise its limit"
        case "context_length":
            larger = ", or start the server with a larger context" if asked.local else ""
            return f"the conversation is longer than this model can read{larger}"
        case "invalid_request" | "invalid_response" if told.page or _no_page(told):
            return f"there is no model at this address: check the endpoint in {where}"
        case _:
            return ""
