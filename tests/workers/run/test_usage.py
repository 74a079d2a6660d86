"""What a request costs, in pico-USD."""

import pytest

from ipc.content import Usage
from ipc.events import Pricing
from workers.run.usage import cost

PLAIN = Pricing(input=3_000_000, output=15_000_000)
WHOLE = Pricing(
    input=3_000_000,
    output=15_000_000,
    reasoning=60_000_000,
    cache_read=300_000,
    cache_write=3_750_000,
)


@pytest.mark.parametrize(
    ("usage", "pricing", "wanted"),
    [
        (Usage(input_tokens=1), None, None),
        (Usage(), PLAIN, 0),
        (Usage(input_tokens=1_000_000), PLAIN, 3_000_000),
        (Usage(input_tokens=10, output_tokens=2), PLAIN, 30 + 30),
        # A kind without a rate of its own is charged as what it is a part of.
        (Usage(input_tokens=10, cache_read_tokens=9, cache_write_tokens=1), PLAIN, 30),
        (Usage(output_tokens=10, reasoning_tokens=10), PLAIN, 150),
        # One with a rate is taken out of the rest.
        (
            Usage(input_tokens=100, cache_read_tokens=40, cache_write_tokens=20),
            WHOLE,
            120 + 12 + 75,
        ),
        (Usage(output_tokens=10, reasoning_tokens=4), WHOLE, 6 * 15 + 4 * 60),
        # A provider that counts its parts beside the whole can't make a price below zero.
        (Usage(input_tokens=0, cache_read_tokens=10), WHOLE, 3),
        (Usage(output_tokens=0, reasoning_tokens=10), WHOLE, 600),
        # Half up, once, at the end.
        (Usage(input_tokens=1), Pricing(input=499_999, output=0), 0),
        (Usage(input_tokens=1), Pricing(input=500_000, output=0), 1),
        (Usage(input_tokens=1, output_tokens=1), Pricing(input=250_000, output=250_000), 1),
        (Usage(input_tokens=10**12), Pricing(input=10**12, output=0), 10**18),
    ],
)
def test_a_request_costs_what_its_tokens_cost(
    usage: Usage, pricing: Pricing | None, wanted: int | None
) -> None:
    assert cost(usage, pricing) == wanted
