"""What a refusal means: statuses, codes and words of many vendors, and one table for them."""

import json
from typing import Any

import pytest

from ipc.events import ModelErrorKind
from tests.fakes import wire
from tests.fakes.turns import anthropic_error, gemini_error, openai_error
from workers.providers.errors import Asked, in_stream, refusal, request_id, retry_after_ms

OPENAI_LIMIT = (
    "Rate limit reached for gpt-x in organization org-x on requests per min (RPM): Limit 3. Visit "
    "https://platform.openai.com/account/billing to add a payment method."
)
GOOGLE_LIMIT = "You exceeded your current quota, please check your plan and billing details."


def google_quota(name: str) -> dict[str, Any]:
    """Google's 429 for the limit of that name."""
    return gemini_error(
        429,
        "RESOURCE_EXHAUSTED",
        GOOGLE_LIMIT,
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": name}]},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"},
    )


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {}, "invalid_request"),
        (401, {}, "auth"),
        (402, {}, "quota"),
        (403, {}, "permission_denied"),
        (404, {}, "model_not_found"),
        (405, {}, "invalid_request"),
        (408, {}, "timeout"),
        (409, {}, "provider"),
        (413, anthropic_error("request_too_large", "Request exceeds 32 MB"), "invalid_request"),
        (418, {}, "invalid_request"),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "invalid_request"),
        (425, {}, "provider"),
        (429, {}, "rate_limited"),
        (500, anthropic_error("api_error", "Internal"), "provider"),
        (501, {}, "unsupported"),
        (502, {}, "provider"),
        (503, {}, "overload"),
        (504, {}, "provider"),
        (524, {}, "provider"),
        (529, anthropic_error("overloaded_error", "Overloaded"), "overload"),
        # a code says more than its status
        (400, openai_error("x", "invalid_request_error", "rate_limit_exceeded"), "rate_limited"),
        (500, anthropic_error("overloaded_error", "x"), "overload"),
        (400, {"error": {"code": "DeploymentNotFound", "message": "x"}}, "model_not_found"),
        (
            400,
            {
                "error": {
                    "code": "content_filter",
                    "message": "x",
                    "innererror": {"code": "ResponsibleAIPolicyViolation"},
                }
            },
            "content_filter",
        ),
        # too long a conversation, in the words of each
        (
            400,
            anthropic_error("invalid_request_error", "prompt is too long: 3 > 2"),
            "context_length",
        ),
        (
            400,
            anthropic_error(
                "invalid_request_error",
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
            ),
            "context_length",
        ),
        (
            400,
            openai_error("x", "invalid_request_error", "context_length_exceeded"),
            "context_length",
        ),
        (
            400,
            {
                "error": {
                    "message": "This model's maximum context length is 8192 tokens.",
                    "code": None,
                }
            },
            "context_length",
        ),
        (
            400,
            {"error": {"code": 400, "message": "x", "type": "exceed_context_size_error"}},
            "context_length",
        ),
        (500, {"error": "the request exceeds the available context size"}, "context_length"),
        (413, {"message": "too many tokens: total number of tokens"}, "context_length"),
        (
            400,
            {"code": "x", "error": "This model's maximum prompt length is 131072"},
            "context_length",
        ),
        # ... and what only sounds like it
        (
            400,
            anthropic_error(
                "invalid_request_error",
                "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens",
            ),
            "invalid_request",
        ),
        (
            429,
            openai_error(
                "Request too large for m on tokens per min (TPM), reduce the length of the input",
                "tokens",
                "rate_limit_exceeded",
            ),
            "rate_limited",
        ),
        # money
        (429, openai_error(GOOGLE_LIMIT, "insufficient_quota", "insufficient_quota"), "quota"),
        (429, openai_error(GOOGLE_LIMIT, "x"), "quota"),
        (429, openai_error(OPENAI_LIMIT, "requests", "rate_limit_exceeded"), "rate_limited"),
        (429, google_quota("GenerateRequestsPerMinutePerProject-FreeTier"), "rate_limited"),
        (429, google_quota("GenerateRequestsPerDayPerProject-FreeTier"), "quota"),
        (
            400,
            anthropic_error(
                "invalid_request_error", "Your credit balance is too low to access the API."
            ),
            "quota",
        ),
        (
            402,
            openai_error("Insufficient Balance", "unknown_error", "invalid_request_error"),
            "quota",
        ),
        # keys
        (400, gemini_error(400, "INVALID_ARGUMENT", "API key not valid."), "auth"),
        (400, gemini_error(400, "INVALID_ARGUMENT", "x", {"reason": "API_KEY_INVALID"}), "auth"),
        (400, {"code": "x", "error": "Incorrect API key provided: xa***"}, "auth"),
        # models
        (404, {"error": "model 'x' not found, try pulling it first"}, "model_not_found"),
        (404, anthropic_error("not_found_error", "model: claude-x"), "model_not_found"),
        (404, gemini_error(404, "NOT_FOUND", "models/x is not found for API"), "model_not_found"),
        (400, openai_error("x is not a valid model ID", "x"), "model_not_found"),
        (400, {"error": "The model `x` does not exist"}, "model_not_found"),
        # addresses
        (
            404,
            openai_error("Invalid URL (POST /v1/v1/x)", "invalid_request_error"),
            "invalid_request",
        ),
        (404, b"404 page not found", "invalid_request"),
        (404, b"<html><title>Not here</title></html>", "invalid_request"),
        # bodies nobody thought of
        (500, b"", "provider"),
        (500, b"\xff\xfe{", "provider"),
        (500, [], "provider"),
        (500, [gemini_error(503, "UNAVAILABLE", "The model is overloaded.")], "overload"),
        (400, {"error": {"message": {"error": "x"}}, "code": None}, "invalid_request"),
        (400, "only words", "invalid_request"),
        (500, b"[" * 60_000, "provider"),
        (500, b'{"error":' * 7_000 + b"1" + b"}" * 7_000, "provider"),
        (500, b'{"error":' * 900 + b'"x"' + b"}" * 900, "provider"),
        (503, {"error": {"message": "Loading model", "type": "unavailable_error"}}, "overload"),
    ],
)
def test_a_refusal_has_one_kind(status: int, body: Any, kind: ModelErrorKind) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = refusal(status, {}, data).error

    assert error.kind == kind, error.message
    passing = {"transport", "timeout", "rate_limited", "overload", "unexpected_eof", "provider"}
    assert error.retryable == (kind in passing)
    assert error.http_status == status
    assert error.message.isprintable()


