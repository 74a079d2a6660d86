"""What becomes of a failed attempt, as a table and as laws (spec 1.8)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipc.events import RUN_ERROR_CHARS_MAX, ModelErrorKind, ModelErrorSummary
from ipc.plan import ModelRetry
from tests.fakes.logs import BINDING, SECOND, THIRD
from workers.run.retry import (
    BACKOFF_MS,
    LASTING,
    backoff_ms,
    budget,
    fallback,
    last_words,
    retry_in_ms,
)

DEFAULT = ModelRetry()
MIDDLE = 0.5  # neither longer nor shorter


def error(kind: ModelErrorKind = "provider", *, retryable: bool = True, **more: Any) -> Any:
    return ModelErrorSummary(
        kind=kind, stage="response_headers", message="no", retryable=retryable, **more
    )


# (the error, retries): an error that can't pass has none, an overload has those of its class.
BUDGETS: list[tuple[ModelErrorSummary, int]] = [
    (error("transport"), 3),
    (error("timeout"), 3),
    (error("unexpected_eof"), 3),
    (error("provider", http_status=500), 3),
    (error("provider", http_status=503), 5),
    (error("rate_limited", http_status=429), 5),
    (error("rate_limited"), 3),  # in the stream, without a status
    (error("overload"), 5),
    (error("overload", http_status=529), 5),
    (error("quota", http_status=429), 5),  # when its provider says that it passes
    (error("quota", http_status=429, retryable=False), 0),
    (error("overload", retryable=False), 0),
    (error("auth", retryable=False, http_status=401), 0),
    (error("invalid_request", retryable=False), 0),
    (error("context_length", retryable=False), 0),
    (error("context_length"), 0),
    (error("abort"), 0),
    (error("unknown", retryable=False), 0),
    (error("unknown"), 3),
]


@pytest.mark.parametrize(("failed", "retries"), BUDGETS)
def test_an_error_has_the_budget_of_its_class(failed: ModelErrorSummary, retries: int) -> None:
    assert budget(failed, DEFAULT) == retries
    waits = [retry_in_ms(failed, n, DEFAULT, MIDDLE) for n in range(1, 8)]
    assert [one is not None for one in waits] == [n <= retries for n in range(1, 8)]


def test_the_pauses_double_from_one_second() -> None:
    waits = [retry_in_ms(error("overload"), n, DEFAULT, MIDDLE) for n in range(1, 7)]
    assert waits == [1000, 2000, 4000, 8000, 16_000, None]


@pytest.mark.parametrize(
    ("failures", "ceiling_ms", "jitter", "wait"),
    [
        (1, 60_000, 0.0, 750),
        (1, 60_000, 0.5, 1000),
        (1, 60_000, 1.0, 1250),
        (2, 60_000, 0.0, 1500),
        (6, 60_000, 0.5, 32_000),
        (7, 60_000, 0.5, 60_000),
        (1, 1, 0.5, 1),
        (1, 0, 0.5, 1),  # a pause of nothing would be a burst
        (10**9, 60_000, 0.0, 60_000),
    ],
)
def test_a_pause_is_shaken_by_a_quarter_and_has_a_ceiling(
    failures: int, ceiling_ms: int, jitter: float, wait: int
) -> None:
    assert backoff_ms(failures, ceiling_ms, jitter) == wait


@pytest.mark.parametrize(
    ("asked_ms", "wait"), [(None, 1000), (0, 1000), (999, 1000), (7000, 7000), (600_000, 600_000)]
)
def test_a_longer_wish_of_the_provider_wins_without_a_cap(asked_ms: int | None, wait: int) -> None:
    failed = error("rate_limited", http_status=429, retry_after_ms=asked_ms)
    assert retry_in_ms(failed, 1, DEFAULT, MIDDLE) == wait


def test_no_wish_of_the_provider_gives_more_attempts() -> None:
    failed = error("rate_limited", http_status=429, retry_after_ms=1)
    assert retry_in_ms(failed, 6, DEFAULT, MIDDLE) is None


@pytest.mark.parametrize("kind", ["provider", "overload"])
def test_zero_is_never_and_less_is_without_end(kind: ModelErrorKind) -> None:
    never = ModelRetry(standard_retries=0, overload_retries=0)
    always = ModelRetry(standard_retries=-1, overload_retries=-7)
    assert retry_in_ms(error(kind), 1, never, MIDDLE) is None
    assert retry_in_ms(error(kind), 10_000, always, MIDDLE) == 60_000


def test_one_class_may_be_off_and_the_other_not() -> None:
    policy = ModelRetry(standard_retries=0, overload_retries=1)
    assert retry_in_ms(error("provider"), 1, policy, MIDDLE) is None
    assert retry_in_ms(error("overload"), 1, policy, MIDDLE) == 1000


# --- laws


ERRORS = st.builds(
    error,
    st.sampled_from(ModelErrorKind.__args__),  # type: ignore[attr-defined]
    retryable=st.booleans(),
    http_status=st.sampled_from([None, 400, 401, 429, 500, 503, 529]),
    retry_after_ms=st.none() | st.integers(0, 10**7),
)
POLICIES = st.builds(
    ModelRetry,
    standard_retries=st.integers(-1, 6),
    overload_retries=st.integers(-1, 6),
    backoff_ceiling_ms=st.integers(0, 100_000),
)
JITTERS = st.floats(0, 1, exclude_max=True)


@given(ERRORS, POLICIES, JITTERS, st.integers(1, 50))
def test_a_pause_is_at_least_what_was_asked_and_at_most_the_ceiling_or_that(
    failed: ModelErrorSummary, policy: ModelRetry, jitter: float, failures: int
) -> None:
    wait = retry_in_ms(failed, failures, policy, jitter)
    if wait is None:
        return
    asked = failed.retry_after_ms or 0
    assert asked <= wait
    assert 1 <= wait <= max(asked, policy.backoff_ceiling_ms, 1)


@given(st.lists(JITTERS, min_size=2, max_size=40), st.integers(0, 10**7))
def test_pauses_of_a_class_never_become_shorter(jitters: list[float], ceiling_ms: int) -> None:
    waits = [backoff_ms(n, ceiling_ms, jitter) for n, jitter in enumerate(jitters, 1)]
    assert waits == sorted(waits)
    for n, wait in enumerate(waits, 1):
        plain = BACKOFF_MS * 2 ** (n - 1)
        assert wait == max(ceiling_ms, 1) or 0.75 * plain - 1 <= wait <= 1.25 * plain + 1


@given(st.lists(ERRORS, max_size=40), POLICIES, JITTERS)
def test_a_model_is_never_asked_more_often_than_its_budgets_allow(
    failures: list[ModelErrorSummary], policy: ModelRetry, jitter: float
) -> None:
    """Attempts go on until one is not made again; both classes are counted by themselves."""
    counts = {True: 0, False: 0}
    attempts = 0
    for failed in failures:
        attempts += 1
        counts[failed.overloaded] += 1
        if retry_in_ms(failed, counts[failed.overloaded], policy, jitter) is None:
            break
        assert failed.retryable
        assert failed.kind not in LASTING
    for overloaded, retries in (
        (True, policy.overload_retries),
        (False, policy.standard_retries),
    ):
        if retries >= 0:
            assert counts[overloaded] <= retries + 1
    if min(policy.overload_retries, policy.standard_retries) >= 0:
        assert attempts <= 1 + policy.overload_retries + policy.standard_retries


# --- which model comes next


def sized(*limits: int | None) -> list[Any]:
    three = (BINDING, SECOND, THIRD)
    return [
        msgspec.structs.replace(one, context_limit=limit)
        for one, limit in zip(three, limits, strict=False)
    ]


@pytest.mark.parametrize(
    ("kind", "limits", "at", "wanted"),
    [
        ("provider", (None,), 0, None),
        ("provider", (9, 1), 0, 1),
        ("auth", (9, 1), 0, 1),
        ("invalid_request", (9, 1), 0, 1),
        ("provider", (9, 1, 1), 1, 2),
        ("provider", (9, 1, 1), 2, None),
        ("abort", (9, 10), 0, None),
        ("context_length", (9, 10), 0, 1),
        ("context_length", (9, None), 0, 1),
        ("context_length", (None, 9), 0, 1),  # nobody knows, so it may help
        ("context_length", (9, 9), 0, None),
        ("context_length", (9, 8), 0, None),
        ("context_length", (9, 8, 10), 0, 2),
        ("context_length", (9, 8, 7), 0, None),
    ],
)
def test_the_next_model_is_one_that_could_help(
    kind: ModelErrorKind, limits: tuple[int | None, ...], at: int, wanted: int | None
) -> None:
    assert fallback(error(kind, retryable=False), sized(*limits), at) == wanted


# --- what a run says that has nobody left to ask


@pytest.mark.parametrize(
    ("attempts", "models", "words"),
    [
        (1, 1, "fake/one: no"),
        (4, 1, "fake/one: no (after 4 attempts)"),
        (9, 3, "fake/one: no (after 9 attempts with 3 models)"),
    ],
)
def test_the_last_words_say_how_much_was_tried(attempts: int, models: int, words: str) -> None:
    assert last_words(BINDING.model, error(), attempts, models) == words


def test_what_is_too_long_is_told_what_helps() -> None:
    words = last_words(BINDING.model, error("context_length"), 2, 2)
    assert words == (
        "fake/one: no; the conversation is longer than the model can read; choose a model with a "
        "larger context, or begin anew with a shorter prompt (after 2 attempts with 2 models)"
    )


@given(st.text(max_size=20).map(lambda text: text * 500), st.integers(1, 10**6))
def test_the_last_words_fit_an_event_and_keep_their_end(message: str, attempts: int) -> None:
    failed = msgspec.structs.replace(error("context_length"), message=message)
    words = last_words(BINDING.model, failed, attempts, 3)
    assert len(words) <= RUN_ERROR_CHARS_MAX
    assert words.endswith("with 3 models)") or attempts == 1
