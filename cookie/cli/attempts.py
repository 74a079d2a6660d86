"""What a person is told of a model's attempts that failed: one line each, and how long it takes."""

from typing import Final

from ipc.events import AttemptAbandoned, ModelErrorKind, ModelErrorSummary, ModelFallback
from ipc.faults import clean
from ipc.ids import ModelKey
from ipc.plan import ModelRetry

MESSAGE_CHARS_MAX: Final = 200  # of a provider's own words; the log has all of them
SECOND_MS: Final = 1000
MINUTE_S: Final = 60

_KINDS: Final[dict[ModelErrorKind, str]] = {
    "transport": "the connection failed",
    "timeout": "no answer in time",
    "rate_limited": "rate limited",
    "auth": "the key was refused",
    "permission_denied": "not permitted",
    "invalid_request": "the request was refused",
    "model_not_found": "there is no such model",
    "context_length": "the conversation is too long",
    "quota": "the quota is used up",
    "overload": "overloaded",
    "unsupported": "not supported",
    "unexpected_eof": "the answer broke off",
    "invalid_response": "the answer was not understood",
    "invalid_tool_input": "a call was not understood",
    "content_filter": "the answer was filtered",
    "replay": "it can't go on from this conversation",
    "native_context": "it can't go on from this conversation",
    "provider": "the provider failed",
    "abort": "stopped",
    "unknown": "it failed",
}


def trouble(error: ModelErrorSummary) -> str:
    """What went wrong, in a few words: "rate limited (429)"."""
    status = "" if error.http_status is None else f" ({error.http_status})"
    return f"{_KINDS[error.kind]}{status}"


def failed(model: ModelKey, error: ModelErrorSummary) -> str:
    """What went wrong, with what the provider says about it."""
    return f"model {model}: {trouble(error)}: {clean(error.message, MESSAGE_CHARS_MAX)}"


def asked_again(
    model: ModelKey, event: AttemptAbandoned, failures: int, retry: ModelRetry
) -> str | None:
    """The line of an attempt that is made again, None of any other.

    `failures` are those of its class so far, this one included; 0 = not known.
    """
    if event.error is None or event.retry_in_ms is None:
        return None
    when = f"trying again {_in(event.retry_in_ms)}"
    if not failures:
        return f"model {model}: {trouble(event.error)}; {when}"
    retries = retry.overload_retries if event.error.overloaded else retry.standard_retries
    most = "" if retries < failures else f" of {retries + 1}"
    return f"model {model}: {trouble(event.error)}; {when}, attempt {failures + 1}{most}"


def fell_back(event: ModelFallback) -> str:
    """The line of a run that goes on with another model."""
    return f"{failed(event.from_.model, event.error)}; going on with {event.to.model}"


def countdown(rest_s: float) -> str:
    """What a run does that waits to ask again."""
    return f"asking again {_in(round(rest_s * SECOND_MS))}"


def _in(milliseconds: int) -> str:
    seconds = -(-milliseconds // SECOND_MS)
    minutes, rest = divmod(seconds, MINUTE_S)
    if not seconds:
        return "at once"
    return f"in {minutes} min {rest} s" if minutes else f"in {rest} s"
