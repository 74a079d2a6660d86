"""Wall times as the log writes them, turned into numbers that can be reckoned with."""

from datetime import UTC, datetime


def milliseconds(timestamp: str) -> int:
    """Milliseconds since 1970 of an RFC 3339 time, UTC if it names no zone; 0 when it is none."""
    try:
        when = datetime.fromisoformat(timestamp)
        return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0