@pytest.mark.parametrize(
    ("message", "code", "status", "kind"),
    [
        ("Overloaded", "overloaded_error", None, "overload"),
        ("x", "rate_limit_error", None, "rate_limited"),
        ("x", "api_error", None, "provider"),
        ("x", "server_error", None, "provider"),
        ("x", "invalid_request_error", None, "invalid_request"),
        ("x", "authentication_error", None, "auth"),
        ("x", "context_length_exceeded", None, "context_length"),
        ("prompt is too long: 5 > 4", "invalid_request_error", None, "context_length"),
        ("x", "insufficient_quota", None, "quota"),
        ("x", None, 502, "provider"),
        ("x", "503", None, "overload"),
        ("The model is overloaded", None, None, "overload"),
        ("", None, None, "provider"),
        ("x", "never_heard_of", None, "provider"),
        ("x", "never_heard_of", 200, "provider"),
    ],
)
def test_an_error_inside_a_stream_has_the_kind_its_refusal_would_have(
    message: str, code: str | None, status: int | None, kind: ModelErrorKind
) -> None:
    error = in_stream(message=message, vendor_code=code, status=status, bytes_received=7).error

    assert (error.kind, error.stage, error.bytes_received) == (kind, "stream_decode", 7)
    assert error.message.startswith("the provider reported an error in the middle of its answer: ")


@pytest.mark.parametrize(
    "case", wire.params("mistral", "openai-chat", "openai-responses", ok=False)
)
def test_recorded_refusals_quote_what_was_said(case: wire.Case) -> None:
    error = refusal(case.status, case.headers, case.body, content_type=case.content_type).error

    kinds = {"error_auth": "auth", "error_context_overflow": "context_length"}
    kinds |= {"error_model_not_found": "model_not_found"}
    assert error.kind in {kinds.get(feature) for feature in case.features}
    said = json.loads(case.body)
    words = said["detail"] if "detail" in said else said["error"]["message"]
    assert words.removesuffix(".") in error.message


