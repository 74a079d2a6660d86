"""What a request cost, in pico-USD, from the rates that were frozen into the run (spec 1.14)."""

from typing import Final

from ipc.content import Usage
from ipc.events import Pricing

RATE_TOKENS: Final = 1_000_000  # rates are for a million tokens


def cost(usage: Usage, pricing: Pricing | None) -> int | None:
    """Pico-USD of one request, rounded half up; None when the model has no price.

    Cached tokens are part of the input and reasoning is part of the output: what has a rate of
    its own is charged at it and taken out of the rest.
    """
    if pricing is None:
        return None
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    reasoning = usage.reasoning_tokens or 0
    plain_input, plain_output = usage.input_tokens or 0, usage.output_tokens or 0
    total = 0
    for tokens, rate in ((read, pricing.cache_read), (written, pricing.cache_write)):
        if rate is not None:
            plain_input -= tokens
            total += tokens * rate
    if pricing.reasoning is not None:
        plain_output -= reasoning
        total += reasoning * pricing.reasoning
    total += max(plain_input, 0) * pricing.input + max(plain_output, 0) * pricing.output
    return (total + RATE_TOKENS // 2) // RATE_TOKENS
