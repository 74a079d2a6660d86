"""Secrets taken out of whatever is shown or written down: a server may send them back to us."""

import json
from typing import Final
from urllib.parse import quote

from msgspec import structs

from workers.providers.base import Failed

MASK: Final = "[secret]"
SECRET_CHARS_MIN: Final = 4  # shorter ones protect nothing and are in every word


class Scrubber:
    """Knows the secrets of one request."""

    def __init__(self) -> None:
        self._secrets: list[str] = []

    def add(self, *secrets: str) -> None:
        """Never let these out, nor the forms they take inside JSON and addresses."""
        forms = {
            form
            for secret in secrets
            for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""))
            if len(secret) >= SECRET_CHARS_MIN
        }
        self._secrets = sorted(forms | set(self._secrets), key=len, reverse=True)

    def text(self, text: str, *, cut: bool = False) -> str:
        """`text` without them; `cut`: it was cut off, so that half a secret may end it."""
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        return self._whole(text) if cut else text

    def body(self, body: bytes, *, cut: bool = False) -> bytes:
        """A response's body without them."""
        return self.text(body.decode(errors="replace"), cut=cut).encode()

    def failed(self, failed: Failed) -> Failed:
        """A failure whose texts are free of them."""
        error = failed.error
        texts = {
            name: self.text(value)
            for name in ("message", "vendor_code", "request_id", "response_body")
            if isinstance(value := getattr(error, name), str)
        }
        return Failed(error=structs.replace(error, **texts))

    def _whole(self, text: str) -> str:
        for secret in self._secrets:
            for length in range(len(secret) - 1, 0, -1):
                if text.endswith(secret[:length]):
                    text = text[:-length]
                    break
        return text