@pytest.mark.parametrize(
    ("status", "headers", "body", "message"),
    [
        (
            401,
            {},
            anthropic_error("authentication_error", "invalid x-api-key"),
            (
                "box answered 401: invalid x-api-key; it was sent an Anthropic API key: check "
                "[providers.box] (api_key or auth) of config.toml"
            ),
        ),
        (
            404,
            {},
            anthropic_error("not_found_error", "model: m-1"),
            (
                "box answered 404: model: m-1; check the model's name (m-1) and the endpoint in "
                "[providers.box] of config.toml"
            ),
        ),
        (
            301,
            {"location": "https://login.example/?next=x"},
            {},
            (
                "box answered 301: a redirect to login.example, which is not followed, for the "
                "request holds a key; if that is the right place, make it the endpoint of "
                "[providers.box] in config.toml"
            ),
        ),
        (
            403,
            {},
            b"<html><head><style>p {}</style><title> Access\n denied </title></head></html>",
            (
                'box answered 403: a web page "Access denied"; that is a gateway or a firewall '
                "speaking, not the model"
            ),
        ),
        (
            503,
            {},
            b"<html><body><!-- x --><h1></h1><p>Down for <b>repair</b> &mdash; soon</p></html>",
            'box answered 503: a web page "Down for repair — soon"',
        ),
        (500, {}, b"", "box answered 500: without a word"),
        (
            407,
            {},
            b"",
            (
                "box answered 407: without a word; the proxy wants a password: check [http] proxy "
                "or HTTPS_PROXY"
            ),
        ),
        (
            429,
            {},
            {
                "error": {
                    "message": "Provider returned error",
                    "code": 429,
                    "metadata": {"raw": "upstream is busy"},
                }
            },
            "box answered 429: Provider returned error: upstream is busy",
        ),
    ],
)
def test_the_words_say_what_a_person_can_do(
    status: int, headers: dict[str, str], body: Any, message: str
) -> None:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    asked = Asked(provider="box", model="m-1", auth="anthropic-api-key-v1")

    assert refusal(status, headers, data, asked=asked).error.message == message


NOON = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("headers", "milliseconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7000),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "1.5"}, 1500),
        ({"retry-after": "100000000"}, 100_000_000_000),
        ({"retry-after": "1e300"}, 2**63 - 1),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "250", "retry-after": "7"}, 250),
        ({"retry-after-ms": "x", "retry-after": "7"}, 7000),
        ({"retry-after": "Sun, 06 Nov 1994 08:50:37 GMT"}, 60_000),
        ({"retry-after": "Sun, 06 Nov 1994 08:40:37 GMT"}, 0),
        (
            {
                "retry-after": "Sun, 06 Nov 1994 08:50:37 GMT",
                "date": "Sun, 06 Nov 1994 08:50:27 GMT",
            },
            10_000,
        ),
        ({"retry-after": "Sun, 99 Nov 1994 08:50:37 GMT"}, None),
    ],
)
def test_the_wish_to_be_left_alone_is_read_whole(
    headers: dict[str, str], milliseconds: int | None
) -> None:
    assert retry_after_ms(headers, NOON) == milliseconds


def test_googles_wish_is_in_its_body() -> None:
    body = json.dumps(google_quota("PerMinute")).encode()

    assert refusal(429, {}, body).error.retry_after_ms == 34_500
    assert refusal(429, {"retry-after": "2"}, body).error.retry_after_ms == 2_000


def test_a_request_is_known_by_the_name_its_provider_gave_it() -> None:
    assert request_id({"x-request-id": "b", "request-id": "a"}) == "a"
    assert request_id({"cf-ray": "c"}) == "c"
    assert request_id({}) is None
    body = json.dumps(anthropic_error("api_error", "x")).encode()
    assert refusal(500, {}, body).error.request_id == "req_double"
