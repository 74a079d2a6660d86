"""Request headers that a person adds: their names, their limits, and whose values are secret."""

import re
from typing import Final

from cookie.config.files import KeyPath
from cookie.config.reader import Reader
from cookie.config.schema import is_table
from cookie.config.secrets import Kept

HEADERS_MAX: Final = 64
NAME_BYTES_MAX: Final = 128
VALUE_BYTES_MAX: Final = 8192
TABLE_BYTES_MAX: Final = 65_536
LATER: Final = ("session_id", "parent_session_id")  # filled in for each request

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
# Whoever builds the request owns these; a second value would break it or go unnoticed.
_OWNED: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "proxy-authorization"}
    | {"content-type", "accept", "anthropic-version", "anthropic-beta"}
)
_SECRET: Final = re.compile(r"auth|key|token|secret|cookie|passw|credential|sign", re.IGNORECASE)


def read_headers(
    reader: Reader, key: KeyPath, value: object, owner: str, field: str, *, secret: bool = False
) -> dict[str, str | Kept]:
    """A table of headers, names in lower case; `secret`: all values are. Raises BadConfig.

    An empty value takes away what a wider table sets. A value is read again for each request, for
    `LATER`, so its `$$` stays.
    """
    layer = reader.layer
    table = is_table(layer, key, value)
    if len(table) > HEADERS_MAX:
        raise layer.wrong(key, f"has more than {HEADERS_MAX} headers")
    found: dict[str, str | Kept] = {}
    total = 0
    for name, text in table.items():
        here, low = (*key, name), name.lower()
        if not _NAME.fullmatch(name) or len(name) > NAME_BYTES_MAX:
            raise layer.wrong(here, f"is no name of a header of at most {NAME_BYTES_MAX} letters")
        if low in _OWNED or low.startswith("x-amz-"):
            raise layer.wrong(here, "belongs to the request itself and can't be set")
        if low in found:
            raise layer.wrong(here, "is set twice: upper and lower case are the same in a header")
        found[low] = reader.text(
            here,
            text,
            owner,
            f"{field}.{low}",
            secret=secret or _SECRET.search(low) is not None,
            left=LATER,
            empty=True,
            check=_value,
        )
        total += len(name) + (len(text.encode()) if isinstance(text, str) else 0)
    if total > TABLE_BYTES_MAX:
        raise layer.wrong(key, f"has more than {TABLE_BYTES_MAX} bytes of headers")
    return found


def _value(text: str) -> str | None:
    if len(text.encode()) > VALUE_BYTES_MAX:
        return f"is longer than {VALUE_BYTES_MAX} bytes"
    return None if text.isascii() else "has a letter that no header can carry"
