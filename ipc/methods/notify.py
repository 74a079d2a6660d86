"""The finished notification around an event: put on once by a worker, cut off by a client."""

from typing import Final

from ipc.faults import Fault

# Exactly these bytes: everybody on the way passes the line on unread.
NOTIFY_PREFIX: Final = (
    b'{"jsonrpc":"2.0","method":"events.subscription","params":{"type":"event","event":'
)
NOTIFY_SUFFIX: Final = b"}}"


class NoEvent(Fault):
    """Bytes that are no event's notification as our own writer makes it."""

    code = "no_event"


def notification(event_line: bytes) -> bytes:
    """The notification of one event; `event_line` is its line in the log without the newline."""
    return b"%b%b%b" % (NOTIFY_PREFIX, event_line, NOTIFY_SUFFIX)


def is_event(text: bytes) -> bool:
    """Whether these bytes are an event's notification, so that `event_of` can cut it."""
    return text.startswith(NOTIFY_PREFIX) and text.endswith(NOTIFY_SUFFIX)


def event_of(text: bytes) -> bytes:
    """The event's line, byte for byte; raises NoEvent."""
    if not is_event(text):
        raise NoEvent(bytes=len(text))
    return text[len(NOTIFY_PREFIX) : -len(NOTIFY_SUFFIX)]
