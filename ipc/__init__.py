"""What two processes of cookie must agree on: words, their meaning and dress, the disk layout."""

from typing import Final

VERSION: Final = "0.1.0"  # that of pyproject.toml; a test compares them
BUILD: Final = f"cookie.py/{VERSION}"  # what a worker says it was made from
