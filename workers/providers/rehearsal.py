"""The adaptor `rehearsal`: a tour of the real loop and the real tools, without a model or a key."""

from pathlib import Path
from typing import Final

from ipc.events import FrozenModelBinding
from workers.providers.base import Outside, Provider
from workers.providers.scripted import scripted

TOUR: Final = str(Path(__file__).with_name("tour.yaml"))


def make(binding: FrozenModelBinding, outside: Outside) -> Provider:
    """The provider of `rehearsal/tour`; it has no setup."""
    return scripted(TOUR, clock=outside.clock)
