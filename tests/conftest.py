"""What every test shares: asynchronous tests run on asyncio, without a mark of their own."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
