"""The lines about attempts that failed, word for word."""

from typing import Any

import msgspec
import pytest

from cookie.cli.attempts import asked_again, countdown, failed, fell_back, trouble
from ipc.events import AttemptAbandoned, ModelErrorKind, ModelErrorSummary, ModelFallback
from ipc.ids import ModelKey
from ipc.plan import ModelRetry
from tests.fakes.logs import ANY, BINDING, BROKEN_OFF, BUSY, REFUSED_KEY, SECOND

MODEL = ModelKey("acme/big")
LIMITED = ModelErrorSummary(
    kind="rate_limited",
    stage="response_headers",
    message="slow down",
    retryable=True,
    http_status=429,
    retry_after_ms=7000,
)


def again(
    error: ModelErrorSummary | None, retry_in_ms: int | None, failures: int, **policy: int
) -> str | None:
    event = AttemptAbandoned(attempt_id=ANY, error=error, retry_in_ms=retry_in_ms)
    return asked_again(MODEL, event, failures, ModelRetry(**policy))


@pytest.mark.parametrize(
    ("error", "retry_in_ms", "failures", "policy", "line"),
    [
        (LIMITED, 7000, 2, {}, "rate limited (429); trying again in 7 s, attempt 3 of 6"),
        (BUSY, 1000, 1, {}, "overloaded (529); trying again in 1 s, attempt 2 of 6"),
        (BROKEN_OFF, 3201, 3, {}, "the answer broke off; trying again in 4 s, attempt 4 of 4"),
        (BUSY, 600_000, 1, {}, "overloaded (529); trying again in 10 min 0 s, attempt 2 of 6"),
        (BUSY, 61_000, 1, {}, "overloaded (529); trying again in 1 min 1 s, attempt 2 of 6"),
        (BUSY, 0, 1, {}, "overloaded (529); trying again at once, attempt 2 of 6"),
        (
            BUSY,
            1,
            9,
            {"overload_retries": -1},
            "overloaded (529); trying again in 1 s, attempt 10",
        ),
        (BUSY, 1000, 0, {}, "overloaded (529); trying again in 1 s"),  # not counted by us
    ],
)
def test_an_attempt_that_is_made_again_says_why_when_and_how_often(
    error: ModelErrorSummary,
    retry_in_ms: int,
    failures: int,
    policy: dict[str, int],
    line: str,
) -> None:
    assert again(error, retry_in_ms, failures, **policy) == f"model acme/big: {line}"


def test_an_attempt_that_is_not_made_again_has_no_such_line() -> None:
    assert again(BUSY, None, 1) is None
    assert again(None, None, 1) is None


def test_a_fallback_says_why_and_where_to() -> None:
    event = ModelFallback(
        from_=BINDING.resolved(),
        to=SECOND.resolved(),
        from_fallback_index=0,
        to_fallback_index=1,
        attempts_on_from=1,
        error=REFUSED_KEY,
    )
    told = "model fake/one: the key was refused (401): no such key; going on with fake/two"
    assert fell_back(event) == told


def test_a_providers_own_words_are_bounded_and_harmless() -> None:
    long = msgspec.structs.replace(REFUSED_KEY, message="\x1b[31m" + "x" * 5000)
    said = failed(MODEL, long)
    assert len(said) < 300
    assert "\x1b" not in said


@pytest.mark.parametrize("kind", ModelErrorKind.__args__)  # type: ignore[attr-defined]
def test_every_kind_of_error_has_words(kind: Any) -> None:
    error = msgspec.structs.replace(LIMITED, kind=kind, http_status=None)
    assert trouble(error)
    assert "_" not in trouble(error)


def test_a_wait_is_counted_in_whole_seconds() -> None:
    assert [countdown(s) for s in (0, 0.2, 6.999, 7, 61)] == [
        "asking again at once",
        "asking again in 1 s",
        "asking again in 7 s",
        "asking again in 7 s",
        "asking again in 1 min 1 s",
    ]
