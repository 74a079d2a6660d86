"""The requests that a log makes, rebuilt in a process of their own: `requests.py LOG`.

One line for each attempt in the log: the request as JSON, without what differs between two
sessions and two attempts that say the same.
"""

import sys
from pathlib import Path

import msgspec

from ipc.disk.log import read_log
from ipc.events import ModelAttemptStarted, StoredEvent
from tests.fakes.desk import MemoryDesk, kit
from workers.providers.scripted import Scripted
from workers.run.request import prepare
from workers.tools import TOOLS


def requests(events: list[StoredEvent]) -> list[bytes]:
    """The bytes of each attempt's request, from what the log held when it was made."""
    mine = msgspec.structs.replace(kit(Scripted([])), tools=TOOLS)
    made = []
    desk = MemoryDesk()
    for event in events:
        if isinstance(event.payload, ModelAttemptStarted):
            run = desk.state.run
            assert run is not None
            request = prepare(desk, mine, run, run.models[run.fallback_index]).request
            plain = msgspec.structs.replace(request, session_id="", attempt=0)  # type: ignore[arg-type]
            made.append(msgspec.json.encode(plain))
        desk.take(event)
    return made


if __name__ == "__main__":
    for line in requests(list(read_log(Path(sys.argv[1])).events())):
        sys.stdout.buffer.write(line + b"\n")
