"""Whether a failed attempt is made again, how long after, and which model comes next (spec 1.8)."""

from collections.abc import Sequence
from typing import Final

from ipc.events import (
    RUN_ERROR_CHARS_MAX,
    FrozenModelBinding,
    ModelErrorKind,
    ModelErrorSummary,
)
from ipc.faults import clean
from ipc.ids import ModelKey
from ipc.plan import ModelRetry

BACKOFF_MS: Final = 1000  # after the first failure of a class; twice as long after each further one
JITTER: Final = 0.25  # by how much of it a pause is longer or shorter, so that many do not meet
CEILING_MS_MIN: Final = 1
DOUBLINGS_MAX: Final = 40  # more is above any ceiling

# Asking the same model the same again can't help, whatever its provider says about it.
LASTING: Final[frozenset[ModelErrorKind]] = frozenset({"abort", "context_length"})
TOO_LONG: Final = (
    "the conversation is longer than the model can read; choose a model with a larger context, "
    "or begin anew with a shorter prompt"
)


def budget(error: ModelErrorSummary, policy: ModelRetry) -> int | None:
    """How often a model may be asked again after failures of this class; None = without end."""
    if not error.retryable or error.kind in LASTING:
        return 0
    retries = policy.overload_retries if error.overloaded else policy.standard_retries
    return retries if retries >= 0 else None


def retry_in_ms(
    error: ModelErrorSummary, failures: int, policy: ModelRetry, jitter: float
) -> int | None:
    """The pause after a model's `failures`-th failure of this class; None = not asked again.

    A longer Retry-After of the provider wins, without a cap. `jitter` is a number in [0, 1).
    """
    retries = budget(error, policy)
    if retries is not None and failures > retries:
        return None
    return max(backoff_ms(failures, policy.backoff_ceiling_ms, jitter), error.retry_after_ms or 0)


def backoff_ms(failures: int, ceiling_ms: int, jitter: float) -> int:
    """One second, doubled for each failure but the first, a quarter more or less, or the ceiling.

    The ceiling comes last: so a pause is never shorter than the one before it.
    """
    doubled = BACKOFF_MS << min(max(failures - 1, 0), DOUBLINGS_MAX)
    return min(round(doubled * (1 + JITTER * (2 * jitter - 1))), max(ceiling_ms, CEILING_MS_MIN))


def fallback(
    error: ModelErrorSummary, models: Sequence[FrozenModelBinding], index: int
) -> int | None:
    """The place in `models` of the one to go on with after that at `index`; None = there is none.

    What is too long for one model is said to the next that may read more. An abort is somebody's
    wish, and no other model is asked instead.
    """
    if error.kind == "abort":
        return None
    for place in range(index + 1, len(models)):
        if error.kind != "context_length" or _may_read_more(models[place], models[index]):
            return place
    return None


def _may_read_more(one: FrozenModelBinding, than: FrozenModelBinding) -> bool:
    limit, exceeded = one.context_limit, than.context_limit
    return limit is None or exceeded is None or limit > exceeded


def last_words(model: ModelKey, error: ModelErrorSummary, attempts: int, models: int) -> str:
    """Why a run fails when no model is left to ask: what the last one said, and what was tried."""
    many = f" with {models} models" if models > 1 else ""
    tried = f" (after {attempts} attempts{many})" if attempts > 1 else ""
    advice = f"; {TOO_LONG}" if error.kind == "context_length" else ""
    said = clean(f"{model}: {error.message}", RUN_ERROR_CHARS_MAX - len(advice) - len(tried))
    return f"{said}{advice}{tried}"
